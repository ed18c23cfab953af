"""The streams between us and a child process: three pipes, or a pty."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import termios
from typing import NamedTuple

import msgspec

from reconciler.terminal.descriptors import READ_SIZE, wait_writable
from reconciler.terminal.session import Channel, StreamOutput, TerminalSize

_CTRL_D = b"\x04"


class ChildEnds(NamedTuple):
    """The descriptors that a child gets; -1 once they are closed here."""

    stdin: int = -1
    stdout: int = -1
    stderr: int = -1


class Streams(msgspec.Struct):
    """Our ends, which are non-blocking descriptors, and those of the ``child``.

    ``stdin`` is -1 once it is closed. ``terminal`` is the pty's master, which is ``stdin`` and STDOUT too, or -1.
    """

    stdin: int
    outputs: dict[int, Channel]
    child: ChildEnds
    terminal: int = -1

    async def write(self, content: bytes) -> None:
        """Write all of ``content``. Raises BrokenPipeError."""
        rest = memoryview(content)
        while rest:
            if self.stdin < 0:
                raise BrokenPipeError(errno.EPIPE, "stdin is closed")
            try:
                rest = rest[os.write(self.stdin, rest) :]
            except BlockingIOError:
                await wait_writable(self.stdin)
            except OSError as error:
                raise BrokenPipeError(errno.EPIPE, "the program no longer reads") from error

    async def close_stdin(self) -> None:
        """Close the pipe, or type Ctrl-D on the pty."""
        if self.terminal >= 0:
            with contextlib.suppress(BrokenPipeError):
                await self.write(_CTRL_D)
        elif self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def take(self, descriptor: int) -> StreamOutput | None:
        """What can be read there now; at its end the stream is forgotten."""
        try:
            content = os.read(descriptor, READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:  # all have closed the other end of the pty
            content = b""
        if content:
            return StreamOutput(self.outputs[descriptor], content)
        del self.outputs[descriptor]
        if descriptor != self.terminal:
            os.close(descriptor)
        return None

    def resize(self, size: TerminalSize) -> None:
        """Set the size of the pty, of which the kernel notifies the program."""
        if self.terminal >= 0:
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))

    def close_child(self) -> None:
        """Close the ends of the child, which has them once it is started."""
        _close_descriptors(*self.child)
        self.child = ChildEnds()

    def close(self) -> None:
        """Close everything."""
        self.close_child()
        _close_descriptors(self.stdin, self.terminal, *self.outputs)
        self.stdin = self.terminal = -1
        self.outputs = {}


def open_pipes(user: int | None = None) -> Streams:
    """Three pipes; they belong to ``user``, who can then open them by names such as /dev/stderr. Raises OSError."""
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe2(os.O_CLOEXEC)
        stdin, ours, stdout, child_stdout, stderr, child_stderr = opened
        for number in (ours, stdout, stderr):
            os.set_blocking(number, False)
            if user is not None:
                os.fchown(number, user, -1)
    except OSError:
        _close_descriptors(*opened)
        raise
    outputs = {stdout: Channel.STDOUT, stderr: Channel.STDERR}
    return Streams(ours, outputs, ChildEnds(stdin, child_stdout, child_stderr))


def open_terminal(size: TerminalSize, user: int | None = None) -> Streams:
    """A pty; its slave belongs to ``user``, who can then open it by its name, as /dev/stdout does. Raises OSError."""
    master, slave = os.openpty()
    streams = Streams(master, {master: Channel.STDOUT}, ChildEnds(slave, slave, slave), master)
    try:
        os.set_blocking(master, False)
        streams.resize(size)
        if user is not None:
            os.fchown(slave, user, -1)
    except OSError:
        streams.close()
        raise
    return streams


def _close_descriptors(*descriptors: int) -> None:
    for number in set(descriptors) - {-1}:
        os.close(number)
