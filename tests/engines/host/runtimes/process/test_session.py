"""Sessions in containers that are processes: what goes in and comes out, with and without a terminal."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime
from reconciler.errors import EngineError
from reconciler.terminal.session import Channel, ExecSession, TerminalSize
from tests.engines.host.runtimes.process.kit import (
    ProcessHarness,
    alive,
    as_root,
    both_ways,
    launch,
    marked,
    opened,
    place,
    shell,
    sleeping,
)
from tests.support.scratch import OWN_MOUNTS
from tests.support.waiting import until

MEBIBYTE = 1 << 20


class SessionResult(NamedTuple):
    """How a program ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes


@asynccontextmanager
async def entered(
    runtime: ProcessRuntime, *argv: str, terminal: TerminalSize | None = None
) -> AsyncIterator[ExecSession]:
    """A session in the container of these tests; closed at the end."""
    session = await runtime.open_session(place(), argv, terminal)
    try:
        yield session
    finally:
        await session.close()


async def finished(session: ExecSession) -> SessionResult:
    """Read all output, and wait for the end."""
    written = {Channel.STDOUT: b"", Channel.STDERR: b""}
    while (output := await session.read()) is not None:
        written[output.channel] += output.content
    return SessionResult(await session.wait(), written[Channel.STDOUT], written[Channel.STDERR])


async def ran(runtime: ProcessRuntime, *argv: str, terminal: TerminalSize | None = None) -> SessionResult:
    """Run a program without input."""
    async with entered(runtime, *argv, terminal=terminal) as session:
        if terminal is None:
            await session.close_stdin()
        return await finished(session)


async def shown(session: ExecSession, text: str) -> str:
    """Read until ``text`` is there."""
    written = ""
    while text not in written:
        output = await session.read()
        assert output is not None, f"it ended without {text!r}: {written!r}"
        written += output.content.decode()
    return written


@asynccontextmanager
async def container(root: Path, *, limited: bool = True, **fields: object) -> AsyncIterator[ProcessHarness]:
    """A host with one container that runs."""
    async with opened(root, limited=limited) as host:
        await host.runtime.start(msgspec.structs.replace(launch("sleep", "1000"), **fields))
        yield host


@both_ways
async def test_a_program_has_the_environment_directory_and_limits_of_the_container(
    tmp_path: Path, limited: bool
) -> None:
    env = {"PATH": "/usr/bin:/bin", "PASSWORD": "hunter2", "odd.name": "x"}
    async with container(tmp_path / "state", limited=limited, env=env, directory=str(tmp_path)) as host:
        script = "pwd; env; cd /proc/self; cat cgroup limits; grep -E 'CapBnd|NoNewPrivs|SigIgn' status"
        text = (await ran(host.runtime, "sh", "-c", script)).out.decode()
        # The wrapper is a shell until it becomes the program.
        await until(lambda: sleeping(tmp_path / "state"), "the container's program runs")
        (program,) = sleeping(tmp_path / "state")
        assert text.startswith(f"{tmp_path}\n")
        assert "\nPASSWORD=hunter2\n" in text
        assert "odd.name=x" in (await ran(host.runtime, "env")).out.decode()
        assert Path(f"/proc/{program}/cgroup").read_text() in text
        assert Path(f"/proc/{program}/limits").read_text() in text
        assert all(each in text for each in ("SigIgn:\t00000000", "NoNewPrivs:\t1\n"))
        status = Path(f"/proc/{program}/status").read_text()
        assert next(line for line in status.splitlines() if line.startswith("CapBnd:")) in text
        assert "TERM=" not in text


async def test_bytes_pass_unchanged_in_both_directions(tmp_path: Path) -> None:
    content = os.urandom(MEBIBYTE)
    async with container(tmp_path) as host, entered(host.runtime, "tee", "/dev/stderr") as session:

        async def feed() -> None:
            await session.write(content)
            await session.close_stdin()

        feeding = asyncio.create_task(feed())
        found = await finished(session)
        await feeding
        assert (found.code, found.out == content, found.err == content) == (0, True, True)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
)
async def test_the_exit_code_is_that_of_the_program(tmp_path: Path, script: str, code: int) -> None:
    async with container(tmp_path) as host:
        assert (await ran(host.runtime, "sh", "-c", script)).code == code


