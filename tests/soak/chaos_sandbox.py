"""A sandbox on a small disk of its own, with ways to disturb its daemon and to ask what it holds."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.decisions.replica import Replica
from tests.soak.manifests import FOUNDATION, Commits
from tests.support.host_sandbox import HostSandbox, host_sandbox
from tests.support.sandbox import DaemonProcess, eventually

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
"""Debian's package faketime."""
DISK = 64 << 20
"""Bytes of the disk of the state."""
PATIENCE = 420.0
"""Seconds until everything is as wanted, on a busy machine."""
STUCK = 60.0
"""Seconds after which a daemon that was asked to end will not end by itself."""
DAY = 86_400


class Sample(NamedTuple):
    """Resources of the idle daemon. Memory in KiB."""

    memory: int
    files: int
    threads: int
    tasks: int
    names: str


class ChaosSandbox:
    """A daemon, the random commits that it follows, and what is done to it."""

    def __init__(self, sandbox: HostSandbox, chance: random.Random) -> None:
        self.sandbox = sandbox
        self.counts: Counter[str] = Counter()
        self.samples: list[list[Sample]] = []
        self.slowest_stop = 0.0
        self._chance = chance
        self._commits = Commits(chance)
        self._clock = sandbox.path / "clock"
        self._tasks = sandbox.path / "tasks"
        self._running = contextlib.ExitStack()
        self._set_clock(0)
        self._start()

    @property
    def daemon(self) -> DaemonProcess:
        """The daemon that runs now."""
        return self._daemon

    def commit(self) -> None:
        """One random change."""
        self.counts["commits"] += 1
        self.sandbox.repo.commit(self._commits.change())

    def kill(self) -> None:
        """SIGKILL, and another daemon."""
        self._running.close()
        self._start()

    def stop(self) -> None:
        """SIGTERM, which has to end it in an orderly way, and another daemon."""
        self._end()
        self._start()

    def reload(self) -> None:
        """SIGHUP."""
        self.daemon.signal(signal.SIGHUP)

    def kill_replicas(self) -> None:
        """SIGKILL to some programs."""
        programs = sorted(self.sandbox.programs())
        for pid in self._chance.sample(programs, min(3, len(programs))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def fill_disk(self) -> None:
        """No byte is left for some seconds, with a commit and a dead replica amid them."""
        filler = self.sandbox.state / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as out:
            while True:
                out.write(bytes(1 << 16))
                out.flush()
        self.commit()
        self.kill_replicas()
        time.sleep(self._chance.uniform(0.5, 4))
        filler.unlink()

    def jump(self) -> None:
        """The clock is set, and set right again."""
        self._set_clock(self._chance.choice((-400 * DAY, -3600, 3600, 30 * DAY, 400 * DAY, 54 * 365 * DAY)))
        self.commit()
        time.sleep(self._chance.uniform(0.5, 3))
        self._set_clock(0)

    def lose_files(self) -> None:
        """A directory of the host engine is lost."""
        shutil.rmtree(
            self.sandbox.state / "host/here" / self._chance.choice(("endpoints", "run", "replicas")), ignore_errors=True
        )

    def rest(self) -> Sample:
        """Commit a good revision, wait until all is as desired, and measure what the daemon holds then."""
        tip = self.sandbox.repo.commit(self._commits.mend())
        end = time.monotonic() + PATIENCE
        while unfinished := self._unfinished(tip):
            assert time.monotonic() < end, f"{unfinished}\n{self._report()}"
            time.sleep(0.2)
        self._examine()
        sample = self._sample()
        self.samples[-1].append(sample)
        return sample

    def _start(self) -> None:
        environ = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        command = ("-m", "tests.soak.daemon", str(self._tasks))
        self._daemon = self._running.enter_context(self.sandbox.daemon(*command, fresh=True, **environ))
        self.samples.append([])

    def close(self) -> None:
        """End the daemon."""
        self._end()

    def _end(self) -> None:
        began = time.monotonic()
        self.daemon.signal(signal.SIGTERM)
        try:
            code = self.daemon.process.wait(STUCK)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"SIGTERM does not end the daemon:\n{self._where()}") from None
        assert code == 0, self.daemon.log_file.read_text()[-4000:]
        self.slowest_stop = max(self.slowest_stop, time.monotonic() - began)
        self._running.close()

    def _list_tasks(self) -> str:
        """The daemon's tasks, a line for each coroutine."""
        self._tasks.unlink(missing_ok=True)
        self.daemon.signal(signal.SIGUSR2)
        eventually(self._tasks.exists, "the daemon lists its tasks")
        return self._tasks.read_text()

    def _where(self) -> str:
        """Where the daemon's tasks and threads are."""
        self._list_tasks()
        self.daemon.signal(signal.SIGUSR1)
        time.sleep(1)
        return self._tasks.with_suffix(".stacks").read_text() + self.daemon.log_file.read_text()[-6000:]

    def _set_clock(self, seconds: int) -> None:
        self._clock.write_text(f"{seconds:+d}\n")

    def _report(self) -> str:
        """Facts for the report of a stuck run."""
        asked = (["plan"], ["get"], ["top", "--once"], ["events", "--last", "40"])
        shown = [f"$ reconciler {' '.join(words)}\n{self.sandbox.run(*words).stdout}" for words in asked]
        pid = str(self.daemon.process.pid)
        asked = ["ps", "--ppid", pid, "-o", "pid,stat,etimes,wchan:30,args"]
        children = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        return "\n".join([self.daemon.log_file.read_text()[-3000:], *shown, children, self._where()])

    def _unfinished(self, tip: str) -> str:
        """What differs from the commit ``tip``; "" where nothing does."""
        assert self.daemon.process.poll() is None, self.daemon.log_file.read_text()[-4000:]
        if not self.sandbox.applied(tip):
            return f"{tip} is not applied"
        recorded = {
            record.key.name: record for key, record in self.sandbox.recorded().items() if key.startswith("workload/")
        }
        if recorded.keys() != self._commits.wanted.keys():
            return f"{sorted(recorded)} are recorded, {sorted(self._commits.wanted)} wanted"
        expected = {(name, record.version): self._commits.wanted[name].replicas for name, record in recorded.items()}
        replicas = list(self._replicas())
        ready = Counter((replica.key.name, replica.version) for replica in replicas if replica.ready)
        if ready != expected or len(replicas) != ready.total():
            return f"{dict(ready)} are ready of {len(replicas)}, {expected} wanted"
        unhealthy = [
            f"{name}: {self.sandbox.message(f'workload/shop/{name}@here')}"
            for name in recorded
            if not self.sandbox.healthy(f"workload/shop/{name}@here")
        ]
        return "; ".join(unhealthy)

    def _replicas(self) -> Iterator[Replica]:
        for name in self._commits.wanted:
            yield from self.sandbox.replicas(name).values()

    def _examine(self) -> None:
        """Nothing runs, and no directory is there, but for the replicas that are known."""
        names = {f"{replica.key.name}/{replica.name}" for replica in self._replicas()}
        root = self.sandbox.state / "host/here"
        for folder in ("run", "scratch"):
            found = {f"{path.parent.name}/{path.name}" for path in (root / folder / "shop").glob("*/*")}
            assert found <= names, f"{folder}: {sorted(found - names)} belong to no replica"
        eventually(lambda: self._strays(names) == [], f"nothing runs that is no replica: {self._strays(names)}")
        text = self.daemon.log_file.read_text()
        assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]

    def _strays(self, names: set[str]) -> list[str]:
        """Programs of this sandbox whose replica is not known."""
        strays = []
        for pid, command in self.sandbox.programs().items():
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                mine = next((each for each in environ if each.startswith(b"HOSTNAME=")), b"HOSTNAME=?")
                replica = mine.decode().partition("=")[2]
                if not any(each.endswith(f"/{replica}") for each in names):
                    strays.append(f"{pid} {replica} {command}")
        return strays

    def _sample(self) -> Sample:
        names = self._list_tasks()
        proc = Path("/proc") / str(self.daemon.process.pid)
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
        return Sample(
            memory=int(status["VmRSS"].split()[0]),
            files=len(list((proc / "fd").iterdir())),
            threads=int(status["Threads"]),
            tasks=sum(int(line.split()[0]) for line in names.splitlines()),
            names=names,
        )

    @property
    def load(self) -> int:
        """Workloads and replicas that are wanted."""
        return len(self._commits.wanted) + sum(each.replicas for each in self._commits.wanted.values())

    def troubles(self, kills: bool) -> list[Callable[[], None]]:
        """Disturbances, each as likely as it is listed; without ``kills`` the daemon lives on."""
        always = [self.commit] * 30 + [self.kill_replicas] * 4 + [self.reload, self.fill_disk, self.jump]
        return always + ([self.kill, self.kill, self.stop, self.lose_files] if kills else [])


@contextlib.contextmanager
def chaos(path: Path, seed: int) -> Iterator[ChaosSandbox]:
    """A sandbox with a daemon, on a disk of its own; nothing of it is left at the end."""
    (path / "state").mkdir(parents=True)
    (path / "state").chmod(0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(path / "state")], check=True)
    settings = {
        "host": {"terminationScale": 0.02, "logBudget": 16},
        "prune": {"percent": 100, "count": 100, "hourlyPercent": 100, "hourlyCount": 100_000},
    }
    try:
        with host_sandbox(path, FOUNDATION, log={"format": "json", "level": "info"}, **settings) as sandbox:
            soak = ChaosSandbox(sandbox, random.Random(seed))
            try:
                yield soak
            finally:
                soak.daemon.kill()
    finally:
        subprocess.run(["umount", "--lazy", str(path / "state")], check=True)
