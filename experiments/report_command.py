"""The command `make_report.py`."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
from absl import app, flags, logging

import experiments.flags  # noqa: F401  defines --data_dir and --cache_dir
from experiments.files import write_whole
from experiments.foreign import is_foreign
from experiments.report import page, texts
from experiments.report.commands import report_command
from experiments.report.export import export_runs
from experiments.report.groups import Group, group_runs
from experiments.report.html import legible
from experiments.report.read import search
from experiments.report.sections import Builder
from experiments.report.stored import ReportError

_OUTPUT = flags.DEFINE_string("output", "out/report", "[output] Folder of the page and its pictures.")
_EXPORT = flags.DEFINE_string("export", None, "[output] Folder for a small form of the finished runs, text alone.")
_SPLITS = flags.DEFINE_bool("splits", True, "[output] Draw how the data were dealt out, which needs the data.")

# Clients in a picture of a split: more are no more to be seen, and take minutes to count.
MOST_DRAWN = 10_000


def count_split(group: Group) -> np.ndarray | str:
    """Returns examples by client and class of a group's split, or why they cannot be had."""
    if is_foreign(group.scenario.task):
        return texts.OWN_DATA
    # Here, since only this needs TensorFlow, which takes ten seconds to import.
    from experiments.loading import check_task_of, count_labels, load_task_of, training_set_of
    from tasks.data_sets.sources import DataUnavailableError

    config, training_set = group.first.config, group.scenario.training_set
    if (config.num_clients or 0) > MOST_DRAWN:
        return texts.NO_PICTURE.format(reason=f"{config.num_clients:,} clients, {MOST_DRAWN:,} are the most")
    try:
        check_task_of(config)
        if training_set and training_set != training_set_of(config):
            return texts.OTHER_DATA.format(training_set=training_set)
        return count_labels(load_task_of(config))
    except DataUnavailableError:
        return texts.NO_DATA
    except (ValueError, TypeError, OverflowError, MemoryError) as error:  # the values are somebody else's
        return texts.NO_PICTURE.format(reason=str(error)[:300].rstrip(".") or "there is no memory for it")


def main(argv: list[str]) -> None:
    """Makes a report of the folders that are named."""
    if len(argv) < 2:
        raise app.UsageError("Name at least one folder of results, as in `python make_report.py out`.")
    logging.set_verbosity(logging.ERROR)
    folders = [pathlib.Path(name) for name in argv[1:]]
    output, export = pathlib.Path(_OUTPUT.value), pathlib.Path(_EXPORT.value) if _EXPORT.value else None
    try:
        runs, left_out = search(folders)
        for _, reason in left_out:
            print(f"Left out: {legible(reason)}", file=sys.stderr)
        if not runs:
            raise ReportError(f"None of {len(left_out)} folders can be read; why is said above.")
        builder = Builder(
            group_runs(runs), report_command(folders, output, export), count_split if _SPLITS.value else None
        )
        lead, sections = builder.lead(), builder.sections()
        content = page.build_page(texts.TITLE, lead, sections, builder.end(left_out))
        output.mkdir(parents=True, exist_ok=True)
        for name, picture in builder.pictures.items():
            write_whole(output / name, picture)
        write_whole(output / "report.html", content.encode())
        not_exported = export_runs(runs, export) if export else []
    except ReportError as error:
        raise SystemExit(legible(str(error))) from error
    except OSError as error:
        raise SystemExit(f"The report cannot be written: {error}.") from error
    for sentence in not_exported:
        print(legible(sentence))
    unread = f", {len(left_out)} folders left out" if left_out else ""
    print(f"{output / 'report.html'}: {len(runs)} runs, {len(builder.pictures)} pictures{unread}")
