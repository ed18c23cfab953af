"""What the Podman service and this host offer, as /version and /info answer; nothing is guessed."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import resource
import socket
import struct
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.runtimes import cgroups
from reconciler.engines.host.runtimes.podman.api.answers import PodmanError, ServiceInfo, decode_answer
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient
from reconciler.engines.host.runtimes.podman.labels import PodmanLabels
from reconciler.engines.host.runtimes.podman.spec import Surroundings, Ulimits
from reconciler.engines.host.runtimes.podman.stores import missing_for_stores, sees_mounts
from reconciler.engines.host.runtimes.podman.users.mapped_mounts import lacks_for_mapped_mounts, lacks_for_namespaces
from reconciler.errors import EngineError
from reconciler.reasons import Reason

CGROUPFS = "cgroupfs"
"""The manager of control groups with which Podman writes to them itself; the other one asks systemd."""
OLDEST = (4, 3)
"""The oldest version of Podman that works: Debian 12 has it."""
_MOST_FILES, _MOST_PROCESSES = 1 << 20, 1 << 17
_NUMBER = re.compile(r"(\d+)\.(\d+)")
_LIMIT = re.compile(r"^Max (open files|processes)\s+\S+\s+(\S+)", re.MULTILINE)

_NEEDED = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SETFCAP": 31,
}
"""The capabilities, with their numbers, to enter containers, and those that programs in containers have by default."""
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)
_NEWNET = 0x40000000
_NOT_DIRECT = "only a daemon that is root and not confined can give them their files"


class Capabilities(msgspec.Struct, frozen=True):
    """The service: its version, its user and its parts.

    ``controllers`` are those of control groups that limits can use. ``direct``: the daemon may use the OCI runtime,
    control groups and network namespaces of the containers itself, as it and Podman are root on this host, and nothing
    confines it. ``publishes_ports``: it may also lead ports of this host to containers. ``lacks_for_stores`` is why
    object stores cannot be mounted, "" if they can; ``lacks_for_namespaces`` is why containers get no user namespace,
    and ``lacks_for_mapped_mounts`` why those with volumes to write to get none.
    """

    version: str
    architecture: str
    rootless: bool
    direct: bool
    controllers: frozenset[str]
    cgroup_manager: str
    cgroup_version: str
    runtime_name: str
    runtime_path: str
    seccomp: bool
    ulimits: Ulimits
    lacks_for_stores: str = ""
    publishes_ports: bool = False
    lacks_for_namespaces: str = ""
    lacks_for_mapped_mounts: str = ""

    @property
    def runtime_root(self) -> str:
        """The directory in which the OCI runtime keeps the state of containers."""
        return f"/run/{self.runtime_name}"

    def surroundings(self, labels: PodmanLabels) -> Surroundings:
        """What the containers of a location have in common on this host."""
        return Surroundings(labels, self.cgroup_parent(labels), self.ulimits, self.controllers)

    def cgroup_parent(self, labels: PodmanLabels) -> str:
        """The control group of all our containers; "" where Podman has to choose it."""
        if self.rootless:
            return ""
        # Without a dash, at which systemd would nest the slice in another one.
        name = f"reconciler_{labels.owner}"
        return f"{name}.slice" if self.cgroup_manager == "systemd" else f"/{name}"

    def cgroup_directories(self, labels: PodmanLabels) -> list[Path]:
        """The directories of that control group, one in each hierarchy, whether they exist or not."""
        parent = self.cgroup_parent(labels)
        return [top / parent.lstrip("/") for top in cgroups.list_hierarchies()] if parent else []


async def discover_capabilities(client: PodmanClient, path: Path, root: Path) -> Capabilities:
    """The capabilities of the service at the socket ``path``, for the location whose directory is ``root``.

    Raises EngineError if it is too old or not there.
    """
    info = decode_answer(await _get_info(client, path), ServiceInfo)
    match, host = _NUMBER.match(info.version.version), info.host
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        message = f"Podman {info.version.version or 'of an unknown version'} is too old: {oldest} or newer is needed"
        raise EngineError(message, reason=Reason.RUNTIME_UNAVAILABLE)
    rootless = host.security.rootless
    direct = not rootless and await asyncio.to_thread(_may_be_direct, Path(host.oci_runtime.path))
    # Without root, Podman can limit only with control groups of version 2.
    limited = not rootless or host.cgroup_version == "v2"
    return Capabilities(
        info.version.version,
        host.arch,
        rootless,
        direct=direct,
        controllers=frozenset(host.cgroup_controllers or ()) if limited else frozenset(),
        cgroup_manager=host.cgroup_manager,
        cgroup_version=host.cgroup_version,
        runtime_name=host.oci_runtime.name,
        runtime_path=host.oci_runtime.path,
        seccomp=host.security.seccomp_enabled,
        ulimits=await asyncio.to_thread(_read_ulimits, path),
        lacks_for_stores=await asyncio.to_thread(_lacks_for_stores, path),
        publishes_ports=direct and await asyncio.to_thread(_publishes_ports, path),
        lacks_for_namespaces=await asyncio.to_thread(_lacks_for_namespaces, path) if direct else _NOT_DIRECT,
        lacks_for_mapped_mounts=await asyncio.to_thread(_lacks_for_mapped_mounts, path, root)
        if direct
        else _NOT_DIRECT,
    )


async def _get_info(client: PodmanClient, path: Path) -> bytes:
    """What the service at the socket ``path`` says of itself. Raises EngineError where that is not Podman."""
    try:
        return await client.get("info")
    except PodmanError as error:
        if not error.missing:
            raise
        message = f"what answers at {path} is not Podman (is it Docker?), which runs the containers; name its socket"
        raise EngineError(
            f"{message} in the settings, or leave podman.socket out", reason=Reason.RUNTIME_UNAVAILABLE
        ) from error


def may_enter_containers(status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process has the rights for it: root may lack them, as in a confined service. Blocks.

    Capabilities do not show whether system calls are filtered, so it joins its own network namespace, too.
    """
    try:
        match = _EFFECTIVE.search(status.read_text(encoding="utf-8"))
        if match is None or not all(int(match[1], 16) >> number & 1 for number in _NEEDED.values()):
            return False
        descriptor = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        failed: int = ctypes.CDLL(None, use_errno=True).setns(descriptor, _NEWNET)
    finally:
        os.close(descriptor)
    return not failed


