"""What a user sees before TensorFlow is there: the help, lists, mistakes, and where the environment is missing."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest
from absl import flags

import tff_fen
from experiments import columns, command_line, progress, run_command
from experiments.command_line import format_help, group_of, own_flags
from experiments.settings import FIELDS, GROUPS
from tests.support.new_process import ROOT, run_python

Called = tuple[int, str, str]
Call = Callable[..., Called]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls run_experiment.py up to where the work begins; returns its exit code and what it printed."""
    monkeypatch.setattr(run_command, "_run", lambda runs: print(*(run.name for run in runs)))

    def called(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["./run_experiment.py", *arguments])
        code = 0
        try:
            command_line.run(run_command.main, "About.")
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            for name in flags.FLAGS:
                flags.FLAGS[name].unparse()
        return code, *capsys.readouterr()

    return called


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--no_such_flag", "--no_such_flag is no flag. --help lists the flags."),
        ("--thresold=1", "--thresold is no flag. Did you mean --threshold? --help lists the flags."),
        ("--l1=much", "--l1 must be a number, found 'much'."),
        ("--l1=-1", "l1 must be a finite number >= 0, found -1.0."),
        ("--l2=0", "l2 must be > 0 for algorithm 'fed_dyn', which divides by it, found 0.0."),
        ("stray", "unknown arguments: stray."),
        ("--task=minst", "Did you mean 'mnist'?"),
        ("--preset=cifar10/iid/algoritm_3", "Did you mean 'cifar10/iid/algorithm_3'?"),
        ("--runtime=gpu", "runtime must be one of 'inprocess', 'native', 'ray', found 'gpu'."),
        ("--list=models", "list must be one of 'tasks', 'presets', 'algorithms', 'codecs', found 'models'."),
        ("--config=none.toml", "--config=none.toml cannot be read:"),
        ("--flagfile=none.flags", "--flagfile=none.flags cannot be read: No such file or directory. Name a text file"),
        ("--rounds=x", "--rounds must be an integer, found 'x'."),
        ("--export=maybe", "--export must be true or false, found 'maybe'."),
        ("--noexport=maybe", "--noexport=maybe does not take an argument."),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments: str, message: str, call: Call) -> None:
    code, out, err = call(*arguments.split())
    assert code == 1 and not out
    assert err.count("\n") == 1 and err.startswith("run_experiment.py: ") and message in err


@pytest.mark.parametrize("argument", ["--flagfile={file}", "--flagfile {file}"])
def test_a_flag_file_that_is_no_text_is_told_in_one_line(argument: str, call: Call, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "model.npz"
    file.write_bytes(b"--l1=1\n\x80\xff")
    code, out, err = call(*argument.format(file=file).split())
    assert code == 1 and not out and err.count("\n") == 1
    assert "a flag file must be text in UTF-8" in err and "at 7" in err and str(file) in err


def test_a_bare_command_runs(call: Call) -> None:
    code, out, err = call()
    assert (code, out) == (0, "digits-algorithm_3\n")
    assert re.fullmatch(r"\d\d:\d\d:\d\d starting TensorFlow\n", err), "something appears before it is imported"
    assert call("--quiet")[2] == ""
    assert call("--task=mnist", "--split=dirichlet:0.3")[:2] == (0, "mnist-algorithm_3\n")


def test_flags_win_over_a_file(call: Call, tmp_path: pathlib.Path) -> None:
    (tmp_path / "my.toml").write_text('preset = "digits/iid/fed_dyn"\n[output]\nquiet = true\n[grid]\nseed = [0, 1]\n')
    assert call(f"--config={tmp_path / 'my.toml'}") == (0, "digits-iid-fed_dyn seed=0 digits-iid-fed_dyn seed=1\n", "")
    code, out, err = call(f"--config={tmp_path / 'my.toml'}", "--noquiet", "--preset=digits/iid/fed_avg", "--seed=2")
    assert (code, out) == (0, "digits-iid-fed_avg\n") and "starting" in err


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_help_has_the_flags_of_experiments_by_group(columns: int) -> None:
    text = format_help("About.", columns)
    assert text.startswith("About.\n")
    headings = [line for line in text.splitlines()[1:] if re.match(r"[A-Z]\w+$", line)]
    assert headings == [group.capitalize() for group in GROUPS]
    assert max(map(len, text.splitlines())) <= columns
    shown = re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE)
    assert {*FIELDS, "preset", "grid", "config", "list", "output", "plots"} <= {*shown} and len(shown) == len({*shown})
    assert "logtostderr" not in text and "TF_CPP" not in text and "repeat this option" not in text


@pytest.mark.parametrize("flag", own_flags(), ids=lambda flag: flag.name)
def test_every_flag_says_its_group(flag: flags.Flag) -> None:
    assert str(flag.help).startswith(f"[{group_of(flag)}] "), "begin its text with [group], one of settings.GROUPS"


