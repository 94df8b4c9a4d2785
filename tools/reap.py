"""Runs a command and leaves nothing of it behind: `python tools/reap.py COMMAND [ARGUMENT ...]`.

TensorFlow Federated starts worker processes that can outlive Python and hold its output open, so that
`make test | tail` would wait for ever. Here the command runs in a process group of its own; signals sent to this
process are passed on to it; when it ends, every process that it left is killed. The exit code is the command's own,
128 + n if signal n ended it, 127 if it could not be started. Linux only, standard library only.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
# Blocked and waited for rather than handled: no signal can then fall between the start of the command and the wait.
_AWAITED = _PASSED_ON | {signal.SIGCHLD, signal.SIGTSTP}


def _prctl(option: int, value: int) -> None:
    """Sets a property of this process that Python's `os` has no function for."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def _start(command: list[str]) -> int:
    """Starts the command in a process group of its own and returns its process id, which is the group's too."""
    parent = os.getpid()

    def prepare() -> None:
        """Runs in the new process just before the command does."""
        # If the reaper is killed outright it can end nothing any more: the kernel then tells the command.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # killed before the line above
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        # Ignored in a shell's background job, and inherited by TFF's workers, which TFF ends with it and waits for.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # The terminal knows the reaper's own group alone, so Ctrl-C comes here once and goes on once. The open terminal
    # itself is inherited: the command can still see its width and draw a progress bar.
    process = subprocess.Popen(command, start_new_session=True, preexec_fn=prepare)
    process.returncode = 0  # `_exit_code` collects it, with all other children: nothing is left to Popen
    return process.pid


def _exit_code(command_id: int) -> int:
    """Passes signals on until the command ends; returns its exit code."""
    while True:
        received = signal.sigwait(_AWAITED)
        if received == signal.SIGCHLD:
            # One SIGCHLD can stand for several children, among them orphans that this process was given.
            while (ended := _collect(os.WNOHANG)) is not None:
                pid, status = ended
                if pid == command_id:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
        elif received == signal.SIGTSTP:
            # Ctrl-Z: stop both, and go on together when the shell says so.
            os.killpg(command_id, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.killpg(command_id, signal.SIGCONT)
        else:
            os.killpg(command_id, received)


def _collect(options: int = 0) -> tuple[int, int] | None:
    """Takes the exit status of one ended child; None if there is no child, or with WNOHANG none that has ended."""
    try:
        pid, status = os.waitpid(-1, options)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _children() -> list[int]:
    """The processes whose parent is this one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state parent ...", where the name may hold anything, brackets and spaces too.
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
        except OSError:
            continue  # ended meanwhile
        if int(parent) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def _end_descendants() -> None:
    """Kills every child; the kernel makes their children ours, so this ends with the last descendant."""
    while True:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        if _collect() is None:
            return


def main(command: list[str]) -> int:
    """Runs the command to its end, ends what it left and returns its exit code."""
    if not command:
        print("usage: reap.py COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if inherited as ignored, exit codes would be lost
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    # Orphaned descendants become children of this process rather than of process 1, whatever group they are in.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        command_id = _start(command)
    except OSError as error:
        print(f"reap.py: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    try:
        return _exit_code(command_id)
    finally:
        _end_descendants()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
