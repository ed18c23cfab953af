"""A Podman service that the daemon starts itself where none answers, and that ends with the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import shutil
import socket
import time
from pathlib import Path

from reconciler.engines.host.runtimes.podman.api.words import read_log_message
from reconciler.errors import EngineError
from reconciler.logs import log
from reconciler.reasons import Reason
from reconciler.tasks import wait_or_kill

FOLDER = "podman-service"
"""In the directory of the location: the socket of the service, and what it prints."""
_SOCKETS = "reconciler-podman"
"""In the runtime directory of the user: the sockets whose paths would be too long in a location's directory."""
_LONGEST = 107
"""Bytes of the path of a unix socket."""
_START_SECONDS = 20.0
_END_SECONDS = 5.0
_POLL_SECONDS = 0.02
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Between the end of a service and its next start: each pause is twice as long as the one before."""
_DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM")
_SYSTEM_PROGRAMS = "/usr/sbin:/sbin:/usr/bin:/bin"


def is_listening(path: Path) -> bool:
    """Whether somebody listens at the socket ``path``. Blocks for a moment only."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(1.0)
            link.connect(str(path))
    except OSError:
        return False
    return True


class OwnService:
    """``podman system service`` for the location whose directory is ``root``; containers run on without it.

    Containers, images and networks are those of `podman` on the command line of the same user. ``runtime`` is the
    program that starts containers, "" for that of Podman's configuration.
    """

    def __init__(self, root: Path, runtime: str = "") -> None:
        self._runtime = runtime
        self.socket = _choose_socket(root)
        self._log_file = root / FOLDER / "log"
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it unless it runs; return once it answers. Raises EngineError with its last words."""
        if self._keeping is not None:
            return
        if len(os.fsencode(self.socket)) > _LONGEST:
            message = f"the path {self.socket} is too long for a socket: set `podman.socket`, or a shorter `state`"
            raise EngineError(message, reason=Reason.RUNTIME_UNAVAILABLE)
        # One that listens is that of the daemon, while a command asks, or one that ends with the former daemon.
        if not await asyncio.to_thread(is_listening, self.socket):
            await self._run()
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End it; containers run on."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])
        await self._end_process()

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.terminate()
            await wait_or_kill(process, _END_SECONDS)

    async def _run(self) -> None:
        """Start the process, and wait until it answers. Raises EngineError; then none runs."""
        try:
            await self._start_process()
            await self._wait_until_listening()
        except BaseException:
            await self._end_process()
            raise
        log().info("podman_service_started", socket=str(self.socket))

    async def _start_process(self) -> None:
        try:
            for folder in (self._log_file.parent, self.socket.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.socket.unlink(missing_ok=True)
            with self._log_file.open("wb") as output:
                self._process = await asyncio.create_subprocess_exec(
                    *_make_command(self.socket, self._runtime),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=_make_environment(),
                    cwd=self._log_file.parent,  # conmon writes a file there when the memory is exhausted
                    start_new_session=True,
                )
        except OSError as error:
            message = f"podman system service cannot be started: {error}"
            raise EngineError(message, reason=Reason.RUNTIME_UNAVAILABLE) from error

    async def _wait_until_listening(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while not await asyncio.to_thread(is_listening, self.socket):
            if self._process.returncode is not None or time.monotonic() >= deadline:
                message = f"podman system service does not start: {self._read_last_line()}"
                raise EngineError(message, reason=Reason.RUNTIME_UNAVAILABLE)
            await asyncio.sleep(_POLL_SECONDS)

    async def _keep(self) -> None:
        """Start it again whenever it ends, after growing pauses, until cancelled."""
        pause = _PAUSE_SECONDS
        while True:
            began = time.monotonic()
            await self._wait_until_ended()
            lasted = time.monotonic() - began > _LONGEST_PAUSE_SECONDS
            pause = _PAUSE_SECONDS if lasted else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)
            with contextlib.suppress(EngineError):
                await self._run()

    async def _wait_until_ended(self) -> None:
        if self._process is not None:
            code = await self._process.wait()
            log().warning("podman_service_ended", code=code, error=self._read_last_line())
        while await asyncio.to_thread(is_listening, self.socket):
            await asyncio.sleep(_PAUSE_SECONDS)

    def _read_last_line(self) -> str:
        try:
            text = self._log_file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "it says nothing"
        last = read_log_message(text.strip().rpartition("\n")[2])
        return last[:500] or "it says nothing"


def _choose_socket(root: Path) -> Path:
    """Where the service of the location ``root`` listens: in its directory, where a socket may have that path."""
    path = root / FOLDER / "podman.sock"
    runtime_directory = os.environ.get("XDG_RUNTIME_DIR", "" if os.geteuid() else "/run")
    if len(os.fsencode(path)) <= _LONGEST or not os.access(runtime_directory, os.W_OK):
        return path
    name = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    return Path(runtime_directory, _SOCKETS, f"{name}.sock")


def _make_command(path: Path, runtime: str) -> list[str]:
    prefix = _DIES_WITH_US if shutil.which(_DIES_WITH_US[0]) else ()
    option = ("--runtime", runtime) if runtime else ()
    return [*prefix, "podman", *option, "system", "service", "--time", "0", f"unix://{path}"]


def _make_environment() -> dict[str, str]:
    """That of this process, without what systemd says to the daemon alone, and with a home of this user."""
    environment = {name: value for name, value in os.environ.items() if name not in {"NOTIFY_SOCKET", "LISTEN_FDS"}}
    environment["PATH"] = _search_path()
    with contextlib.suppress(KeyError):
        if not os.access(environment.get("HOME", ""), os.W_OK):
            environment["HOME"] = pwd.getpwuid(os.geteuid()).pw_dir
    if not os.access(environment.get("XDG_RUNTIME_DIR", ""), os.W_OK):
        environment.pop("XDG_RUNTIME_DIR", None)
    return environment


def _search_path() -> str:
    """PATH, with the directories in which distributions have the programs that Podman calls."""
    return f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}".lstrip(":")
