"""Applied bodies seen as what an engine needs of them, and the options in force at a location."""

from __future__ import annotations

import msgspec

VOLUME_SCHEME = "platform://volumeset/"


class Autoscaling(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """How many replicas there may be (docs/platform/workload.md#autoscaling)."""

    min_scale: int = 1
    max_scale: int = 5


class Options(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Options of a workload, at one location where ``location`` (a link or a bare name) is given."""

    location: str = ""
    autoscaling: Autoscaling = Autoscaling()
    suspend: bool = False


class Port(msgspec.Struct, frozen=True, gc=False):
    """A port that a container serves."""

    number: int
    protocol: str = "http"


class Mount(msgspec.Struct, frozen=True, gc=False):
    """A volume of a container."""

    uri: str
    path: str = ""


class Container(msgspec.Struct, frozen=True, gc=False):
    """One container of a workload; sizes as written."""

    name: str
    image: str
    cpu: str = "50m"
    memory: str = "128Mi"
    ports: tuple[Port, ...] = ()
    volumes: tuple[Mount, ...] = ()


class CronJob(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What a cron workload adds."""

    history_limit: int = 5
    suspend: bool = False


class WorkloadSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A workload's spec, as far as a deployment record shows it (docs/platform/workload.md#deployments)."""

    containers: tuple[Container, ...]
    type: str = "serverless"
    default_options: Options = Options()
    local_options: tuple[Options, ...] = ()
    job: CronJob | None = None


class VolumeSetSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A volume set's spec, as far as its volumes show it; capacity in GB (docs/platform/volumeset.md#status)."""

    initial_capacity: float = 10


class _Workload(msgspec.Struct, frozen=True, gc=False):
    spec: WorkloadSpec


class _VolumeSet(msgspec.Struct, frozen=True, gc=False):
    spec: VolumeSetSpec


_workload = msgspec.json.Decoder(_Workload)
_volumeset = msgspec.json.Decoder(_VolumeSet)


def workload_spec(body: bytes) -> WorkloadSpec:
    """The spec in the body of a workload."""
    return _workload.decode(body).spec


def volumeset_spec(body: bytes) -> VolumeSetSpec:
    """The spec in the body of a volume set."""
    return _volumeset.decode(body).spec


def options_at(spec: WorkloadSpec, location: str) -> Options:
    """The options in force at ``location``: an entry of its own replaces the default ones whole.

    A cron workload has no options of a location (docs/platform/workload.md#options-of-one-location).
    """
    if spec.type != "cron":
        for options in spec.local_options:
            if options.location.rpartition("/")[2] == location:
                return options
    return spec.default_options


def replicas_at(spec: WorkloadSpec, location: str) -> int:
    """The least number of replicas at ``location``: none while suspended, and a cron workload has only executions."""
    options = options_at(spec, location)
    return 0 if options.suspend or spec.type == "cron" else options.autoscaling.min_scale


def mounted_volumesets(spec: WorkloadSpec) -> tuple[str, ...]:
    """The names of the volume sets that the containers mount, each once."""
    uris = (mount.uri for container in spec.containers for mount in container.volumes)
    return tuple(sorted({uri.removeprefix(VOLUME_SCHEME) for uri in uris if uri.startswith(VOLUME_SCHEME)}))
