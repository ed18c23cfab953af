"""One pod on a node: its containers follow their scripts, and its status follows them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

import httpx2

from tests.kubernetes.cluster.client import Client, Object
from tests.kubernetes.cluster.environment import Contents, Missing, Unmounted, check_volumes, resolve_environment
from tests.kubernetes.cluster.scripts import Script, Scripts

BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 300.0
KILLED = 137
PROBE_WORDS = "HTTP probe failed with statuscode: 500"
"""What the kubelet reports of a probe that fails by script."""


class Surroundings(Protocol):
    """What a pod uses of its kubelet."""

    client: Client
    scripts: Scripts
    pace: float
    """Seconds here for one second of a manifest: of probes, hooks, grace periods and backoff."""
    start_seconds: float
    """How long a container that starts is not ready, whatever its script."""

    def next_address(self) -> str:
        """An address that no pod had before."""
        ...

    def note_fault(self, task: asyncio.Task[None]) -> None:
        """Remember that the script of a pod is wrong, or this code."""
        ...

    async def record(self, pod: Object, reason: str, message: str, container: str = "", count: int = 1) -> None:
        """Record a warning about ``pod``, or about a container of it, that was there ``count`` times."""
        ...


def format_now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Container:
    """A container: its state, and what it has logged."""

    def __init__(self, spec: Object) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last_state: Object = {}
        self.environment: dict[str, str] = {}
        self.id = ""
        self.restarts = 0
        self.started = False
        self.ready = False
        self.log: list[tuple[str, str]] = []
        """Times and lines."""
        self.previous_log: list[tuple[str, str]] = []
        self.end: asyncio.Future[tuple[int, str]] | None = None
        """Exit code and reason, once it ends; None while it does not run."""
        self.changed = asyncio.Event()
        """Its script may be another."""

    @property
    def image_id(self) -> str:
        """What the image resolves to: the digest it names, or one of its name."""
        image: str = self.spec["image"]
        name, _, digest = image.partition("@")
        return f"{name}@{digest or 'sha256:' + hashlib.sha256(name.encode()).hexdigest()}"

    @property
    def running(self) -> bool:
        """Whether its state is running."""
        return "running" in self.state

    def write(self, text: str) -> None:
        """Log the lines of ``text``."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        self.log.extend((now, line) for line in text.splitlines())

    def start(self, script: Script) -> None:
        """Let it run."""
        if self.id:
            self.previous_log, self.log = self.log, []
        self.id = f"test://{uuid4().hex}"
        self.state = {"running": {"startedAt": format_now()}}
        self.started, self.ready = False, False
        self.end = asyncio.get_running_loop().create_future()
        self.write(script.log or f"{self.name} started")

    def finish(self, code: int, script: Script, reason: str = "") -> None:
        """Let it be terminated with ``code``."""
        running = self.state.get("running", {})
        self.state = {
            "terminated": {
                "exitCode": code,
                "reason": reason or script.reason or ("Error" if code else "Completed"),
                "startedAt": running.get("startedAt", format_now()),
                "finishedAt": format_now(),
                "containerID": self.id,
                **({"message": script.message} if script.message else {}),
            }
        }
        self.started, self.ready, self.end = False, False, None

    def format_status(self) -> Object:
        """Its entry in ``containerStatuses``."""
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.image_id if self.id else "",
            "containerID": self.id,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }


