"""The process runtime: starts, rediscovers, watches and ends containers as processes of this host."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL
from typing import Any

import msgspec

from reconciler.clock import Clock
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.runtimes import cgroups, exit_watch
from reconciler.engines.host.runtimes.limitations import HostPrograms
from reconciler.engines.host.runtimes.outputs import list_outputs
from reconciler.engines.host.runtimes.process import usage
from reconciler.engines.host.runtimes.process.adoption import (
    Discovery,
    discover_containers,
    is_start_alive,
    running_of,
    signal_program,
)
from reconciler.engines.host.runtimes.process.cgroup_tree import CgroupTree, find_cgroup_tree, name_for
from reconciler.engines.host.runtimes.process.child_setup import nproc_limit
from reconciler.engines.host.runtimes.process.container_view import ContainerViews
from reconciler.engines.host.runtimes.process.exec import KILLED, execute_command
from reconciler.engines.host.runtimes.process.kill import KillTarget, ProcessKiller
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.limitations import HostRights, list_limitations
from reconciler.engines.host.runtimes.process.session import open_session
from reconciler.engines.host.runtimes.process.spawn import group_name, spawn_container
from reconciler.engines.host.runtimes.process.state_dir import StartRecord, StateDirectory
from reconciler.engines.host.runtimes.procfs import boot_id, collect_descendants, list_processes
from reconciler.engines.host.runtimes.protocol import (
    ContainerFiles,
    ContainerId,
    ContainerStart,
    ExecResult,
    OnEnd,
    OutputFile,
    OutputForm,
    RunningContainer,
    Usage,
)
from reconciler.engines.workload.environment import ContainerView
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.tasks import wait_at_most
from reconciler.terminal.session import ExecSession, TerminalSize


class _Tracked(msgspec.Struct, frozen=True):
    begun: StartRecord
    running: RunningContainer


class ProcessRuntime(HostPrograms):
    """Containers as processes, for one location (see Runtime for the methods).

    ``root`` is the directory of the location on this host. ``default_user`` is the user of containers whose manifest
    names none. ``limited``: set limits if this host permits it.
    """

    name = "process"

    def __init__(
        self, root: Path, location: str, clock: Clock, *, default_user: str = "nobody", limited: bool = True
    ) -> None:
        self._views = ContainerViews(root, default_user)
        root = root.resolve()
        self._clock = clock
        self._limited = limited
        self._folders = StateDirectory(root / "run")
        self._labels = ProcessLabels(root, location)
        self._killer = ProcessKiller(self._labels)
        self._ends = exit_watch.ExitWatcher()
        self._limits: CgroupTree | None = None
        self._tracked: dict[ContainerId, _Tracked] = {}
        self._killed: set[ContainerId] = set()
        self._locks: defaultdict[ContainerId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_end: OnEnd | None = None

    async def open(self, on_end: OnEnd) -> None:
        """Find running containers by records and process markers; end those that have lost their wrapper."""
        self._on_end = on_end
        if self._limited:
            name = name_for(self._labels.root)
            self._limits = await asyncio.to_thread(lambda: find_cgroup_tree(name, cgroups.list_mounts()))
        discovery: Discovery = await asyncio.to_thread(discover_containers, self._folders, self._labels, self._clock)
        for begun in discovery.alive:
            cgroups.thaw_groups(begun.groups)
            self._keep(begun)
        lost = [KillTarget(self._labels.text(begun.place), groups=begun.groups) for begun in discovery.over]
        lost += [KillTarget(marker) for marker in discovery.strays]
        group_names = {Path(group).name for begun in [*discovery.alive, *discovery.over] for group in begun.groups}
        groups = self._limits.groups() if self._limits else {}
        forgotten = [groups[name] for name in sorted(groups.keys() - group_names)]
        lost += [KillTarget("", groups=pair) for pair in forgotten]
        # If one cannot be ended, the removal of its replica reports it.
        await asyncio.gather(*map(self._killer.kill, lost), return_exceptions=True)
        for group_paths in forgotten:
            await asyncio.to_thread(cgroups.remove_groups, group_paths)
        for begun in discovery.over:
            self._tracked[begun.place] = _Tracked(begun, running_of(begun, self._folders))

    async def close(self) -> None:
        """Stop watching; containers keep running."""
        self._on_end = None
        self._ends.close()
        await wait_at_most(self._tasks, "the process runtime")
        if self._limits is not None and not self._tracked:
            self._limits.release()

    def limitations(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """The limitations of processes on this host, a sentence each."""
        limits = self._limits
        pids = limits is not None and limits.pids
        rights = HostRights(os.geteuid() == 0, limits is not None, pids, nproc_limit())
        return (*list_limitations(spec, rights), *self._views.limitations(spec))

    def prepare(self, spec: WorkloadSpec) -> None:
        """Let the user of the containers reach their files."""
        self._views.prepare(spec)

    def owner(self, spec: WorkloadSpec) -> Owner:
        """The user that runs the containers, and the group of their volumes. Raises EngineError."""
        return self._views.owner(spec)

    def make_view(self, files: ContainerFiles, ports: Mapping[int, int], directory: str) -> ContainerView:
        """Make private directories with links to the mounts. Raises EngineError."""
        return self._views.make(files, ports, directory)

    def holds_ports(self, key: Key, replica: str) -> bool:  # noqa: ARG002
        """Never: the processes themselves listen."""
        return False

    async def start(self, launch: ContainerStart) -> None:
        """Start a container. Raises EngineError if this host lacks something, or if another version runs there."""
        await asyncio.shield(self._task(self._start(launch)))

    async def signal(self, container_id: ContainerId, number: int) -> None:
        """Send SIGKILL to all processes of a container and verify their end; send another signal to its program."""
        async with self._locks[container_id]:
            tracked = self._tracked.get(container_id)
            if tracked is None or not tracked.running.alive:
                return
            if number != SIGKILL:
                await asyncio.to_thread(signal_program, tracked.begun, number)
                return
            self._killed.add(container_id)
            await self._killer.kill(self._target(tracked.begun))
            if self._folders.code(container_id).number is None:
                self._folders.write_code(container_id, KILLED)

    async def exec(self, container_id: ContainerId, argv: Sequence[str], timeout: float) -> ExecResult:
        """Run a program with the environment, directory, user and limits of a running container."""
        tracked = self._tracked.get(container_id)
        if tracked is None or not tracked.running.alive:
            raise EngineError(f"{container_id.container} does not run", reason=Reason.NOT_RUNNING)
        return await execute_command(tracked.begun, argv, timeout, self._ends)

    def find_processes(self, container_id: ContainerId) -> frozenset[int]:
        """The program, all below it, and what is in its control groups."""
        tracked = self._tracked.get(container_id)
        if tracked is None or not tracked.running.alive:
            return frozenset()
        pids = {tracked.begun.pid, *cgroups.list_members(tracked.begun.groups)}
        return frozenset(collect_descendants(list_processes(), pids))

    async def open_session(
        self, container_id: ContainerId, argv: Sequence[str], terminal: TerminalSize | None
    ) -> ExecSession:
        """Run a program like ``exec``, connected to the caller; finds the container by its record on disk."""
        begun = await asyncio.to_thread(self._folders.record, container_id)
        if begun is None or not is_start_alive(self._labels, begun, boot_id()):
            message = f"container {container_id.container} of {container_id.replica} does not run"
            raise EngineError(message, reason=Reason.NOT_RUNNING)
        return await open_session(begun, argv, terminal, self._ends)

    async def stats(self) -> dict[ContainerId, Usage]:
        """The usage of each running container."""
        alive = [tracked.begun for tracked in self._tracked.values() if tracked.running.alive]
        return await asyncio.to_thread(usage.measure_usage, self._labels, alive)

    async def list(self) -> list[RunningContainer]:
        """All containers that were started and not removed."""
        return [tracked.running for _, tracked in sorted(self._tracked.items())]

    def output(self, container_id: ContainerId) -> Path:
        """The output file of the container."""
        return self._folders.output(container_id)

    def output_form(self, container_id: ContainerId) -> OutputForm:  # noqa: ARG002
        """What the programs wrote."""
        return OutputForm.PLAIN

    def outputs(self) -> Sequence[OutputFile]:
        """The output files below the directory of the location."""
        return list_outputs(self._folders.top, OutputForm.PLAIN)

    def append_output(self, container_id: ContainerId, text: str) -> None:
        """Append ``text`` to the output file."""
        with contextlib.suppress(OSError), self.output(container_id).open("a", encoding="utf-8") as file:
            file.write(text)

    def written_paths(self, container_id: ContainerId) -> tuple[Path, ...]:
        """The output file."""
        return (self.output(container_id),)

    async def remove(self, key: Key, replica: str) -> None:
        """Kill the remains of a replica and delete its directory. Raises EngineError if a process stays alive."""
        names = {
            container_id.container
            for container_id in self._tracked
            if (container_id.key, container_id.replica) == (key, replica)
        }
        names.update(self._folders.containers(key, replica))
        places = [ContainerId(key, replica, name) for name in sorted(names)]
        async with contextlib.AsyncExitStack() as stack:
            for target_id in places:
                await stack.enter_async_context(self._locks[target_id])
            await self._remove(key, replica, places)
        for target_id in places:
            self._locks.pop(target_id, None)

    async def prune(self, replicas: Collection[tuple[Key, str]]) -> None:
        """Remove the directories of replicas other than ``replicas``; the next start of the daemon retries failures."""
        for key, replica in await asyncio.to_thread(self._folders.replicas):
            if (key, replica) not in replicas:
                with contextlib.suppress(EngineError):
                    await self.remove(key, replica)

    async def _remove(self, key: Key, replica: str, places: Sequence[ContainerId]) -> None:
        begun = [self._tracked[container_id].begun for container_id in places if container_id in self._tracked]
        alive = [record for record in begun if self._tracked[record.place].running.alive]
        groups = {group for record in begun for group in record.groups}
        if self._limits is not None:
            groups.update(
                str(base / group_name(container_id)) for base in self._limits.bases for container_id in places
            )
        wrappers = tuple((record.pid, record.start) for record in alive)
        await self._killer.kill(KillTarget(self._labels.prefix(key, replica), wrappers, tuple(sorted(groups))))
        for start_record in alive:
            self._ends.forget(start_record.pid)
            exit_watch.reap_child(start_record.pid)
        try:
            await asyncio.to_thread(self._forget, key, replica, sorted(groups))
        except OSError as error:
            raise EngineError(
                f"the state of {replica} cannot be deleted: {error}", reason=Reason.REMOVAL_FAILED
            ) from error
        for target_id in places:
            self._tracked.pop(target_id, None)
            self._killed.discard(target_id)

    def _forget(self, key: Key, replica: str, groups: Sequence[str]) -> None:
        cgroups.remove_groups(groups, self._limits.bases if self._limits else ())
        self._folders.remove(key, replica)

    async def _start(self, launch: ContainerStart) -> None:
        async with self._locks[launch.place]:
            tracked = self._tracked.get(launch.place)
            if tracked is not None and tracked.running.alive:
                now = tracked.running
                if (now.version, now.config_hash, now.index) == (launch.version, launch.config_hash, launch.index):
                    return
                raise EngineError(
                    f"{launch.place.container} runs already in version {now.version}", reason=Reason.ALREADY_RUNNING
                )
            at = self._clock.monotonic()
            begun = await asyncio.to_thread(spawn_container, launch, at, self._folders, self._labels, self._limits)
            self._keep(begun)

    def _keep(self, begun: StartRecord) -> None:
        running = RunningContainer(
            begun.place, begun.version, begun.config_hash, begun.index, True, begun.started, ports=begun.ports
        )
        self._tracked[begun.place] = _Tracked(begun, running)
        self._ends.watch(begun.pid, lambda: self._note(begun))

    def _note(self, begun: StartRecord) -> None:
        self._task(self._end(begun))

    async def _end(self, begun: StartRecord) -> None:
        async with self._locks[begun.place]:
            tracked = self._tracked.get(begun.place)
            if tracked is None or tracked.begun is not begun:
                return
            # The numbers of the process and its session can be reused only after it is reaped.
            with contextlib.suppress(EngineError):
                await self._killer.kill(self._target(begun))
            exit_watch.reap_child(begun.pid)
            ended = running_of(begun, self._folders, begun.place in self._killed)
            self._killed.discard(begun.place)
            self._tracked[begun.place] = _Tracked(begun, ended)
        if self._on_end is not None:
            self._on_end(begun.place)

    def _target(self, begun: StartRecord) -> KillTarget:
        return KillTarget(self._labels.text(begun.place), ((begun.pid, begun.start),), begun.groups)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
