"""Trains one of the algorithms on real data, counts what it sends, and can be stopped and resumed at any instant.

    python run_experiment.py --task=mnist --split=dirichlet:0.3 --algorithm=fed_dyn --l1=1e-4 --l2=5e-2 --threshold=5e-3
    python run_experiment.py --preset=mnist/dirichlet_0.3/algorithm_3          # a cell of the paper's tables
    python run_experiment.py --preset='mnist/*/paper'                          # all of them, on MNIST
    python run_experiment.py --preset=mnist/iid/algorithm_3 --grid=l1=1e-2,1e-4,1e-6,1e-8
    python run_experiment.py --algorithm=my_module:build_my_algorithm --task=my_module:load_my_task
    python run_experiment.py --flagfile=my.flags

The same command again goes on where the last one ended. `--helpfull` lists all flags.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags, logging

from experiments.flags import define_flags, explicit_values
from experiments.plan import check_participants, check_runs, plan_runs
from experiments.presets import example_preset
from experiments.run import run_all
from experiments.runtimes import check_runtime, set_runtime
from tasks.data_sets.sources import DataUnavailableError

define_flags()
_PRESET = flags.DEFINE_string(
    "preset",
    None,
    f"DATA SET/SPLIT/METHOD, as in {example_preset('mnist')}; a pattern gives several, as in mnist/*/paper, where "
    "paper stands for the methods of the paper.",
)
_GRID = flags.DEFINE_multi_string("grid", [], "FIELD=VALUE,VALUE,...: one experiment for each; may be repeated.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the results; by default one below out/ named after the run.")
_RUNTIME = flags.DEFINE_string(
    "runtime", "inprocess", "inprocess: this process's TensorFlow; native: TFF's worker; ray: clients on a Ray cluster."
)
_RAY_ADDRESS = flags.DEFINE_string(
    "ray_address", None, "HOST:PORT of a Ray cluster's head node, or auto; by default a new one on this machine."
)
_QUIET = flags.DEFINE_bool("quiet", False, "Print nothing but errors and the result.")
_PLOTS = flags.DEFINE_bool("plots", True, "Draw pictures at the end.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    logging.set_verbosity(logging.WARNING)
    # Everything a user may have got wrong is found out before the work starts.
    try:
        runs = plan_runs(_PRESET.value, _GRID.value, explicit_values())
        check_runtime(_RUNTIME.value, _RAY_ADDRESS.value)
        check_runs(runs)
        # Before the first model is made: TensorFlow takes its settings only until then.
        secure = any(run.config.aggregator == "secure" for run in runs)
        set_runtime(_RUNTIME.value, _RAY_ADDRESS.value, secure)
        check_participants(runs)
    except (ValueError, TypeError) as error:
        raise app.UsageError(str(error)) from error
    except DataUnavailableError as error:
        raise SystemExit(str(error)) from error
    run_all(runs, _OUTPUT.value, quiet=_QUIET.value, plots=_PLOTS.value)


if __name__ == "__main__":
    app.run(main)
