"""Runs the programs that volumes need, which do not outlive the daemon."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Collection, Sequence

from reconciler.errors import EngineError
from reconciler.foreign_words import strip_variation
from reconciler.reasons import Reason

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the programs are; PATH of the daemon need not have the directories of root."""
_ENVIRONMENT = {"PATH": _PATH, "LC_ALL": "C"}
_NO_SPACE = os.strerror(errno.ENOSPC)
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", 'test "$PPID" = "$0" && exec "$@"')
"""A program that outlived a killed daemon would change files which the next daemon repairs.

The shell ends if the daemon died before the signal was set.
"""


def find_program(name: str) -> str | None:
    """The path of a program; None if this host does not have it."""
    return shutil.which(name, path=_PATH)


def start_program(
    command: Sequence[str | os.PathLike[str]], *, inherited: int | None = None, **streams: int
) -> subprocess.Popen[bytes]:
    """Start a program that dies with the calling thread; one with an ``inherited`` descriptor survives it.

    Raises EngineError if this host does not have it.
    """
    if find_program(os.fspath(command[0])) is None:
        raise EngineError(f"the program {command[0]} is not installed", reason=Reason.VOLUME_UNAVAILABLE)
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams}
    begin, passed = ((*_DIES_WITH_US, str(os.getpid())), ()) if inherited is None else ((), (inherited,))
    # Its own group: Ctrl-C at the terminal of the daemon breaks off no copy.
    options["process_group"] = 0
    return subprocess.Popen([*begin, *command], env=_ENVIRONMENT, pass_fds=passed, **options)  # type: ignore[call-overload,no-any-return]


def run_program(*command: str | os.PathLike[str], accepted: Collection[int] = (0,)) -> str:
    """Run a program to its end and return its output.

    Raises OSError for a full disk, otherwise EngineError, for exit codes that are not ``accepted``.
    """
    with start_program(command, stdout=subprocess.PIPE) as program:
        output, errors = program.communicate()
    check_program(command[0], 0 if program.returncode in accepted else program.returncode, errors)
    return output.decode(errors="replace")


def check_program(name: str | os.PathLike[str], code: int, errors: bytes) -> None:
    """Raise OSError or EngineError if a program failed with exit code ``code`` and the message ``errors``."""
    if code == 0:
        return
    message = errors.decode(errors="replace").strip()
    if _NO_SPACE in message:
        raise OSError(errno.ENOSPC, _NO_SPACE)
    last = strip_variation(message.splitlines()[-1]) if message else f"exit code {code}"
    raise EngineError(f"{name} failed: {last[:300]}", reason=Reason.VOLUME_DAMAGED)
