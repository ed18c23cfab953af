"""Wake-ups: several become one, and other processes send them through a socket in the state directory."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from reconciler.private_files import name_senders, receive_datagram, remove_own

STATUS = "/status"
"""Wake-up name, in place of a source (whose name has no slash), that only writes status."""
DRIFT = "/drift"
"""Wake-up name, in place of a source, that checks the locations and the secrets on this host."""
NOTICED = "noticed"
"""Reason for ``DRIFT``: an engine has noticed changes, and only what has changed is observed."""
LOCATIONS_ALONE = frozenset({NOTICED, "command"})
"""Reasons for ``DRIFT`` that no secret changes with: a health change must not cost a read of every secret."""
CERTIFICATES = "/certificates"
"""Wake-up name, in place of a source, that makes the engines reread their files."""
COMMANDS = "/commands"
"""Wake-up name, in place of a source, that performs commands on resources."""
API_CERTIFICATE = "/api-certificate"
"""Wake-up name, in place of a source, that looks at the end of the certificate of the API."""
BACKUP = "/backup"
"""Wake-up name, in place of a source, that compares the times of backups with the settings."""
REQUESTS = "/requests"
"""Wake-up name, in place of a source, that answers requests which need no run."""

REFRESH = "refresh"
"""A reason that makes the engines reread what operators requested."""

_NAME = "wake.sock"
_LONGEST_ADDRESS = 107
_LONGEST_MESSAGE = 1024


class WakeQueue:
    """Pending wake-ups by source; ``None`` stands for every source. For the loop's thread only."""

    def __init__(self) -> None:
        import asyncio  # not for commands, which only wake

        self._waiting: dict[str | None, set[str]] = {}
        self._some = asyncio.Event()

    def add(self, source: str | None, reason: str) -> None:
        """Ask for a run of ``source`` because of ``reason``."""
        self._waiting.setdefault(source, set()).add(reason)
        self._some.set()

    def waiting(self) -> bool:
        """Whether a wake-up is pending."""
        return bool(self._waiting)

    def transfer_to(self, to: WakeQueue) -> None:
        """Move the pending wake-ups to the queue ``to``."""
        waiting, self._waiting = self._waiting, {}
        for source, reasons in waiting.items():
            for reason in reasons:
                to.add(source, reason)

    async def take(self) -> dict[str | None, set[str]]:
        """Wait for a wake-up; return all since the last call, as source → reasons."""
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        taken, self._waiting = self._waiting, {}
        return taken


class WakeSocket:
    """Receives the wake-ups of other processes at ``state``/wake.sock. Only the holder of the state lock opens it.

    Processes of root and of the daemon's user count.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._socket: socket.socket | None = None
        self._inode = 0

    def open(self, call: Callable[[str | None, str], None]) -> None:
        """Call ``call(source, reason)`` on the running event loop for every wake-up that arrives."""
        import asyncio

        (self._state / _NAME).unlink(missing_ok=True)
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        # Before bind, so that the file never exists with wider rights.
        os.fchmod(receiver.fileno(), 0o600)
        name_senders(receiver)
        with address_of(self._state, _NAME) as address:
            receiver.bind(address)
        self._inode = (self._state / _NAME).lstat().st_ino
        self._socket = receiver
        asyncio.get_running_loop().add_reader(receiver, self._receive, receiver, call)

    def close(self) -> None:
        """Stop listening; does nothing if it is not open."""
        import asyncio

        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            remove_own(self._state / _NAME, self._inode)

    @staticmethod
    def _receive(receiver: socket.socket, call: Callable[[str | None, str], None]) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                words, sender = receive_datagram(receiver, _LONGEST_MESSAGE)
                reason, _, source = words.decode(errors="replace").partition("\n")
                if sender is not None and sender.uid in (0, os.geteuid()):
                    call(source or None, reason)


def wake_daemon(state: Path, source: str | None = None, reason: str = "operator") -> bool:
    """Wake the daemon on ``state`` for ``source`` (None: all); False if no daemon listens. Never blocks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            with address_of(state, _NAME) as address:
                sender.sendto(f"{reason}\n{source or ''}".encode()[:_LONGEST_MESSAGE], address)
        except BlockingIOError:
            # The queue of the daemon is full of wake-ups, so it wakes anyway.
            return True
        except OSError:
            return False
    return True


@contextlib.contextmanager
def address_of(state: Path, name: str) -> Iterator[str]:
    """The address of the socket ``name``; a path too long for the kernel goes through the open directory."""
    path = str(state / name)
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    directory = os.open(state, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{name}"
    finally:
        os.close(directory)
