"""One process of a control plane: it starts, pauses, continues and ends, and its log is a file."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Component:
    """A component of a control plane, which may start again after it ended."""

    def __init__(self, program: Path, name: str, flags: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = [str(program), name, *flags]
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its log continues."""
        assert self._running is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            # Its standard input ends when this process does, however that ends, and the component ends with it.
            self._running = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder), "GOGC": "200"},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._running is not None, f"{self.name} does not run"
        return self._running.pid

    def check(self) -> None:
        """Raise AssertionError with the end of the log where it ended by itself."""
        if self._running is not None and self._running.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self._running.returncode}: {self.log.read_text()[-3000:]}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it answer nothing until the block ends, while its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            # Its threads run on for a moment after the signal, and may answer one more request.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        if self._running is None:
            return
        running, self._running = self._running, None
        running.kill()
        running.wait()
        assert running.stdin is not None
        running.stdin.close()
