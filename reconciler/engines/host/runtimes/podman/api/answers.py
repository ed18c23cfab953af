"""The parts of Podman's answers that are read; all else is ignored, since versions differ in it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TypeVar

import msgspec

from reconciler.engines.host.runtimes.podman.api.words import find_sentence
from reconciler.errors import EngineError
from reconciler.foreign_words import strip_variation
from reconciler.reasons import Reason

T = TypeVar("T")

RUNNING = frozenset({"running", "paused", "stopping"})
"""States of containers whose processes exist."""
NEW = frozenset({"configured", "created", "initialized"})
"""States of containers that were never started, or lost with the machine's last boot."""
_REASONS = {
    "address already in use": Reason.PORT_IN_USE,
    "image not known": Reason.IMAGE_NOT_FOUND,
    "no such image": Reason.IMAGE_NOT_FOUND,
    "no space left on device": Reason.DISK_FULL,
    "no matching entries in passwd file": Reason.USER_NOT_FOUND,
    "does not exist on container": Reason.DIRECTORY_NOT_FOUND,
    "a command that was not found": Reason.PROGRAM_NOT_FOUND,
    "setting rlimit": Reason.LIMITS_FAILED,
    "OCI permission denied": Reason.NOT_PERMITTED,
}
"""Words of Podman that are the same in all versions; the first ones that match count."""
_FRACTION = re.compile(r"\.\d+")


class PodmanError(EngineError):
    """An answer that is an error, or none: then ``status`` is 0. ``cause`` is Podman's name for it.

    A ``message`` of which it is known what it means is shown in other words, any other one without what each try has
    anew; ``words`` is all that Podman said.

    ``lost``: the request may have been carried out all the same.
    """

    def __init__(self, message: str, *, status: int = 0, cause: str = "", lost: bool = False) -> None:
        super().__init__(
            find_sentence(message) or strip_variation(message), reason=_find_reason(status, f"{cause} {message}")
        )
        self.status = status
        self.cause = cause
        self.words = message
        self.lost = lost

    @property
    def missing(self) -> bool:
        """Whether what the request names does not exist."""
        return self.status == 404


def _find_reason(status: int, text: str) -> Reason:
    """What an error of Podman means; its status is nearly always 500."""
    if not status:
        return Reason.RUNTIME_UNAVAILABLE
    return next((reason for words, reason in _REASONS.items() if words in text), Reason.RUNTIME_FAILED)


class _Pascal(msgspec.Struct, frozen=True, rename="pascal"):
    """Fields are named as in Go."""


class Created(_Pascal, frozen=True):
    """The answer to a create."""

    id: str


class Listed(_Pascal, frozen=True):
    """A container in the list. ``started_at`` is in seconds of the wall clock."""

    id: str
    state: str = ""
    names: list[str] | None = None
    pid: int = 0
    exit_code: int = 0
    started_at: int = 0
    labels: dict[str, str] | None = None

    @property
    def running(self) -> bool:
        """Whether its processes exist, as far as Podman knows."""
        return self.state in RUNNING


class State(_Pascal, frozen=True, rename="pascal"):
    """The state of one container; ``started_at`` is text with nanoseconds."""

    status: str = ""
    pid: int = 0
    conmon_pid: int = 0
    exit_code: int = 0
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")
    started_at: str = ""


class Subnet(msgspec.Struct, frozen=True):
    """The addresses of a network."""

    subnet: str


class NetworkInfo(msgspec.Struct, frozen=True):
    """A network of Podman; ``network_interface`` is its bridge on this host."""

    name: str
    network_interface: str = ""
    subnets: list[Subnet] | None = None


class Attachment(_Pascal, frozen=True):
    """The address of a container in a network, and that of this host."""

    address: str = msgspec.field(name="IPAddress", default="")
    gateway: str = ""


class NetworkSettings(_Pascal, frozen=True):
    """Where the network namespace is, and the networks that it is part of."""

    sandbox_key: str = ""
    networks: dict[str, Attachment] | None = None


class GraphDriver(_Pascal, frozen=True):
    """The directories of the container's file system."""

    data: dict[str, str] | None = None


class Inspected(_Pascal, frozen=True):
    """A container in detail."""

    id: str
    state: State
    image: str = ""
    network_settings: NetworkSettings = NetworkSettings()
    graph_driver: GraphDriver = GraphDriver()

    @property
    def running(self) -> bool:
        """Whether its processes exist, as far as Podman knows."""
        return self.state.status in RUNNING

    @property
    def upper(self) -> str:
        """The directory of what it wrote into its own file system; "" if there is none."""
        return (self.graph_driver.data or {}).get("UpperDir", "")


class ContainerStats(msgspec.Struct, frozen=True):
    """The usage of a container: nanoseconds of CPU and bytes of memory."""

    id: str = msgspec.field(name="ContainerID")
    cpu: int = msgspec.field(name="CPUNano", default=0)
    memory: int = msgspec.field(name="MemUsage", default=0)


class AllStats(_Pascal, frozen=True):
    """The usage of all running containers of the socket, also of others'."""

    stats: list[ContainerStats] | None = None


class ImageConfig(_Pascal, frozen=True):
    """What an image sets for its containers."""

    user: str = ""


class StoredImage(_Pascal, frozen=True):
    """An image in this host's storage."""

    id: str
    config: ImageConfig | None = None


class _Actor(_Pascal, frozen=True):
    id: str = msgspec.field(name="ID", default="")


class ContainerEvent(_Pascal, frozen=True):
    """Something happened to a container."""

    actor: _Actor = _Actor()


class ListedSession(_Pascal, frozen=True):
    """A program that runs beside that of a container; ``can_remove`` is whether it has ended."""

    running: bool = False
    exit_code: int = 0
    pid: int = 0
    can_remove: bool = False


class OciRuntime(msgspec.Struct, frozen=True):
    """The program that starts containers for Podman."""

    name: str = ""
    path: str = ""


class ServiceSecurity(msgspec.Struct, frozen=True, rename="camel"):
    """How the service separates containers."""

    rootless: bool = False
    seccomp_enabled: bool = True


class HostInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What the service found on this host."""

    arch: str = ""
    cgroup_manager: str = ""
    cgroup_version: str = ""
    cgroup_controllers: list[str] | None = None
    oci_runtime: OciRuntime = OciRuntime()
    network_backend: str = ""
    security: ServiceSecurity = ServiceSecurity()


class VersionInfo(_Pascal, frozen=True):
    """The version of the service."""

    version: str = ""


class ServiceInfo(msgspec.Struct, frozen=True):
    """The service and its host."""

    host: HostInfo
    version: VersionInfo = VersionInfo()


def decode_answer(content: bytes, kind: type[T]) -> T:
    """``content`` as ``kind``. Raises PodmanError if it has another form."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise PodmanError(f"an answer of Podman cannot be read: {error}", status=200) from None


def wall_time(text: str) -> float:
    """Seconds since the epoch of a time with nanoseconds; 0.0 for Go's zero time and what is no time."""
    try:
        time = datetime.fromisoformat(_FRACTION.sub(lambda match: match[0][:7], text))
    except ValueError:
        return 0.0
    return time.timestamp() if time.year > 1 else 0.0
