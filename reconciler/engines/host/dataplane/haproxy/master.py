"""The process of HAProxy: a master with its workers. It is started here, outlives the daemon, and is found again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.dataplane.haproxy.config import CONFIG, HOLD, HOLDS, MASTER_SOCKET, PAGES, PID, pages
from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.engines.host.runtimes import exit_watch, procfs
from reconciler.engines.host.runtimes.replicas_service import move_to_service
from reconciler.errors import EngineError
from reconciler.private_files import make_directory
from reconciler.reasons import Reason

OUTPUT = "haproxy.log"
START_SECONDS = 10.0
"""Seconds in which it must serve a new configuration; 2,000 workloads take half a second."""
ANSWER_SECONDS = 5.0
PAUSE = 0.02
LONGEST_LINE = 12_000
"""Bytes of commands that are sent at once; HAProxy reads a line into a buffer of 16 KiB."""
_ALERT = "[ALERT]"
_NEW_CONFIG = f"{CONFIG}.new"
_CHECKED = "checked.cfg"
LARGEST_OUTPUT = 1 << 20


class Master:
    """The HAProxy of one location, whose files are in ``directory``. ``on_end`` is called when it has ended."""

    def __init__(self, directory: Path, on_end: Callable[[], None]) -> None:
        self._directory = directory
        self._program = ""
        self._holds: str | None = None
        self._on_end = on_end
        self._ends = exit_watch.ExitWatcher()
        self._descriptor = -1
        self._found: procfs.Proc | None = None

    @property
    def running(self) -> bool:
        """Whether it runs, as far as is known."""
        return self._found is not None and exit_watch.is_alive(self._found.pid, self._found.start)

    @property
    def former_workers(self) -> int:
        """The number of workers that take no new connections, and still have some."""
        return max(len(procfs.children(self._found.pid)) - 1, 0) if self._found is not None else 0

    @property
    def has_socket(self) -> bool:
        """Whether its socket is there."""
        return (self._directory / MASTER_SOCKET).exists()

    def open(self, program: str) -> None:
        """Prepare the directory, and find the HAProxy that an earlier daemon started. Raises EngineError.

        ``program`` is the path of the one to start.
        """
        self._program = program
        try:
            make_directory(self._directory / PAGES, 0o711)
            self._directory.chmod(0o711)
            if self._descriptor < 0:
                self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise write_error(f"{self._directory} cannot be used", error) from None
        write_atomic(self._directory / HOLD, Path(__file__).with_name(HOLD).read_bytes(), 0o644)
        self._holds = None
        if not (self._directory / HOLDS).exists():
            self.write_holds({})
        for status, text in pages().items():
            write_atomic(self._directory / PAGES / str(status), text.encode(), 0o644)
        if (found := find_master(self._directory)) is not None:
            self._watch(found)

    def close(self) -> None:
        """Stop watching; it keeps running."""
        self._ends.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._found = -1, None

    def socket_path(self, name: str) -> str:
        """A short path of a socket in the directory."""
        return f"/proc/self/fd/{self._descriptor}/{name}"

    def config(self) -> str:
        """The configuration that was accepted last; "" if there is none."""
        try:
            return (self._directory / CONFIG).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""

    def replace_config(self, text: str) -> None:
        """Replace the file with one that differs in nothing but servers. Raises EngineError."""
        write_atomic(self._directory / CONFIG, text.encode(), 0o600)

    def write_holds(self, holds: Mapping[str, int]) -> None:
        """Write the file from which a new worker gets the holds of operators. Raises EngineError."""
        text = "".join(f"{name} {end}\n" for name, end in sorted(holds.items()))
        if text != self._holds:
            write_atomic(self._directory / HOLDS, text.encode(), 0o644)
            self._holds = text

    def write_file(self, name: str, text: str) -> None:
        """Write a file from which a new worker reads. Raises EngineError."""
        write_atomic(self._directory / name, text.encode(), 0o644)

    async def check_text(self, text: str) -> str:
        """The messages of HAProxy about a configuration that is not used. Raises EngineError."""
        write_atomic(self._directory / _CHECKED, text.encode(), 0o600)
        return (await asyncio.to_thread(self._run, "-c", "-f", _CHECKED)).stderr

    async def check_config(self, text: str) -> None:
        """Replace the file if HAProxy accepts ``text``. Raises EngineError, and the former one stays."""
        new = self._directory / _NEW_CONFIG
        write_atomic(new, text.encode(), 0o600)
        done = await asyncio.to_thread(self._run, "-c", "-f", _NEW_CONFIG)
        if done.returncode:
            why = f"HAProxy refused its configuration, the former one stays in force: {_alert(done.stderr)}"
            raise EngineError(why, reason=Reason.PROXY_CONFIG_REFUSED)
        try:
            new.replace(self._directory / CONFIG)
        except OSError as error:
            raise write_error(f"{self._directory / CONFIG} cannot be written", error) from None

    async def start(self) -> None:
        """Start it with the accepted configuration, and return when it serves. Raises EngineError."""
        pid = await asyncio.to_thread(self._spawn)
        found = procfs.find_process(pid)
        if found is not None:
            self._watch(found)
        await self._until_served("")

    async def reload(self, digest: str) -> None:
        """Let it take the accepted configuration, and return when a worker has the one of ``digest``.

        Raises EngineError; the former worker then goes on.
        """
        if self._found is not None:
            procfs.signal_exactly(self._found, signal.SIGUSR2)
        await self._until_served(digest)

    def stop(self) -> None:
        """Let it end after its last connection; it takes no new ones from now on."""
        if self._found is not None:
            self._ends.forget(self._found.pid)
            procfs.signal_exactly(self._found, signal.SIGUSR1)
            self._found = None

    def kill(self) -> None:
        """End it with its workers at once: it does not answer any more. Its end is reported as every other."""
        if self._found is not None:
            # One that hangs would otherwise go on to share the ports with the next one.
            workers = [procfs.find_process(pid) for pid in procfs.children(self._found.pid)]
            for each in (*workers, self._found):
                if each is not None:
                    procfs.signal_exactly(each, signal.SIGKILL)

    def trim_output(self) -> None:
        """Empty the file of its messages if it is large; they are of use when it cannot be started."""
        path = self._directory / OUTPUT
        with suppress(OSError):
            if path.stat().st_size > LARGEST_OUTPUT:
                os.truncate(path, 0)

    async def digest(self) -> str:
        """The digest in the configuration of the live worker. Raises EngineError."""
        lines = (await self.ask("@1 show info")).splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("description:")), "")

    async def send(self, commands: Iterable[str]) -> None:
        """Send commands to the live worker. What they change shows in its state. Raises EngineError."""
        line = ""
        for each in commands:
            if len(line) + len(each) > LONGEST_LINE:
                await self.ask(line)
                line = ""
            line += f"{';' if line else ''}@1 {each}"
        if line:
            await self.ask(line)

    async def ask(self, line: str) -> str:
        """The answer to a line of commands. Raises EngineError."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self.socket_path(MASTER_SOCKET))
                try:
                    writer.write(f"{line}\n".encode())
                    writer.write_eof()
                    return (await reader.read()).decode(errors="replace")
                finally:
                    writer.close()
        except OSError as error:
            why = error.strerror or "no answer in time"
            raise EngineError(f"HAProxy does not answer at its socket: {why}", reason=Reason.PROXY_FAILED) from None

    async def _until_served(self, digest: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while self.running and loop.time() < deadline:
            with suppress(EngineError):
                if (found := await self.digest()) and digest in ("", found):
                    return
            await asyncio.sleep(PAUSE)
        raise EngineError(f"HAProxy cannot be started: {self._last_alert()}", reason=Reason.PROXY_FAILED)

    def _spawn(self) -> int:
        mode = 0o600
        try:
            output = os.open(self._directory / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, mode)
            try:
                words = ("-W", "-S", f"unix@./{MASTER_SOCKET},mode,600", "-f", CONFIG, "-p", PID)
                started = subprocess.Popen(
                    [self._program, *words],
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            finally:
                os.close(output)
        except OSError as error:
            raise EngineError(f"HAProxy cannot be started: {error.strerror}", reason=Reason.PROXY_FAILED) from None
        # Its workers follow: they are started by it.
        move_to_service(started.pid)
        # Its end is watched by its number, because an earlier daemon may have started it.
        started.returncode = 0
        return started.pid

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._program, *words],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=START_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            why = getattr(error, "strerror", None) or "it did not end in time"
            raise EngineError(f"HAProxy cannot be run: {why}", reason=Reason.PROXY_FAILED) from None

    def _watch(self, found: procfs.Proc) -> None:
        def end() -> None:
            exit_watch.reap(found.pid)
            if self._found is found:
                self._found = None
                self._on_end()

        self._found = found
        self._ends.watch(found.pid, end)

    def _last_alert(self) -> str:
        path = self._directory / OUTPUT
        with suppress(OSError):
            return _alert(path.read_text(encoding="utf-8", errors="replace"))
        return "it ended"


def find_master(directory: Path) -> procfs.Proc | None:
    """The HAProxy that runs in ``directory``; None if none does. A file with the number of another process is old."""
    try:
        pid = int((directory / PID).read_text(encoding="ascii"))
        own = Path(f"/proc/{pid}/cwd").readlink() == directory.resolve()
    except (OSError, ValueError):
        return None
    found = procfs.find_process(pid)
    alive = found is not None and found.alive and own
    return found if alive and MASTER_SOCKET in b" ".join(procfs.command_line(pid)).decode(errors="replace") else None


def retire(directory: Path) -> None:
    """Let the HAProxy of a location end after its last connection, because another data plane takes its place."""
    if (found := find_master(directory)) is not None:
        procfs.signal_exactly(found, signal.SIGUSR1)


def _alert(text: str) -> str:
    """The first alert in the output of HAProxy, without its prefix; else the last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if line.startswith(_ALERT)), lines[-1] if lines else "it ended")
    return found.partition(") : ")[2] or found
