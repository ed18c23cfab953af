"""Why parts of domains are not served by the data plane of a host, as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reconciler.engines.host.dataplane.certificates.store import Served, without_tls
from reconciler.engines.workload.routing.router import Router
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.model.key import Key


def explain_unserved(
    router: Router, key: Key, problems: Mapping[str, tuple[str, ...]], served: Served
) -> Iterator[str]:
    """A sentence for each of ``problems``, which are by domain, of a domain that leads to the workload ``key``.

    Of host names without TLS, only those of the workload itself count.
    """
    for name, texts in problems.items():
        if router.leads_to(name, key):
            without = served.missing.get(name, ())
            yield from unserved_routes(name, (text for text in texts if text not in without))
            own = lacking_hosts(router.table(), key, served) if without else {}
            yield from unserved_routes(name, without_tls(own))


def lacking_hosts(table: RouteTable, key: Key, served: Served) -> dict[str, str]:
    """The host names of the workload ``key`` by its domains that have no certificate, each with the reason."""
    hosts = (text.partition("/")[0].partition(":")[0] for text in table.endpoints.get(key, ()))
    return {host: served.lacking[host] for host in hosts if host in served.lacking}


def unserved_routes(name: str, problems: Iterable[str]) -> Iterator[str]:
    """What of the domain ``name`` is not served, and why."""
    for problem in problems:
        yield f"The domain {name} is not served as it is declared: {problem}."


def endpoint_without_tls(problem: str) -> Iterator[str]:
    """Why the endpoint of a workload has no certificate; nothing if it has one."""
    if problem:
        yield f"The endpoint is not served with TLS: {problem}."


def unserved_ingress(dataplane: str) -> Iterator[str]:
    """Why an ingress serves nothing, with the data plane that the location has."""
    if dataplane == "builtin":
        yield "The ingress is not served: install HAProxy 2.6 or newer with Lua, and restart the daemon."
