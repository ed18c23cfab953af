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
from reconciler.engines.host.runtimes.podman.api.answers import Listed, NetworkInfo, PodmanError, decode_answer
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient, PodmanRequest, encode_segment
from reconciler.engines.host.runtimes.podman.capabilities import Capabilities
from reconciler.engines.host.runtimes.podman.labels import NONCE, PodmanLabels, label_filter
from reconciler.engines.host.runtimes.podman.network.port_rules import (
    port_rules,
    remove_lost_rules,
    remove_network_rules,
)
from reconciler.engines.host.runtimes.podman.programs import (
    lost_namespaces,
    oci_command,
    remove_bridge,
    remove_namespace,
)
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.model.key import Key
from reconciler.reasons import Reason

_GROUP = re.compile(r"libpod-([0-9a-f]{64})(?:\.scope)?")
_ATTEMPTS = 3
"""The first delete of a container whose monitor was killed fails, and the second one succeeds."""
_DEPENDENT = "dependent containers"
"""Words of Podman about a container whose namespaces others use; the IDs of the others follow."""
_ID = re.compile(r"\b[0-9a-f]{64}\b")
_SHORT = 12
_ROUNDS = 20
"""Retries, of ``retry``, in which a start whose reply was lost is looked for."""
_OCI_SECONDS = 20.0
_DYING_SECONDS = 2.0
_CERTAIN_SECONDS = 1.0
"""Seconds after which a network namespace without a process is not one of a container that starts."""


class ForeignMemberError(EngineError):
    """A sandbox has ended and stays, since a container that is not ours uses its network."""

    def __init__(self, replica: str, members: Sequence[str]) -> None:
        names = ", ".join(members) or "of others"
        message = (
            f"the network of {replica} is in use by the container {names}, which the daemon did not create: remove it "
            "with `podman rm --force`"
        )
        super().__init__(message, reason=Reason.REMOVAL_FAILED)


