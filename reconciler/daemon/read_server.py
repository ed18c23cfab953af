"""Serves users with read-only access: their commands run here, as the daemon's user.

These users need no access to any file of the state directory. They see what the commands show: never the data of a
secret, unless a workload wrote it into its logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import re
import signal
import socket
import stat
import sys
from collections import Counter
from pathlib import Path

import msgspec

from reconciler.bugs import contained
from reconciler.daemon.wake import address_of
from reconciler.logs import log
from reconciler.private_files import remove_own
from reconciler.tasks import cancel_and_wait

NAME = "read.sock"
"""The socket in the state directory. Every user who may write to it is served; the kernel enforces that."""
MAX_COMMANDS = 16
"""The most concurrent commands of all users together."""
MAX_COMMANDS_PER_USER = 4
PATIENCE = 5.0
"""Seconds in which a client must send its command."""
COMMAND_SECONDS = 300.0
"""Seconds that a command may take, unless it follows its output."""
OUSTED = "ousted"
"""Cancel message of a task whose slot another user gets."""
ENV_SERVED_FOR_UID = "RECONCILER_SERVED"
"""Set for a command that runs here; its value is the uid of the client."""
_LONGEST = 65_536
_HEAD = 5


class Frame:
    """Frame format: one byte for the kind, four for the length, then the content."""

    OUT, ERRORS, EXIT = 1, 2, 3

    @staticmethod
    def encode(kind: int, content: bytes) -> bytes:
        """Return one frame of ``kind``."""
        return bytes((kind,)) + len(content).to_bytes(_HEAD - 1, "big") + content

    @staticmethod
    def length(head: bytes) -> int:
        """Number of bytes that follow ``head``."""
        return int.from_bytes(head[1:_HEAD], "big")


class ReaderSlots:
    """The running commands of each user; neither one user nor a few can lock the others out.

    A user has at most MAX_COMMANDS_PER_USER. When all MAX_COMMANDS are taken, a user with fewer commands gets the slot
    of the oldest command of the user with the most.
    """

    def __init__(self) -> None:
        self._users: dict[asyncio.Task[None], int] = {}

    def admit(self, user: int) -> tuple[str, asyncio.Task[None] | None]:
        """Return why ``user`` may start no further command (``""``: allowed), and the task that must end first."""
        counts = Counter(self._users.values())
        if counts[user] >= MAX_COMMANDS_PER_USER:
            return f"you have {counts[user]} commands running already; end one", None
        if len(self._users) < MAX_COMMANDS:
            return "", None
        greediest, most = counts.most_common(1)[0]
        if most <= counts[user] + 1:
            return "too many commands at once; try again", None
        return "", next(task for task, owner in self._users.items() if owner == greediest)

    def take(self, task: asyncio.Task[None], user: int) -> None:
        """Give ``user`` a slot, for ``task``."""
        self._users[task] = user

    def free(self, task: asyncio.Task[None]) -> None:
        """Free the slot of ``task``, which has ended or is about to."""
        self._users.pop(task, None)


class ReadOnlyServer:
    """Listens in ``state`` for members of a group; their commands use the settings ``file``."""

    def __init__(self, state: Path, file: Path) -> None:
        self._state = state
        self._file = file
        self._server: asyncio.Server | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._slots = ReaderSlots()
        self._group = ""
        self._inode = 0

    async def open(self, group: str) -> None:
        """Serve members of ``group`` (a name; ``""``: none). A refusal by the host is logged."""
        if group == self._group:
            return
        await self.close()
        self._group = group
        if not group:
            return
        try:
            self._server = await self._listen(grp.getgrnam(group).gr_gid)
        except KeyError:
            log().warning("readers", group=group, message="there is no such group on this host")
        except OSError as error:
            message = f"{error.strerror}: the daemon's user has to be a member of the group, or root"
            log().warning("readers", group=group, message=message)

    async def close(self) -> None:
        """Stop serving; running commands end."""
        self._group = ""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        await cancel_and_wait(self._asking, "readers")
        if remove_own(self._state / NAME, self._inode):
            self._restrict(0o700)

    def _restrict(self, mode: int) -> None:
        """Set ``mode`` on the state directory; keep the search bit that the host engine sets for other users."""
        self._state.chmod(mode | (self._state.stat().st_mode & stat.S_IXOTH))

    async def _listen(self, gid: int) -> asyncio.Server:
        (self._state / NAME).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), 0o600)  # before bind, so that the file never exists with wider rights
            with address_of(self._state, NAME) as address:
                listener.bind(address)
            self._inode = (self._state / NAME).lstat().st_ino
            os.chown(self._state / NAME, -1, gid, follow_symlinks=False)
            os.chown(self._state, -1, gid)
            (self._state / NAME).chmod(0o660)
            self._restrict(0o710)
            return await asyncio.start_unix_server(self._asked, sock=listener, limit=_LONGEST)
        except OSError:
            listener.close()
            raise

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asking.add(task)
        try:
            with contained("readers"), contextlib.suppress(OSError, ValueError, TimeoutError, msgspec.DecodeError):
                await self._admit(task, reader, writer)
        except asyncio.CancelledError as cancelled:
            if OUSTED in cancelled.args:
                _refuse(writer, "ended to make room for other readers; try again later")
            raise
        finally:
            self._asking.discard(task)
            self._slots.free(task)
            writer.close()

    async def _admit(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Run the command, if the user may start another one."""
        user = _user(writer.get_extra_info("socket"))
        refusal, ousted = self._slots.admit(user)
        if refusal:
            _refuse(writer, refusal)
            return
        if ousted is not None:
            self._slots.free(ousted)
            ousted.cancel(OUSTED)
        self._slots.take(task, user)
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
        words = msgspec.json.decode(line, type=list[str])
        log().debug("reading", user=user, command=words[:1])
        running = await asyncio.create_subprocess_exec(
            # -I and "/": nothing is imported from the daemon's working directory.
            *(sys.executable, "-I", "-m", "reconciler.cli.read_commands", *words),
            cwd="/",
            env=_environment()
            | {"RECONCILER_SETTINGS": str(self._file), ENV_SERVED_FOR_UID: str(user), "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        await _relay(running, reader, writer, None if _follows(words) else COMMAND_SECONDS)


async def _relay(
    running: asyncio.subprocess.Process,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    seconds: float | None,
) -> None:
    """Forward the command's output until it ends, the client leaves, or ``seconds`` are over; then kill it."""
    gone = asyncio.create_task(reader.read(1))
    forwarding = asyncio.create_task(_forward(running, writer))
    try:
        done, _ = await asyncio.wait({gone, forwarding}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            _refuse(writer, f"ended after {seconds:.0f} s, the limit for commands of readers")
    finally:
        for task in (gone, forwarding):
            task.cancel()
        if running.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        await running.wait()


def _follows(words: list[str]) -> bool:
    """Whether the command runs until its client ends it: ``--follow``, or ``-f`` alone or among other letters."""
    return any(word == "--follow" or re.fullmatch("-[a-z]*f.*", word) for word in words)


def _refuse(writer: asyncio.StreamWriter, why: str) -> None:
    """Make the client's command end with an error. Does not wait for delivery."""
    writer.write(Frame.encode(Frame.ERRORS, f"error: {why}\n".encode()))
    writer.write(Frame.encode(Frame.EXIT, b"1"))


async def _forward(running: asyncio.subprocess.Process, writer: asyncio.StreamWriter) -> None:
    assert running.stdout is not None
    assert running.stderr is not None

    async def pass_on(kind: int, stream: asyncio.StreamReader) -> None:
        while content := await stream.read(_LONGEST):
            writer.write(Frame.encode(kind, content))
            await writer.drain()

    await asyncio.gather(pass_on(Frame.OUT, running.stdout), pass_on(Frame.ERRORS, running.stderr))
    writer.write(Frame.encode(Frame.EXIT, str(await running.wait()).encode()))
    await writer.drain()


def _user(peer: socket.socket) -> int:
    """The uid of the peer, from the kernel."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _environment() -> dict[str, str]:
    """The daemon's environment, without the variables of its systemd unit."""
    return {name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_PID")}
