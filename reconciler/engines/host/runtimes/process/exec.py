"""Runs a program inside a running container: with its environment, directory, user and limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from typing import IO

import msgspec

from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.exit_watch import ExitWatcher, is_alive
from reconciler.engines.host.runtimes.process.child_setup import deny_new_privileges, nproc_limit
from reconciler.engines.host.runtimes.process.state_dir import StartRecord
from reconciler.engines.host.runtimes.protocol import ExecResult
from reconciler.errors import EngineError
from reconciler.reasons import Reason

MAX_OUTPUT_BYTES = 4096
"""The number of bytes of output that are returned: the last ones."""
_GATE = (
    'ulimit -c 0; IFS= read -r most && { ulimit -p "$most" || ulimit -u "$most"; } 2>/dev/null; '
    '[ "$most" ] && exec "$@" </dev/null'
)
"""Forbids core files, waits for the limit of processes, which dash sets by -p and bash by -u, and executes the program.

It ends at EOF.
"""
_BLOCK = 1 << 16
_REST = 0.2
"""Seconds to wait for more output after the program has ended, since other processes may have it open."""
_KILLED_WITHIN = 5.0
"""Seconds to wait for the end of a killed program: one that hangs in the kernel may never end."""
_MOMENTS, _MOMENT = 1000, 0.001
NOT_FOUND, NOT_PERMITTED, KILLED = 127, 126, 137


class ExecUser(msgspec.Struct, frozen=True):
    """The identity of a process: its effective user, group and further groups."""

    user: int
    group: int
    groups: tuple[int, ...]


async def execute_command(begun: StartRecord, argv: Sequence[str], timeout: float, ends: ExitWatcher) -> ExecResult:
    """Run ``argv`` beside the program of ``begun`` for at most ``timeout`` seconds. Raises EngineError."""
    try:
        child, pipe = await _begin_program(begun, argv, ends)
    except FileNotFoundError as error:
        return ExecResult(NOT_FOUND, f"{error.filename}: not found")
    except PermissionError as error:
        return ExecResult(NOT_PERMITTED, f"{error.filename}: not permitted")
    except (OSError, ValueError) as error:
        raise EngineError(
            f"cannot run a program in {begun.place.container}: {error}", reason=Reason.EXEC_FAILED
        ) from error
    tail = _Tail(pipe)
    try:
        timed_out = not await _wait_for_exit(child.pid, timeout, ends)
        code = KILLED if timed_out else child.wait()
        await tail.end(0 if timed_out else _REST)
    finally:
        ends.forget(child.pid)
        _discard_program(child, ends)
        tail.close()
    return ExecResult(code if code >= 0 else 128 - code, tail.text(), timed_out)


_Child = tuple[subprocess.Popen[bytes], IO[bytes]]


def _discard_program(child: subprocess.Popen[bytes], ends: ExitWatcher) -> None:
    """Kill the program if it still runs, and reap it when it has ended, without blocking the event loop."""
    if child.poll() is None:
        _kill_process_group(child.pid)
        ends.watch(child.pid, child.poll)


async def _begin_program(begun: StartRecord, argv: Sequence[str], ends: ExitWatcher) -> _Child:
    starting = asyncio.ensure_future(asyncio.to_thread(_start_program, begun, argv))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(partial(_give_up, ends))
        raise


def _give_up(ends: ExitWatcher, starting: asyncio.Future[_Child]) -> None:
    if starting.cancelled() or starting.exception() is not None:
        return
    child, pipe = starting.result()
    _discard_program(child, ends)
    pipe.close()


class _Tail:
    """Reads a pipe to its end and keeps the last bytes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._output = b""
        self._over = asyncio.Event()
        os.set_blocking(pipe.fileno(), False)
        asyncio.get_running_loop().add_reader(pipe, self._read)

    def _read(self) -> None:
        try:
            part = os.read(self._pipe.fileno(), _BLOCK)
        except BlockingIOError:
            return
        self._output = (self._output + part)[-MAX_OUTPUT_BYTES:]
        if not part:
            asyncio.get_running_loop().remove_reader(self._pipe)
            self._over.set()

    async def end(self, patience: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._over.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        self._pipe.close()

    def text(self) -> str:
        return self._output.decode(errors="replace")


async def _wait_for_exit(pid: int, timeout: float, ends: ExitWatcher) -> bool:
    over = asyncio.Event()
    ends.watch(pid, over.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await over.wait()
        return True
    _kill_process_group(pid)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILLED_WITHIN):
            await over.wait()
    return False


def _kill_process_group(pid: int) -> None:
    # The process is not reaped yet, so its number still belongs to it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _start_program(begun: StartRecord, argv: Sequence[str]) -> _Child:
    environment = environment_of(begun)
    pairs = (pair.partition(b"=") for pair in environment.split(b"\0") if pair)
    user = exec_user(begun.pid) if os.geteuid() == 0 else None
    # The shell waits until the limits are set, so the program never runs without them.
    gate = [os.readlink(f"/proc/{begun.pid}/exe"), "-c", _GATE, "exec"]
    reading, writing = os.pipe2(os.O_CLOEXEC)
    output = os.fdopen(reading, "rb", buffering=0)
    deny_new_privileges()
    try:
        if user is not None:
            os.fchown(writing, user.user, -1)  # which opens it again as /dev/stderr
        child = subprocess.Popen(
            [*gate, *argv],
            env={name: value for name, _, value in pairs},
            cwd=os.readlink(f"/proc/{begun.pid}/cwd"),
            stdin=subprocess.PIPE,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            umask=0o022,
            bufsize=0,
            user=user.user if user else None,
            group=user.group if user else None,
            extra_groups=user.groups if user else None,
        )
    finally:
        os.close(writing)
    assert child.stdin is not None
    _open_gate(child.stdin, begun, child.pid)
    return child, output


def environment_of(begun: StartRecord) -> bytes:
    """The environment of a running container, each variable ended by NUL. Raises EngineError, reason NotRunning."""
    # Right after its start, the wrapper process does not have its final environment yet.
    for _ in range(_MOMENTS):
        environment = procfs.read_environment(begun.pid)
        if environment and procfs.command_line(begun.pid):
            return environment
        if not is_alive(begun.pid, begun.start):
            break
        time.sleep(_MOMENT)
    raise EngineError(f"{begun.place.container} does not run", reason=Reason.NOT_RUNNING)


def _open_gate(gate: IO[bytes], begun: StartRecord, pid: int) -> None:
    with gate, contextlib.suppress(OSError):
        cgroups.join_groups(begun.groups, pid)
        gate.write(b"%d\n" % nproc_limit())


def exec_user(pid: int) -> ExecUser | None:
    """The identity of the process ``pid``; None if it is that of this process."""
    fields = dict(
        line.split(":", 1)
        for line in procfs.read_kernel_file(f"/proc/{pid}/status").decode(errors="replace").splitlines()
    )
    user, group = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
    groups = tuple(int(text) for text in fields["Groups"].split())
    own = (os.geteuid(), os.getegid(), tuple(os.getgroups()))
    return None if (user, group, groups) == own else ExecUser(user, group, groups)
