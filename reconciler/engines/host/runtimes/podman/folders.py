"""The directory of each container on disk: its output, its host names and a record of its last start.

Adoption uses Podman's labels; the record is for programs that show usage without Podman.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.directories import LISTED, make_traversable
from reconciler.engines.host.disk.ownership import IdRange, chown_all, chown_new
from reconciler.engines.host.runtimes import cgroups, procfs
from reconciler.engines.host.runtimes.outputs import OUTPUT
from reconciler.engines.host.runtimes.podman.network.host_names import HostNames
from reconciler.engines.host.runtimes.podman.spec import ContainerPaths, hosts_file
from reconciler.engines.host.runtimes.podman.stores import unmount_below
from reconciler.engines.host.runtimes.podman.tracked import HostProcess, Tracked
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, Mount, RuntimeSnapshot, Usage
from reconciler.listing import list_paths
from reconciler.model.key import Key, Kind
from reconciler.private_files import make_directory

_TOP, _HOSTS, _STORES, _RECORD = "podman", "hosts", "stores", "container.json"
_MAPPED = "mapped-volumes"


class ContainerRecord(msgspec.Struct, frozen=True):
    """The last start of a container: its ID, its first process and its control groups.

    ``oci`` begins each command of the OCI runtime; it is empty if the daemon cannot use the runtime.
    """

    place: ContainerId
    id: str
    program: HostProcess
    groups: tuple[str, ...]
    oci: tuple[str, ...] = ()


class ContainerFolders(msgspec.Struct, frozen=True):
    """The directories of one location, whose directory is ``root``."""

    root: Path

    @property
    def top(self) -> Path:
        """The directory that contains all of them."""
        return self.root / _TOP

    def paths(self, container_id: ContainerId, endpoints: Path) -> ContainerPaths:
        """The files of a container."""
        folder = self._of(container_id)
        return ContainerPaths(folder / OUTPUT, folder / _HOSTS, endpoints / container_id.key.gvc)

    def output(self, container_id: ContainerId) -> Path:
        """The output file of a container."""
        return self._of(container_id) / OUTPUT

    def stores(self, container_id: ContainerId) -> Path:
        """The directory of the mounts of object stores of a container."""
        return self._of(container_id) / _STORES

    @property
    def mapped_mounts(self) -> Path:
        """The directory of mounts for user namespaces; each ends when its container has started."""
        return self.root / _MAPPED

    def hosts(self, container_id: ContainerId) -> Path:
        """The file of host names of a container."""
        return self._of(container_id) / _HOSTS

    def prepare(self, launch: ContainerStart, paths: ContainerPaths, names: HostNames) -> None:
        """Make the files of the next start. The output of the last one stays. Raises OSError."""
        make_directory(paths.output.parent)
        os.close(os.open(paths.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        names.create(paths.hosts, launch.place, hosts_file(launch))
        make_traversable(self.root, paths.endpoints, LISTED)

    def write(self, tracked: Tracked, oci: tuple[str, ...]) -> None:
        """Record a start; on a full disk nothing is recorded."""
        container_id = tracked.labelled.place
        record = ContainerRecord(container_id, tracked.id, tracked.program, tracked.groups, oci)
        with suppress(OSError):
            # Each start of a daemon records all containers again, and few records change.
            if self.record(container_id) != record:
                make_directory(self._of(container_id))
                (self._of(container_id) / _RECORD).write_bytes(msgspec.json.encode(record))

    def restore(self, adopted: Collection[Tracked], oci: tuple[str, ...]) -> None:
        """Record the starts of adopted containers again: their records may be lost, old or of another daemon."""
        for tracked in adopted:
            if tracked.labelled.place.container:
                self.write(tracked, oci)

    def append(self, container_id: ContainerId, text: str, now: float) -> None:
        """Add lines to the output, with the time ``now`` in the form of conmon; does nothing if that fails."""
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds")
        lines = "".join(f"{stamp} stdout F {line}\n" for line in text.splitlines())
        with suppress(OSError), self.output(container_id).open("a", encoding="utf-8") as file:
            file.write(lines)

    def record(self, container_id: ContainerId) -> ContainerRecord | None:
        """The last start of a container; None without one."""
        try:
            return msgspec.json.decode((self._of(container_id) / _RECORD).read_bytes(), type=ContainerRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def remove(self, key: Key, replica: str) -> None:
        """Delete the directories of a replica, and of its workload and GVC if they are empty. Raises OSError."""
        folder = self.top / key.gvc / key.name / replica
        if folder.exists():
            # Mounts below would make the deletion fail.
            if any(list_paths(folder, f"*/{_STORES}")):
                unmount_below(folder)
            shutil.rmtree(folder)
        for parent in (folder.parent, folder.parent.parent, self.top):
            with suppress(OSError):
                # This fails for one that is not empty.
                parent.rmdir()

    def replicas(self) -> list[tuple[Key, str]]:
        """The workload and name of each replica that has a directory."""
        parts = (path.relative_to(self.top).parts for path in list_paths(self.top, "*/*/*"))
        return sorted((Key(Kind.WORKLOAD, gvc, workload), replica) for gvc, workload, replica in parts)

    def snapshot(self) -> RuntimeSnapshot:
        """What runs, by the records and the kernel. Blocks while it reads files."""
        usage: dict[tuple[ContainerId, str], Usage] = {}
        running: set[ContainerId] = set()
        ended: set[ContainerId] = set()
        for record in self._records():
            (running if record.program.alive else ended).add(record.place)
            if record.place in running and (used := cgroups.read_usage(record.groups)) is not None:
                usage[record.place, record.id] = Usage(*used)
        return RuntimeSnapshot(usage, frozenset(running), frozenset(ended), frozenset({procfs.boot_id()}))

    def _of(self, container_id: ContainerId) -> Path:
        return self.top / container_id.key.gvc / container_id.key.name / container_id.replica / container_id.container

    def _records(self) -> Iterator[ContainerRecord]:
        for path in list_paths(self.top, f"*/*/*/*/{_RECORD}"):
            with suppress(OSError, msgspec.DecodeError):
                yield msgspec.json.decode(path.read_bytes(), type=ContainerRecord)


def give_mounts(mounts: Iterable[Mount], user: int, ids: IdRange | None) -> None:
    """Give the files behind ``mounts`` to the user of a container; a volume only once. Raises OSError.

    ``ids`` are those of its user namespace. A volume belongs on the disk to the user that it sees.
    """
    # Only root may give files to others.
    for mount in mounts if os.geteuid() == 0 else ():
        if mount.read_only:
            chown_all(mount.source, ids.of(user) if ids is not None else user)
        else:
            chown_new(mount.source, user)
