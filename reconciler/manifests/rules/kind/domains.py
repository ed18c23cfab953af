"""The target and the routes of a domain."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.kind.backtracking import has_nested_repeats
from reconciler.manifests.rules.kind.patterns import fault_in
from reconciler.manifests.rules.references import target_of
from reconciler.manifests.rules.registry import register_rule
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.domain import Domain, Route

_TARGETS: tuple[Pointer, ...] = (("spec", "gvcLink"), ("spec", "workloadLink"), ("spec", "ports"))


def list_routes(domain: Domain) -> Iterator[tuple[Pointer, Route]]:
    """Every route, with its pointer."""
    for number, port in enumerate(domain.spec.ports):
        for index, route in enumerate(port.routes):
            yield ("spec", "ports", number, "routes", index), route


@register_rule("domain-target", "docs/platform/fields.md#domain", Kind.DOMAIN)
def one_target(domain: Domain) -> Iterator[Flaw]:
    """A domain has exactly one kind of target: a GVC, a workload, or routes of its ports.

    Without one, requests have no target; with two, the target is ambiguous.
    """
    first = next(list_routes(domain), None)
    targets = [
        at
        for at, there in zip(_TARGETS, (domain.spec.gvc_link, domain.spec.workload_link, first), strict=True)
        if there
    ]
    if not targets:
        hint = "give it a gvcLink, a workloadLink, or routes in a port"
        yield Flaw(_TARGETS[0], "this domain has no target", hint, _TARGETS)
    for at in targets[1:]:
        extra = first[0] if at == _TARGETS[2] and first else at
        yield Flaw(
            extra,
            f"the domain already has another target, {targets[0][-1]}",
            "keep one of gvcLink, workloadLink and routes",
            tuple(targets),
        )


@register_rule("domain-port-duplicate", "docs/platform/fields.md#domain", Kind.DOMAIN)
def ports_once(domain: Domain) -> Iterator[Flaw]:
    """Each port of a domain is listed once.

    Two entries for one port can contradict each other, and only one can be in force.
    """
    first: dict[int, int] = {}
    for index, port in enumerate(domain.spec.ports):
        former = first.setdefault(port.number, index)
        if former != index:
            at: Pointer = ("spec", "ports", index, "number")
            yield Flaw(
                at,
                f"port {port.number} is listed already, in entry {former + 1}",
                "put all routes of a port into one entry",
                (("spec", "ports", former, "number"),),
            )


@register_rule("route-regex", "docs/platform/fields.md#domain", Kind.DOMAIN)
def check_expressions(domain: Domain) -> Iterator[Flaw]:
    """A regular expression in a route or an allowed origin is valid.

    A proxy that finds an invalid expression also refuses the routes beside it.
    """
    for at, text in _list_expressions(domain):
        fault = fault_in(text) if text else ""
        if fault:
            yield Flaw(at, f"this is no regular expression: {fault}", "write a backslash before a literal character")


@register_rule("route-regex-nested", "docs/platform/fields.md#domain", Kind.DOMAIN)
def nested_repeats(domain: Domain) -> Iterator[Flaw]:
    """A regular expression in a route or an allowed origin repeats no group that consists of repeats.

    A proxy tries each division of a text by `(a*)*`, exponentially many, for each request of anybody, and has no time
    for the requests of others.
    """
    for at, text in _list_expressions(domain):
        if text and not fault_in(text) and has_nested_repeats(text):
            yield Flaw(
                at,
                "this repeats a group that consists of repeats, which takes exponential time",
                "leave out one of the repeats, or separate the rounds: `(/[a-z]+)*`",
            )


def _list_expressions(domain: Domain) -> Iterator[tuple[Pointer, str | None]]:
    for at, route in list_routes(domain):
        yield (*at, "regex"), route.regex
        yield (*at, "hostRegex"), route.host_regex
    for number, port in enumerate(domain.spec.ports):
        for index, origin in enumerate(port.cors.allow_origins):
            yield ("spec", "ports", number, "cors", "allowOrigins", index, "regex"), origin.regex


@register_rule("route-duplicate", "docs/platform/fields.md#domain", Kind.DOMAIN)
def routes_once(domain: Domain) -> Iterator[Flaw]:
    """No two routes of a port match the same requests.

    The first match serves a request, so the second route would never get one.
    """
    first: dict[tuple[Pointer, str | None, str | None, str | None, str | None], Pointer] = {}
    for at, route in list_routes(domain):
        choice = (at[:3], route.prefix, route.regex, route.host_prefix, route.host_regex)
        former = first.setdefault(choice, at)
        if former is not at:
            yield Flaw(
                at,
                f"this matches the same requests as route {int(former[-1]) + 1} of the port",
                "remove one of the two, or give it another path or host",
                (former,),
            )


@register_rule("domain-routes-gvc", "docs/platform/fields.md#domain", Kind.DOMAIN)
def one_gvc(domain: Domain) -> Iterator[Flaw]:
    """All routes of a domain lead to workloads of one GVC.

    A domain points to the load balancers of one GVC, which reach only its workloads.
    """
    gvc, pointer = "", Pointer()
    for at, route in list_routes(domain):
        target = target_of(route.workload_link)
        if not target:
            continue
        here, at = target.split("/")[1], (*at, "workloadLink")
        if not gvc:
            gvc, pointer = here, at
        elif here != gvc:
            yield Flaw(
                at,
                f"leads to GVC {here}, while the routes above lead to GVC {gvc}",
                f"route to workloads of {gvc}, and give {here} a domain of its own",
                (pointer,),
            )
