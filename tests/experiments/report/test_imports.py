"""A report starts at once: what it is made of imports neither TensorFlow nor the library."""

from __future__ import annotations

import pathlib

from tests.support.new_process import ROOT, run_python


def test_the_report_imports_no_tensorflow() -> None:
    modules = [path.stem for path in (ROOT / "experiments" / "report").glob("*.py") if path.stem != "__init__"]
    assert len(modules) > 8
    imports = "".join(f"import experiments.report.{name}\n" for name in sorted(modules))
    code = (
        f"{imports}import experiments.report_command, pathlib, sys\n"
        "from experiments.report.groups import group_runs\n"
        "from experiments.report.read import find_runs\n"
        "from experiments.report.sections import Builder\n"
        f"groups = group_runs(find_runs([pathlib.Path({str(ROOT / 'results' / 'cifar10')!r})]))\n"
        "Builder(groups, '', None)._short()\n"
        "print(len(groups), [name for name in ('tensorflow', 'tensorflow_federated', 'tff_fen', 'tasks')"
        " if name in sys.modules])"
    )
    assert pathlib.Path(ROOT / "results" / "cifar10").is_dir()
    assert run_python(code).strip() == "2 []"