def test_the_help_is_printed(call: Call) -> None:
    code, out, err = call("--l1=1", "--help")
    assert code == 0 and out.startswith("About.\n\nExperiment\n") and not err
    assert "logtostderr" in call("--helpfull")[1]


def test_none_of_this_imports_tensorflow() -> None:
    printed = run_python(
        """
        import runpy, sys
        from absl import flags
        import experiments.run_command as command
        command._run = lambda runs: print(runs[0].name)
        free = "--help --list=tasks --list=presets --list=codecs --list=algorithms --preset=mnist/iid/x --epochs=0"
        for arguments in ([], *([one] for one in free.split()), ["--no_such_flag"], ["--uplink=float16"]):
            sys.argv = ["run_experiment.py", *arguments]
            try:
                runpy.run_path("run_experiment.py", run_name="__main__")
            except SystemExit as end:
                print(end.code)
            for name in flags.FLAGS:
                flags.FLAGS[name].unparse()
        print(sorted({"tensorflow", "tensorflow_federated", "tff_fen", "tasks.registry"} & {*sys.modules}))
        """
    )
    assert printed.splitlines()[-5:] == ["1", "1", "1", "digits-algorithm_3", "[]"]


@pytest.mark.parametrize("command", ["run_experiment.py", "make_report.py"])
def test_a_python_without_the_environment_is_told_what_to_do(command: str) -> None:
    """-S leaves out what is installed, as the system's Python does."""
    done = subprocess.run(
        [sys.executable, "-S", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not done.stdout
    assert "has no TensorFlow Federated" in done.stderr and "`source .venv/bin/activate`" in done.stderr


def test_an_interrupt_before_the_first_round_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by an exception, which may end up in a callback of TensorFlow's; and only while a command runs."""
    before = signal.getsignal(signal.SIGINT)
    stopped: list[str] = []
    monkeypatch.setattr(command_line, "stop_at_once", lambda: stopped.append("stopped"))
    monkeypatch.setattr(sys, "argv", ["run_experiment.py"])

    def main(argv: list[str]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        stopped.append("no exception was raised")

    command_line.run(main, "")
    flags.FLAGS.unparse_flags()
    assert stopped == ["stopped", "no exception was raised"] and signal.getsignal(signal.SIGINT) is before


def test_the_first_interrupt_says_what_is_finished_and_the_second_stops(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(Exception):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    def main(argv: list[str]) -> None:
        with progress.Interruption().watched() as interruption:
            interruption.doing = "round 12"
            os.kill(os.getpid(), signal.SIGINT)
            assert interruption.requested
            assert "finishing round 12; press again to stop now\n" in capfd.readouterr().err
            os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("still going")

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys, "addaudithook", lambda hook: None)  # one cannot be taken away again
    ended = []  # The workers of this process are other tests' too.
    monkeypatch.setattr(tff_fen.runtime, "end_worker_processes", lambda: ended.append(True))
    monkeypatch.setattr(sys, "argv", ["run_experiment.py"])
    with pytest.raises(Ended, match="130"):
        command_line.run(main, "")
    assert ended == [True]
    assert "Stopped. What was finished is saved; the same command goes on." in capfd.readouterr().err
    flags.FLAGS.unparse_flags()


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("digits-algorithm_3", ", accuracy 94.21%, 99.00 MB"),
        ("run 3 of 12, digits-iid-algorithm_3", ", accuracy 94.21%"),
    ],
)
def test_the_bar_has_the_accuracy_within_80_columns(name: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    with open(writing, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress.Progress(name, 198, 200, 99_000_000, False) as bar:
            bar.show({"round": 199, "accuracy": 0.9421, columns.UPLINK.of(): 0})
        shown = ""
        while not shown.endswith("\n"):  # a terminal hands over what was written in parts
            shown += os.read(reading, 10_000).decode()
        line = shown.split("\r")[-2].strip()
    os.close(reading)
    assert line.startswith(f"{name}: 199/200 |") and end in line and len(line) <= 80, line


def test_the_table_of_the_papers_methods_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    result = {
        "rounds": 100,
        "participants": 100,
        "accuracy": 0.9421,
        "dense_elements": 10**9,
        "non_zeros": 10**9,
        "uplink_bytes": 10**10,
    }
    progress.print_table({"digits-iid-algorithm_3": result, "nothing": {**result, "non_zeros": 0, "uplink_bytes": 0}})
    heading, full, nothing = capsys.readouterr().out.strip().splitlines()
    assert max(map(len, (heading, full, nothing))) <= 80
    assert full.split()[2:] == ["94.21%", "1,000,000,000", "1.00", "10000.00", "0.40"]
    assert nothing.split()[3:] == ["0", "-", "0.00", "-"]
