"""Runs programs inside running containers: by the OCI runtime itself where that is possible, else over the API.

The API leaves two processes for each program, for five minutes; the OCI runtime leaves nothing and is three times as
fast. It requires root on the host of a Podman that is root's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from reconciler.engines.host.runtimes.podman.api.answers import Created, ListedSession, decode_answer
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, PodmanRequest
from reconciler.engines.host.runtimes.podman.capabilities import Capabilities
from reconciler.engines.host.runtimes.podman.programs import (
    PLAIN_ENVIRONMENT,
    exit_code,
    make_folder,
    number_in,
    oci_command,
)
from reconciler.engines.host.runtimes.podman.tracked import KILLED, signal_program
from reconciler.engines.host.runtimes.protocol import ExecResult
from reconciler.errors import EngineError
from reconciler.reasons import Reason

MAX_OUTPUT_BYTES = 4096
"""The number of bytes of output that are returned: the last ones."""
_REST = 0.2
"""Seconds to wait for more output after the program has ended, since other processes may have it open."""
_BEGINS_WITHIN = 10.0
_KILLED_WITHIN = 5.0
_BLOCK = 1 << 16
_FRAME = struct.Struct(">BxxxL")
_NOISE = "Error: read unixpacket"
_POLL = 0.01


class ExecRunner:
    """Runs programs in the containers of one location."""

    def __init__(self, client: PodmanClient, capabilities: Capabilities) -> None:
        self._client = client
        self._capabilities = capabilities

    async def run(self, container: str, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run ``argv`` in ``container`` for at most ``timeout`` seconds. Raises EngineError."""
        if not argv:
            raise EngineError("no program to run", reason=Reason.EXEC_FAILED)
        if self._capabilities.direct:
            return await self._run_directly(container, argv, timeout)
        return await self._run_by_api(container, argv, timeout)

    async def _run_directly(self, container: str, argv: Sequence[str], timeout: float) -> ExecResult:
        with contextlib.ExitStack() as stack:
            folder = make_folder()
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            pid_file = folder / "pid"
            tail = _Tail()
            try:
                child = await asyncio.create_subprocess_exec(
                    *oci_command(self._capabilities),
                    "exec",
                    "--pid-file",
                    str(pid_file),
                    container,
                    *argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=PLAIN_ENVIRONMENT,
                )
            except (OSError, ValueError) as error:
                raise EngineError(f"a program cannot be run: {error}", reason=Reason.EXEC_FAILED) from error
            assert child.stdout is not None
            reading = asyncio.create_task(tail.read_stream(child.stdout))
            try:
                # A quota of CPU slows the start itself, which is no fault of the program.
                timed_out = not await _await_start(child, pid_file) or await _is_late(child.wait(), timeout)
                if not timed_out:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_REST):
                            await asyncio.shield(reading)
            finally:
                reading.cancel()
                await _end_program(child, pid_file)
            started = pid_file.exists()
        if timed_out:
            return ExecResult(KILLED, tail.text(), timed_out=True)
        code = child.returncode or 0
        return ExecResult(exit_code(code, tail.text(), started=started), tail.text())

    async def _run_by_api(self, container: str, argv: Sequence[str], timeout: float) -> ExecResult:
        body = {"AttachStdout": True, "AttachStderr": True, "Cmd": list(argv)}
        session = decode_answer(await self._client.post(f"containers/{container}/exec", body), Created).id
        tail = _Tail()
        request = PodmanRequest("POST", f"exec/{session}/start", body={"Detach": False, "Tty": False})

        timed_out, loop = False, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_BEGINS_WITHIN) as limit, self._client.stream(request) as parts:
                # Podman answers when the program has begun: a quota of CPU or other load slows only what comes before.
                limit.reschedule(loop.time() + timeout)
                await tail.read_frames(parts)
        except TimeoutError:
            timed_out = True
        exec_session = await self._session(session)
        if timed_out and exec_session.running:
            signal_program(container, exec_session.pid, signal.SIGKILL)
            return ExecResult(KILLED, tail.text(), timed_out=True)
        return ExecResult(exec_session.exit_code, tail.text())

    async def _session(self, session: str) -> ListedSession:
        """The session, once Podman has noticed the end of its program, if that is near."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _REST
        while True:
            exec_session = decode_answer(await self._client.get(f"exec/{session}/json"), ListedSession)
            if not exec_session.running or loop.time() > deadline:
                return exec_session
            await asyncio.sleep(_POLL)


class _Tail:
    """The last bytes of an output."""

    def __init__(self) -> None:
        self._output = b""

    def _add(self, part: bytes) -> None:
        self._output = (self._output + part)[-MAX_OUTPUT_BYTES:]

    async def read_stream(self, stream: asyncio.StreamReader) -> None:
        while part := await stream.read(_BLOCK):
            self._add(part)

    async def read_frames(self, parts: AsyncIterator[bytes]) -> None:
        """Read output in frames: a byte for the stream, three of nothing, four for the length, then the content."""
        rest = b""
        async for part in parts:
            rest += part
            while len(rest) >= _FRAME.size:
                _, length = _FRAME.unpack_from(rest)
                if len(rest) < _FRAME.size + length:
                    break
                self._add(rest[_FRAME.size : _FRAME.size + length])
                rest = rest[_FRAME.size + length :]

    def text(self) -> str:
        text = self._output.decode(errors="replace")
        return text.partition(_NOISE)[0]


async def _is_late(work: Any, timeout: float) -> bool:
    """Do ``work`` for at most ``timeout`` seconds; whether that was too short."""
    try:
        async with asyncio.timeout(timeout):
            await work
    except TimeoutError:
        return True
    return False


async def _await_start(child: asyncio.subprocess.Process, pid_file: Path) -> bool:
    """Wait until the program has begun, or ended already; whether that was soon."""
    deadline = asyncio.get_running_loop().time() + _BEGINS_WITHIN
    while child.returncode is None and not number_in(pid_file):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


async def _end_program(child: asyncio.subprocess.Process, pid_file: Path) -> None:
    """End the program if it still runs: the end of the OCI runtime's process would not end it."""
    deadline = asyncio.get_running_loop().time() + _KILLED_WITHIN
    while child.returncode is None and asyncio.get_running_loop().time() < deadline:
        if number := number_in(pid_file):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                # It leads a session of its own.
                os.killpg(number, signal.SIGKILL)
        await asyncio.sleep(_POLL)
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
