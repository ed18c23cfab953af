"""A daemon as a process of its own, on a repository and a state directory of the test, and ways to wait for it."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reconciler.errors import RecordsError
from reconciler.model.record import Record
from reconciler.records.store import FILE, Records
from reconciler.records.tables.conditions import ScopeCondition
from tests.support import processes
from tests.support.git import File, GitRepo

Answer = TypeVar("Answer")

PATIENCE = 60.0
"""Seconds that anything may take before a test gives up on it; most takes a hundredth of that."""
STATUS = "reconciler/status"
ROOT = Path(__file__).parents[2]

GVC = """kind: gvc
name: shop
spec: {staticPlacement: {locationLinks: [//location/here, //location/there]}}
"""


def workload(name: str, port: int = 8080, more: str = "") -> str:
    """A manifest whose version moves with ``port``; ``more`` are further lines at its top level."""
    return (
        f"kind: workload\nname: {name}\n{more}spec:\n  type: standard\n  containers:\n"
        f"    - {{name: main, image: //image/{name}:1.0.{port}, ports: [{{number: {port}, protocol: http}}]}}\n"
    )


SHOP: dict[str, File] = {"shop/gvc.yaml": GVC, "shop/api.yaml": workload("api")}
"""A GVC at two places with one workload in it: three records."""


def eventually(question: Callable[[], Answer], what: str = "", patience: float = PATIENCE) -> Answer:
    """Ask until the answer is true, and return it; AssertionError with ``what`` where it never is."""
    deadline = time.monotonic() + patience
    while True:
        began = time.thread_time()
        if answer := question():
            return answer
        assert time.monotonic() < deadline, f"in {patience:.0f} s never: {what or question}"
        # Asking takes at most a tenth of a core.
        time.sleep(max(0.02, 10 * (time.thread_time() - began)))


class DaemonProcess:
    """One daemon. Its log is JSON lines in a file, which outlives it."""

    def __init__(self, words: Sequence[str], log: Path, environ: Mapping[str, str], *, fresh: bool = False) -> None:
        self.log_file = log
        with log.open("ab") as out:
            self.process = processes.start(words, out, out, environ=environ, fresh=fresh)

    def log(self) -> list[dict[str, Any]]:
        """Its log so far; lines that are no JSON (a traceback) as ``{"text": …}``."""
        entries = []
        for line in self.log_file.read_text().splitlines():
            try:
                entries.append(json.loads(line))
            except ValueError:
                entries.append({"text": line})
        return entries

    def logged(self, event: str, **facts: object) -> list[dict[str, Any]]:
        """Lines of the log about ``event`` that have all the ``facts``."""
        return [each for each in self.log() if each.get("event") == event and facts.items() <= each.items()]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """End it as systemd does; its exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it as a power cut does; harmless where it has ended."""
        self.process.kill()
        self.process.wait(PATIENCE)


class Sandbox:
    """A directory with a repository, settings for it, and a state directory."""

    def __init__(self, path: Path, repository: str, files: Mapping[str, File], *, bare: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.repo = GitRepo.create(path / repository, files, bare=bare)
        self.state = path / "state"
        self.settings_file = path / "settings.yaml"

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables of the command."""
        return {"RECONCILER_SETTINGS": str(self.settings_file)}


class DaemonSandbox(Sandbox):
    """A sandbox for a daemon; ``settings`` are laid over simple ones."""

    def __init__(
        self, path: Path, files: Mapping[str, File] | None = None, *, bare: bool = True, **settings: Any
    ) -> None:
        super().__init__(path, "main.git", SHOP if files is None else files, bare=bare)
        self.settings: dict[str, Any] = {
            "org": "acme",
            "state": str(self.state),
            "sources": [self.source()],
            "locations": {"here": {"engine": "recorded"}, "there": {"engine": "recorded"}},
            "log": {"format": "json", "level": "debug"},
        }
        self.configure(**settings)

    def source(self, name: str = "main", **settings: Any) -> dict[str, Any]:
        """Settings of a source below this directory, polled often enough for a test whose wake-up got lost."""
        url = str(self.path / f"{name}.git")
        plain = {"name": name, "url": url, "branch": "main", "interval": "2s", "status": {"interval": "100ms"}}
        return plain | settings

    def configure(self, **settings: Any) -> None:
        """Change the settings; a running daemon takes them over at its next poll."""
        self.settings |= settings
        self.settings_file.write_text(json.dumps(self.settings))  # JSON is YAML

    @contextlib.contextmanager
    def daemon(self, *program: str, fresh: bool = False, **environ: str) -> Iterator[DaemonProcess]:
        """A daemon that has its lock (or has ended already); killed at the end where it still runs.

        ``program`` is what Python runs in place of the reconciler itself (``-m MODULE ...``). Each daemon begins a new
        log. Those that are about their start or their memory begin ``fresh``.
        """
        log = self.path / "daemon.log"
        log.unlink(missing_ok=True)
        running = DaemonProcess(program or ("-m", "reconciler.cli", "run"), log, self.environ | environ, fresh=fresh)
        try:
            eventually(lambda: running.logged("started") or running.process.poll() is not None, "the daemon starts")
            yield running
        except AssertionError as error:
            error.add_note(running.log_file.read_text()[-4000:])
            raise
        finally:
            running.kill()

    @property
    def command(self) -> list[str]:
        """The command line up to the subcommand."""
        return [sys.executable, "-m", "reconciler.cli"]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return processes.reconciler(*words, environ=self.environ)

    @contextlib.contextmanager
    def records(self) -> Iterator[Records]:
        """The records, for reading, while a daemon runs or not."""
        records = Records.open(self.state / FILE, read_only=True)
        try:
            yield records
        finally:
            records.close()

    def recorded(self) -> dict[str, Record]:
        """Every record by ``KEY`` or ``KEY@LOCATION``; none where nothing was ever recorded."""
        try:
            with self.records() as records:
                return {f"{r.key}@{r.location}".rstrip("@"): r for r in records.applied.items()}
        except RecordsError:
            return {}

    def applied(self, commit: str, source: str = "main") -> bool:
        """Whether ``commit`` is the last good one and has been carried out."""
        try:
            with self.records() as records:
                row, run = records.sources.get(source), records.runs.last(source)
                return row is not None and row.commit == commit and run is not None and run.finished is not None
        except RecordsError:
            return False

    def condition(self, kind: str, source: str = "main") -> str:
        """``true REASON`` or ``false REASON``: a condition of the source as it is recorded; "" where there is none."""
        found = self._conditions(source).get(kind)
        return f"{str(found.status).lower()} {found.reason}" if found else ""

    def condition_message(self, kind: str, source: str = "main") -> str:
        """The message of a condition of the source."""
        found = self._conditions(source).get(kind)
        return found.message if found else ""

    def _conditions(self, source: str) -> dict[str, ScopeCondition]:
        try:
            with self.records() as records:
                return {each.type: each for each in records.conditions.get(source)}
        except RecordsError:
            return {}

    def status(self, path: str, repo: GitRepo | None = None) -> str:
        """A file of the status branch; "" where it is not there."""
        try:
            return (repo or self.repo).git("show", f"{STATUS}:{path}")
        except RuntimeError:
            return ""


class ServiceManager:
    """The messages of one daemon to systemd; use it in a ``with`` and pass ``environ`` to the daemon."""

    def __init__(self, path: Path) -> None:
        self.address = str(path / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notifications: list[str] = []
        self.environ = {"NOTIFY_SOCKET": self.address}

    def __enter__(self) -> ServiceManager:
        self._socket.bind(self.address)
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def notifications(self) -> list[str]:
        """Every line so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._notifications += self._socket.recv(4096).decode().splitlines()
        return self._notifications
