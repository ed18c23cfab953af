"""Runs ``git`` and ``gpg`` with a clean environment, a deadline, bounded output, and no configuration of a source."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

LAST_BYTES = 64 * 1024
"""Retained bytes of each output, the last ones: a remote can write to stderr without limit."""

_GRACE = 1.0
"""Seconds for commands to clean up after SIGTERM."""
_LAST_WORDS = 5.0
"""Seconds for killed processes to close their pipes; a process outside of our group may never do so."""


class GitResult(msgspec.Struct, frozen=True):
    """The exit code of a command, with the last ``LAST_BYTES`` of each output as text."""

    code: int
    output: str
    errors: str


def clean_environment(home: str = "/nonexistent", protocols: str = "none") -> dict[str, str]:
    """An environment in which Git reads only its repository's configuration and never prompts.

    ``protocols`` are the permitted ones, separated by ``:``. A missing object is an error: Git never fetches it from a
    promisor remote, since that would run programs from the repository's configuration.
    """
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


@contextmanager
def borrowed_objects(objects: Path) -> Iterator[dict[str, str]]:
    """The environment for a git command that accesses only the ``objects`` directory of a repository.

    The command runs in an empty repository of ours, so that the owner repository's configuration, hooks, refs, grafts
    and attributes have no effect. It exists until the block ends.
    """
    with tempfile.TemporaryDirectory(prefix="reconciler-") as name:
        path = Path(name)
        (path / "refs").mkdir()
        (path / "objects").mkdir()
        (path / "HEAD").write_text("ref: refs/heads/none\n")
        (path / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
        yield clean_environment() | {"GIT_DIR": name, "GIT_OBJECT_DIRECTORY": str(objects)}


def run_git(
    command: list[str],
    path: Path,
    environment: dict[str, str],
    timeout: float,
    watch: Callable[[str], None] | None = None,
) -> GitResult | None:
    """Run ``command`` in ``path`` with this environment alone; None after ``timeout`` (seconds).

    All processes that it started end with it. ``watch`` gets what it writes to standard error, in pieces.
    """
    with subprocess.Popen(
        command,
        cwd=path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        tails: dict[IO[bytes], bytearray] = {pipe: bytearray() for pipe in (running.stdout, running.stderr) if pipe}
        try:
            ended = _read_pipes(tails, time.monotonic() + timeout, running.stderr if watch else None, watch)
            if ended:
                running.wait(timeout)
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            _end_command(running, tails)
    output, errors = (bytes(tail).decode("utf-8", "replace") for tail in tails.values())
    return GitResult(running.returncode, output, errors) if ended else None


def _read_pipes(
    tails: dict[IO[bytes], bytearray],
    deadline: float,
    watched: IO[bytes] | None = None,
    watch: Callable[[str], None] | None = None,
) -> bool:
    """Fill ``tails`` with the last bytes of each pipe until all are closed; False if ``deadline`` passes first.

    ``watch`` gets what comes from the pipe ``watched``.
    """
    with selectors.DefaultSelector() as selector:
        for pipe in tails:
            selector.register(pipe, selectors.EVENT_READ, pipe)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, LAST_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                tails[key.data] += chunk
                if watch is not None and key.data is watched:
                    watch(chunk.decode("utf-8", "replace"))
                del tails[key.data][:-LAST_BYTES]
    return True


def _end_command(running: subprocess.Popen[bytes], tails: dict[IO[bytes], bytearray]) -> None:
    """End the command and its children: ssh and git-remote-https would survive a kill of git alone."""
    if running.returncode is None:
        # Not reaped yet, so its number still identifies its group and no other.
        os.killpg(running.pid, signal.SIGTERM)  # Git removes its lock files, which would stop the next command
        _read_pipes(tails, time.monotonic() + _GRACE)
        os.killpg(running.pid, signal.SIGKILL)
        _read_pipes(tails, time.monotonic() + _LAST_WORDS)
        running.wait()
