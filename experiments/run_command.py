"""The command `run_experiment.py`: its flags, and what a user may have got wrong found out before the work starts."""

from __future__ import annotations

from absl import app, flags, logging

from experiments.config_file import Asked, plan, read_config
from experiments.flags import define_flags, explicit_values
from experiments.listing import LISTS
from experiments.plan import PlannedRun
from experiments.presets import example_preset
from experiments.progress import say
from experiments.settings import RUNTIMES
from experiments.values import check_name

_PRESET = flags.DEFINE_string(
    "preset",
    None,
    f"[experiment] DATA SET/SPLIT/METHOD, as in {example_preset('mnist')}; a pattern gives several, as in "
    "mnist/*/paper, where paper stands for the methods of the paper.",
)
_GRID = flags.DEFINE_multi_string(
    "grid", [], "[experiment] FIELD=VALUE,VALUE,...: one experiment for each; may be repeated."
)
_CONFIG = flags.DEFINE_string(
    "config", None, "[experiment] FILE.toml of flags, such as the experiment.toml of a folder of results; flags win."
)
_LIST = flags.DEFINE_string("list", None, f"[experiment] Print the names there are of {', '.join(LISTS)}, and end.")
define_flags()
_OUTPUT = flags.DEFINE_string("output", None, "[output] Folder of the results; else one in out/ named after the run.")
_RUNTIME = flags.DEFINE_string(
    "runtime", "inprocess", "[output] inprocess: this process's TensorFlow; native: TFF's worker; ray: a Ray cluster."
)
_RAY_ADDRESS = flags.DEFINE_string(
    "ray_address", None, "[output] HOST:PORT of a Ray cluster's head node, or auto; by default a new one here."
)
_QUIET = flags.DEFINE_bool("quiet", False, "[output] Print nothing but errors and the result.")
_EXPORT = flags.DEFINE_bool("export", False, "[output] Write model.keras, for tf.keras.models.load_model, at the end.")
_ALLOW_OTHER_NUMERICS = flags.DEFINE_bool(
    "allow_other_numerics", False,
    "[output] Go on with a folder that began with other packages, processor or settings, which may change bits.",
)  # fmt: skip
_PLOTS = flags.DEFINE_bool("plots", True, "[output] Draw pictures at the end.")


def main(argv: list[str]) -> None:
    """Runs the experiments that the flags ask for."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}. A flag begins with two dashes; see --help.")
    logging.set_verbosity(logging.WARNING)
    try:
        if _LIST.value is not None:
            check_name("list", _LIST.value, LISTS)
            print(LISTS[_LIST.value]())
            return
        runs = _plan()
        check_name("runtime", _RUNTIME.value, RUNTIMES)
        if not _QUIET.value:
            say("starting TensorFlow")
        _run(runs)
    except (ValueError, TypeError) as error:
        raise app.UsageError(str(error)) from error


def _plan() -> list[PlannedRun]:
    """What flags and file ask for; flags of the file that are none of an experiment's values are set."""
    file = read_config(_CONFIG.value) if _CONFIG.value is not None else Asked()
    for name, value in file.others.items():
        if not flags.FLAGS[name].present:
            flags.FLAGS[name].parse(value)
    return plan(Asked(_PRESET.value, _GRID.value, explicit_values()), file)


def _run(runs: list[PlannedRun]) -> None:
    # Here, since these import TensorFlow, which takes seconds.
    from experiments.prepare import prepare_runs
    from experiments.run import run_all
    from tasks.data_sets.sources import DataUnavailableError

    try:
        prepare_runs(runs, _RUNTIME.value, _RAY_ADDRESS.value)
    except DataUnavailableError as error:
        raise SystemExit(str(error)) from error
    run_all(
        runs, _OUTPUT.value, quiet=_QUIET.value, plots=_PLOTS.value, export=_EXPORT.value,
        allow_other_numerics=_ALLOW_OTHER_NUMERICS.value,
    )  # fmt: skip
