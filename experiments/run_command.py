"""The command `run_experiment.py`: its flags, and what a user may have got wrong found out before the work starts."""

from __future__ import annotations

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
    """Runs the experiments that the flags ask for."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    logging.set_verbosity(logging.WARNING)
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