class Sweeper:
    """Deletes and lists the containers of one location."""

    def __init__(self, client: PodmanClient, capabilities: Capabilities, labels: PodmanLabels) -> None:
        self._client = client
        self._capabilities = capabilities
        self._labels = labels
        self._unresolved: dict[tuple[str, str], int] = {}
        self._interruptions = 0
        self._lost: set[Path] = set()

    async def list_containers(self, labels: Sequence[str] = ()) -> list[Listed]:
        """Our containers, those that ended included; only those with all of ``labels``. Raises PodmanError."""
        return await self._list({"filters": label_filter(list(labels) or self._labels.all_of_location())})

    async def delete(self, container: str) -> None:
        """Kill and delete a container by ID or name. Raises PodmanError."""
        # With v, the anonymous volumes of the container go too.
        query = {"force": "true", "timeout": "0", "v": "true"}
        for attempt in range(_ATTEMPTS):
            try:
                await self._client.delete(f"containers/{encode_segment(container)}", query)
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
        rounds = self._unresolved.setdefault((nonce, name), _ROUNDS if lost else 0)
        listeds = await self.list_containers([*self._labels.all_of_location(), f"{NONCE}={nonce}"])
        running = next((listed for listed in listeds if listed.running and listed.pid), None) if lost else None
        if running is None:
            await self.delete_wholly([listed.id for listed in listeds])
            # A container whose create was interrupted has no labels, but the name.
            await self.delete(name)
            if lost and self._capabilities.direct:
                await self._delete_port_rules()
        if listeds or not rounds:
            self._unresolved.pop((nonce, name), None)
        else:
            # The service may be at work on the request still, as when its storage is locked.
            self._unresolved[nonce, name] = rounds - 1
        return running

    async def retry(self) -> None:
        """Retry the deletions that failed before. Raises PodmanError."""
        for nonce, name in sorted(self._unresolved):
            await self.resolve_start(nonce, name, lost=False)
        if self._interruptions != self._client.interruptions or self._lost:
            self._interruptions = self._client.interruptions
            await self.delete_network_parts()

    async def delete_replica(self, key: Key, replica: str) -> None:
        """Delete all containers of a replica, and then its sandbox.

        Raises PodmanError, and ForeignMemberError if the network of the sandbox is in use by a container of others.
        """
        for attempt in range(_ATTEMPTS):
            listeds = await self.list_containers(self._labels.all_of_replica(key, replica))
            sandboxes = [listed.id for listed in listeds if self._is_sandbox(listed)]
            await self.delete_wholly([listed.id for listed in listeds if listed.id not in sandboxes])
            try:
                await self.delete_wholly(sandboxes)
            except PodmanError as error:
                if _DEPENDENT not in f"{error.cause} {error}":
                    raise
                # Until the last attempt, it can be one of ours that was created meanwhile.
                if attempt == _ATTEMPTS - 1:
                    await self._kill(sandboxes)
                    members = sorted({*_ID.findall(error.words)} - {*sandboxes})
                    raise ForeignMemberError(replica, [member[:_SHORT] for member in members]) from error
            else:
                return

    def _is_sandbox(self, listed: Listed) -> bool:
        labelled = self._labels.read(listed.labels)
        return labelled is not None and not labelled.place.container

    async def _kill(self, containers: Iterable[str]) -> None:
        for container in containers:
            with contextlib.suppress(PodmanError):
                await self._client.send(
                    PodmanRequest("POST", f"containers/{container}/kill", {"signal": "9"}), safe=True
                )

    async def delete_leftovers(self) -> None:
        """End and delete parts that Podman does not know, or not as ours. Raises PodmanError."""
        # The groups first: a container that is created meanwhile is in the list before its group exists.
        groups = await asyncio.to_thread(lambda: set(self._groups()))
        container_ids = {list_container.id for list_container in await self.list_containers()}
        await asyncio.to_thread(self._end_groups, groups - container_ids)
        for listed in await self._list({"external": "true"}):
            names = [name for name in listed.names or () if name.startswith(self._labels.prefix)]
            if names and listed.id not in container_ids and not listed.labels:
                await self.delete(listed.id)

    async def delete_network_parts(self) -> None:
        """Remove rules of ports and network namespaces that Podman forgot; of these, what the last call found too.

        Raises PodmanError.
        """
        if not self._capabilities.direct:
            return
        await self._delete_port_rules()
        subnets = [subnet.subnet for network in await self._networks() for subnet in network.subnets or ()]
        paths = await asyncio.to_thread(lost_namespaces, subnets)
        for path in paths & self._lost:
            await asyncio.to_thread(remove_namespace, path)
        self._lost = paths - self._lost

    async def _delete_port_rules(self) -> None:
        # The rules first: a container that is created meanwhile is in the list before its rules exist.
        listing = await asyncio.to_thread(port_rules)
        container_ids = {list_container.id for list_container in await self.list_containers()}
        await asyncio.to_thread(remove_lost_rules, listing, self._labels.network, container_ids)

    async def release(self) -> None:
        """Remove the network and the control group of the location; both stay while anything uses them."""
        with contextlib.suppress(PodmanError):
            await self.delete_network_parts()
            if self._lost:
                await asyncio.sleep(_CERTAIN_SECONDS)
                await self.delete_network_parts()
            for network in await self._networks():
                await self._client.delete(f"networks/{encode_segment(network.name)}")
                if self._capabilities.direct:
                    await asyncio.to_thread(remove_bridge, network.network_interface)
                    await asyncio.to_thread(remove_network_rules, network.name)
        await asyncio.to_thread(self._remove_parents)

    async def _networks(self) -> list[NetworkInfo]:
        query = {"filters": label_filter(self._labels.all_of_location())}
        return decode_answer(await self._client.get("networks/json", query), list[NetworkInfo])

    async def _list(self, query: dict[str, str]) -> list[Listed]:
        return decode_answer(await self._client.get("containers/json", {"all": "true", **query}), list[Listed])

    def _parents(self) -> Iterable[Path]:
        return [
            cgroup_directory
            for cgroup_directory in self._capabilities.cgroup_directories(self._labels)
            if cgroup_directory.is_dir()
        ]

    def _groups(self) -> dict[str, list[Path]]:
        """The control groups of our containers, by the ID of the container."""
        groups: dict[str, list[Path]] = {}
        for parent in self._parents():
            for group in list_paths(parent, "*"):
                if match := _GROUP.fullmatch(group.name):
                    groups.setdefault(match[1], []).append(group)
        return groups

    def _end_groups(self, containers: Collection[str]) -> None:
        """Kill the processes in the control groups of deleted containers, and remove the groups. Blocks."""
        if not self._capabilities.direct:
            return
        remaining = {text: groups for text, groups in self._groups().items() if text in containers}
        for container, groups in remaining.items():
            paths = [str(group) for group in groups]
            deadline = time.monotonic() + _DYING_SECONDS
            while cgroups.list_members(paths) and time.monotonic() < deadline:
                # A process that forks between the list and the signal needs another round.
                cgroups.kill_members(paths)
                time.sleep(0.005)
            self._run_oci("delete", "--force", container)
            cgroups.remove_groups(paths, tuple(self._parents()))

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
