"""Lets the daemon run a command for a member of the readers, who may not read the records."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import IO

import msgspec

from reconciler.daemon.read_server import NAME, Frame
from reconciler.daemon.wake import address_of
from reconciler.errors import RecordsError


def relay(state: Path, group: str, words: list[str]) -> int:
    """Send the command line ``words`` to the daemon, print its output and return the exit code.

    Raises RecordsError where no daemon answers, or this user is not of the ``group``.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            with address_of(state, NAME) as address:
                link.connect(address)
            link.sendall(msgspec.json.encode(_without_settings(words)) + b"\n")
        except PermissionError:
            raise RecordsError(
                f"this user may not read {state}: run the command as root, or become a member of the group {group}"
            ) from None
        except OSError as error:
            raise RecordsError(
                f"no daemon answers readers at {state} ({error.strerror}); start it, or run the command as root"
            ) from None
        return _print_frames(link)


def _print_frames(link: socket.socket) -> int:
    with link.makefile("rb") as stream:
        while head := _read(stream, 5):
            content = _read(stream, Frame.length(head))
            if head[0] == Frame.EXIT:
                return max(1, int(content)) if content.startswith(b"-") else int(content)
            out = sys.stdout if head[0] == Frame.OUT else sys.stderr
            out.buffer.write(content)
            out.buffer.flush()
    raise RecordsError("the daemon ended before it answered")


def _read(stream: IO[bytes], count: int) -> bytes:
    """Read ``count`` bytes; ``b""`` where the daemon closed the connection."""
    try:
        content = stream.read(count)
    except ConnectionError:
        return b""
    return content if len(content) == count else b""


def _without_settings(words: list[str]) -> list[str]:
    """``words`` without ``--settings FILE``: the daemon uses its own settings."""
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--settings":
            next(rest, None)
        elif not word.startswith("--settings="):
            others.append(word)
    return others
