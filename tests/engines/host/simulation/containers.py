"""The simulation with the Podman runtime: its client, tracking and sweeps over a service in memory.

Hooks run as they do in the fake runtime: the service would need the time of the test to let them take theirs.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from reconciler.engines.host.runtimes.podman.labels import PodmanLabels, labels_of
from reconciler.engines.host.runtimes.podman.runtime import PodmanRuntime
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, ExecResult
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from tests.engines.host.fake import FakeRuntime, Program, Programs
from tests.engines.host.runtimes.podman.libpod import FakeContainer, Libpod, Refusal
from tests.engines.host.simulation.behaviour import BEHAVIOURS
from tests.engines.host.simulation.controller_simulation import ControllerSimulation
from tests.engines.host.simulation.schedule import Schedule
from tests.support.threads import InlineExecutor


class ScriptedLibpod(Libpod):
    """A service whose containers behave as their images set, in the time of ``programs``; ports are not real."""

    def __init__(self, programs: Programs, labels: PodmanLabels) -> None:
        super().__init__()
        self.programs = programs
        self.launches: dict[ContainerId, ContainerStart] = {}
        self._labels = labels
        programs.on_end = self._ended

    def begin(self, box: FakeContainer) -> None:
        """Start the program of a container; a sandbox has none."""
        container_id, programs = self._place(box), self.programs
        box.started = programs.clock.now()
        if container_id is None:
            return
        behaviour = BEHAVIOURS[box.body["image"]]
        if not behaviour.starts:
            raise Refusal(500, "OCI runtime attempted to invoke a command that was not found")
        program = Program(self.launches[container_id], programs.clock.monotonic(), behaviour.ready is None)
        programs.running[container_id] = program
        if behaviour.lives == 0:
            programs.end(container_id, 1, program)
        programs.later(behaviour.lives, lambda: programs.end(container_id, 1, program))

    def listen(self, box: FakeContainer) -> None:
        """Nothing connects."""

    def signal(self, box: FakeContainer, number: int) -> None:
        """SIGKILL ends it now, SIGTERM at the time of its behaviour."""
        container_id = self._place(box)
        program = self.programs.running.get(container_id) if container_id is not None else None
        if container_id is None or program is None:
            super().signal(box, number)
            return
        killed = number == signal.SIGKILL
        wait = 0.0 if killed else BEHAVIOURS[program.launch.image].obeys
        end = lambda: self.programs.end(container_id, 137 if killed else 143, program)  # noqa: E731
        end() if not wait else self.programs.later(wait, end)

    def _ended(self, container_id: ContainerId) -> None:
        for box in self.boxes.values():
            if box.state == "running" and self._place(box) == container_id:
                self.end(box, self.programs.running[container_id].code)

    def _place(self, box: FakeContainer) -> ContainerId | None:
        labelled = self._labels.read(box.body["labels"])
        return labelled.place if labelled is not None and labelled.place.container else None


class NotingRuntime(PodmanRuntime):
    """Writes down what it is asked for, as the fake runtime does."""

    def __init__(self, root: Path, programs: Programs, service: ScriptedLibpod) -> None:
        super().__init__(root, "here", programs.clock, root / "socket", service.transport())
        self.image_store = None
        self._programs = programs
        self._service = service
        self._fake = FakeRuntime(programs)

    async def start(self, launch: ContainerStart) -> None:
        """Start a container."""
        self._programs.note("start", launch.place.replica, launch.place.container)
        self._service.launches[launch.place] = launch
        await super().start(launch)

    async def signal(self, container_id: ContainerId, number: int) -> None:
        """Signal a container."""
        self._programs.note(
            "kill" if number == signal.SIGKILL else "terminate", container_id.replica, container_id.container
        )
        if number == signal.SIGKILL and self._programs.unkillable:
            self._programs.unkillable -= 1
            raise EngineError(f"{container_id.container} cannot be killed", reason=Reason.KILL_FAILED)
        await super().signal(container_id, number)

    async def exec(self, place: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a hook for as long as its behaviour sets."""
        return await self._fake.exec(place, argv, timeout)

    async def remove(self, key: Key, replica: str) -> None:
        """Remove a replica; what still runs of it is written down."""
        await self._fake.remove(key, replica)
        await super().remove(key, replica)


class ContainerSimulation(ControllerSimulation):
    """A simulation on which the Podman runtime runs the containers."""

    def __init__(self, root: Path, schedule: Schedule) -> None:
        super().__init__(root, schedule)
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        self._labels = labels_of(root, "here")
        self.service = ScriptedLibpod(self.programs, self._labels)
        self._replicas: set[str] = set()

    def make_runtime(self) -> NotingRuntime:
        """The runtime of the next daemon."""
        return NotingRuntime(self._root, self.programs, self.service)

    async def close(self) -> None:
        """Let the daemon stop, and remember its replicas."""
        self._replicas = {each.name for each in self.replicas()}
        await super().close()

    def known_replicas(self) -> set[str]:
        """The replicas that the last daemon knew."""
        return self._replicas

    def replicas_in_podman(self) -> set[str]:
        """The replicas that have a container or a sandbox in Podman."""
        read = [self._labels.read(box.body["labels"]) for box in self.service.boxes.values()]
        assert None not in read
        return {each.place.replica for each in read if each is not None}
