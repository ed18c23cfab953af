"""What must run of one workload at one location: the input of all decisions, as values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from reconciler.model.key import Key
from reconciler.model.kinds.workload import (
    RESOURCE_METRICS,
    Command,
    Firewall,
    Job,
    Metrics,
    Options,
    Probe,
    Volume,
    metric_of,
)


class Type(StrEnum):
    """The four types of workloads (docs/platform/workload.md#types)."""

    SERVERLESS = "serverless"
    STANDARD = "standard"
    STATEFUL = "stateful"
    CRON = "cron"


class RolloutBounds(msgspec.Struct, frozen=True):
    """How a new version replaces the old one (docs/platform/workload.md#rollout-options), in replicas and seconds.

    ``surge`` and ``unavailable`` refer to the wanted number of replicas; they are not both 0. With ``parallel``, a
    stateful workload's replicas are created and removed together; updates still go one by one.
    """

    min_ready: float = 0.0
    surge: int = 1
    unavailable: int = 0
    parallel: bool = False


class ContainerSpec(msgspec.Struct, frozen=True):
    """One container, as decisions use it. ``pre_stop`` and ``post_start`` are None without a user's hook.

    ``cpu`` is in millicores, ``memory`` in bytes; Capacity AI gives at least ``min_cpu`` and ``min_memory``. ``mounts``
    are the paths of its volumes. ``own_sleep``: the default preStop hook needs the program ``sleep`` of its image,
    which may lack it.
    """

    name: str
    image: str = ""
    cpu: int = 50
    memory: int = 128 * 2**20
    min_cpu: int = 0
    min_memory: int = 0
    termination_seconds: int | None = None
    ports: tuple[int, ...] = ()
    readiness: Probe | None = None
    liveness: Probe | None = None
    post_start: Command | None = None
    pre_stop: Command | None = None
    mounts: tuple[str, ...] = ()
    own_sleep: bool = False
    metrics: Metrics | None = None

    @property
    def assigned_ports(self) -> tuple[int, ...]:
        """The ports that get a port of this host: the declared ones, and that of its metrics."""
        if self.metrics is None or self.metrics.port in self.ports:
            return self.ports
        return (*self.ports, self.metrics.port)


class Restriction(msgspec.Struct, frozen=True):
    """What containers may not do: write to the file system of their image, or use capabilities (sorted, or ALL)."""

    read_only: bool = False
    dropped: tuple[str, ...] = ()


UNRESTRICTED = Restriction()


class ImageFault(msgspec.Struct, frozen=True):
    """Why the images of a workload are not on this host; ``final``: another try cannot help."""

    reason: str
    message: str
    final: bool = False


class WorkloadSpec(msgspec.Struct, frozen=True):
    """A workload at a location.

    ``replicas`` is the wanted number: 0 while suspended, otherwise what scaling computes. ``version`` is that of the
    workload. ``config_hash`` covers the other inputs of its replicas: the GVC's variables, the secrets it uses, the
    last requested restart. A rollout replaces replicas with another version or hash. ``user`` and ``group`` come from
    securityOptions. ``tcp_ports`` are the declared ports of the protocol tcp; ``dynamic_tags`` is whether images must
    be checked for updates. ``pending`` is why no replica of it can start yet, as its images are on their way, or "";
    ``image_fault`` is the error of the last try, None while there is none.
    ``base_hash`` covers what containers get except their limits of CPU and memory, which can change while they run; it
    is "" where they cannot. ``restriction`` is what the settings forbid. ``stores`` are the volumes of all containers
    that are object stores or file shares. ``host_users``: the settings deny its containers a user namespace.
    ``writes_volumes``: a container has a volume of a volume set, or a scratch volume.
    """

    key: Key
    type: Type
    version: int
    digest: str
    config_hash: str
    replicas: int
    containers: tuple[ContainerSpec, ...]
    options: Options
    rollout: RolloutBounds = RolloutBounds()
    gvc_version: int = 1
    suspended: bool = False
    user: int | None = None
    group: int = 0
    firewall: Firewall = Firewall()
    tcp_ports: tuple[int, ...] = ()
    stores: tuple[Volume, ...] = ()
    dynamic_tags: bool = False
    pending: str = ""
    image_fault: ImageFault | None = None
    base_hash: str = ""
    restriction: Restriction = UNRESTRICTED
    job: Job | None = None
    host_users: bool = False
    writes_volumes: bool = False

    @property
    def stateful(self) -> bool:
        """Whether replicas have identities."""
        return self.type is Type.STATEFUL


def count_storage_megabytes(containers: Iterable[ContainerSpec]) -> int:
    """How much a replica with ``containers`` may write outside of volumes: 1 GB, with more than one core 1 GB for each
    (docs/platform/workload.md#ephemeral-storage)."""
    return max(1000, sum(container.cpu for container in containers))


def uses_capacity_ai(spec: WorkloadSpec) -> bool:
    """Whether Capacity AI is on: by default, but not if a share of its amounts scales the workload, and not on cron.

    See docs/platform/workload.md#capacity-ai.
    """
    is_scaled_by_use = metric_of(spec.type, spec.options) in RESOURCE_METRICS
    return spec.options.capacity_ai is not False and not is_scaled_by_use and spec.type is not Type.CRON
