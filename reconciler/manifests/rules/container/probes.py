"""Probes: their ports, and workloads that get requests before they are ready."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.container.ports import LEAST
from reconciler.manifests.rules.registry import register_notice, register_rule, register_warning
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Container, Probe, Workload, declared_ports
from reconciler.model.platform import BLOCKED_PORTS

_TYPE = (("spec", "type"),)
_PROBES = {"tcp": "{exec: {command: [pg_isready]}}", "grpc": "{grpc: {}}"}
_BETTER = {"tcp": "`exec` with a command that checks the program", "grpc": "`grpc`"}


@register_rule("probe-without-port", "docs/platform/workload.md#probes", Kind.WORKLOAD)
def without_port(workload: Workload) -> Iterator[Flaw]:
    """A probe names its port, unless the workload declares one from 80 on.

    A probe without a port uses the container's first port, or if it has none the workload's first. HTTP and TCP probes
    use no port below 80.
    """
    containers = workload.spec.containers
    for container in containers:
        if declared_ports(container) or workload.spec.type == "cron":
            yield from _too_low(workload)
            return
    for index, container in enumerate(containers):
        for name, probe in _list_probes(container):
            form = _find_portless_form(probe)
            if form:
                yield Flaw(
                    ("spec", "containers", index, name, form),
                    "this probe names no port, and no container declares one",
                    "add `port`",
                    also=(*_TYPE, *_list_port_pointers(len(containers))),
                    on_key=True,
                )


def _too_low(workload: Workload) -> Iterator[Flaw]:
    """Probes that would use the first port of their container, which no HTTP or TCP probe reaches."""
    for index, container in enumerate(workload.spec.containers):
        first = next(iter(declared_ports(container)), 0)
        if not 0 < first < LEAST:
            continue
        for name, probe in _list_probes(container):
            form = _find_portless_form(probe)
            if form not in ("", "grpc"):
                yield Flaw(
                    ("spec", "containers", index, name, form),
                    f"this probe names no port, so it would use {first}, and probes use none below {LEAST}",
                    "add `port`, or let the container listen on another one",
                    also=(*_TYPE, *_list_port_pointers(index + 1)),
                    on_key=True,
                )


@register_warning("blocked-port-asked", "docs/platform/workload.md#blocked-ports", Kind.WORKLOAD)
def asked_in_vain(workload: Workload) -> Iterator[Flaw]:
    """Metrics, HTTP probes and gRPC probes use a port that a container can listen on.

    The platform listens on 8012, 8022, 9090, 9091, 15000, 15001, 15006, 15020, 15021, 15090 and 41000 itself. No
    program of the workload can, so an answer on such a port shows nothing about the workload.
    """
    for index, container in enumerate(workload.spec.containers):
        for steps, port in _list_requested_ports(container):
            if port in BLOCKED_PORTS:
                yield Flaw(
                    ("spec", "containers", index, *steps),
                    f"no container can listen on port {port}, which the platform uses",
                    "use the port that the program listens on",
                )


def _list_requested_ports(container: Container) -> Iterator[tuple[Pointer, int]]:
    """The ports of metrics and probes, except TCP probes, which the schema checks."""
    if container.metrics is not None:
        yield ("metrics", "port"), container.metrics.port
    for name, probe in _list_probes(container):
        if probe.http_get is not None:
            yield (name, "httpGet", "port"), probe.http_get.port
        elif probe.grpc is not None:
            yield (name, "grpc", "port"), probe.grpc.port


@register_rule("cron-probe", "docs/platform/workload.md#probes", Kind.WORKLOAD)
def check_cron_probes(workload: Workload) -> Iterator[Flaw]:
    """A cron workload has no probes.

    It gets no requests that could wait for a readiness probe, and its `job` handles a run that fails.
    """
    if workload.spec.type != "cron":
        return
    for index, container in enumerate(workload.spec.containers):
        for name, _ in _list_probes(container):
            at = ("spec", "containers", index, name)
            yield Flaw(at, "a cron workload has no probes", f"leave out `{name}`", also=_TYPE, on_key=True)


@register_warning("readiness-missing", "docs/platform/workload.md#scaling-strategies", Kind.WORKLOAD)
def check_missing_probe(workload: Workload) -> Iterator[Flaw]:
    """The container that gets requests has a readiness probe.

    Without one, every new replica gets requests before it can answer them, and a rollout continues with replicas that
    do not work. A serverless workload only gets a check whether its port is open.
    """
    if workload.spec.type == "cron":
        return
    for index, container in enumerate(workload.spec.containers):
        if not declared_ports(container):
            continue
        if container.readiness_probe is None:
            pointer = ("spec", "containers", index)
            protocol = container.ports[0].protocol if container.ports else "http2"
            yield Flaw(
                (*pointer, "ports" if container.ports else "port"),
                "requests may reach a replica before it is ready: it has a port and no `readinessProbe`",
                f"add one, for example `readinessProbe: {_PROBES.get(protocol, '{httpGet: {path: /healthz}}')}`",
                also=(*_TYPE, (*pointer, "readinessProbe"), *_list_port_pointers(index)),
                on_key=True,
            )
        return


@register_notice("readiness-tcp", "docs/platform/workload.md#scaling-strategies", Kind.WORKLOAD)
def only_tcp(workload: Workload) -> Iterator[Flaw]:
    """A readiness probe sends a request, and does not only check whether the port is open.

    Many programs open their port first and load their data afterwards; requests may reach them in between.
    """
    for index, container in enumerate(workload.spec.containers):
        probe = container.readiness_probe
        if probe is not None and probe.tcp_socket is not None:
            protocol = container.ports[0].protocol if container.ports else "http"
            yield Flaw(
                ("spec", "containers", index, "readinessProbe", "tcpSocket"),
                "an open port does not mean that the program answers requests",
                f"use {_BETTER.get(protocol, '`httpGet` with a path for that')}, if the program has one",
                on_key=True,
            )


def _list_probes(container: Container) -> Iterator[tuple[str, Probe]]:
    if container.readiness_probe is not None:
        yield "readinessProbe", container.readiness_probe
    if container.liveness_probe is not None:
        yield "livenessProbe", container.liveness_probe


def _find_portless_form(probe: Probe) -> str:
    """The form of ``probe`` that needs a port and has none; "" if it needs none."""
    forms = (("httpGet", probe.http_get), ("tcpSocket", probe.tcp_socket), ("grpc", probe.grpc))
    return next((name for name, target in forms if target is not None and not target.port), "")


def _list_port_pointers(count: int) -> Iterator[Pointer]:
    """Pointers to the ports of the first ``count`` containers, declared or not."""
    for index in range(count):
        yield "spec", "containers", index, "ports"
        yield "spec", "containers", index, "port"
