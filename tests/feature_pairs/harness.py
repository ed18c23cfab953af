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
from typing import Any, NamedTuple

from tests.engines.host.dataplane.load import program
from tests.engines.host.dataplane.load.images import BASE, PROGRAM, ProgramImages, base_image, program_images
from tests.engines.host.dataplane.load.traffic import FORMS, Tally, under_load
from tests.soak.chaos_sandbox import FAKETIME
from tests.soak.manifests import FOUNDATION
from tests.support.git import File
from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.podman import PodmanService, podman_service
from tests.support.sandbox import DaemonProcess, eventually

RATE = 40.0
"""Requests a second, of all forms together."""
DISK = 96 << 20
"""Bytes of the disk of the state."""
PATIENCE = 120.0
"""Seconds until all is as wanted, on a busy machine."""
WRITER = """
trap 'exit 0' TERM
log=$RECONCILER_VOLUMES/data/log
touch $log
i=$(tail -n 1 $log)
while :; do echo $((i+1)) >> $log && i=$((i+1)); sleep 0.05; done
"""
"""A program that writes the numbers from 1 on; it goes on where the one before it ended."""
VOLUMESET = (
    "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
)
AS_ROOT = {"runAsUser": 0}
"""The interpreter of the tests may be where no other user gets to."""
REPLICA_LABEL = "io.gitops-reconciler.replica"
FORMS_USED = ("HTTP/1.1, keep-alive", "HTTP/1.1, a connection each", "HTTP/2", "WebSocket")


class Containers(NamedTuple):
    """What a harness has whose workloads run as images: Podman, and the registry of the workload ``web``."""

    podman: PodmanService
    images: ProgramImages


def with_image(text: str, image: str) -> str:
    """The manifest, where it has no image yet, with this one, and the processor that a start takes."""
    return text.replace('"image": "none"', f'"image": "{image}", "cpu": "1", "memory": "128Mi"')


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


class FeatureHarness:
    """The sandbox, and what is wanted of it: the features change that, and everything else is checked against it."""

    def __init__(self, sandbox: HostSandbox, has_clock: bool, containers: Containers | None = None) -> None:
        self.sandbox = sandbox
        self.has_clock = has_clock
        self.containers = containers
        self.tag = "0"
        """That of the image of the workload ``web``."""
        self.digest = ""
        """What it means."""
        self.number = 0
        self.workloads = {"web": 2, "side": 1, "named": 1, "gone": 1, "db": 1}
        """The replicas that are wanted of each workload; of the serverless one any number is right."""
        self.snapshots: set[str] = set()
        self._running = ExitStack()
        self._clock = sandbox.path / "clock"
        self._daemon: DaemonProcess | None = None
        self._tip = ""
        self._written = 0
        self._seen: dict[str, int] = {}
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
            command = ("-m", "tests.soak.daemon", str(self.sandbox.path / "tasks"))
            environ = {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        self._daemon = self._running.enter_context(self.sandbox.daemon(*command, fresh=self.has_clock, **environ))

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

    def web(self, name: str = "web", replicas: int = 2) -> str:
        """A new version of the workload that gets requests all the time, with a secret; another one by ``name``."""
        command, file = (sys.executable, program.__file__) if self.containers is None else ("python3", PROGRAM)
        text = served(
            name,
            replicas=replicas,
            command=command,
            args=[file, name],
            ports=[{"number": 8080, "protocol": "http"}],
            identityLink="//identity/reader",
            securityOptions=AS_ROOT,
            env={"N": str(self.count()), "SECRET": "platform://secret/db.password"},
            supportDynamicTags=True,
        )
        return text if self.containers is None else with_image(text, self.containers.images.name(self.tag))

    def push(self, tag: str) -> None:
        """Let the workload ``web`` have another image by ``tag``, from its next version on."""
        assert self.containers is not None
        self.tag, self.digest = tag, self.containers.images.push(tag, f"{self.count()}")

    def commit(self, files: dict[str, File]) -> None:
        """Commit, and go on at once."""
        if self.containers is not None:
            files = {path: with_image(text, BASE) if isinstance(text, str) else text for path, text in files.items()}
        self._tip = self.sandbox.repo.commit(files)

    def run(self, *words: str) -> str:
        """One command that has to succeed; its output."""
        done = self.sandbox.run(*words)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
        return done.stdout

    def address(self, name: str) -> str:
        """Where the workload ``name`` is served; a daemon that begins has to ask HAProxy first."""
        key = f"workload/shop/{name}@here"
        return eventually(
            lambda: self.sandbox.address(key) if key in self.sandbox.recorded() else "", f"{name} has an address"
        )

    def recorded(self) -> set[str]:
        """The names of the recorded workloads."""
        return {each.key.name for key, each in self.sandbox.recorded().items() if key.startswith("workload/")}

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
            assert time.monotonic() < end, f"{unfinished}\n{self._report()}"
            time.sleep(0.1)

    def _report(self) -> str:
        """What may explain why something is not done."""
        assert self._daemon is not None
        events = self.sandbox.run("events", "--last", "30").stdout
        return f"{self._daemon.log_file.read_text()[-3000:]}\n{self.sandbox.message()}\n{events}"

    def check(self, tallies: list[Tally]) -> list[str]:
        """What does not hold, besides what ``wait_until_done`` waits for."""
        texts = [f"{tally.form}: {', '.join(tally.lost[:3])}" for tally in tallies if tally.lost]
        texts += [f"no request of the form {tally.form} was answered" for tally in tallies if not tally.answered]
        lines = (self.sandbox.state / "host/here/volumes/shop/data/0/log").read_text().split()
        if lines != [str(number + 1) for number in range(len(lines))]:
            texts.append("the volume lacks a line, or has one twice")
        if len(lines) <= self._written:
            texts.append("nothing more was written to the volume")
        self._written = len(lines)
        listed = self.run("snapshots", "volumeset/shop/data")
        texts += [f"the snapshot {name} is gone" for name in self.snapshots if name not in listed]
        restarts = self._restarts()
        texts += [f"{name} was restarted" for name, count in restarts.items() if count > self._seen.get(name, count)]
        self._seen = restarts
        texts += [f"{name} ran {count} times" for name, count in self._executions().items() if count > 1]
        self._check_log()
        return texts

    def _restarts(self) -> dict[str, int]:
        """How often containers of each replica were restarted: on a full disk, the first start of a new one fails."""
        replicas = [each for name in self.workloads for each in self.sandbox.replicas(name).values()]
        return {each.name: sum(container.restarts for container in each.containers) for each in replicas}

    def has_newest_image(self) -> bool:
        """Whether all replicas of ``web`` run what the tag means now."""
        images = [each.containers[0].wanted.image for each in self.sandbox.replicas("web").values()]
        return all(image.endswith(self.digest) for image in images)

    def _strays(self) -> list[str]:
        """The containers in Podman whose replica is not known."""
        if self.containers is None:
            return []
        names = ("cold", "tick", *self.workloads)
        found = [each["Labels"] or {} for each in self.containers.podman.containers()]
        known = {replica for name in names for replica in self.sandbox.replicas(name)}
        return sorted({name for each in found if (name := each.get(REPLICA_LABEL, "?")) not in known})

    def _executions(self) -> Counter[str]:
        """How often each execution that is shown was started, by the events."""
        record = self.sandbox.recorded()["workload/shop/tick@here"]
        return Counter(each["name"] for each in json.loads(record.state)["status"].get("jobExecutions", ()))

    def _check_log(self) -> None:
        if self._daemon is not None:
            text = self._daemon.log_file.read_text()
            assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]

    def _unfinished(self) -> str:
        """What differs from the newest commit; "" where nothing does."""
        if not self.sandbox.applied(self._tip):
            assert self._daemon is not None
            refused = self._daemon.logged("reconciled", outcome="refused", revision=f"main@sha1:{self._tip}")
            assert not refused, refused
            return f"{self._tip} is not applied"
        recorded = self.sandbox.recorded()
        if (names := self.recorded()) != {*self.workloads, "cold", "tick"}:
            return f"{sorted(names)} are recorded"
        for name, count in self.workloads.items():
            replicas = self.sandbox.replicas(name).values()
            version = recorded[f"workload/shop/{name}@here"].version
            ready = [replica for replica in replicas if replica.ready and replica.version == version]
            if len(ready) != count or len(replicas) != count:
                return f"{len(ready)} of {len(replicas)} replicas of {name} are ready, {count} are wanted"
        if not self.has_newest_image():
            return f"web does not run {self.digest}"
        if strays := self._strays():
            return f"{strays} run, and belong to no replica"
        ill = [key for key, record in recorded.items() if record.health != "Healthy" and "/cold" not in key]
        return f"{ill} are not healthy" if ill else ""