async def test_a_program_that_cannot_be_executed_ends_as_in_a_shell(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("")
    async with container(tmp_path / "state") as host:
        assert await ran(host.runtime, "no-such-program") == (127, b"", b"no-such-program: not found\n")
        path = str(tmp_path / "program")
        assert await ran(host.runtime, path) == (126, b"", f"{path}: Permission denied\n".encode())


async def test_a_terminal_has_a_size_that_can_change(tmp_path: Path) -> None:
    script = "echo $TERM; tty; stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done"
    size = TerminalSize(33, 99)
    async with container(tmp_path) as host, entered(host.runtime, "sh", "-c", script, terminal=size) as session:
        first = await shown(session, "ready")
        assert first.splitlines()[0] == "xterm"
        assert first.splitlines()[1].startswith("/dev/pts/")
        assert "33 99\r\n" in first
        await session.resize(TerminalSize(50, 132))
        found = await finished(session)
        assert (found.code, b"50 132\r\n" in found.out) == (5, True)


@pytest.mark.parametrize(
    ("script", "key", "code"),
    [
        ("trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done", b"\x03", 9),
        ("echo ready; cat; exit 8", b"\x04", 8),
        ("echo ready; read line; [ $line = typed ]", b"typed\r", 0),
    ],
)
async def test_keys_of_a_terminal_reach_the_program(tmp_path: Path, script: str, key: bytes, code: int) -> None:
    size = TerminalSize()
    async with container(tmp_path) as host, entered(host.runtime, "sh", "-c", script, terminal=size) as session:
        await shown(session, "ready")
        await session.write(key)
        assert (await finished(session)).code == code


async def test_the_end_of_input_is_typed_on_a_terminal(tmp_path: Path) -> None:
    async with container(tmp_path) as host, entered(host.runtime, "cat", terminal=TerminalSize()) as session:
        await session.close_stdin()
        assert (await finished(session)).code == 0


async def test_a_shell_on_a_terminal_controls_its_jobs(tmp_path: Path) -> None:
    async with container(tmp_path) as host:
        found = await ran(host.runtime, "sh", "-ic", "set -m && (exit 3) & wait $!", terminal=TerminalSize())
        assert found.code == 3
        assert b"can't access tty" not in found.out


async def test_a_closed_session_ends_its_program_and_not_the_container(tmp_path: Path) -> None:
    async def story(terminal: TerminalSize | None) -> None:
        async with container(tmp_path) as host:
            await until(lambda: len(marked(tmp_path)) == 2)
            before = marked(tmp_path)
            async with entered(host.runtime, "sh", "-c", "echo up; sleep 1000 & wait", terminal=terminal) as session:
                await shown(session, "up")
            await until(lambda: sorted(marked(tmp_path)) == sorted(before), "the end of the program")
            assert (await host.running()).alive

    await story(None)
    await story(TerminalSize())


async def test_a_program_that_no_longer_reads_refuses_more_input(tmp_path: Path) -> None:
    async with (
        container(tmp_path) as host,
        entered(host.runtime, "sh", "-c", "exec <&-; echo closed; cat") as session,
    ):
        await shown(session, "closed")
        with pytest.raises(BrokenPipeError):
            await session.write(bytes(MEBIBYTE))
        await session.close_stdin()
        with pytest.raises(BrokenPipeError):
            await session.write(b"x")


async def test_a_child_that_holds_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    async with container(tmp_path) as host:
        session_result = await ran(host.runtime, "sh", "-c", "sleep 1000 & echo $!")
        assert session_result.code == 0
        assert alive(int(session_result.out))
    assert not alive(int(session_result.out))


async def test_the_end_of_the_container_ends_its_sessions_with_an_error(tmp_path: Path) -> None:
    async with container(tmp_path) as host, entered(host.runtime, "sh", "-c", "echo up; sleep 1000") as session:
        await shown(session, "up")
        await host.runtime.signal(place(), signal.SIGKILL)
        assert await session.read() is None
        with pytest.raises(EngineError, match="container main of r has ended") as ended:
            await session.wait()
        assert ended.value.reason == "NotRunning"


async def test_sessions_need_no_daemon(tmp_path: Path) -> None:
    async with container(tmp_path, env={"PATH": "/usr/bin:/bin", "WHERE": "inside"}):
        beside = ProcessRuntime(tmp_path, "here", SystemClock())
        assert (await ran(beside, "sh", "-c", "echo $WHERE")).out == b"inside\n"


async def test_nothing_is_entered_that_does_not_run(tmp_path: Path) -> None:
    async with opened(tmp_path) as host:
        with pytest.raises(EngineError) as unknown:
            await host.runtime.open_session(place(), ["true"], None)
        await host.runtime.start(shell("exit 0"))
        await host.over()
        with pytest.raises(EngineError) as over:
            await host.runtime.open_session(place(), ["true"], None)
        assert (unknown.value.reason, over.value.reason) == ("NotRunning", "NotRunning")


async def test_programs_that_are_cancelled_before_they_begin_end(tmp_path: Path) -> None:
    async with container(tmp_path) as host:
        await until(lambda: len(marked(tmp_path)) == 2)
        hasty = [asyncio.create_task(host.runtime.open_session(place(), ["sleep", "1000"], None)) for _ in range(3)]
        await asyncio.sleep(0)
        for each in hasty:
            each.cancel()
        await asyncio.gather(*hasty, return_exceptions=True)
        await until(lambda: len(marked(tmp_path)) == 2, "the end of all that was cancelled")
        gc.collect()  # what other tests left is closed now, or later: that is no fault of this one
        descriptors = len(os.listdir("/proc/self/fd"))
        await ran(host.runtime, "true")
        await ran(host.runtime, "true", terminal=TerminalSize())
        assert len(os.listdir("/proc/self/fd")) <= descriptors


@as_root
async def test_a_program_runs_as_the_user_of_the_container_and_owns_its_terminal(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    async with container(tmp_path, user=65534, group=2000) as host:
        found = await ran(host.runtime, "sh", "-c", "id -u; id -G; echo shown >/dev/stdout", terminal=TerminalSize())
        assert found.out == b"65534\r\n65534 2000\r\nshown\r\n"


async def test_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    async with container(tmp_path) as host:
        words = ["a b", "$HOME", "", "-c", "line\nbreak", hashlib.sha256(b"").hexdigest()]
        found = await ran(host.runtime, "printf", "%s\\0", *words)
        assert found.out.decode().split("\0") == [*words, ""]


IN_A_NAMESPACE = """
import asyncio, sys
from pathlib import Path
from tests.engines.host.runtimes.process.kit import launch, opened
async def story():
    async with opened(Path(sys.argv[1])) as host:
        await host.runtime.start(launch("sleep", "1000"))
        print("started", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(story())
"""


@as_root
async def test_root_joins_the_file_systems_of_a_container(tmp_path: Path) -> None:
    seen, state = tmp_path / "seen", tmp_path / "state"
    seen.mkdir()
    mount = f'mount -t tmpfs none {seen} && touch {seen}/inside && exec {sys.executable} -c "$0" {state}'
    daemon = [*OWN_MOUNTS, "sh", "-c", mount, IN_A_NAMESPACE]
    child = await asyncio.create_subprocess_exec(*daemon, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"started\n"
        runtime = ProcessRuntime(state, "here", SystemClock())
        assert (await ran(runtime, "ls", str(seen))).out == b"inside\n"
        assert list(seen.iterdir()) == []
    finally:
        await child.communicate(b"")
