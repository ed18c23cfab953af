"""Sessions: a program inside a container, connected to its caller as by Kubernetes' `exec`."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

LOST = 125
"""The exit code for a session without the result of its program, as of Docker and Podman."""


class Channel(IntEnum):
    """A stream of output; the number is that of its descriptor."""

    STDOUT = 1
    STDERR = 2


class StreamOutput(NamedTuple):
    """The next bytes of one stream."""

    channel: Channel
    content: bytes


class TerminalSize(msgspec.Struct, frozen=True):
    """The size of a terminal in characters."""

    rows: int = 24
    columns: int = 80


class ExecSession(Protocol):
    """A program inside a container. One coroutine reads and one writes; the caller closes the session.

    With a terminal all output is STDOUT. Nothing is buffered here: a program waits until its output is read.
    """

    async def write(self, content: bytes) -> None:
        """Return when the program's stdin holds all of ``content``. Raises BrokenPipeError if it is closed."""

    async def close_stdin(self) -> None:
        """End the program's stdin; on a terminal, type Ctrl-D."""

    async def read(self) -> StreamOutput | None:
        """The next output, None at the end."""

    async def resize(self, size: TerminalSize) -> None:
        """Change the size of the terminal; does nothing without one."""

    async def wait(self) -> int:
        """The exit code, 0 to 255, of the ended program: 128 and the number of the signal that ended it, if any.

        126 if the program may not be executed, 127 if there is none. Raises EngineError if the container ended first.
        """

    async def close(self) -> None:
        """Release everything. A program that still runs gets SIGHUP, as if its terminal was closed."""