class Pod:
    """A pod that a node runs, from the moment it is bound there until it is gone."""

    def __init__(self, item: Object, kubelet: Surroundings) -> None:
        self.item = item
        spec = item["spec"]
        self._kubelet = kubelet
        self.containers = [Container(each) for each in spec["containers"]]
        self.init_containers = [Container(each) for each in spec.get("initContainers") or ()]
        self._policy: str = spec.get("restartPolicy", "Always")
        self._address = ""
        self._start_time = ""
        self._failure: Object = {}
        """Phase, reason and message of a pod that its node has ended."""
        self._transitions: dict[str, tuple[str, str]] = {}
        self._reported: Object = {}
        self._reporting: asyncio.Task[None] | None = None
        self._dirty = False
        self._life = asyncio.create_task(self._live())
        self._life.add_done_callback(kubelet.note_fault)
        self._ending: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Its name, without its namespace."""
        name: str = self.item["metadata"]["name"]
        return name

    @property
    def path(self) -> str:
        """Where the server has it."""
        return f"/api/v1/namespaces/{self.item['metadata']['namespace']}/pods/{self.name}"

    @property
    def every_container(self) -> list[Container]:
        """Containers for initialization, then the others."""
        return [*self.init_containers, *self.containers]

    def update(self, item: Object) -> None:
        """Take a newer form of the pod, which may want it to end."""
        self.item = item
        if item["metadata"].get("deletionTimestamp") and self._ending is None:
            self._ending = asyncio.create_task(self._terminate())
        elif self._reported:
            self.report()  # it sends nothing unless a gate or the generation changed what is to send

    def reread_scripts(self) -> None:
        """Follow scripts that a test has set meanwhile."""
        for container in self.every_container:
            container.changed.set()

    def end_container(self, name: str, code: int, reason: str = "") -> None:
        """Let a container end now, as if by itself."""
        for container in self.every_container:
            if container.name == name and container.end is not None and not container.end.done():
                container.end.set_result((code, reason))

    async def evict(self, reason: str, message: str) -> None:
        """End it as a node does that lacks something: the pod stays, failed."""
        await self._stop_life()
        for container in self.every_container:
            if container.running:
                container.finish(KILLED, Script(), "Error")
        self._failure = {"phase": "Failed", "reason": reason, "message": message}
        self.report()

    async def close(self) -> None:
        """Forget it, and what it does."""
        await self._stop_life()
        for task in (self._ending, self._reporting):
            if task is not None and task is not asyncio.current_task():
                task.cancel()

    async def _stop_life(self) -> None:
        self._life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._life

    def _script(self, container: Container) -> Script:
        initializes = container in self.init_containers and not is_sidecar(container)
        return self._kubelet.scripts.find(self.item, container.spec, initializes or self._policy != "Always")

    async def _live(self) -> None:
        self._address, self._start_time = self._kubelet.next_address(), format_now()
        init_policy = "OnFailure" if self._policy == "Always" else self._policy
        lives: list[asyncio.Task[None]] = []
        try:
            for container in self.init_containers:
                sidecar = is_sidecar(container)
                lives.append(asyncio.create_task(self._run(container, "Always" if sidecar else init_policy)))
                if not sidecar:
                    await lives[-1]
                    if not has_succeeded(container):
                        return
            main = [asyncio.create_task(self._run(container, self._policy)) for container in self.containers]
            lives.extend(main)
            await asyncio.gather(*main)
        finally:
            for life in lives:
                life.cancel()
        for container in self.init_containers:
            if container.running:
                container.finish(0, Script())

    async def _run(self, container: Container, policy: str) -> None:
        """Run it, again and again as ``policy`` demands."""
        while True:
            await self._pull(container)
            await self._prepare(container)
            container.start(self._script(container))
            code, reason = await self._run_once(container)
            script = self._script(container)
            container.finish(code, script, reason)
            if policy == "Never" or (policy == "OnFailure" and not code):
                self.report()
                return
            await self._back_off(container)

    async def _pull(self, container: Container) -> None:
        tries = 0
        while message := self._script(container).pull:
            reason = "ImagePullBackOff" if tries else "ErrImagePull"
            image = container.spec["image"]
            text = f'Back-off pulling image "{image}": {message}' if tries else message
            container.state = {"waiting": {"reason": reason, "message": text}}
            await self._report_problem("Failed", f'Failed to pull image "{image}": {message}', container.name)
            await self._wait_for_change(container, self._backoff_seconds(tries))
            tries += 1

    async def _prepare(self, container: Container) -> None:
        """Fill its variables; wait for as long as a Secret or ConfigMap of the pod is missing."""
        tries = 0
        while True:
            contents = Contents(self._kubelet.client, self.item["metadata"]["namespace"])
            try:
                await check_volumes(self.item, contents)
                container.environment = await resolve_environment(self.item, container.spec, contents, self._address)
                return
            except Unmounted as missing:
                container.state = {"waiting": {"reason": "ContainerCreating"}}
                await self._report_problem("FailedMount", str(missing))
            except Missing as missing:
                container.state = {"waiting": {"reason": "CreateContainerConfigError", "message": str(missing)}}
                await self._report_problem("Failed", f"Error: {missing}", container.name)
            await self._wait_for_change(container, self._backoff_seconds(tries))
            tries += 1

    def _backoff_seconds(self, tries: int) -> float:
        return min(BACKOFF_SECONDS * 2.0 ** min(tries, 10), LONGEST_BACKOFF_SECONDS) * self._kubelet.pace

    async def _run_once(self, container: Container) -> tuple[int, str]:
        """Exit code and reason of one run."""
        assert container.end is not None
        begun = asyncio.get_running_loop().time()
        probe = container.spec.get("readinessProbe")
        delay = float((probe or {}).get("initialDelaySeconds", 0)) * self._kubelet.pace
        while not container.end.done():
            script = self._script(container)
            age = asyncio.get_running_loop().time() - begun
            container.started = script.started
            start = max(delay, script.ready_after, self._kubelet.start_seconds)
            container.ready = script.started and script.ready and age >= start
            if script.exit is not None and age >= script.exit_after:
                return script.exit, script.reason
            if probe and not script.ready:
                await self._report_problem("Unhealthy", f"Readiness probe failed: {PROBE_WORDS}", container.name)
            self.report()
            times = [start] + ([script.exit_after] if script.exit is not None else [])
            waits = [time - age for time in times if time > age]
            await self._wait_for_change(container, min(waits, default=None))
        return container.end.result()

    async def _wait_for_change(self, container: Container, seconds: float | None) -> None:
        """Wait until a test ends the container or sets scripts, at most ``seconds``."""
        container.changed.clear()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(container.changed.wait())]
        if container.end is not None:
            waits.append(container.end)
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits[0].cancel()

    async def _back_off(self, container: Container) -> None:
        """The first time it starts again at once; later it waits, for longer and longer."""
        container.last_state = container.state
        if container.restarts:
            seconds = self._backoff_seconds(container.restarts - 1)
            message = f"back-off {seconds / self._kubelet.pace:.0f}s restarting failed container={container.name}"
            container.state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
            await self._report_problem("BackOff", f"{message} in pod {self.name}", container.name)
            await self._wait_for_change(container, seconds)
        container.restarts += 1

    async def _terminate(self) -> None:
        """End all containers within the grace period, and let the server forget the pod."""
        await self._stop_life()
        metadata = self.item["metadata"]
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0) * self._kubelet.pace
        stops = [self._stop(container, grace) for container in self.every_container if container.running]
        self.report()
        await asyncio.gather(*stops)
        self.report()
        await self._flush()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        with contextlib.suppress(httpx2.HTTPStatusError):
            await self._kubelet.client.request("DELETE", self.path, body)

    async def _stop(self, container: Container, grace: float) -> None:
        script = self._script(container)
        hook = (container.spec.get("lifecycle") or {}).get("preStop") or {}
        needed = script.stop_after + _hook_seconds(hook) * self._kubelet.pace
        container.ready = False
        if fails(hook):
            await self._report_problem("FailedPreStopHook", "PreStopHook failed", container.name)
        await asyncio.sleep(min(needed, grace))
        killed = needed > grace
        container.finish(KILLED if killed else script.stop_code, script)

    async def _report_problem(self, reason: str, message: str, container: str = "") -> None:
        self.report()
        await self._kubelet.record(self.item, reason, message, container)

    def report(self) -> None:
        """Send the status soon; what changes at once is sent at once."""
        self._dirty = True
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.create_task(self._send())

    async def _flush(self) -> None:
        if self._reporting is not None:
            await self._reporting

    async def _send(self) -> None:
        while self._dirty:
            self._dirty = False
            await asyncio.sleep(0)
            status = self._format_status()
            if status == self._reported:
                continue
            self._reported = status
            patch = {"metadata": {"uid": self.item["metadata"]["uid"]}, "status": status}
            # A refusal is no fault: the pod is gone, or another has its name.
            with contextlib.suppress(httpx2.HTTPStatusError):
                await self._kubelet.client.merge(f"{self.path}/status", patch)

    def _format_status(self) -> Object:
        phase = self._failure or {"phase": self._phase()}
        initialized = all(map(_has_initialized, self.init_containers))
        status = {
            **phase,
            "conditions": self._conditions(phase["phase"], initialized),
            "containerStatuses": [container.format_status() for container in self.containers],
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "startTime": self._start_time,
        }
        if self.init_containers:
            status["initContainerStatuses"] = [container.format_status() for container in self.init_containers]
        if generation := self.item["metadata"].get("generation"):
            status["observedGeneration"] = generation
        return status

    def _phase(self) -> str:
        ended = [container for container in self.containers if "terminated" in container.state]
        failed_init = any(
            "terminated" in container.state and not has_succeeded(container) for container in self.init_containers
        )
        if failed_init and self._policy == "Never":
            return "Failed"
        if len(ended) == len(self.containers) and (self._policy != "Always" or self._ending is not None):
            return "Succeeded" if all(has_succeeded(container) for container in ended) else "Failed"
        if any(container.id for container in self.containers):
            return "Running"
        return "Pending"

    def _conditions(self, phase: str, initialized: bool) -> list[Object]:
        ended = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
        unready = [container.name for container in self.containers if not container.ready]
        gates = [gate["conditionType"] for gate in self.item["spec"].get("readinessGates") or ()]
        others = {condition["type"]: condition for condition in (self.item.get("status") or {}).get("conditions") or ()}
        missing = [gate for gate in gates if others.get(gate, {}).get("status") != "True"]
        message = f"containers with unready status: [{' '.join(unready)}]"
        rows = [
            ("PodReadyToStartContainers", phase not in ("Succeeded", "Failed"), "", ""),
            ("Initialized", initialized, "ContainersNotInitialized", ""),
            ("ContainersReady", not unready, ended, message),
            ("Ready", not unready and not missing, ended if unready else "ReadinessGatesNotReady", message),
        ]
        own = {row[0] for row in rows}
        foreign = [condition for name, condition in others.items() if name not in own]
        return [*foreign, *(self._condition(*row) for row in rows)]

    def _condition(self, name: str, true: bool, reason: str, message: str) -> Object:
        status = "True" if true else "False"
        if self._transitions.get(name, ("", ""))[0] != status:
            self._transitions[name] = (status, format_now())
        why = {} if true or not reason else {"reason": reason, "message": message}
        return {"type": name, "status": status, "lastTransitionTime": self._transitions[name][1], **why}


def has_succeeded(container: Container) -> bool:
    """Whether it ended with 0."""
    terminated = container.state.get("terminated")
    return terminated is not None and terminated["exitCode"] == 0


def is_sidecar(container: Container) -> bool:
    """Whether it is a container for initialization that runs as long as the pod."""
    return container.spec.get("restartPolicy") == "Always"


def _has_initialized(container: Container) -> bool:
    return has_succeeded(container) or (container.started and is_sidecar(container))


def fails(hook: Object) -> bool:
    """Whether a hook fails: its program is ``false``."""
    return bool((hook.get("exec") or {}).get("command") == ["false"])


def _hook_seconds(hook: Object) -> float:
    """How long a hook takes: what it sleeps, as such or by the command sleep."""
    if "sleep" in hook:
        return float(hook["sleep"]["seconds"])
    words = [word for part in (hook.get("exec") or {}).get("command") or () for word in part.split()]
    numbers = [after for word, after in itertools.pairwise(words) if word == "sleep"]
    return float(numbers[0]) if numbers and numbers[0].replace(".", "", 1).isdigit() else 0.0
