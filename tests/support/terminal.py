"""A command on a terminal of its own, and what can be seen there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_PARTS = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def heed_interrupts() -> None:
    """Obey SIGINT again; a test run in the background passes on that it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def control_terminal() -> None:
    """Make the terminal at stdin that of this session, so that its keys can send signals."""
    heed_interrupts()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """The output of a command on a terminal of 24 lines; it is ``controlling`` if Ctrl-C interrupts the command."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], width: int = 100, *, controlling: bool = False
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        environ = {name: value for name, value in {**os.environ, **environ}.items() if name not in ("LINES", "COLUMNS")}
        self.process = subprocess.Popen(
            command,
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave if controlling else subprocess.PIPE,
            start_new_session=controlling,
            preexec_fn=control_terminal if controlling else heed_interrupts,
        )
        os.close(slave)
        self.written = ""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def exchange(self, content: bytes, count: int, patience: float = 60.0) -> bytes:
        """Press keys, and read meanwhile what is written, up to ``count`` bytes of it."""
        deadline, output = time.monotonic() + patience, bytearray()
        os.set_blocking(self._master, False)
        ready = select.poll()
        while len(output) < count:
            assert time.monotonic() < deadline, f"{len(content)} keys are left, {len(output)} bytes came"
            ready.register(self._master, select.POLLIN | (select.POLLOUT if content else 0))
            [(_, events)] = ready.poll(1000) or [(0, 0)]
            if events & select.POLLIN:
                output += os.read(self._master, 65_536)
            if events & select.POLLOUT:
                content = content[os.write(self._master, content[:4096]) :]
        os.set_blocking(self._master, True)
        return bytes(output)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window; the signal comes from the kernel where a command controls its terminal."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def echoes(self) -> bool:
        """Whether the terminal itself shows what is typed, as it does between two commands."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def until(self, good: Callable[[str], object], what: str, patience: float = 60.0) -> str:
        """The screen as soon as it is ``good``."""
        deadline = time.monotonic() + patience
        while not good(self.screen):
            assert time.monotonic() < deadline, f"never seen: {what}; there is\n{self.screen}"
            assert self._read() or good(self.screen), f"it ended without {what}; there is\n{self.screen}"
        return self.screen

    def interrupt(self, patience: float = 60.0) -> None:
        """Press Ctrl-C as a person does, once the command waits: Python misses a signal just before it reads."""
        deadline, state = time.monotonic() + patience, Path(f"/proc/{self.process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, f"it never waits; there is\n{self.screen}"
        self.type(b"\x03")

    def ended(self, patience: float = 60.0) -> str:
        """The screen after the end of the command."""
        deadline = time.monotonic() + patience
        while self._read():
            assert time.monotonic() < deadline, f"it goes on; there is\n{self.screen}"
        self.process.wait(patience)
        return self.screen

    @property
    def screen(self) -> str:
        """The text on the terminal now; of escape sequences it knows up, clear below and colours."""
        lines, row = [""], 0
        for private, number, letter, control, text in _PARTS.findall(self.written):
            if letter == "A":
                row -= int(number or 1)
                assert row >= 0, "it moves above its first line"
            elif letter == "J":
                lines[row:] = [""]
            elif control == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif text:
                lines[row] += text
            assert not letter or private or letter in "AJm", f"a sequence that is not known here: {letter}"
        return "\n".join(lines).rstrip("\n")

    def _read(self) -> bool:
        """Read what there is, for a short time; False once the end is reached."""
        # Unlike select(), poll takes any number of open files.
        ready = select.poll()
        ready.register(self._master, select.POLLIN)
        if not ready.poll(200):
            return self.process.poll() is None
        try:
            content = os.read(self._master, 65_536)
        except OSError:  # so a terminal reports that its other end is closed
            return False
        self.written += content.decode(errors="replace").replace("\r\n", "\n")
        return bool(content)

    def close(self) -> None:
        """Kill the command where it runs, and hang up."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        if self.process.stderr is not None:
            self.process.stderr.close()


@contextlib.contextmanager
def terminal(
    command: Sequence[str], environ: Mapping[str, str], width: int = 100, *, controlling: bool = False
) -> Iterator[Terminal]:
    """``command`` on a terminal; killed at the end where it still runs."""
    opened = Terminal(command, environ, width, controlling=controlling)
    try:
        yield opened
    finally:
        opened.close()