def _may_be_direct(oci_runtime: Path) -> bool:
    return os.geteuid() == 0 and oci_runtime.is_file() and may_enter_containers()


def _read_ulimits(path: Path) -> Ulimits:
    """The least of the hard limits of the daemon and of the service, without which no container starts."""
    limits = {
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "processes": resource.getrlimit(resource.RLIMIT_NPROC)[1],
    }
    most = {"open files": _MOST_FILES, "processes": _MOST_PROCESSES}
    # Python shows a missing limit as -1.
    bounded = {name: most[name] if limit < 0 else min(limit, most[name]) for name, limit in limits.items()}
    with suppress(OSError):
        for name, text in _LIMIT.findall(Path(f"/proc/{_get_peer_pid(path)}/limits").read_text(encoding="ascii")):
            bounded[name] = min(bounded[name], int(text)) if text.isdecimal() else bounded[name]
    return Ulimits(bounded["open files"], bounded["processes"])


def _lacks_for_stores(path: Path) -> str:
    try:
        service = _get_peer_pid(path)
    except OSError:
        service = 0
    return missing_for_stores(service)


def _lacks_for_namespaces(path: Path) -> str:
    return lacks_for_namespaces(mounts=not find_other_mounts(path))


def _lacks_for_mapped_mounts(path: Path, root: Path) -> str:
    return lacks_for_mapped_mounts(root, find_other_mounts(path))


def find_other_mounts(path: Path) -> int:
    """The process behind the socket ``path`` if it is in another mount namespace than this one; otherwise 0. Blocks."""
    try:
        peer = _get_peer_pid(path)
    except OSError:
        return 0
    return 0 if sees_mounts(peer) else peer


def answers_to_localhost(interface: str) -> Path:
    """The setting that lets answers from ``interface`` come back to a program that asked from 127.0.0.1."""
    return Path("/proc/sys/net/ipv4/conf", interface, "route_localnet")


def may_lead_ports(service: int) -> bool:
    """Whether this process may change the network in which ``service``, Podman's process, makes bridges. Blocks."""
    try:
        same = os.stat(f"/proc/{service}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return False
    # A confined service may see /proc/sys read-only.
    return same and os.access(answers_to_localhost("all"), os.W_OK)


def _publishes_ports(path: Path) -> bool:
    try:
        return may_lead_ports(_get_peer_pid(path))
    except OSError:
        return False


def _get_peer_pid(path: Path) -> int:
    """The process behind the socket; with socket activation that is the service manager. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        link.connect(str(path))
        credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
