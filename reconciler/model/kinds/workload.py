"""A typed view of a workload (docs/platform/workload.md#spec), the same for rules, engines and commands.

It is made from a manifest, as written or in normal form; the defaults are those of the schema.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.model.addresses import without_blocked
from reconciler.model.kinds.base import Envelope, View
from reconciler.model.platform import VOLUMESET_URI


class Port(View, frozen=True):
    """A port that a container listens on."""

    number: int = 0
    protocol: str = "http"


class Variable(View, frozen=True):
    """An environment variable."""

    name: str = ""
    value: str = ""


class Command(View, frozen=True):
    """A program and its arguments, run inside a container."""

    command: tuple[str, ...] = ()


class Hook(View, frozen=True):
    """A hook that runs when a container starts or ends."""

    exec: Command | None = None


class Lifecycle(View, frozen=True):
    """The hooks of a container."""

    post_start: Hook | None = None
    pre_stop: Hook | None = None


class Header(View, frozen=True):
    """A header of a probe's HTTP request."""

    name: str = ""
    value: str = ""


class Target(View, frozen=True):
    """The target of a probe: a port, 0 for the container's first; the rest is for HTTP."""

    port: int = 0
    path: str = "/"
    scheme: str = "HTTP"
    http_headers: tuple[Header, ...] = ()


class Probe(View, frozen=True):
    """A check of a replica; it has one of the four forms."""

    exec: Command | None = None
    http_get: Target | None = None
    tcp_socket: Target | None = None
    grpc: Target | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Metrics(View, frozen=True):
    """The address of a container's Prometheus metrics."""

    port: int = 0
    path: str = "/metrics"


class Volume(View, frozen=True):
    """A mount."""

    uri: str = ""
    path: str = ""
    recovery_policy: str = ""


class Container(View, frozen=True):
    """A container; ``port`` is the deprecated single port, 0 if it is left out.

    ``min_cpu`` and ``min_memory`` bound Capacity AI, "" if they are left out.
    """

    name: str = ""
    image: str = ""
    cpu: str = "50m"
    memory: str = "128Mi"
    min_cpu: str = ""
    min_memory: str = ""
    working_dir: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    port: int = 0
    ports: tuple[Port, ...] = ()
    env: tuple[Variable, ...] = ()
    inherit_env: bool = False
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    metrics: Metrics | None = None
    lifecycle: Lifecycle = Lifecycle()
    volumes: tuple[Volume, ...] = ()


RESOURCE_METRICS = frozenset({"cpu", "memory"})
"""Metrics that are a share of what containers may use."""


class Autoscaling(View, frozen=True):
    """The number of replicas; ``metric`` and ``metric_percentile`` are "" if they are left out."""

    metric: str = ""
    target: int = 95
    metric_percentile: str = ""
    min_scale: int = 1
    max_scale: int = 5
    scale_to_zero_delay: int = 300
    max_concurrency: int = 0


class Options(View, frozen=True):
    """Options at a location; ``location`` is "" in the default options, ``capacity_ai`` None if it is left out."""

    location: str = ""
    autoscaling: Autoscaling = Autoscaling()
    timeout_seconds: int = 5
    capacity_ai: bool | None = msgspec.field(default=None, name="capacityAI")
    debug: bool = False
    suspend: bool = False


class OutboundPort(View, frozen=True):
    """A port that is open to host names."""

    protocol: str = "tcp"
    number: int = 0


class External(View, frozen=True):
    """Firewall towards the internet."""

    inbound_allow_cidr: tuple[str, ...] = msgspec.field(default=(), name="inboundAllowCIDR")
    outbound_allow_cidr: tuple[str, ...] = msgspec.field(default=(), name="outboundAllowCIDR")
    inbound_blocked_cidr: tuple[str, ...] = msgspec.field(default=(), name="inboundBlockedCIDR")
    outbound_blocked_cidr: tuple[str, ...] = msgspec.field(default=(), name="outboundBlockedCIDR")
    outbound_allow_hostname: tuple[str, ...] = ()
    outbound_allow_port: tuple[OutboundPort, ...] = ()

    @property
    def inbound_ranges(self) -> tuple[str, ...]:
        """The ranges whose requests enter: the allowed ones without the blocked ones."""
        return without_blocked(self.inbound_allow_cidr, self.inbound_blocked_cidr)


