"""The plugin of the Podman runtime, which the settings select by name.

What talks to Podman is imported when a location needs it: the HTTP client costs every command 60 ms.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from reconciler.clock import Clock
from reconciler.engines.host.runtimes.podman.users.rules import check_users
from reconciler.engines.host.runtimes.protocol import HostProblem, Runtime, RuntimePlugin, RuntimeSnapshot
from reconciler.engines.workload.spec import WorkloadSpec
from reconciler.listing import list_paths
from reconciler.model.key import Key
from reconciler.settings import Settings

_ANSWER_SECONDS = 3.0
"""Seconds in which the service must answer; if systemd starts it on demand, this takes a moment."""
_MOST_BYTES = 4096
"""The most that is read of its answer, which it closes the connection after."""
_PING = b"GET /_ping HTTP/1.0\r\nHost: podman\r\n\r\n"
# Docker answers as Podman does, but for this header, and serves none of the requests that follow.
_OF_PODMAN = b"libpod-api-version:"
_DOCKER = Path("/run/docker.sock")
# Distributions install helpers of Podman in directories that PATH lacks.
_HELPERS = {
    "netavark": (Path("/usr/lib/podman/netavark"), Path("/usr/libexec/podman/netavark")),
    "conmon": (Path("/usr/bin/conmon"), Path("/usr/libexec/podman/conmon")),
}
# systemd mounts version 2 of control groups here, beside version 1. There crun fails, which Podman prefers.
_HYBRID = Path("/sys/fs/cgroup/unified")


class PodmanPlugin:
    """Containers of images, by Podman (see RuntimePlugin for the methods)."""

    uses_images = True

    def make(self, root: Path, location: str, clock: Clock, settings: Settings) -> Runtime:
        """The runtime of one location, whose directory is ``root``."""
        from reconciler.engines.host.runtimes.podman.api.own_service import OwnService, is_listening
        from reconciler.engines.host.runtimes.podman.runtime import PodmanOptions, PodmanRuntime

        path = socket_path(settings)
        starts = settings.podman.socket is None and not is_listening(path)
        own = OwnService(root.resolve(), "runc" if _HYBRID.is_dir() else "") if starts else None
        options = PodmanOptions(settings.images.insecure, settings.podman.user_namespaces.first_id, own)
        return PodmanRuntime(root, location, clock, own.socket if own else path, options=options)

    def foreseen_limitations(self, spec: WorkloadSpec) -> Iterator[str]:
        """The limitations of containers by Podman, even if it has all rights."""
        from reconciler.engines.host.runtimes.podman.limitations import list_limitations

        return list_limitations(spec, None)

    def list_obstacles(self, settings: Settings) -> Iterator[HostProblem]:  # noqa: ARG002
        """None: containers see their files by mounts."""
        return iter(())

    def is_available(self, settings: Settings) -> bool:
        """Whether Podman answers at its socket, or the daemon can start its service."""
        return _can_ping_service(socket_path(settings)) or (settings.podman.socket is None and _can_start_service())

    def is_in_use(self, root: Path) -> bool:
        """Whether a container has a directory at the location."""
        return next(list_paths(root / "podman", "*/*/*"), None) is not None

    def snapshot(self, root: Path, location: str) -> RuntimeSnapshot:  # noqa: ARG002
        """The running containers, by the records of their starts; their usage comes from the kernel."""
        from reconciler.engines.host.runtimes.podman.folders import ContainerFolders

        return ContainerFolders(root).snapshot()

    def processes(self, root: Path, key: Key) -> frozenset[int]:  # noqa: ARG002
        """None: containers have networks of their own."""
        return frozenset()

    def check_host(self, settings: Settings, proc: Path, own_user: bool) -> Iterator[HostProblem]:
        """Podman, its parts and socket are required, nftables is recommended; variables can be read, ids are free."""
        path = socket_path(settings)
        if shutil.which("podman") is None:
            docker = "; Docker, which is here, runs no workloads" if _DOCKER.exists() else ""
            message = f"Podman is not installed{docker}"
            yield HostProblem(message, "apt-get install podman netavark catatonit", fatal=True)
        elif own_user and settings.podman.socket is not None and not _can_ping_service(path):
            advice = "start the service there, or leave podman.socket out: the daemon then starts one itself"
            yield HostProblem(f"Podman does not answer at {path}", advice, fatal=True)
        for name, places in _HELPERS.items():
            if not _is_installed(name, places):
                message = f"{name}, which Podman needs, is not installed"
                yield HostProblem(message, f"apt-get install {name}", fatal=True)
        if _HYBRID.is_dir() and shutil.which("runc") is None:
            message = "this host has control groups of both versions, with which crun fails"
            yield HostProblem(message, "apt-get install runc", fatal=True)
        if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None:
            message = "nft is not installed: containers have no firewall, and user 1337 has a network"
            yield HostProblem(message, "apt-get install nftables")
        if shutil.which("rclone") is None or shutil.which("fusermount3") is None:
            message = "rclone or fuse3 is not installed: containers see no object stores"
            yield HostProblem(message, "apt-get install rclone fuse3", concerns="stores")
        if own_user and os.geteuid() == 0:
            yield from check_users(settings, proc)
        message = "everybody who may use Podman's socket can read secrets in variables of containers (podman inspect)"
        advice = "mount secrets as files instead, with `volumes` (docs/containers.md)"
        yield HostProblem(message, advice, concerns="variables")


def socket_path(settings: Settings) -> Path:
    """The socket of the Podman service: that of the settings, otherwise the usual one of the daemon's user."""
    if settings.podman.socket is not None:
        return settings.podman.socket
    below = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    return Path(below, "podman", "podman.sock")


def _can_start_service() -> bool:
    """Whether Podman is here, with all that containers need."""
    runtimes = ("runc",) if _HYBRID.is_dir() else ("crun", "runc")
    return (
        shutil.which("podman") is not None
        and all(_is_installed(name, places) for name, places in _HELPERS.items())
        and any(_is_installed(name, (Path("/usr/sbin", name), Path("/usr/bin", name))) for name in runtimes)
        and (os.geteuid() == 0 or shutil.which("newuidmap") is not None)
    )


def _is_installed(name: str, places: Iterable[Path]) -> bool:
    return shutil.which(name) is not None or any(path.exists() for path in places)


def _can_ping_service(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_ANSWER_SECONDS)
            link.connect(str(path))
            link.sendall(_PING)
            answer = link.makefile("rb").read(_MOST_BYTES)
            return b" 200 " in answer[:64] and _OF_PODMAN in answer.lower()
    except OSError:
        return False


PLUGIN: RuntimePlugin = PodmanPlugin()
"""The Podman runtime: containers are those of images, with file systems and a network of their own."""
