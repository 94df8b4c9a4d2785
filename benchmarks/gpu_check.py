"""Whether the in-process runtime computes on this machine's GPUs what it computes on its CPU, and how fast.

    make gpu-check                                  (python -m benchmarks.gpu_check [--rounds=5])

Prints a verdict that can be pasted into a report: the machine, the largest difference between models after two rounds
of FedDyn on the CPU and on the GPUs, times of Algorithm 3's rounds taken in turns, and the runtime's own tests on this
machine. Without a GPU it says so, and ends. The exit code is 1 if something differs or a test fails.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import app, flags

import tff_fen
from benchmarks import local_training, runtimes
from tff_fen.runtime.inprocess.context import InProcessContext
from tff_fen.runtime.inprocess.executors import ThreadedClientExecutor

# What the tests of the runtime are run from; on a machine with GPUs clients compute there by default.
_SUITE = ("tests/tff_fen/runtime/inprocess", "tests/tff_fen/runtime/test_gpu_kernels.py")
# No threshold and no l1, whose jumps would make much of an element that differs in its last bit.
_PENALTIES = tff_fen.ElasticNet(l2=1e-2)
# Few steps: longer training amplifies rounding, by which GPUs differ (docs/limits.md).
_EXAMPLES = 60
_BOUND = 1e-4


class Finding(NamedTuple):
    """What came of a workload.

    Attributes:
      difference: the largest of an element of theta, in units of the largest change of one.
      cpu: the median milliseconds of a round with clients on the CPU.
      gpu: on the GPUs.
    """

    difference: float
    cpu: float
    gpu: float

    @property
    def is_sound(self) -> bool:
        """Whether the two agree to rounding; a difference that is no number is none."""
        return bool(self.difference <= _BOUND)


def workloads() -> dict[str, runtimes.Workload]:
    """The models of the paper, with few examples per client."""
    full = {"MLP": runtimes.mnist(), "CNN": runtimes.cifar(), "LSTM": runtimes.lstm()}
    return {
        name: workload._replace(clients=[(x[:_EXAMPLES], y[:_EXAMPLES]) for x, y in workload.clients])
        for name, workload in full.items()
    }


def compare(workload: runtimes.Workload, devices: Sequence[str], rounds: int, *, on_gpus: bool = True) -> Finding:
    """Runs rounds of a workload with clients on the CPU and on `devices`, in turns.

    Args:
      workload: whose clients.
      devices: TensorFlow's names.
      rounds: how many are timed.
      on_gpus: whether these are GPUs, for which graphs stay as TensorFlow has them.
    """
    contexts = {
        "cpu": InProcessContext(ThreadedClientExecutor(len(os.sched_getaffinity(0)), ["/device:CPU:0"]), False),
        "gpu": InProcessContext(ThreadedClientExecutor(len(devices), devices), on_gpus),
    }
    process = tff_fen.build_fed_dyn(workload.model(), _PENALTIES, workload.training, num_clients=len(workload.clients))
    models = {
        name: runtimes.on(context, lambda: lambda: _weights_after(process, workload, rounds=2))()
        for name, context in contexts.items()
    }
    times = runtimes.seconds(
        {name: runtimes.on(context, lambda: runtimes.algorithm_3(workload)) for name, context in contexts.items()},
        rounds,
    )
    start = runtimes.on(contexts["cpu"], lambda: lambda: _weights_after(process, workload, rounds=0))()
    moved = max(float(np.max(np.abs(w - s))) for w, s in zip(models["cpu"], start, strict=True))
    apart = max(float(np.max(np.abs(a - b))) for a, b in zip(*models.values(), strict=True))
    return Finding(apart / moved, *(1e3 * float(np.median(times[name].wall)) for name in contexts))


def _weights_after(process: Any, workload: runtimes.Workload, rounds: int) -> list[np.ndarray]:
    """The model after so many rounds of all clients."""
    state = process.initialize()
    if rounds:
        data = dict(enumerate(workload.clients))
        state = tff_fen.run_rounds(process, data, len(data), rounds, progress=False).state
    return list(process.get_model_weights(state).trainable)


def describe_machine(gpus: Sequence[Any]) -> str:
    """Returns a line per GPU, and what computes."""
    build = tf.sysconfig.get_build_info()
    versions = ", ".join(f"{name} {build[key]}" for name, key in (("CUDA", "cuda_version"), ("cuDNN", "cudnn_version")))
    names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    return "\n".join(
        [
            f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}: {', '.join(names)}",
            f"TensorFlow {tf.__version__} for {versions}; TFF {tff.__version__}; tff_fen {tff_fen.__version__}; "
            f"Python {platform.python_version()}; {len(os.sched_getaffinity(0))} cores",
        ]
    )


def report(machine: str, findings: Mapping[str, Finding], tests: str | None) -> tuple[str, bool]:
    """Returns the verdict, and whether all is well; `tests` is the last line of the tests."""
    lines = [machine, "", f"{'':12} {'difference':>10} {'CPU ms':>8} {'GPU ms':>8} {'times faster':>12}"]
    for name, found in findings.items():
        mark = "" if found.is_sound else f"   more than {_BOUND:g}"
        lines.append(
            f"{name:12} {found.difference:10.1e} {found.cpu:8.1f} {found.gpu:8.1f} {found.cpu / found.gpu:12.2f}{mark}"
        )
    passed = tests is None or ("passed" in tests and "failed" not in tests and "error" not in tests)
    sound = passed and all(found.is_sound for found in findings.values())
    lines += ["", f"tests of the runtime: {'not run' if tests is None else tests}"]
    lines.append(f"verdict: {'the GPUs compute what the CPU does' if sound else 'SOMETHING DIFFERS'}")
    return "\n".join(lines), sound


def run_tests() -> str:
    """Runs the tests of the runtime in a process of its own; returns their last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", *_SUITE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else f"ended with code {done.returncode}: {done.stderr.strip()[-200:]}"


def main(argv: list[str]) -> None:
    del argv
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        print(
            f"No GPU: TensorFlow {tf.__version__} finds none, so nothing was checked. On a machine with one, "
            "`make venv GPU=1` installs and checks NVIDIA's libraries; nvidia-smi shows whether the driver is there."
        )
        return
    devices = [device.name for device in tf.config.list_logical_devices("GPU")]
    findings = {name: compare(workload, devices, flags.FLAGS.rounds) for name, workload in workloads().items()}
    text, sound = report(describe_machine(gpus), findings, run_tests() if flags.FLAGS.tests else None)
    print(text)
    if not sound:
        raise SystemExit(1)


if __name__ == "__main__":
    local_training.define_flags()
    flags.DEFINE_bool("tests", True, "Run the runtime's own tests, too.")
    app.run(main)
