"""What shall run of one workload at one location: everything that decisions are made from, as values."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.model.key import Key
from reconciler.model.kinds.workload import Command, Options, Probe


class Type(StrEnum):
    """The four types of workloads (docs/platform/workload.md#types)."""

    SERVERLESS = "serverless"
    STANDARD = "standard"
    STATEFUL = "stateful"
    CRON = "cron"


class Rollout(msgspec.Struct, frozen=True):
    """How a new version takes over (docs/platform/workload.md#rollout-options), in replicas and seconds.

    ``surge`` and ``unavailable`` are of the number of replicas that is wanted, not both 0. ``parallel``: a stateful
    workload's replicas are made and removed together; its updates go one by one all the same.
    """

    min_ready: float = 0.0
    surge: int = 1
    unavailable: int = 0
    parallel: bool = False


class ContainerSpec(msgspec.Struct, frozen=True):
    """One container as decisions see it. ``pre_stop`` and ``post_start`` are None where the user gave no hook.

    ``cpu`` in millicores, ``memory`` in bytes; ``mounts`` are the paths of its volumes.
    """

    name: str
    image: str = ""
    cpu: int = 50
    memory: int = 128 * 2**20
    ports: tuple[int, ...] = ()
    readiness: Probe | None = None
    liveness: Probe | None = None
    post_start: Command | None = None
    pre_stop: Command | None = None
    mounts: tuple[str, ...] = ()


class WorkloadSpec(msgspec.Struct, frozen=True):
    """A workload at a location.

    ``replicas`` is how many there shall be now: 0 while suspended, else what the scale asks for. ``version`` is that of
    the workload. ``config_hash`` covers what else its replicas are started with (the GVC's variables, the secrets it
    uses, the last restart that was asked for). A rollout replaces replicas with another version or hash.
    ``user`` and ``group`` are those of securityOptions; ``firewall`` says whether it asks for any rule of one, and
    ``dynamic_tags`` whether images shall be looked at again.
    """

    key: Key
    type: Type
    version: int
    digest: str
    config_hash: str
    replicas: int
    containers: tuple[ContainerSpec, ...]
    options: Options
    rollout: Rollout = Rollout()
    gvc_version: int = 1
    suspended: bool = False
    user: int | None = None
    group: int = 0
    firewall: bool = False
    dynamic_tags: bool = False

    @property
    def stateful(self) -> bool:
        """Whether replicas have identities."""
        return self.type is Type.STATEFUL
