"""Sessions in containers: programs that the OCI runtime starts there, connected to the caller by pipes or a pty."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from reconciler.engines.host.runtimes.child_session import ChildSession
from reconciler.engines.host.runtimes.exit_watch import ExitWatcher
from reconciler.engines.host.runtimes.podman.api.attached import attach_program
from reconciler.engines.host.runtimes.podman.api.words import find_sentence
from reconciler.engines.host.runtimes.podman.folders import ContainerRecord
from reconciler.engines.host.runtimes.podman.programs import (
    FAILED,
    PLAIN_ENVIRONMENT,
    exit_code,
    make_folder,
    number_in,
)
from reconciler.engines.host.runtimes.streams import Streams, open_pipes, open_terminal
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.terminal.session import ExecSession, StreamOutput, TerminalSize

_LAST_BYTES = 4096
_FAILURE = b"exec failed: "
"""How the OCI runtime begins such a line, after time and level."""
_WITH_TERMINAL = ("--tty", "--env", "TERM=xterm")
_TAKE_TERMINAL = ("setsid", "--ctty")
"""Makes the terminal the child's own, so that the OCI runtime learns of its size."""


async def open_session(
    record: ContainerRecord, socket: Path, argv: Sequence[str], terminal: TerminalSize | None
) -> ExecSession:
    """Run ``argv`` in the container of ``record``: by the OCI runtime, else over the API. Raises EngineError."""
    container = record.place.container
    # Where the OCI runtime is out of reach, its processes may be too.
    if not record.program.alive and (record.oci or record.program.pid):
        raise EngineError(f"{container} does not run", reason=Reason.NOT_RUNNING)
    if not record.oci:
        return await attach_program(socket, record.id, record.place, argv, terminal)
    folder = make_folder()
    try:
        child, streams = await asyncio.to_thread(_start_exec, record, argv, terminal, folder / "pid")
    except (OSError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise EngineError(f"cannot run a program in {container}: {error}", reason=Reason.EXEC_FAILED) from error
    inner = ChildSession(record.place, child, streams, ExitWatcher(), lambda: not record.program.alive)
    return _Session(inner, folder)


def _start_exec(
    record: ContainerRecord, argv: Sequence[str], terminal: TerminalSize | None, pid_file: Path
) -> tuple[subprocess.Popen[bytes], Streams]:
    options = ["exec", "--pid-file", str(pid_file), *(_WITH_TERMINAL if terminal else ())]
    command = [*(_TAKE_TERMINAL if terminal else ()), *record.oci, *options, record.id, *argv]
    streams = open_pipes() if terminal is None else open_terminal(terminal)
    try:
        child = subprocess.Popen(
            command,
            env=PLAIN_ENVIRONMENT,
            stdin=streams.child.stdin,
            stdout=streams.child.stdout,
            stderr=streams.child.stderr,
            # With a terminal, setsid makes the session: as the leader of one it would have to fork first.
            start_new_session=terminal is None,
        )
    except BaseException:
        streams.close()
        raise
    streams.close_child()
    return child, streams


class _Session:
    """A child session whose program is that of the OCI runtime (see ExecSession for the methods).

    The OCI runtime passes signals and sizes on to the program. Its own failures end with 255.
    """

    def __init__(self, inner: ChildSession, folder: Path) -> None:
        self._inner = inner
        self._folder = folder
        self._last = b""

    async def write(self, content: bytes) -> None:
        """Write to the program."""
        await self._inner.write(content)

    async def close_stdin(self) -> None:
        """End the input of the program."""
        await self._inner.close_stdin()

    async def read(self) -> StreamOutput | None:
        """Read from the program."""
        output = await self._inner.read()
        if output is None:
            return None
        self._last = (self._last + output.content)[-_LAST_BYTES:]
        sentence = b"" if self._has_started() else _reword_failure(output.content)
        return output._replace(content=sentence or output.content)

    async def resize(self, size: TerminalSize) -> None:
        """Set the size of the pty."""
        await self._inner.resize(size)

    async def wait(self) -> int:
        """Wait for the program. Raises EngineError."""
        code = await self._inner.wait()
        if code != FAILED:
            return code
        return exit_code(code, self._last.decode(errors="replace"), started=self._has_started())

    def _has_started(self) -> bool:
        """Whether the program began, which can end with the code of a failure too: only then it has a number."""
        return number_in(self._folder / "pid") > 0

    async def close(self) -> None:
        """Hang up, and forget the program."""
        await self._inner.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder)


def _reword_failure(content: bytes) -> bytes:
    """What the OCI runtime logs of a program that it cannot start, for people; empty if it is something else."""
    if _FAILURE not in content:
        return b""
    sentence = find_sentence(content.decode(errors="replace"))
    return f"error: {sentence}\n".encode() if sentence else b""
