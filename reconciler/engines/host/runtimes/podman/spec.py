"""What is requested of Podman for a container and for a sandbox, as JSON; pure.

Podman ignores fields that it does not know, so a misspelled one would have no effect and no error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.host.runtimes.cgroups import LEAST_QUOTA, PERIOD
from reconciler.engines.host.runtimes.podman.labels import PodmanLabels
from reconciler.engines.host.runtimes.protocol import ContainerId, ContainerStart, Mount
from reconciler.errors import EngineError
from reconciler.model.platform import RESTRICTED_USER
from reconciler.reasons import Reason

ENDPOINTS_AT = "/run/reconciler/endpoints"
"""Where a container sees the directory of the endpoints files."""
HOSTS_AT = "/etc/hosts"
_LEAST_SHARES, _LEAST_MEMORY = 2, 6 << 20
_MOST_BYTES = 6 << 20
"""The most bytes of variables and arguments that the kernel accepts."""
_HOSTNAME_LENGTH = 63
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,1023}")
_ALWAYS_DROPPED = ("CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_NET_RAW")
_WRITABLE = ("/run", "/tmp", "/var/tmp")
_SYSTEM = ("/dev", "/proc", "/sys", HOSTS_AT)
_SAFE = ("rbind", "rprivate", "nosuid", "nodev")
_SYSTEM_MOUNTS = [
    {"type": kind, "source": kind, "destination": path, "options": ["ro", "rprivate", "nosuid", "noexec", "nodev"]}
    for kind, path in (("sysfs", "/sys"), ("cgroup", "/sys/fs/cgroup"))
]
_NO_HEALTH_CHECK = {"Test": ["NONE"]}


class Ulimits(msgspec.Struct, frozen=True):
    """The limits of open files and of processes of a user; soft and hard are equal. There are no core files.

    The image of a program has its secrets.
    """

    files: int
    processes: int

    def body(self) -> list[dict[str, Any]]:
        """As Podman takes them; it adds a high limit of its own for one that is missing."""
        pairs = (("nofile", self.files), ("nproc", self.processes), ("core", 0))
        return [{"type": kind, "soft": number, "hard": number} for kind, number in pairs]


class Surroundings(msgspec.Struct, frozen=True):
    """The common properties of all containers of a location. ``controllers`` are those that limits can use.

    ``cgroup_parent`` is "" where Podman chooses it.
    """

    labels: PodmanLabels
    cgroup_parent: str
    ulimits: Ulimits
    controllers: frozenset[str]


class ContainerPaths(msgspec.Struct, frozen=True):
    """Files of this host for one container: of its output, of host names, and the endpoints of its GVC."""

    output: Path
    hosts: Path
    endpoints: Path


def container_body(
    launch: ContainerStart, around: Surroundings, sandbox: str, paths: ContainerPaths, nonce: str
) -> dict[str, Any]:
    """The request for a container in the namespaces of the container ``sandbox``. Raises EngineError.

    There is no quota of CPU: it would slow the start itself, so ``quota_body`` follows.
    """
    check_launch(launch)
    inside = {"nsmode": "container", "value": sandbox}
    body = _build_common_fields(around) | {
        "name": around.labels.name(launch.place, nonce),
        "image": launch.image,
        "labels": around.labels.container(launch, nonce),
        "env": launch.env,
        "groups": [str(launch.group)] if launch.group else [],
        "umask": "0022",
        "cap_drop": _list_dropped_capabilities(launch.restriction.dropped),
        "resource_limits": _build_resource_limits(launch.cpu, launch.memory, around.controllers)
        | _build_pids_limit(launch, around.controllers),
        "mounts": [*_build_mounts(launch.mounts), *_own_mounts(paths), *_writable_mounts(launch)],
        "netns": inside,
        "utsns": inside,
        "use_image_hosts": True,
        "log_configuration": {"driver": "k8s-file", "path": str(paths.output), "size": -1},
    }
    if launch.command:
        body |= {"entrypoint": [launch.command]}
    if launch.command or launch.args:
        body |= {"command": list(launch.args)}
    if launch.directory:
        body |= {"work_dir": launch.directory, "create_working_dir": True}
    if launch.user is not None:
        body |= {"user": str(launch.user)}
    if launch.restriction.read_only:
        body |= {"read_only_filesystem": True}
    if launch.ids is not None:
        # Podman would show the /sys of this host, with its network and its control groups.
        body |= {"userns": inside, "mounts": [*body["mounts"], *_SYSTEM_MOUNTS]}
    return body


def sandbox_place(launch: ContainerStart) -> ContainerId:
    """The place of the sandbox of the replica that ``launch`` belongs to."""
    return ContainerId(launch.place.key, launch.place.replica, "")


def sandbox_body(
    launch: ContainerStart, around: Surroundings, image: str, nonce: str, *, published: bool = False
) -> dict[str, Any]:
    """The request for the sandbox of the replica that ``launch`` belongs to.

    ``published``: the daemon leads the ports of this host there, and not Podman.
    """
    container_id = sandbox_place(launch)
    body = _build_common_fields(around) | {
        "name": around.labels.name(container_id, nonce),
        "image": image,
        "labels": around.labels.sandbox(launch, nonce),
        "hostname": container_id.replica[:_HOSTNAME_LENGTH],
        "cap_drop": ["ALL"],
        "read_only_filesystem": True,
        "log_configuration": {"driver": "none"},
        # Nothing in it uses shared memory or host names, and each would be one more mount.
        "ipcns": {"nsmode": "none"},
        "use_image_hosts": True,
        "seccomp_policy": "image",
    }
    if launch.ids is not None:
        ids = [{"container_id": 0, "host_id": launch.ids.first, "size": launch.ids.count}]
        body |= {"userns": {"nsmode": "private"}, "idmappings": {"UIDMap": ids, "GIDMap": ids}}
    if launch.user == RESTRICTED_USER:
        return body | {"netns": {"nsmode": "none"}}
    body |= {"netns": {"nsmode": "bridge"}, "networks": {around.labels.network: {}}}
    if published:
        return body
    ports = sorted(launch.replica_ports.items())
    return body | {
        "portmappings": [
            {"host_ip": "127.0.0.1", "host_port": assigned, "container_port": declared, "protocol": "tcp"}
            for declared, assigned in ports
        ],
    }


def quota_body(cpu: int, controllers: frozenset[str]) -> dict[str, Any] | None:
    """The quota for ``cpu`` millicores, for an update of the running container; None where none can be set."""
    if "cpu" not in controllers:
        return None
    return {"cpu": {"quota": max(LEAST_QUOTA, cpu * PERIOD // 1000), "period": PERIOD}}


def limits_body(cpu: int, memory: int, controllers: frozenset[str]) -> dict[str, Any]:
    """The limits of CPU and memory, for an update of a running container; empty where none can be set."""
    quota = quota_body(cpu, controllers) or {}
    return {
        name: limit | quota.get(name, {}) for name, limit in _build_resource_limits(cpu, memory, controllers).items()
    }


def hosts_file(launch: ContainerStart) -> str:
    """The host names of a replica: its own, and those of its containers, which all share one address."""
    replica = f"{launch.place.replica} {launch.place.replica}.{launch.place.key.name}"
    own = [f"127.0.0.1 {name}" for name in (replica, *launch.siblings)]
    return "\n".join(["127.0.0.1 localhost", "::1 localhost ip6-localhost", *own, ""])


def check_launch(launch: ContainerStart) -> None:
    """Refuse values that the rules for manifests refuse too. Raises EngineError."""
    for message, reason in _check_launch(launch):
        raise EngineError(message, reason=reason, retry=False)


def _check_launch(launch: ContainerStart) -> Iterator[tuple[str, Reason]]:
    if not _IMAGE.fullmatch(launch.image):
        yield f"{launch.image[:200]!r} is not the name of an image", Reason.INVALID_IMAGE_NAME
    for name in launch.env:
        if not name or "=" in name or "\0" in name + launch.env[name]:
            yield f"{name[:100]!r} is not the name of a variable, or its value has a NUL", Reason.VARIABLE_REFUSED
    texts = (launch.command, *launch.args, *launch.env, *launch.env.values())
    if sum(len(text.encode(errors="surrogateescape")) + 1 for text in texts) > _MOST_BYTES:
        message = f"the variables and arguments together are longer than the {_MOST_BYTES >> 20} MiB of the kernel"
        yield message, Reason.VARIABLE_TOO_LONG
    if launch.directory and not _is_plain(launch.directory):
        yield f"the working directory {launch.directory[:200]!r} is not a plain absolute path", Reason.MOUNT_REFUSED
    for mount in launch.mounts:
        if not _is_plain(mount.path) or mount.path == "/" or _is_below(mount.path, _SYSTEM):
            yield f"nothing can be mounted at {mount.path[:200]!r}", Reason.MOUNT_REFUSED


def _is_plain(path: str) -> bool:
    return path.startswith("/") and posixpath.normpath(path) == path and path.isprintable()


def _is_below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _build_common_fields(around: Surroundings) -> dict[str, Any]:
    private = {"nsmode": "private"}
    body = {
        "no_new_privileges": True,
        "r_limits": around.ulimits.body(),
        "ipcns": private,
        "pidns": private,
        "cgroupns": private,
        "restart_policy": "no",
        "stop_timeout": 0,
        "healthconfig": _NO_HEALTH_CHECK,
        "sdnotifyMode": "ignore",
        # Otherwise Podman adds mounts if a program is called like an init system.
        "systemd": "false",
        "image_volume_mode": "ignore",
        # Otherwise Podman adds its user to the file passwd in the container.
        "manage_password": False,
        # Otherwise Podman passes on the proxies of its own environment.
        "httpproxy": False,
        "init": False,
    }
    return body | ({"cgroup_parent": around.cgroup_parent} if around.cgroup_parent else {})


def _build_resource_limits(cpu: int, memory: int, controllers: frozenset[str]) -> dict[str, Any]:
    memory = max(_LEAST_MEMORY, memory)
    limits: Mapping[str, Any] = {
        "cpu": {"shares": max(_LEAST_SHARES, cpu * 1024 // 1000)},
        # The value of swap includes the memory, so none is left for swap.
        "memory": {"limit": memory, "swap": memory},
    }
    return {name: limit for name, limit in limits.items() if name in controllers}


def _build_pids_limit(launch: ContainerStart, controllers: frozenset[str]) -> dict[str, Any]:
    return {"pids": {"limit": launch.processes}} if "pids" in controllers else {}


def _build_mounts(mounts: tuple[Mount, ...]) -> Iterator[dict[str, Any]]:
    for mount in mounts:
        options = ["ro", *_SAFE, "noexec"] if mount.read_only else ["rw", *_SAFE]
        yield {"type": "bind", "source": str(mount.source), "destination": mount.path, "options": options}


def _list_dropped_capabilities(names: tuple[str, ...]) -> list[str]:
    """The capabilities that a container lacks, with those that no container has."""
    return ["ALL"] if "ALL" in names else sorted({*_ALWAYS_DROPPED, *(f"CAP_{name}" for name in names)})


def _writable_mounts(launch: ContainerStart) -> Iterator[dict[str, Any]]:
    """Directories in memory where programs expect to write, if the file system of the image is read-only."""
    taken = {mount.path for mount in launch.mounts}
    for path in _WRITABLE if launch.restriction.read_only else ():
        if path not in taken:
            # With tmpcopyup, the files of the image stay visible.
            options = ["rw", "rprivate", "nosuid", "nodev", "tmpcopyup"]
            yield {"type": "tmpfs", "source": "tmpfs", "destination": path, "options": options}


def _own_mounts(paths: ContainerPaths) -> Iterator[dict[str, Any]]:
    pairs = ((paths.hosts, HOSTS_AT), (paths.endpoints, ENDPOINTS_AT))
    return _build_mounts(tuple(Mount(source, path) for source, path in pairs))