class Internal(View, frozen=True):
    """Firewall towards the other workloads of the org."""

    inbound_allow_type: str = "none"
    inbound_allow_workload: tuple[str, ...] = ()


class Firewall(View, frozen=True):
    """Allowed inbound and outbound connections."""

    external: External = External()
    internal: Internal = Internal()


class Job(View, frozen=True):
    """The schedule of a cron workload; times are in seconds, ``history_limit`` in executions."""

    schedule: str = ""
    concurrency_policy: str = "Forbid"
    history_limit: int = 5
    restart_policy: str = "Never"
    active_deadline_seconds: int | None = None
    suspend: bool = False


class Rollout(View, frozen=True):
    """The rollout of a new version; replicas as a number or as a text such as ``25%``."""

    min_ready_seconds: int = 0
    max_unavailable_replicas: int | str = 0
    max_surge_replicas: int | str = "25%"
    scaling_policy: str = ""
    termination_grace_period_seconds: int | None = None


class Security(View, frozen=True):
    """Users and groups; ``run_as_user`` is None if the image decides."""

    filesystem_group_id: int = 0
    run_as_user: int | None = None


class LoadBalancer(View, frozen=True):
    """Load balancing of replicas."""

    replica_direct: bool = False


class Retries(View, frozen=True):
    """The retries of failed requests, and the failures after which there is one."""

    attempts: int = 2
    retry_on: tuple[str, ...] = (
        "connect-failure",
        "refused-stream",
        "unavailable",
        "cancelled",
        "resource-exhausted",
        "retriable-status-codes",
    )


class Specification(View, frozen=True):
    """The body of a workload."""

    type: str = "serverless"
    identity_link: str = ""
    containers: tuple[Container, ...] = ()
    default_options: Options = Options()
    local_options: tuple[Options, ...] = ()
    firewall_config: Firewall = Firewall()
    job: Job | None = None
    support_dynamic_tags: bool = False
    rollout_options: Rollout = Rollout()
    security_options: Security = Security()
    load_balancer: LoadBalancer = LoadBalancer()
    request_retry_policy: Retries = Retries()

    def __post_init__(self) -> None:
        if self.type == "vm":
            # Nothing here runs virtual machines.
            msgspec.structs.force_setattr(self, "type", "standard")


class Workload(Envelope, frozen=True):
    """A workload."""

    spec: Specification = Specification()


def read_specification(body: bytes) -> Specification:
    """The spec in the body of a workload, in normal form. Raises msgspec.ValidationError for another body."""
    return msgspec.json.decode(body, type=Workload).spec


def options_at(spec: Specification, location: str) -> Options:
    """The options in force at ``location``: an entry for it replaces all default ones.

    A cron workload has no options of a location (docs/platform/workload.md#options-of-one-location).
    """
    if spec.type != "cron":
        for options in spec.local_options:
            if options.location.rpartition("/")[2] == location:
                return options
    return spec.default_options


def replicas_at(spec: Specification, location: str) -> int:
    """The least number of replicas at ``location``: 0 while suspended and for a cron workload."""
    options = options_at(spec, location)
    return 0 if options.suspend or spec.type == "cron" else options.autoscaling.min_scale


def mounted_volumesets(spec: Specification) -> tuple[str, ...]:
    """The names of the volume sets that the containers mount, each once, in order."""
    return mounted_in(spec.containers)


def mounted_in(containers: Iterable[Container]) -> tuple[str, ...]:
    """The names of the volume sets that ``containers`` mount, each once, in order."""
    uris = (volume.uri for container in containers for volume in container.volumes)
    return tuple(sorted({uri.removeprefix(VOLUMESET_URI) for uri in uris if uri.startswith(VOLUMESET_URI)}))


def declared_ports(container: Container) -> tuple[int, ...]:
    """The ports that a container declares, in order; the deprecated single one if it has no other."""
    if container.ports:
        return tuple([port.number for port in container.ports])
    return (container.port,) if container.port else ()


def metric_of(type_: str, options: Options) -> str:
    """The strategy of a workload of the type, by default if it has none (docs/platform/workload.md#autoscaling)."""
    if options.autoscaling.metric:
        return options.autoscaling.metric
    if type_ == "serverless":
        return "concurrency"
    return "cpu" if options.capacity_ai is False else "disabled"
