"""The target workloads of a domain: whether they can serve its requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from reconciler.iteration import MOST_NAMED, first_of
from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.kind.domains import routes
from reconciler.manifests.rules.references import linked, target_of
from reconciler.manifests.rules.registry import Advice, cross_rule, rule
from reconciler.model.finding import Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.domain import Domain
from reconciler.model.kinds.workload import Workload, declared_ports
from reconciler.model.resource import LookupRequest


@rule("domain-route-workload", "docs/platform/fields.md#domain", Kind.DOMAIN)
def workloads(domain: Domain) -> Iterator[Lookup]:
    """The target workload of a domain or route serves requests: it declares a port and is no cron job.

    Requests to a workload without ports get an error, and nothing in the workload shows the reason.
    """
    target = target_of(domain.spec.workload_link)
    if target:
        yield Lookup(("spec", "workloadLink"), target)
    for at, route in routes(domain):
        target = target_of(route.workload_link)
        if target:
            yield Lookup((*at, "workloadLink"), target)


@cross_rule("domain-route-workload")
def serving(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the workload can serve requests."""
    workload = linked(world, subject, question.target, Workload)
    if workload is None:
        return
    if workload.spec.type == "cron":
        yield f"{question.target} is a cron workload, which serves no requests", "lead to a workload that does"
    elif not _ports(question.target, workload, world):
        yield f"{question.target} declares no port, so it serves no requests", "declare one in its container's `ports`"


@rule("domain-route-port", "docs/platform/fields.md#domain", Kind.DOMAIN)
def ports(domain: Domain) -> Iterator[Lookup]:
    """The port that a route names is one that its workload declares.

    Only declared ports can be reached; requests to another port fail.
    """
    for at, route in routes(domain):
        target = target_of(route.workload_link) if route.port else ""
        if target:
            yield Lookup((*at, "port"), target, str(route.port))


@cross_rule("domain-route-port")
def declared(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the port is declared; domain-route-workload reports a workload without any."""
    workload = linked(world, subject, question.target, Workload)
    known = _ports(question.target, workload, world) if workload is not None else {}
    if known and question.detail not in known:
        listed = first_of(list(islice(known, MOST_NAMED + 1)))
        yield f"{question.target} declares no port {question.detail}", f"it has {listed}"


def _ports(key: str, workload: Workload, world: RuleContext) -> dict[str, None]:
    """Numbers of the ports of ``workload`` with the key ``key``, in their order."""
    numbers = (str(port) for container in workload.spec.containers for port in declared_ports(container))
    return world.memoized(("ports", key), lambda: dict.fromkeys(numbers))
