"""The domains of the records, and the workloads that they lead to."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from reconciler.engines.context import LocationRecords
from reconciler.engines.workload.routing.build import linked_gvc, linked_workload
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain, read_domain


class KnownDomains:
    """The domains as they were read last."""

    def __init__(self, records: LocationRecords) -> None:
        self._records = records
        self._found: dict[Key, tuple[str, Domain]] = {}

    def refresh(self) -> bool:
        """Read the domains again, and return whether any changed; only those are decoded. Raises RecordsError."""
        domains = {}
        for record in self._records.domains():
            former = self._found.get(record.key)
            same = former is not None and former[0] == record.digest
            domains[record.key] = former if former is not None and same else (record.digest, read_domain(record.body))
        changed = domains != self._found
        self._found = domains
        return changed

    def all(self) -> tuple[Domain, ...]:
        """All domains."""
        return tuple(domain for _, domain in self._found.values())

    def leading_to(self, workloads: Collection[Key]) -> Iterator[tuple[Domain, list[Key]]]:
        """The domains that lead to any of ``workloads``, with these."""
        members: dict[str, list[Key]] = {}
        for key in workloads if self._found else ():
            members.setdefault(key.gvc, []).append(key)
        for _, domain in self._found.values():
            linked = members.get(linked_gvc(domain.spec.gvc_link), ())
            keys = sorted({*linked, *(key for key in _linked_workloads(domain) if key in workloads)})
            if keys:
                yield domain, keys

    def leads_to(self, name: str, key: Key) -> bool:
        """Whether the domain ``name`` leads to the workload ``key``."""
        _, domain = self._found.get(Key(Kind.DOMAIN, "", name), ("", None))
        if domain is None:
            return False
        return linked_gvc(domain.spec.gvc_link) == key.gvc or key in _linked_workloads(domain)


def _linked_workloads(domain: Domain) -> set[Key]:
    """The workloads that ``domain`` and its routes name."""
    spec = domain.spec
    links = (spec.workload_link, *(route.workload_link for port in spec.ports for route in port.routes))
    return {linked_workload(link) for link in links if link}