@contextmanager
def containers_here() -> Iterator[Containers]:
    """A Podman service that has the base image, and a registry."""
    archive = base_image()
    with podman_service() as podman, program_images(archive) as images:
        podman.load(archive)
        yield Containers(podman, images)


@contextmanager
def open_harness(path: Path, containers: Containers | None = None) -> Iterator[FeatureHarness]:
    """A harness whose daemon runs, of processes or of ``containers``; nothing of it is left at the end."""
    state = path / "state"
    state.mkdir(parents=True, mode=0o711)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=711", "tmpfs", str(state)], check=True)
    files: dict[str, File] = {
        "shop/cold.yaml": sleeping(),
        "shop/data.yaml": VOLUMESET,
        "shop/db.yaml": database("db"),
        "shop/tick.yaml": scheduled(),
        **{f"shop/{name}.yaml": quiet(name) for name in ("side", "named", "gone")},
    }
    here = {"engine": "host", "dataplane": "haproxy", "runtime": "process"}
    settings: dict[str, Any] = {
        "host": {"terminationScale": 0.02, "logBudget": 16, "diskReserve": 0},
        "prune": {"percent": 100, "count": 100, "hourlyPercent": 100, "hourlyCount": 100_000},
        "locations": {"here": here},
    }
    if containers is not None:
        here["runtime"] = "podman"
        settings["podman"] = {"socket": str(containers.podman.socket)}
        settings["images"] = {"insecure": [containers.images.registry.host]}
    try:
        with host_sandbox(path, FOUNDATION, **settings) as sandbox:
            harness = FeatureHarness(sandbox, FAKETIME.exists(), containers)
            if containers is not None:
                harness.push("0")
            harness.commit({"shop/web.yaml": harness.web(), **files})
            harness.start()
            try:
                harness.wait_until_done()
                yield harness
            finally:
                with suppress(AssertionError):
                    harness.kill()
    finally:
        subprocess.run(["umount", "--lazy", str(state)], check=True)


Feature = Callable[[FeatureHarness], Iterator[None]]
"""Begins something, and ends it when it is asked for more; what it begins goes on meanwhile."""
