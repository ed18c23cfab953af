"""The installed program HAProxy: where it is, its version, and what it was built with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress

import msgspec

from reconciler.errors import EngineError
from reconciler.reasons import Reason

OLDEST = (2, 6)
"""The oldest version that adds and removes servers while it runs, without an experimental mode."""

RUNTIME = (3, 4)
"""The oldest version that adds and removes backends while it runs."""

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where it is searched beside PATH, which often lacks the directories for administrators."""

_SECONDS = 10
_VERSION = re.compile(r"HAProxy version (\d+)\.(\d+)(\S*)")


class Program(msgspec.Struct, frozen=True):
    """An installed HAProxy. ``lua``: it can run scripts, so that requests wait for an operator, and those that wait
    outlast a reload. ``tls``: it can serve certificates.
    """

    path: str
    version: tuple[int, int]
    text: str
    lua: bool
    tls: bool = True
    failure: str = ""
    """Why it printed no version, if it did not."""

    @property
    def usable(self) -> bool:
        """Whether it is new enough."""
        return self.version >= OLDEST

    @property
    def runtime(self) -> bool:
        """Whether backends come and go while it runs."""
        return self.version >= RUNTIME and self.lua

    @property
    def defect(self) -> str:
        """What keeps it from all that the built-in data plane does; "" if nothing does."""
        if self.failure:
            return f"`{self.path} -vv` printed no version: {self.failure}"
        if not self.usable:
            return f"{'.'.join(map(str, OLDEST))} or newer is needed"
        return "" if self.lua else "it lacks Lua, so requests do not wait for the end of a hold, nor outlast a reload"


_programs: dict[tuple[str, int], Program] = {}
"""What each file was at its last change. A failure is no property of the file, so it is not remembered."""


def find_program() -> Program | None:
    """The installed HAProxy; None if there is none. One that does not run has version 0.0 and a ``failure``.

    Blocks for some milliseconds at the first call for a file, and again after a failure.
    """
    # An empty entry would be the working directory.
    path = shutil.which("haproxy", path=":".join(filter(None, (os.environ.get("PATH"), SEARCH))))
    if path is None:
        return None
    # An update may remove the file between the search and this.
    with suppress(OSError):
        file_version = path, os.stat(path).st_mtime_ns
        program = _programs.get(file_version) or _inspect_program(path)
        if not program.failure:
            _programs[file_version] = program
        return program
    return None


def usable_program() -> Program:
    """The installed HAProxy. Raises EngineError if there is none that is new enough."""
    program = find_program()
    if program is not None and program.failure:
        message = f"{program.defect}; it is tried again, and a HAProxy that runs goes on as it is"
        raise EngineError(message, reason=Reason.PROXY_FAILED)
    if program is None or not program.usable:
        oldest = ".".join(map(str, OLDEST))
        text = f"only HAProxy {program.text} is" if program is not None else "it is not"
        message = f"HAProxy {oldest} or newer is needed, and {text} installed; or set `dataplane: builtin`"
        raise EngineError(message, reason=Reason.PROXY_FAILED)
    return program


def _inspect_program(path: str) -> Program:
    printed = ""
    try:
        done = subprocess.run([path, "-vv"], capture_output=True, text=True, timeout=_SECONDS, check=False)
        printed, failure = done.stdout, f"it ended with code {done.returncode}"
    except OSError as error:
        failure = os.strerror(error.errno or 0)
    except subprocess.TimeoutExpired:
        failure = f"it did not end within {_SECONDS} s"
    match = _VERSION.search(printed)
    if match is None:
        return Program(path, (0, 0), "of an unknown version", lua=False, tls=False, failure=failure)
    version = (int(match[1]), int(match[2]))
    text, tls = f"{match[1]}.{match[2]}{match[3]}", re.search(r"Built with \S*SSL", printed) is not None
    return Program(path, version, text, "Built with Lua" in printed, tls)
