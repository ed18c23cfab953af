"""A daemon with workloads of every type behind a real HAProxy, the requests to them, and what has to hold always."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.engines.host.dataplane.load import program
from tests.engines.host.dataplane.load.traffic import FORMS, Tally, under_load
from tests.soak.manifests import FOUNDATION, SECRET
from tests.soak.troubled import FAKETIME
from tests.support.git import File
from tests.support.host_sandbox import HostSite, host_site, served
from tests.support.sandbox import Running, eventually

RATE = 40.0
"""Requests a second, of all forms together."""
DISK = 96 << 20
"""Bytes of the disk of the state."""
PATIENCE = 120.0
"""Seconds until all is as wanted, on a busy machine."""
WRITER = """
log=$RECONCILER_VOLUMES/data/log
touch $log
i=$(wc -l < $log)
while :; do echo $((i+1)) >> $log && i=$((i+1)); sleep 0.05; done
"""
"""A program that writes the numbers from 1 on; it goes on where the one before it ended."""
VOLUMESET = (
    "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
)
AS_ROOT = {"runAsUser": 0}
"""The interpreter of the tests may be where no other user gets to."""
FORMS_USED = ("HTTP/1.1, keep-alive", "HTTP/1.1, a connection each", "HTTP/2", "WebSocket")


def web(number: int) -> str:
    """The workload that gets requests all the time, in its version ``number``, with a secret."""
    return served(
        "web", replicas=2, command=sys.executable, args=[program.__file__, "web"],
        ports=[{"number": 8080, "protocol": "http"}], identityLink="//identity/reader", securityOptions=AS_ROOT,
        env={"N": str(number), "SECRET": "platform://secret/db.password"},
    )  # fmt: skip


def quiet(name: str) -> str:
    """A workload that is served, and does nothing."""
    return served(name, replicas=1, command="sleep", args=["1000000"], readinessProbe=None)


def sleeping() -> str:
    """A serverless workload, which begins without replicas."""
    text = json.loads(served("cold", replicas=0))
    scaling = {"metric": "concurrency", "target": 10, "minScale": 0, "maxScale": 2, "scaleToZeroDelay": 30}
    text["spec"] |= {"type": "serverless", "defaultOptions": {"autoscaling": scaling, "capacityAI": False}}
    return json.dumps(text)


def database(name: str) -> str:
    """The stateful workload ``name`` on the volume set."""
    volumes = [{"uri": "platform://volumeset/data", "path": "/data"}]
    text = served(name, replicas=1, command="sh", args=["-c", WRITER], ports=None, readinessProbe=None, volumes=volumes)
    return text.replace('"type": "standard"', '"type": "stateful"')


def scheduled() -> str:
    """A cron workload that is due every minute."""
    text = json.loads(served("tick", command="echo", args=["ticked"], ports=None, readinessProbe=None))
    text["spec"] |= {"type": "cron", "job": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid"}}
    del text["spec"]["defaultOptions"]
    return json.dumps(text)


class World:
    """The site, and what is wanted of it: the features change that, and everything else is checked against it."""

    def __init__(self, site: HostSite, has_clock: bool) -> None:
        self.site = site
        self.has_clock = has_clock
        self.number = 0
        self.workloads = {"web": 2, "side": 1, "named": 1, "gone": 1, "db": 1}
        """The replicas that are wanted of each workload; of the serverless one any number is right."""
        self.snapshots: set[str] = set()
        self._running = ExitStack()
        self._clock = site.path / "clock"
        self._daemon: Running | None = None
        self._tip = ""
        self._written = 0
        if has_clock:
            self.set_clock(0)

    def count(self) -> int:
        """Another number."""
        self.number += 1
        return self.number

    def start(self) -> None:
        """Start a daemon."""
        environ = {}
        command: tuple[str, ...] = ()
        if self.has_clock:
            command = ("-m", "tests.soak.daemon", str(self.site.path / "tasks"))
            environ = {
                "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }  # fmt: skip
        self._daemon = self._running.enter_context(self.site.daemon(*command, fresh=self.has_clock, **environ))

    def kill(self) -> None:
        """End the daemon as a power cut of its process does."""
        self._check_log()
        self._running.close()

    def revive(self) -> None:
        """Let a daemon run, whatever became of the last one: the next pair needs it."""
        self._running.close()
        self._daemon = None
        self.start()

    def set_clock(self, seconds: int) -> None:
        """Set the clock of the daemon that much ahead."""
        self._clock.write_text(f"{seconds:+d}\n")

    def commit(self, files: dict[str, File]) -> None:
        """Commit, and go on at once."""
        self._tip = self.site.repo.commit(files)

    def run(self, *words: str) -> str:
        """One command that has to succeed; its output."""
        done = self.site.run(*words)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
        return done.stdout

    def address(self, name: str) -> str:
        """Where the workload ``name`` is served; a daemon that begins has to ask HAProxy first."""
        return eventually(lambda: self.site.address(f"workload/shop/{name}@here"), f"{name} has an address")

    @contextmanager
    def traffic(self) -> Iterator[list[Tally]]:
        """Requests to the workload ``web`` in every form; the list has what came of them at the end."""
        ended, tallies, errors = threading.Event(), list[Tally](), list[BaseException]()
        addresses = dict.fromkeys(FORMS_USED, self.address("web"))
        forms = {form: FORMS[form] for form in FORMS_USED}

        async def story() -> None:
            while not ended.is_set():
                await asyncio.sleep(0.05)

        def send() -> None:
            try:
                tallies.extend(asyncio.run(under_load(addresses, RATE, story, clients=2, forms=forms)))
            except BaseException as error:  # noqa: BLE001 - the test raises it
                errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield tallies
        finally:
            ended.set()
            thread.join()
        assert not errors, errors

    def wait_until_done(self) -> None:
        """Return when all is as the newest commit wants it."""
        end = time.monotonic() + PATIENCE
        while unfinished := self._unfinished():
            assert self._daemon is not None
            assert self._daemon.process.poll() is None, "the daemon ended"
            assert time.monotonic() < end, f"{unfinished}\n{self._daemon.log_file.read_text()[-3000:]}"
            time.sleep(0.1)

    def check(self, tallies: list[Tally]) -> list[str]:
        """What does not hold, besides what ``wait_until_done`` waits for."""
        found = [f"{tally.form}: {', '.join(tally.lost[:3])}" for tally in tallies if tally.lost]
        found += [f"no request of the form {tally.form} was answered" for tally in tallies if not tally.answered]
        lines = (self.site.state / "host/here/volumes/shop/data/0/log").read_text().split()
        if lines != [str(number + 1) for number in range(len(lines))]:
            found.append("the volume lacks a line, or has one twice")
        if len(lines) <= self._written:
            found.append("nothing more was written to the volume")
        self._written = len(lines)
        listed = self.run("snapshots", "volumeset/shop/data")
        found += [f"the snapshot {name} is gone" for name in self.snapshots if name not in listed]
        found += [f"{name} ran {count} times" for name, count in self._executions().items() if count > 1]
        self._check_log()
        return found

    def _executions(self) -> Counter[str]:
        """How often each execution that is shown was started, by the events."""
        record = self.site.recorded()["workload/shop/tick@here"]
        return Counter(each["name"] for each in json.loads(record.state)["status"].get("jobExecutions", ()))

    def _check_log(self) -> None:
        if self._daemon is not None:
            text = self._daemon.log_file.read_text()
            assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]

    def _unfinished(self) -> str:
        """What differs from the newest commit; "" where nothing does."""
        if not self.site.applied(self._tip):
            assert self._daemon is not None
            refused = self._daemon.logged("reconciled", outcome="refused", revision=f"main@sha1:{self._tip}")
            assert not refused, refused
            return f"{self._tip} is not applied"
        recorded = self.site.recorded()
        names = {each.key.name for key, each in recorded.items() if key.startswith("workload/")}
        if names != {*self.workloads, "cold", "tick"}:
            return f"{sorted(names)} are recorded"
        for name, wanted in self.workloads.items():
            replicas = self.site.replicas(name).values()
            version = recorded[f"workload/shop/{name}@here"].version
            ready = [each for each in replicas if each.ready and each.version == version]
            if len(ready) != wanted or len(replicas) != wanted:
                return f"{len(ready)} of {len(replicas)} replicas of {name} are ready, {wanted} are wanted"
        ill = [key for key, each in recorded.items() if each.health != "Healthy" and "/cold" not in key]
        return f"{ill} are not healthy" if ill else ""


@contextmanager
def open_world(path: Path) -> Iterator[World]:
    """A world whose daemon runs; nothing of it is left at the end."""
    state = path / "state"
    state.mkdir(parents=True, mode=0o711)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=711", "tmpfs", str(state)], check=True)
    files: dict[str, File] = {
        **FOUNDATION, "shop/web.yaml": web(0), "shop/cold.yaml": sleeping(), "shop/data.yaml": VOLUMESET,
        "shop/db.yaml": database("db"), "shop/tick.yaml": scheduled(),
        **{f"shop/{name}.yaml": quiet(name) for name in ("side", "named", "gone")},
    }  # fmt: skip
    settings = {
        "host": {"terminationScale": 0.02, "logBudget": 16, "diskReserve": 0},
        "prune": {"percent": 100, "count": 100, "hourlyPercent": 100, "hourlyCount": 100_000},
        "locations": {"here": {"engine": "host", "dataplane": "haproxy"}},
    }
    try:
        with host_site(path, files, **settings) as site:
            world = World(site, FAKETIME.exists())
            world.commit({"secret.yaml": SECRET})
            world.start()
            try:
                world.wait_until_done()
                yield world
            finally:
                with suppress(AssertionError):
                    world.kill()
    finally:
        subprocess.run(["umount", "--lazy", str(state)], check=True)


Feature = Callable[[World], Iterator[None]]
"""Begins something, and ends it when it is asked for more; what it begins goes on meanwhile."""
