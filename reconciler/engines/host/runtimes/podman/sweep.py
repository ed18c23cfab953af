"""Deletes containers with everything that Podman forgets of them: processes, control groups, state of the OCI runtime.

A service that is killed while it starts a container forgets its processes: a delete succeeds and leaves them. All our
containers are in one control group, which shows them. One that is killed during a create leaves a container without
labels, whose name is taken; so every name has our prefix, and a part that is never used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from reconciler.engines.host.runtimes import cgroups
from reconciler.engines.host.runtimes.podman.api.answers import Listed, NetworkInfo, PodmanError, read
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, segment
from reconciler.engines.host.runtimes.podman.capabilities import Capabilities
from reconciler.engines.host.runtimes.podman.labels import NONCE, PodmanLabels, label_filter
from reconciler.engines.host.runtimes.podman.programs import oci_command
from reconciler.model.key import Key

_GROUP = re.compile(r"libpod-([0-9a-f]{64})(?:\.scope)?")
_ATTEMPTS = 3
"""The first delete of a container whose monitor was killed fails, and the second one succeeds."""
_OCI_SECONDS = 20.0
_DYING_SECONDS = 2.0


class Sweeper:
    """Deletes and lists the containers of one location."""

    def __init__(self, client: PodmanClient, capabilities: Capabilities, labels: PodmanLabels) -> None:
        self._client = client
        self._capabilities = capabilities
        self._labels = labels
        self._unresolved: set[tuple[str, str]] = set()

    async def list_containers(self, labels: Sequence[str] = ()) -> list[Listed]:
        """Our containers, those that ended included; only those with all of ``labels``. Raises PodmanError."""
        return await self._list({"filters": label_filter(list(labels) or self._labels.all_of_location())})

    async def delete(self, container: str, *, members: bool = False) -> None:
        """Kill and delete a container by ID or name; ``members``: with those in its namespaces. Raises PodmanError."""
        query = {"force": "true", "timeout": "0", "v": "true"} | ({"depend": "true"} if members else {})
        for attempt in range(_ATTEMPTS):
            try:
                await self._client.delete(f"containers/{segment(container)}", query)
            except PodmanError as error:
                if not error.status or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    async def delete_wholly(self, containers: Collection[str]) -> None:
        """Delete containers by ID, and end processes of them that Podman forgets. Raises PodmanError."""
        for container in containers:
            await self.delete(container)
        await asyncio.to_thread(self._end_groups, containers)

    async def resolve_start(self, nonce: str, name: str, *, lost: bool) -> Listed | None:
        """The container of a failed start, if its reply was ``lost`` and it runs; otherwise delete the parts that were
        created.

        If Podman does not answer, ``retry`` deletes it later. Raises PodmanError.
        """
        self._unresolved.add((nonce, name))
        found = await self.list_containers([*self._labels.all_of_location(), f"{NONCE}={nonce}"])
        running = next((each for each in found if each.running and each.pid), None) if lost else None
        if running is None:
            await self.delete_wholly([each.id for each in found])
            await self.delete(name)
        self._unresolved.discard((nonce, name))
        return running

    async def retry(self) -> None:
        """Retry the deletions that failed before. Raises PodmanError."""
        for nonce, name in sorted(self._unresolved):
            await self.resolve_start(nonce, name, lost=False)

    async def delete_replica(self, key: Key, replica: str) -> None:
        """Delete the sandbox and all containers of a replica. Raises PodmanError."""
        found = await self.list_containers(self._labels.all_of_replica(key, replica))
        for each in found:
            labelled = self._labels.read(each.labels)
            if labelled is not None and not labelled.place.container:
                await self.delete(each.id, members=True)
        await self.delete_wholly([each.id for each in found])

    async def delete_leftovers(self) -> None:
        """End and delete parts that Podman does not know, or not as ours. Raises PodmanError."""
        # The groups first: a container that is created meanwhile is in the list before its group exists.
        groups = await asyncio.to_thread(lambda: set(self._groups()))
        known = {each.id for each in await self.list_containers()}
        await asyncio.to_thread(self._end_groups, groups - known)
        for each in await self._list({"external": "true"}):
            names = [name for name in each.names or () if name.startswith(self._labels.prefix)]
            if names and each.id not in known and not each.labels:
                await self.delete(each.id)

    async def release(self) -> None:
        """Remove the network and the control group of the location; both stay while anything uses them."""
        with contextlib.suppress(PodmanError):
            query = {"filters": label_filter(self._labels.all_of_location())}
            for each in read(await self._client.get("networks/json", query), list[NetworkInfo]):
                await self._client.delete(f"networks/{segment(each.name)}")
        await asyncio.to_thread(self._remove_parents)

    async def _list(self, query: dict[str, str]) -> list[Listed]:
        return read(await self._client.get("containers/json", {"all": "true", **query}), list[Listed])

    def _parents(self) -> Iterable[Path]:
        return [each for each in self._capabilities.cgroup_directories(self._labels) if each.is_dir()]

    def _groups(self) -> dict[str, list[Path]]:
        """The control groups of our containers, by the ID of the container."""
        found: dict[str, list[Path]] = {}
        for parent in self._parents():
            for group in parent.iterdir():
                if match := _GROUP.fullmatch(group.name):
                    found.setdefault(match[1], []).append(group)
        return found

    def _end_groups(self, containers: Collection[str]) -> None:
        """Kill the processes in the control groups of deleted containers, and remove the groups. Blocks."""
        if not self._capabilities.direct:
            return
        remaining = {each: groups for each, groups in self._groups().items() if each in containers}
        for container, groups in remaining.items():
            paths = [str(group) for group in groups]
            deadline = time.monotonic() + _DYING_SECONDS
            while cgroups.members(paths) and time.monotonic() < deadline:
                cgroups.kill(paths)
                time.sleep(0.005)
            self._run_oci("delete", "--force", container)
            cgroups.remove(paths, tuple(self._parents()))

    def _run_oci(self, *arguments: str) -> None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            command = [*oci_command(self._capabilities), *arguments]
            subprocess.run(command, capture_output=True, check=False, timeout=_OCI_SECONDS, stdin=subprocess.DEVNULL)

    def _remove_parents(self) -> None:
        """Remove our empty control groups; the monitors of deleted containers need a moment to end. Blocks."""
        deadline = time.monotonic() + _DYING_SECONDS
        for parent in self._parents():
            while not (cgroups.try_remove(parent / "conmon") and cgroups.try_remove(parent)):
                if time.monotonic() > deadline or self._groups():
                    return
                time.sleep(0.01)
