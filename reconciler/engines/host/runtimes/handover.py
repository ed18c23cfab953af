"""A location whose runtime changed: new containers start in the current one, those of the former ones run to their end.

The config hash of a replica depends on its runtime, so a change is a rollout like any other. A container of a former
runtime never starts again: after a change of the settings, only the newest version of its workload is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from reconciler.clock import Clock
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.images.pulled import has_pulled
from reconciler.engines.host.runtimes.limitations import separate_networks
from reconciler.engines.host.runtimes.plugins import runtime_names, runtime_of, runtime_plugin, runtimes_in_use
from reconciler.engines.host.runtimes.protocol import (
    ContainerFiles,
    ContainerId,
    ContainerStart,
    ExecResult,
    OnEnd,
    OutputFile,
    OutputForm,
    RunningContainer,
    Runtime,
    Usage,
)
from reconciler.engines.workload.environment import ContainerView
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.settings import Settings
from reconciler.terminal.session import ExecSession, TerminalSize


class HandoverRuntime:
    """``current`` and the ``former`` runtimes of one location (see Runtime for the methods).

    ``idle`` runtimes have no containers here and are never opened; images that they pulled are still here.
    """

    def __init__(self, current: Runtime, former: Sequence[Runtime], idle: Sequence[Runtime] = ()) -> None:
        self.name = current.name
        self.resizes = current.resizes
        self.mounts_stores = current.mounts_stores
        self.image_store = current.image_store
        stores = (runtime.image_store for runtime in (*former, *idle))
        self.idle_store = next((store for store in stores if store is not None), None)
        self._current = current
        self._former = former
        self._idle = idle
        self._owners: dict[tuple[Key, str], Runtime] = {}

    async def open(self, on_end: OnEnd) -> None:
        """Open all runtimes, or none. Raises EngineError, also for a former one: its containers would run unwatched."""
        async with AsyncExitStack() as opened:
            for runtime in (*self._former, self._current):
                opened.push_async_callback(runtime.close)
                await runtime.open(on_end)
            self._owners = {
                (container.place.key, container.place.replica): runtime
                for runtime in self._former
                for container in await runtime.list()
            }
            opened.pop_all()

    async def close(self) -> None:
        """Stop watching; containers keep running."""
        for runtime in (self._current, *self._former, *self._idle):
            await runtime.close()

    def limitations(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """The limitations of the current runtime, and that of replicas in a former one."""
        lacking = self._current.limitations(spec)
        return (*lacking, *separate_networks(spec)) if self._is_mixed(spec) else lacking

    def prepare(self, spec: WorkloadSpec) -> None:
        """Prepare this host for new replicas, and set the firewall of those in all runtimes."""
        for runtime in (self._current, *self._former):
            runtime.prepare(spec)

    def owner(self, spec: WorkloadSpec) -> Owner:
        """The owner of the files of new containers. Raises EngineError."""
        return self._current.owner(spec)

    def make_view(self, files: ContainerFiles, ports: Mapping[int, int], directory: str) -> ContainerView:
        """What a new container sees. Raises EngineError."""
        return self._current.make_view(files, ports, directory)

    def holds_ports(self, key: Key, replica: str) -> bool:
        """Whether the runtime of the replica listens on its ports."""
        return self._of(key, replica).holds_ports(key, replica)

    def addresses(self, key: Key, replica: str, ports: Mapping[int, int]) -> Mapping[int, str] | None:
        """Where the containers of the runtime that separates networks reach a replica of any runtime."""
        candidates = (runtime.addresses(key, replica, ports) for runtime in (self._current, *self._former))
        return next((candidate for candidate in candidates if candidate is not None), None)

    def publish(self, key: Key, ready: Mapping[str, Mapping[int, str]]) -> None:
        """Let the containers of all runtimes find the ready replicas of a workload."""
        for runtime in (self._current, *self._former):
            runtime.publish(key, ready)

    def take_events(self) -> list[tuple[Reason, str]]:
        """The events of all runtimes."""
        return [event for runtime in (self._current, *self._former) for event in runtime.take_events()]

    async def start(self, launch: ContainerStart) -> None:
        """Start a container in the current runtime. Raises EngineError."""
        await self._of(launch.place.key, launch.place.replica).start(launch)

    async def resize(self, container_id: ContainerId, cpu: int, memory: int) -> None:
        """Change the limits of a running container in its runtime. Raises EngineError."""
        await self._of(container_id.key, container_id.replica).resize(container_id, cpu, memory)

    async def signal(self, container_id: ContainerId, number: int) -> None:
        """Send a signal in the runtime of the container."""
        await self._of(container_id.key, container_id.replica).signal(container_id, number)

    async def exec(self, container_id: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a program inside a container, in its own runtime."""
        return await self._of(container_id.key, container_id.replica).exec(container_id, argv, timeout)

    def find_processes(self, container_id: ContainerId) -> frozenset[int]:
        """Processes of a container, by its own runtime."""
        return self._of(container_id.key, container_id.replica).find_processes(container_id)

    async def can_sleep(self, container_id: ContainerId) -> bool:
        """Whether the container has the program ``sleep``. Raises EngineError."""
        return await self._of(container_id.key, container_id.replica).can_sleep(container_id)

    async def open_session(
        self, container_id: ContainerId, argv: Sequence[str], terminal: TerminalSize | None
    ) -> ExecSession:
        """Open a session in a container, in its own runtime. Raises EngineError."""
        return await self._of(container_id.key, container_id.replica).open_session(container_id, argv, terminal)

    async def stats(self) -> dict[ContainerId, Usage]:
        """The usage of each running container."""
        usages: dict[ContainerId, Usage] = {}
        for runtime in (self._current, *self._former):
            usages |= await runtime.stats()
        return usages

    async def list(self) -> list[RunningContainer]:
        """All containers of all runtimes."""
        return [container for runtime in (self._current, *self._former) for container in await runtime.list()]

    def output(self, container_id: ContainerId) -> Path:
        """The output file of the container."""
        return self._of(container_id.key, container_id.replica).output(container_id)

    def output_form(self, container_id: ContainerId) -> OutputForm:
        """The form of the output file, in the runtime of the container."""
        return self._of(container_id.key, container_id.replica).output_form(container_id)

    def outputs(self) -> Sequence[OutputFile]:
        """The output files of all runtimes."""
        return [output for runtime in (self._current, *self._former, *self._idle) for output in runtime.outputs()]

    def append_output(self, container_id: ContainerId, text: str) -> None:
        """Add whole lines to the output of the container."""
        self._of(container_id.key, container_id.replica).append_output(container_id, text)

    def written_paths(self, container_id: ContainerId) -> tuple[Path, ...]:
        """What the container fills besides its mounts."""
        return self._of(container_id.key, container_id.replica).written_paths(container_id)

    async def remove(self, key: Key, replica: str) -> None:
        """Remove a replica from its runtime, and forget it. Raises EngineError."""
        runtime = self._of(key, replica)
        await runtime.remove(key, replica)
        self._owners.pop((key, replica), None)
        await self._close_if_empty(runtime)

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove the remains of a crash in any runtime."""
        for runtime in (self._current, *self._former):
            await runtime.prune(replicas)
            await self._close_if_empty(runtime)

    async def _close_if_empty(self, runtime: Runtime) -> None:
        """Close a former runtime after its last replica: what it has on this host besides, a network, goes then."""
        if runtime in self._former and not await runtime.list():
            self._former = [former_runtime for former_runtime in self._former if former_runtime is not runtime]
            self._idle = [*self._idle, runtime]
            await runtime.close()

    def _is_mixed(self, spec: WorkloadSpec) -> bool:
        """Whether there are containers with a network of their own, and replicas of ``spec`` without one."""

        def shares(runtime: Runtime) -> bool:
            return runtime.addresses(spec.key, "", {}) is None

        if shares(self._current):
            return not all(map(shares, self._owners.values()))
        return any(key == spec.key and shares(runtime) for (key, _), runtime in self._owners.items())

    def _of(self, key: Key, replica: str) -> Runtime:
        """The runtime of a replica; the current one unless it ran in a former one when the daemon started.

        A stateful replica keeps its name when it is replaced; it is removed from the former runtime before.
        """
        return self._owners.get((key, replica), self._current)


def make_location_runtime(settings: Settings, location: str, root: Path, clock: Clock) -> Runtime:
    """The runtime of ``location``, together with former ones that still have containers or images there."""
    current = runtime_of(settings, location)
    names = [current, *(name for name in runtimes_in_use(root) if name != current)]
    newest, *former = [runtime_plugin(name).make(root, location, clock, settings) for name in names]
    pullers = [name for name in runtime_names() if runtime_plugin(name).uses_images]
    unused = pullers if not {*pullers} & {*names} and has_pulled(root) else []
    idle = [runtime_plugin(name).make(root, location, clock, settings) for name in unused]
    return HandoverRuntime(newest, former, idle) if former or idle else newest
