"""The target workloads of a domain: whether they can serve its requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from reconciler.iteration import MOST_NAMED, first_of
from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.kind.domains import list_routes
from reconciler.manifests.rules.references import read_linked_view, target_of
from reconciler.manifests.rules.registry import Advice, cross_rule, register_rule
from reconciler.model.finding import Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.domain import Domain
from reconciler.model.kinds.workload import Workload, declared_ports
from reconciler.model.resource import LookupRequest


@register_rule("domain-route-workload", "docs/platform/fields.md#domain", Kind.DOMAIN)
def check_target_workload(domain: Domain) -> Iterator[Lookup]:
    """The target workload of a domain or route serves requests: it declares a port and is no cron job.

    Requests to a workload without ports get an error, and nothing in the workload shows the reason.
    """
    target = target_of(domain.spec.workload_link)
    if target:
        yield Lookup(("spec", "workloadLink"), target)
    for at, route in list_routes(domain):
        target = target_of(route.workload_link)
        if target:
            yield Lookup((*at, "workloadLink"), target)


@cross_rule("domain-route-workload")
def answer_target_workload(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the workload can serve requests."""
    workload = read_linked_view(world, subject, question.target, Workload)
    if workload is None:
        return
    if workload.spec.type == "cron":
        yield f"{question.target} is a cron workload, which serves no requests", "lead to a workload that does"
    elif not _list_port_numbers(question.target, workload, world):
        yield f"{question.target} declares no port, so it serves no requests", "declare one in its container's `ports`"


@register_rule("domain-route-port", "docs/platform/fields.md#domain", Kind.DOMAIN)
def check_route_port(domain: Domain) -> Iterator[Lookup]:
    """The port that a route names is one that its workload declares.

    Only declared ports can be reached; requests to another port fail.
    """
    for at, route in list_routes(domain):
        target = target_of(route.workload_link) if route.port else ""
        if target:
            yield Lookup((*at, "port"), target, str(route.port))


@cross_rule("domain-route-port")
def answer_route_port(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the port is declared; domain-route-workload reports a workload without any."""
    workload = read_linked_view(world, subject, question.target, Workload)
    workload_ports = _list_port_numbers(question.target, workload, world) if workload is not None else {}
    if workload_ports and question.detail not in workload_ports:
        listed = first_of(list(islice(workload_ports, MOST_NAMED + 1)))
        yield f"{question.target} declares no port {question.detail}", f"it has {listed}"


def _list_port_numbers(key: str, workload: Workload, world: RuleContext) -> dict[str, None]:
    """Numbers of the ports of ``workload`` with the key ``key``, in their order."""
    numbers = (str(port) for container in workload.spec.containers for port in declared_ports(container))
    return world.memoize(("ports", key), lambda: dict.fromkeys(numbers))
