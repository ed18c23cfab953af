"""Sessions in containers that are processes: a program beside that of the container, with pipes or a pty of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from reconciler.engines.host.runtimes import cgroups
from reconciler.engines.host.runtimes.child_session import ChildSession
from reconciler.engines.host.runtimes.exit_watch import ExitWatcher, is_alive
from reconciler.engines.host.runtimes.process.exec import environment_of, exec_user
from reconciler.engines.host.runtimes.process.labels import CONTAINER, PORTS, REPLICA, ROOT
from reconciler.engines.host.runtimes.process.state_dir import StartRecord
from reconciler.engines.host.runtimes.streams import Streams, open_pipes, open_terminal
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.terminal.session import TerminalSize

_LAUNCHER = Path(__file__).with_name("session_launcher.py")
_MARKER = frozenset(map(os.fsencode, (CONTAINER, REPLICA, PORTS, ROOT)))
_DEFAULT_TERM = b"TERM=xterm"


async def open_session(
    begun: StartRecord, argv: Sequence[str], terminal: TerminalSize | None, ends: ExitWatcher
) -> ChildSession:
    """Run ``argv`` beside the program of ``begun``. Raises EngineError."""

    def session(child: subprocess.Popen[bytes], streams: Streams) -> ChildSession:
        return ChildSession(begun.place, child, streams, ends, lambda: not is_alive(begun.pid, begun.start))

    def give_up(starting: asyncio.Future[_Started]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            session(*starting.result()).hang_up()

    starting = asyncio.ensure_future(asyncio.to_thread(_start_session, begun, argv, terminal))
    try:
        return session(*await asyncio.shield(starting))
    except asyncio.CancelledError:
        starting.add_done_callback(give_up)
        raise
    except (OSError, ValueError) as error:
        message = f"cannot run a program in {begun.place.container}: {error}"
        raise EngineError(message, reason=Reason.EXEC_FAILED) from error


_Started = tuple[subprocess.Popen[bytes], Streams]


def _start_session(begun: StartRecord, argv: Sequence[str], terminal: TerminalSize | None) -> _Started:
    environment = environment_of(begun)
    user = exec_user(begun.pid) if os.geteuid() == 0 else None
    identity = ("", "", "") if user is None else (user.user, user.group, ",".join(map(str, user.groups)))
    variables = [raw for raw in environment.split(b"\0") if raw]
    owner = user.user if user is not None else None
    streams = open_pipes(owner) if terminal is None else open_terminal(terminal, owner)
    with contextlib.ExitStack() as stack:
        failure = stack.enter_context(contextlib.ExitStack())
        failure.callback(streams.close)
        stack.callback(streams.close_child)
        content = stack.enter_context(open(os.memfd_create("environment"), "w+b"))
        content.write(b"\0".join([_DEFAULT_TERM, *variables] if terminal else variables))
        content.seek(0)
        gate, opening = (_closed_by(stack, number) for number in os.pipe2(os.O_CLOEXEC))
        descriptors = [gate, content.fileno(), _mount_namespace(begun, stack)]
        words = [*descriptors, begun.pid, "tty" if terminal else "", *identity, os.readlink(f"/proc/{begun.pid}/cwd")]
        child = _start_launcher([*map(str, words), *argv], variables, streams, descriptors)
        _join_groups(begun, child)
        # The program begins only now, so it never runs without the limits of the container.
        os.write(opening, b"\n")
        failure.pop_all()
    return child, streams


def _start_launcher(
    words: list[str], variables: list[bytes], streams: Streams, descriptors: list[int]
) -> subprocess.Popen[bytes]:
    """Start the launcher. It may be root: of what a manifest sets, its environment has only the container's marker."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", _LAUNCHER, *words],
        env={name: value for name, _, value in (variable.partition(b"=") for variable in variables) if name in _MARKER},
        stdin=streams.child.stdin,
        stdout=streams.child.stdout,
        stderr=streams.child.stderr,
        start_new_session=True,
        umask=0o022,
        pass_fds=[descriptor for descriptor in descriptors if descriptor >= 0],
    )


def _join_groups(begun: StartRecord, child: subprocess.Popen[bytes]) -> None:
    """Move the program into the container's groups. Raises EngineError; then it has ended."""
    try:
        cgroups.join_groups(begun.groups, child.pid)
    except OSError as error:
        child.kill()
        child.wait()
        message = f"the limits of {begun.place.container} cannot be applied to another program: {error.strerror}"
        raise EngineError(message, reason=Reason.LIMITS_FAILED) from error


def _mount_namespace(begun: StartRecord, stack: contextlib.ExitStack) -> int:
    """A descriptor of the container's mount namespace if it is another one, which only root can join; otherwise -1.

    The daemon may have one of its own: systemd makes it for a service whose file systems are protected.
    """
    path = f"/proc/{begun.pid}/ns/mnt"
    if os.geteuid() != 0 or os.stat(path).st_ino == os.stat("/proc/self/ns/mnt").st_ino:
        return -1
    descriptor = _closed_by(stack, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    if not is_alive(begun.pid, begun.start):
        raise EngineError(f"{begun.place.container} does not run", reason=Reason.NOT_RUNNING)
    return descriptor


def _closed_by(stack: contextlib.ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor
