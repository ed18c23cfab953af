"""The process of HAProxy: a master with its workers. It outlives the daemon, and is found again.

Its systemd unit starts it where that is enabled, else the daemon.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.dataplane.haproxy.config import CONFIG, EMPTY, HOLD, HOLDS, MASTER_SOCKET
from reconciler.engines.host.dataplane.haproxy.discovery import (
    MasterProcess,
    ProxyUnit,
    find_lost,
    find_master,
    first_alert,
    get_peer_pid,
    last_alert,
    spawn_master,
    trim_output,
)
from reconciler.engines.host.dataplane.haproxy.live import read_facts
from reconciler.engines.host.dataplane.haproxy.rendering.pages import PAGES, render_pages
from reconciler.engines.host.dataplane.haproxy.split import SPLITS
from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.engines.host.disk.directories import make_traversable
from reconciler.engines.host.runtimes import exit_watch, procfs
from reconciler.errors import EngineError
from reconciler.reasons import Reason

START_SECONDS = 10.0
"""Seconds in which it must serve a new configuration; 2,000 workloads take half a second."""
ANSWER_SECONDS = 5.0
ENDING_SECONDS = 2.0
"""Seconds in which the workers of a master that was killed end too; they do so within milliseconds."""
NEXT_SECONDS = 0.5
"""Seconds without an answer after which a process that starts is asked again."""
PAUSE = 0.02
LONGEST_LINE = 12_000
"""Bytes of commands that are sent at once; HAProxy reads a line into a buffer of 16 KiB."""
_DENIED = "Permission denied"
_NEW_CONFIG, _CHECKED = f"{CONFIG}.new", "checked.cfg"


def has_content(path: Path, text: str) -> bool:
    """Whether the file ``path`` is as it was written."""
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


class Master:
    """The HAProxy of one location, whose files are in ``directory``. ``on_end`` is called when it has ended.

    Where ``unit`` is enabled, that starts it.
    """

    def __init__(self, directory: Path, on_end: Callable[[], None], unit: ProxyUnit) -> None:
        self._directory = directory
        self._program = ""
        self._files: dict[str, str] = {}
        self._restores: list[Callable[[], None]] = []
        self._on_end = on_end
        self.unit = unit
        self._ends = exit_watch.ExitWatcher()
        self._descriptor = -1
        self._found: MasterProcess | None = None

    @property
    def running(self) -> bool:
        """Whether it runs, as far as is known."""
        return self._found is not None and self._found.alive

    @property
    def pid(self) -> int | None:
        """The number of the process; None if none is known."""
        return self._found.pid if self._found is not None else None

    @property
    def has_socket(self) -> bool:
        """Whether its socket is there."""
        return (self._directory / MASTER_SOCKET).exists()

    def open(self, program: str) -> None:
        """Prepare the directory, and find the HAProxy that an earlier daemon started; ``program`` is the path of the
        one to start. Raises EngineError.
        """
        self._program = program
        try:
            make_traversable(self._directory.parent, self._directory / PAGES)
            if self._descriptor < 0:
                self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise write_error(f"{self._directory} cannot be used", error) from None
        self._files.clear()
        self.write_file(HOLD, Path(__file__).with_name(HOLD).read_text(encoding="utf-8"))
        # HAProxy refuses a configuration whose maps are missing. Those of an earlier daemon are still in force.
        for name in (text for text in (HOLDS, SPLITS, EMPTY) if not (self._directory / text).exists()):
            self.write_map(name, {})
        for name, text in render_pages().items():
            self.write_file(f"{PAGES}/{name}", text)
        self.find()
        if not self.running and (lost := find_lost(self._directory)) is not None:
            self._follow(lost)

    def find(self) -> None:
        """Find one that its unit, or an earlier daemon, has started, if none is known."""
        if not self.running and (master := find_master(self._directory)) is not None:
            self._follow(master)

    def close(self) -> None:
        """Stop watching; it keeps running."""
        self._ends.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._leave()

    def socket_path(self, name: str) -> str:
        """A short path of a socket in the directory."""
        # The kernel takes 107 bytes, and the path of the state directory may be longer.
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

    def write_map(self, name: str, entries: Mapping[str, str]) -> None:
        """Write the file from which a new worker gets the map ``name``, unless it is current. Raises EngineError."""
        text = "".join(f"{key} {value}\n" for key, value in sorted(entries.items()))
        if text != self._files.get(name):
            self.write_file(name, text)

    def write_file(self, name: str, text: str) -> None:
        """Write a file from which a new worker reads. Raises EngineError."""
        write_atomic(self._directory / name, text.encode(), 0o644)
        self._files[name] = text

    def restore_with(self, restore: Callable[[], None]) -> None:
        """Call ``restore`` before files are read: it writes others again that are damaged. It may raise EngineError."""
        self._restores.append(restore)

    def _restore_files(self) -> None:
        """Write what a new worker reads, as far as another program has damaged it. Raises EngineError."""
        for name, text in self._files.items():
            if not has_content(self._directory / name, text):
                write_atomic(self._directory / name, text.encode(), 0o644)
        for restore in self._restores:
            restore()

    async def check_text(self, text: str) -> str:
        """The messages of HAProxy about a configuration that is not used. Raises EngineError."""
        write_atomic(self._directory / _CHECKED, text.encode(), 0o600)
        return (await asyncio.to_thread(self._run, "-c", "-f", _CHECKED)).stderr

    async def check_config(self, text: str) -> None:
        """Replace the file if HAProxy accepts ``text``. Raises EngineError, and the former one stays."""
        # The check reads maps, scripts and certificates as a new worker does.
        self._restore_files()
        new = self._directory / _NEW_CONFIG
        write_atomic(new, text.encode(), 0o600)
        done = await asyncio.to_thread(self._run, "-c", "-f", _NEW_CONFIG)
        if done.returncode:
            why = f"HAProxy refused its configuration, the former one stays in force: {first_alert(done.stderr)}"
            raise EngineError(why, reason=Reason.PROXY_CONFIG_REFUSED)
        try:
            new.replace(self._directory / CONFIG)
        except OSError as error:
            raise write_error(f"{self._directory / CONFIG} cannot be written", error) from None

    async def start(self) -> None:
        """Start it with the accepted configuration, or let its unit do so, and return when it serves.

        Raises EngineError.
        """
        if self.unit.is_enabled():
            await self._until_started()
        else:
            self._follow(await asyncio.to_thread(spawn_master, self._directory, self._program))
        # A new process has the accepted configuration, so each digest is the right one.
        await self._until_served("")

    async def reload(self, digest: str) -> None:
        """Let it take the accepted configuration, and return when a worker has the one of ``digest``.

        Raises EngineError; the former worker then goes on.
        """
        self._restore_files()
        if self._found is not None:
            # The master starts a new worker; the former one ends after its last connection.
            self._found.signal(signal.SIGUSR2)
        await self._until_served(digest)

    def stop(self) -> None:
        """Let it end after its last connection; it takes no new ones from now on.

        Without a configuration, its unit does not start it again.
        """
        with suppress(OSError):
            (self._directory / CONFIG).unlink(missing_ok=True)
        if self._found is not None:
            self._found.signal(signal.SIGUSR1)
            self._leave()

    def processes(self) -> list[int]:
        """The numbers of it and its workers."""
        return [self._found.pid, *procfs.list_children(self._found.pid)] if self._found is not None else []

    def kill(self) -> None:
        """End it with its workers at once: it does not work any more. Its end is reported as every other."""
        if self._found is not None:
            # A worker that hangs would otherwise go on to share the ports with the next one. Those of a unit may be
            # invisible here, and systemd ends them.
            for process_info in map(procfs.find_process, self.processes()[1:]):
                if process_info is not None:
                    procfs.signal_exactly(process_info, signal.SIGKILL)
            self._found.signal(signal.SIGKILL)

    async def wait_for_workers(self, pids: Iterable[str]) -> None:
        """Return once the workers ``pids`` of a master that was killed have ended: until then they have the ports."""
        loop = asyncio.get_running_loop()
        left = [
            process_info
            for process_info in map(procfs.find_process, map(int, filter(None, pids)))
            if process_info is not None
        ]
        deadline = loop.time() + ENDING_SECONDS
        while (
            any(exit_watch.is_alive(process_info.pid, process_info.start) for process_info in left)
            and loop.time() < deadline
        ):
            await asyncio.sleep(PAUSE)

    def trim_output(self) -> None:
        """Empty the file of its messages if it is large."""
        trim_output(self._directory)

    async def _digest(self) -> str:
        """The digest in the configuration of the live worker, as in Facts. Raises EngineError."""
        # HAProxy 3.4 never answers a question that comes just before its worker is ready.
        return read_facts(await self.ask("@1 show info", NEXT_SECONDS)).digest

    async def send(self, commands: Iterable[str]) -> None:
        """Send commands to the live worker. What they change shows in its state. Raises EngineError."""
        line = ""
        for command in commands:
            if len(line) + len(command) > LONGEST_LINE:
                await self.ask(line)
                line = ""
            line += f"{';' if line else ''}@1 {command}"
        if line:
            await self.ask(line)

    async def ask(self, line: str, seconds: float = ANSWER_SECONDS) -> str:
        """The answer to a line of commands. Raises EngineError."""
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_unix_connection(self.socket_path(MASTER_SOCKET))
                try:
                    # Whichever master answers is the current one, also if systemd has started it since.
                    self._follow(get_peer_pid(writer.get_extra_info("socket")))
                    writer.write(f"{line}\n".encode())
                    writer.write_eof()
                    return (await reader.read()).decode(errors="replace")
                finally:
                    writer.close()
        except OSError as error:
            # A timeout is an OSError too, and has no text.
            why = error.strerror or "no answer in time"
            raise EngineError(f"HAProxy does not answer at its socket: {why}", reason=Reason.PROXY_FAILED) from None

    async def _until_started(self) -> None:
        """Return when the unit has started it: systemd sees the new configuration. Raises EngineError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while (pid := await asyncio.to_thread(find_master, self._directory)) is None:
            if loop.time() > deadline:
                service = self.unit.service
                why = f"{service} has not started; `systemctl status {service}` shows why"
                raise EngineError(f"HAProxy does not run: {why}", reason=Reason.PROXY_FAILED)
            await asyncio.sleep(PAUSE)
        self._follow(pid)

    async def _until_served(self, digest: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while self.running and loop.time() < deadline:
            with suppress(EngineError):
                # Each question fails until its socket is there.
                if (text := await self._digest()) and digest in ("", text):
                    return
            await asyncio.sleep(PAUSE)
        alert = last_alert(self._directory)
        advice = f"; a port below 1024 needs its unit: {self.unit.advice}" if _DENIED in alert else ""
        raise EngineError(f"HAProxy cannot be started: {alert}{advice}", reason=Reason.PROXY_FAILED)

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

    def _follow(self, pid: int) -> None:
        """Watch the process ``pid``, in place of one that its unit has relieved."""
        if self._found is not None and self._found.pid == pid:
            return
        self._leave()
        try:
            master_process = MasterProcess(pid)
        except ProcessLookupError:
            return
        if not master_process.alive:
            # A worker keeps the socket for a moment after the end of its master.
            master_process.close()
            exit_watch.reap_child(pid)
            return

        def end() -> None:
            exit_watch.reap_child(master_process.pid)
            if self._found is master_process:
                self._leave()
                self._on_end()

        self._found = master_process
        # It may be one that was stopped before, and drains.
        self._ends.forget(pid)
        self._ends.watch(master_process.pid, end)

    def _leave(self) -> None:
        """Know of no process; the end of one that was started here is still awaited, so that no zombie stays."""
        if self._found is not None:
            self._found.close()
            self._found = None
