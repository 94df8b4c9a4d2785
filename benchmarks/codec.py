"""Bytes and speed of the three codecs, on sparse, dense and really trained updates.

    python -m benchmarks.codec [--repeats=15]

Sizes in bytes: `raw` is 4 a parameter, `pairs` index and value of the non-zeros at 4 each, `zstd-19` Zstandard at level
19 of the raw bytes, `entropy` the Shannon entropy of `rint(x / 0.01)` over all parameters, `over` what the quantised
message has more than that, header included. Speeds in million parameters a second, dense positions counted too: the
median over the repeats and the range of the middle half; in a repeat every form of every update has its turn, so that a
slow spell of the machine hits all.

`sparse` is Laplace noise of which a threshold of 5e-3 leaves a tenth; `dense` Laplace noise of scale 0.02 as it is;
`trained` the change of an MLP 64-400-400-10 in five epochs of SGD on 600 of scikit-learn's digits, thresholded or not.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import zstandard
from absl import app, flags
from sklearn.datasets import load_digits

from tff_fen.codec import Codec, Float16Codec, LosslessCodec, QuantisedCodec

REPEATS = flags.DEFINE_integer("repeats", 15, "Repeats timed per codec and update.", lower_bound=3)

THRESHOLD, STEP = 5e-3, 0.01
SIZES = (199_210, 815_332)  # The paper's MLP for MNIST and its LSTM for Shakespeare.
CODECS: tuple[Codec, ...] = (LosslessCodec(), Float16Codec(), QuantisedCodec(STEP))


def thresholded(update: np.ndarray) -> np.ndarray:
    return np.where(np.abs(update) > THRESHOLD, update, 0).astype(np.float32)


def trained(hidden: int = 400, examples: int = 600, batch: int = 10, lr: float = 0.1) -> np.ndarray:
    """float32[n]: weights after local training minus weights before, in float32 throughout, as a client has them."""
    rng = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    sizes = [64, hidden, hidden, 10]
    before = [
        np.concatenate([rng.uniform(-1, 1, (a, b)) * np.sqrt(6 / (a + b)), np.zeros((1, b))]).astype(np.float32)
        for a, b in itertools.pairwise(sizes)
    ]
    weights = [layer.copy() for layer in before]
    inputs = (images[:examples] / 16).astype(np.float32)
    for _ in range(5):
        for rows in rng.permutation(examples).reshape(-1, batch):
            ones = np.ones((batch, 1), np.float32)
            activations = [np.hstack([inputs[rows], ones])]
            for layer in weights[:-1]:
                activations.append(np.hstack([np.maximum(activations[-1] @ layer, 0), ones]))
            logits = activations[-1] @ weights[-1]
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            error = (odds / odds.sum(axis=1, keepdims=True) - np.eye(10, dtype=np.float32)[labels[rows]]) / batch
            for i in reversed(range(3)):
                gradient = activations[i].T @ error
                error = ((error @ weights[i].T) * (activations[i] > 0))[:, :-1]
                weights[i] -= np.float32(lr) * gradient.astype(np.float32)
    return np.concatenate([(w - b).ravel() for w, b in zip(weights, before, strict=True)])


def updates() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    scale = THRESHOLD / np.log(10)
    found = {f"sparse {size:,}": thresholded(rng.laplace(0, scale, size)) for size in SIZES}
    found |= {f"dense {size:,}": rng.laplace(0, 0.02, size).astype(np.float32) for size in SIZES}
    change = trained()
    return found | {f"trained sparse {change.size:,}": thresholded(change), f"trained dense {change.size:,}": change}


def entropy_bytes(numbers: np.ndarray) -> float:
    _, counts = np.unique(numbers, return_counts=True)
    return float(-np.sum(counts * np.log2(counts / counts.sum())) / 8)


def print_sizes(found: dict[str, np.ndarray]) -> None:
    names = ["non-zeros", "raw", "pairs", "zstd-19", "lossless", "float16", "quantised", "entropy", "over", "bits each"]
    print(f"{'bytes':24}" + "".join(f"{name:>11}" for name in names))
    for name, update in found.items():
        nonzeros = np.count_nonzero(update)
        lossless, float16, quantised = (len(codec.encode(update)) for codec in CODECS)
        zstd = len(zstandard.ZstdCompressor(level=19).compress(update.tobytes()))
        entropy = entropy_bytes(np.rint(update / np.float32(STEP)))
        row = [4 * update.size, 8 * nonzeros, zstd, lossless, float16, quantised, round(entropy)]
        print(
            f"{name:24}{nonzeros / update.size:11.1%}"
            + "".join(f"{size:11,}" for size in row)
            + f"{quantised / entropy - 1:11.2%}{8 * quantised / update.size:11.4f}"
        )


def print_speeds(found: dict[str, np.ndarray], repeats: int) -> None:
    messages = {(name, codec): codec.encode(update) for name, update in found.items() for codec in CODECS}
    seconds: dict[tuple[str, Codec, str], list[float]] = {}
    for _ in range(repeats):
        for (name, codec), message in messages.items():
            start = time.perf_counter()
            codec.encode(found[name])
            middle = time.perf_counter()
            codec.decode(message)
            end = time.perf_counter()
            seconds.setdefault((name, codec, "encode"), []).append(middle - start)
            seconds.setdefault((name, codec, "decode"), []).append(end - middle)
    for verb in ("encode", "decode"):
        print(f"\n{verb + ', M/s':24}" + "".join(f"{codec.name:>24}" for codec in CODECS))
        for name, update in found.items():
            cells = []
            for codec in CODECS:
                slow, median, fast = update.size / 1e6 / np.percentile(seconds[name, codec, verb], [75, 50, 25])
                cells.append(f"{median:.1f} ({slow:.1f} to {fast:.1f})")
            print(f"{name:24}" + "".join(f"{cell:>24}" for cell in cells))


def main(argv: list[str]) -> None:
    del argv
    found = updates()
    print_sizes(found)
    print_speeds(found, REPEATS.value)


if __name__ == "__main__":
    app.run(main)
