"""The plugin of the process runtime, which the settings select by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from reconciler.clock import Clock
from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.process.adoption import is_start_alive
from reconciler.engines.host.runtimes.process.cgroup_tree import find_cgroup_tree, name_for
from reconciler.engines.host.runtimes.process.container_view import find_closed_directory, resolve_user
from reconciler.engines.host.runtimes.process.labels import ProcessLabels
from reconciler.engines.host.runtimes.process.limitations import HostRights, list_limitations
from reconciler.engines.host.runtimes.process.state_dir import StateDirectory
from reconciler.engines.host.runtimes.process.usage import measure_usage
from reconciler.engines.host.runtimes.protocol import HostProblem, Runtime, RuntimePlugin, RuntimeSnapshot
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.settings import Settings

ABLE = HostRights(root=True, limited=True, pids=True)
"""All rights that a daemon may have on a host."""
SHELL = Path("/bin/sh")


class ProcessPlugin:
    """Containers as processes (see RuntimePlugin for the methods)."""

    uses_images = False

    def make(self, root: Path, location: str, clock: Clock, settings: Settings) -> Runtime:
        """The runtime of one location, whose directory is ``root``."""
        from reconciler.engines.host.runtimes.process.runtime import ProcessRuntime

        return ProcessRuntime(root, location, clock, default_user=settings.host.default_user)

    def foreseen_limitations(self, spec: WorkloadSpec) -> Iterator[str]:
        """What containers as processes lack even with a daemon that has all rights."""
        return list_limitations(spec, ABLE)

    def list_obstacles(self, settings: Settings) -> Iterator[HostProblem]:
        """A directory that the user of containers whose manifest names none cannot pass, on the way to their files."""
        name = settings.host.default_user
        with suppress(EngineError):
            if (closed := find_closed_directory(settings.state, resolve_user(None, name))) is not None:
                message = f"{closed} lets only its owner pass, and workloads run as {name}: nothing starts below it"
                advice = "set `state` to a directory such as /var/lib/reconciler, or `host: {defaultUser: root}`"
                yield HostProblem(message, advice, fatal=True)

    def is_available(self, settings: Settings) -> bool:  # noqa: ARG002
        """Processes can run on any host."""
        return True

    def is_in_use(self, root: Path) -> bool:
        """Whether a start is recorded at the location."""
        return next(StateDirectory(root / "run").records(), None) is not None

    def snapshot(self, root: Path, location: str) -> RuntimeSnapshot:
        """The running containers, by the records of their starts; their usage comes from the kernel."""
        boot, labels = procfs.boot_id(), ProcessLabels(root, location)
        started = list(StateDirectory(root / "run").records())
        running = [begun for begun in started if is_start_alive(labels, begun, boot)]
        # Containers of another boot have ended, unless one of their processes lives.
        boots = {boot, *(begun.boot for begun in running)}
        ended = {begun.place for begun in started if begun.boot in boots} - {begun.place for begun in running}
        used, pids = measure_usage(labels, running), {begun.place: begun.pid for begun in running}
        by_run = {
            (container_id, str(pids[container_id])): container_usage for container_id, container_usage in used.items()
        }
        return RuntimeSnapshot(by_run, frozenset(pids), frozenset(ended), frozenset(boots))

    def processes(self, root: Path, key: Key) -> frozenset[int]:
        """What runs below the starts, or in their control groups: a child may leave its parent."""
        every = procfs.list_processes()
        pids: set[int] = set()
        for begun in StateDirectory(root / "run").records_of(key):
            if (proc := every.get(begun.pid)) is not None and proc.start == begun.start:
                pids |= {begun.pid, *cgroups.list_members(begun.groups)}
        return frozenset(procfs.collect_descendants(every, pids))

    def check_host(self, settings: Settings, proc: Path, own_user: bool) -> Iterator[HostProblem]:
        """A shell and /proc are required; control groups are recommended."""
        if not os.access(SHELL, os.X_OK):
            message = f"{SHELL}, which starts every container, cannot be run"
            yield HostProblem(message, "install a shell, such as dash", fatal=True)
        if not (proc / "self" / "stat").exists():
            message = f"{proc} is not mounted: replicas cannot be found or watched"
            yield HostProblem(message, "mount -t proc proc /proc", fatal=True)
        if not own_user:
            return
        yield from self.list_obstacles(settings)
        tree = find_cgroup_tree(name_for(settings.state / "doctor"), cgroups.list_mounts())
        if tree is None:
            message = "cannot create control groups: limits of CPU and memory have no effect"
            yield HostProblem(message, 'see docs/host.md, "Limits of CPU and memory"', of_user=True)
        else:
            tree.release()


PLUGIN: RuntimePlugin = ProcessPlugin()
