"""Ports of containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.manifests.rules.registry import register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Container, Workload, declared_ports

LEAST = 80
_TYPE = (("spec", "type"),)


@register_warning("port-deprecated", "docs/platform/workload.md#ports", Kind.WORKLOAD)
def check_deprecated_port(workload: Workload) -> Iterator[Flaw]:
    """A container lists its ports in `ports`, not in the deprecated `port`.

    `port` is a single port and always means the protocol http2.
    """
    for index, container in enumerate(workload.spec.containers):
        if container.port and workload.spec.type != "cron":
            yield Flaw(
                ("spec", "containers", index, "port"),
                "`port` is deprecated, and means the protocol http2",
                f"write `ports: [{{number: {container.port}, protocol: http2}}]`, or http if the program uses that",
                also=_TYPE,
                on_key=True,
            )


@register_warning("port-low", "docs/platform/workload.md#ports", Kind.WORKLOAD)
def check_low_ports(workload: Workload) -> Iterator[Flaw]:
    """A container listens on a port of 80 or above.

    Probes reach no port below 80, and only a program that runs as root can listen on a port below 1024.
    """
    for index, container in enumerate(workload.spec.containers):
        for step, port in enumerate(container.ports):
            if 0 < port.number < LEAST:
                yield _make_low_port_flaw(("spec", "containers", index, "ports", step, "number"), port.number)
        if 0 < container.port < LEAST:
            yield _make_low_port_flaw(("spec", "containers", index, "port"), container.port)


def _make_low_port_flaw(at: Pointer, number: int) -> Flaw:
    return Flaw(at, f"port {number} is below {LEAST}", "use a port from 80 on, for example 8080")


@register_rule("port-duplicate", "docs/platform/workload.md#ports", Kind.WORKLOAD)
def check_duplicate_ports(workload: Workload) -> Iterator[Flaw]:
    """A port number is declared once in a workload.

    The containers of a replica share one network address, so only one of them can listen on a number.
    """
    containers = workload.spec.containers
    if len(containers) == 1 and len(containers[0].ports) < 2:
        return
    first: dict[int, Pointer] = {}
    for index, container in enumerate(containers):
        for at, number, _ in _list_declared_ports(index, container):
            earlier = first.setdefault(number, at)
            if earlier is not at and number:
                yield Flaw(
                    at,
                    f"port {number} is declared already, by {_describe_owner(workload, index, earlier)}",
                    "give each port of the workload a number of its own",
                    also=(earlier,),
                )


def _describe_owner(workload: Workload, index: int, at: Pointer) -> str:
    holder = at[2]
    assert isinstance(holder, int)
    return "this container" if holder == index else f"container {quote_text(workload.spec.containers[holder].name)}"


@register_warning("ports-on-second-container", "docs/platform/workload.md#ports", Kind.WORKLOAD)
def second_container(workload: Workload) -> Iterator[Flaw]:
    """Only one container of a workload declares ports.

    One container serves the workload's traffic; the ports of another one get no requests from outside. Within the
    replica, `localhost` reaches every port, declared or not.
    """
    containers = workload.spec.containers
    if len(containers) < 2 or workload.spec.type not in ("standard", "stateful"):
        return
    serving = [index for index, container in enumerate(containers) if declared_ports(container)]
    for index in serving[1:]:
        name = "ports" if containers[index].ports else "port"
        yield Flaw(
            ("spec", "containers", index, name),
            f"container {quote_text(containers[serving[0]].name)} serves the workload's traffic, not this one",
            f"leave out `{name}`, unless other workloads use this container",
            also=(("spec", "type"), ("spec", "containers", serving[0], "ports")),
            on_key=True,
        )


@register_rule("serverless-port", "docs/platform/workload.md#types", Kind.WORKLOAD)
def check_serverless_port(workload: Workload) -> Iterator[Flaw]:
    """A serverless workload declares exactly one port, with the protocol http, http2 or grpc.

    The platform counts the requests on that port to add and remove replicas.
    """
    if workload.spec.type != "serverless":
        return
    containers = workload.spec.containers
    if len(containers) == 1 and _is_one(containers[0]):
        return
    declared = [port for index, container in enumerate(containers) for port in _list_declared_ports(index, container)]
    if not declared and containers:
        blank = tuple(("spec", "containers", index, "ports") for index in range(len(containers)))
        yield Flaw(
            ("spec", "containers", 0, "ports"),
            "a serverless workload needs a port for its requests, and declares none",
            "add `ports: [{number: 8080}]` with the port that the program listens on, or choose another `type`",
            also=(*_TYPE, *blank),
            on_key=True,
        )
    for at, _, protocol in declared:
        if protocol == "tcp":
            yield Flaw(
                (*at[:-1], "protocol"),
                "a serverless workload cannot serve tcp",
                "write http, http2 or grpc, or make it `type: standard`",
                also=_TYPE,
            )
    for at, number, _ in declared[1:]:
        yield Flaw(
            at,
            f"a serverless workload has one port, {number} is one more",
            "keep one port, or make it `type: standard`",
            also=_TYPE,
        )


def _is_one(container: Container) -> bool:
    """Whether ``container`` declares a single port for requests."""
    return len(container.ports) == 1 and container.ports[0].protocol != "tcp" and not container.port


@register_rule("cron-port", "docs/platform/workload.md#types", Kind.WORKLOAD)
def check_cron_ports(workload: Workload) -> Iterator[Flaw]:
    """A cron workload declares no ports.

    It runs on a schedule and ends; nothing sends requests to it.
    """
    if workload.spec.type != "cron":
        return
    for index, container in enumerate(workload.spec.containers):
        if declared_ports(container):
            name = "ports" if container.ports else "port"
            at = ("spec", "containers", index, name)
            message, hint = "a cron workload serves no requests, so it has no ports", f"leave out `{name}`"
            yield Flaw(at, message, hint, also=_TYPE, on_key=True)


class _DeclaredPort(NamedTuple):
    """A port of a container; ``at`` is the pointer to its number."""

    at: Pointer
    number: int
    protocol: str


def _list_declared_ports(index: int, container: Container) -> Iterator[_DeclaredPort]:
    """The ports of ``container``, the one in the field ``port`` included."""
    for step, port in enumerate(container.ports):
        yield _DeclaredPort(("spec", "containers", index, "ports", step, "number"), port.number, port.protocol)
    if container.port:
        yield _DeclaredPort(("spec", "containers", index, "port"), container.port, "http2")
