"""The wheel holds `tff_fen` alone, and is enough to train, to be killed and to go on."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest
import tensorflow as tf

from tests.support.new_process import ROOT

# A user's own script: data of their own, nothing of this project's but `tff_fen`. It stands outside the checkout and
# runs isolated (-I: no current folder, no PYTHONPATH; -S: none of the .pth files through which an editable
# installation is found), with the wheel and the folder of the requirements as its path.
SCRIPT = """
import importlib.util, json, os, sys

wheel, requirements, folder, kill_in = sys.argv[1:]
sys.path += [wheel, requirements]

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen

for module in ("tasks", "experiments", "tests", "run_experiment"):
    assert importlib.util.find_spec(module) is None, module

features, classes, clients = 5, 3, 6
rng = np.random.default_rng(0)
data = [(rng.normal(size=(8 + k, features)).astype("float32"), rng.integers(0, classes, 8 + k)) for k in range(clients)]

keras_model = tf.keras.Sequential([tf.keras.layers.InputLayer((features,)), tf.keras.layers.Dense(classes, "tanh")])
keras_model.set_weights([np.full(w.shape, 0.1, "float32") for w in keras_model.get_weights()])
spec = (tf.TensorSpec([None, features], tf.float32), tf.TensorSpec([None], tf.int64))
model = tff.learning.models.functional_model_from_keras(
    keras_model, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), spec
)
process = tff_fen.build_fed_dyn(
    model, tff_fen.ElasticNet(l1=1e-4, l2=0.1), tff_fen.LocalTraining(0.1, epochs=2, batch_size=4), num_clients=clients
)


def sample(round_number):
    if round_number == int(kill_in):
        tff_fen.runtime.end_worker_processes()
        os.kill(os.getpid(), 9)
    return np.random.default_rng(round_number).choice(clients, 3, replace=False)


result = tff_fen.run_rounds(
    process, lambda k: tf.data.Dataset.from_tensors(data[k]), sample, 5, folder=folder,
    evaluate=lambda weights: {"norm": float(np.linalg.norm(weights.trainable[0]))},
)
states = [result.state, [result.client_state(k) for k in range(clients)]]
leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(states)]
print(json.dumps({
    "file": tff_fen.__file__, "metrics": result.metrics, "leaves": [leaf.tobytes().hex() for leaf in leaves]
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The project's wheel, made from a copy so that the checkout gets no build folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # All packages that a wrong setting would take along.
    for name in ("tff_fen", "tasks", "experiments", "benchmarks", "tests", "tools"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q", "."]
    done = subprocess.run(
        [*command, "-w", str(folder)], cwd=source, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_all_of_tff_fen_and_nothing_else(wheel: pathlib.Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tff_fen"}
    assert {name.split("/")[0] for name in names if not name.startswith("tff_fen/")} == {
        f"{wheel.name.split('-py3')[0]}.dist-info"
    }
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "tff_fen").rglob("*.py")}
    assert {name for name in names if name.startswith("tff_fen/") and name.endswith(".py")} == modules


@pytest.mark.long
def test_a_users_script_is_killed_and_goes_on_with_the_wheel_alone(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    requirements = pathlib.Path(tf.__file__).parents[1]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"TF_CPP_MIN_LOG_LEVEL": "3"}

    def run(folder: str, kill_in: int = -1) -> subprocess.CompletedProcess[str]:
        arguments = [str(unpacked), str(requirements), str(tmp_path / folder), str(kill_in)]
        return subprocess.run(
            [sys.executable, "-I", "-S", str(tmp_path / "script.py"), *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip

    killed = run("a", kill_in=2)
    assert killed.returncode == -9, killed.stderr
    results = []
    for folder in ("a", "b"):
        done = run(folder)
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout.splitlines()[-1]))
    resumed, whole = results
    assert pathlib.Path(whole["file"]).is_relative_to(unpacked)
    assert [row["round"] for row in whole["metrics"]] == [1, 2, 3, 4, 5]
    assert len({row["norm"] for row in whole["metrics"]}) == 5
    assert resumed == whole
