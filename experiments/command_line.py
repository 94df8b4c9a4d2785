"""How a command meets its user: `--help` that fits the terminal, errors in one line, an end without traceback."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import NoReturn

from absl import app, flags, logging

from experiments.methods import EXAMPLE, METHODS
from experiments.settings import FIELDS, GROUPS

_HELP = {"-h", "-help", "--help", "-helpshort", "--helpshort"}
_ALL_HELP = {"-helpfull", "--helpfull"}
_NOTES = {
    "penalties": f"With neither --preset nor --algorithm: those of {METHODS[EXAMPLE].title}. Otherwise 0 where not "
    "given; an algorithm that needs one has it, see --list=algorithms.",
}
_COLUMN = 28


def run(main: Callable[[list[str]], None], about: str) -> None:
    """Runs a command.

    Not absl's `app.run`: where TensorFlow is imported after its start, Keras builds no model. (TensorFlow then looks
    for devices while it is imported, before it is in its own second mode.)

    Args:
      main: takes the command's name and what is left of the command line after the flags.
      about: what `--help` says before the flags: the command's docstring.
    """
    logging.use_absl_handler()
    before = signal.getsignal(signal.SIGINT)
    # Not where it is ignored, as in a shell's background job; only the main thread may have handlers.
    stops = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if stops:
        # While TensorFlow starts, an exception would end up in somebody's callback.
        signal.signal(signal.SIGINT, lambda number, frame: stop_at_once())
    try:
        if _HELP.intersection(sys.argv[1:]):
            print(format_help(about, shutil.get_terminal_size().columns), flush=True)
        elif _ALL_HELP.intersection(sys.argv[1:]):
            print(flags.FLAGS.get_help(), flush=True)
        else:
            main(parse_flags(sys.argv))
    except (app.UsageError, flags.Error) as error:
        _refuse(error)
    except KeyboardInterrupt:
        stop_at_once()
    except BrokenPipeError:  # as in `--help | head`; Python would say so once more when it flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        if stops:
            signal.signal(signal.SIGINT, before)


def parse_flags(arguments: list[str]) -> list[str]:
    """Returns what is left of a command line after its flags, those of flag files included."""
    try:
        return flags.FLAGS(arguments)
    except flags.UnrecognizedFlagError as error:
        near = str(error).partition("Did you mean: ")[2].removesuffix(" ?")
        meant = f" Did you mean --{near}?" if near else ""
        raise app.UsageError(f"--{error.flagname} is no flag.{meant} --help lists the flags.") from None
    except (flags.IllegalFlagValueError, flags.CantOpenFlagFileError) as error:
        raise app.UsageError(_explain(str(error))) from None
    except UnicodeDecodeError as error:
        named = ", ".join(
            argument if "=" in argument else " ".join(arguments[place : place + 2])
            for place, argument in enumerate(arguments)
            if argument.lstrip("-").startswith("flagfile")
        )
        raise app.UsageError(
            f"a flag file must be text in UTF-8, one flag per line, found a byte that is none ({error.reason}, at "
            f"{error.start}). Check {named}"
        ) from None
    except ValueError as error:  # a value for --noplots, say
        raise app.UsageError(f"{error}.") from None


_KINDS = {"float": "a number", "int": "an integer", "bool": "true or false"}


def _explain(message: str) -> str:
    """What absl says of a value of the wrong kind, or of a flag file that cannot be read, as a user would say it."""
    if found := re.match(r"flag --(\w+)=(.*?): ", message, re.DOTALL):
        name, value = found.groups()
        if kind := _KINDS.get(flags.FLAGS[name].flag_type() if name in flags.FLAGS else ""):
            return f"--{name} must be {kind}, found {value!r}."
    if found := re.match(r"ERROR:: Unable to open flagfile: \[Errno \d+\] (.*): '(.*)'", message):
        return f"--flagfile={found[2]} cannot be read: {found[1]}. Name a text file of one flag per line."
    return message


def stop_at_once() -> NoReturn:
    """Ends the process without waiting for what its threads compute: what is committed is safe."""
    print("\nStopped. What was finished is saved; the same command goes on.", file=sys.stderr, flush=True)
    sys.stdout.flush()
    if "tff_fen" in sys.modules:
        # TFF starts a worker anew if it ends while one of its threads computes.
        sys.addaudithook(_refuse_processes)
        sys.modules["tff_fen"].runtime.end_worker_processes()
    os._exit(130)


def _refuse_processes(event: str, _: object) -> None:
    if event == "subprocess.Popen":
        raise RuntimeError("the command is ending")


def format_help(about: str, columns: int) -> str:
    """Returns a command's help: what it does, then its own flags by group; those of absl are left to `--helpfull`."""
    width = max(60, min(columns, 120))
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for flag in own_flags():
        groups[group_of(flag)].append(_format_flag(flag, width))
    lines = [about.strip()]
    for group, rows in groups.items():
        if rows:
            note = textwrap.wrap(_NOTES.get(group, ""), width - 2, initial_indent="  ", subsequent_indent="  ")
            lines += ["", group.capitalize(), *note, *rows]
    return "\n".join([*lines, "", "absl's own flags, such as --flagfile=FILE: --helpfull"])


def own_flags() -> list[flags.Flag]:
    """Returns the flags that this project's modules define, an experiment's values first, in their order."""
    found = []
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module.startswith("experiments."):
            found += defined
    return sorted(found, key=lambda flag: flag.name not in FIELDS)


def group_of(flag: flags.Flag) -> str:
    """Returns the group of a flag, with which its text begins: `[group] text`."""
    group = str(flag.help).removeprefix("[").partition("] ")[0]
    return group if group in GROUPS else GROUPS[-1]


def _format_flag(flag: flags.Flag, width: int) -> str:
    # absl adds a sentence of its own to those that may be repeated.
    text = str(flag.help).removeprefix(f"[{group_of(flag)}] ").partition(";\n")[0]
    name = f"  --[no]{flag.name}" if flag.boolean else f"  --{flag.name}="
    default = flag.default
    if default not in (None, "", []) and not flag.boolean:
        text += f" (default: {default})"
    elif flag.boolean:
        text += f" (default: {'yes' if default else 'no'})"
    lines = textwrap.wrap(text, width - _COLUMN) or [""]
    head = name.ljust(_COLUMN) if len(name) < _COLUMN else f"{name}\n{' ' * _COLUMN}"
    return f"\n{' ' * _COLUMN}".join([head + lines[0], *lines[1:]])


def _refuse(error: Exception) -> NoReturn:
    command = os.path.basename(sys.argv[0])
    print(f"{command}: {' '.join(str(error).split())}", file=sys.stderr)
    raise SystemExit(1)
