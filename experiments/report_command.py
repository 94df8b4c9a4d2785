"""The command `make_report.py`."""

from __future__ import annotations

import pathlib
import sys

from absl import app, flags, logging

import experiments.flags  # noqa: F401  defines --data_dir and --cache_dir
from experiments.files import write_whole
from experiments.progress import say
from experiments.report import page, texts
from experiments.report.commands import report_command
from experiments.report.export import export_runs
from experiments.report.groups import group_runs
from experiments.report.html import legible
from experiments.report.read import search
from experiments.report.sections import Builder
from experiments.report.stored import ReportError
from experiments.report_splits import count_split

_OUTPUT = flags.DEFINE_string("output", "out/report", "[output] Folder of the page and its pictures.")
_EXPORT = flags.DEFINE_string("export", None, "[output] Folder for a small form of the finished runs, text alone.")
_SPLITS = flags.DEFINE_bool("splits", True, "[output] Draw how the data were dealt out, which needs the data.")


def main(argv: list[str]) -> None:
    """Makes a report of the folders that are named."""
    if len(argv) < 2:
        raise app.UsageError("Name at least one folder of results, as in `python make_report.py out`.")
    logging.set_verbosity(logging.ERROR)
    folders = [pathlib.Path(name) for name in argv[1:]]
    output, export = pathlib.Path(_OUTPUT.value), pathlib.Path(_EXPORT.value) if _EXPORT.value else None
    try:
        say(f"reading {', '.join(argv[1:])}")
        runs, left_out = search(folders)
        for _, reason in left_out:
            print(f"Left out: {legible(reason)}", file=sys.stderr)
        if not runs:
            raise ReportError(f"None of {len(left_out)} folders can be read; why is said above.")
        say(f"drawing {len(runs)} runs")
        builder = Builder(
            group_runs(runs),
            report_command(folders, output, export, _SPLITS.value),
            count_split if _SPLITS.value else None,
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
