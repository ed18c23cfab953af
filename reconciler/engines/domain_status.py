"""What the locations that serve a domain report about it; the state of its record has the reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from reconciler.reasons import ConditionType, Reason


class DomainEndpoint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, order=True):
    """Where a domain answers; ``certificate_expires`` is the end of its certificate's life, "" without TLS."""

    url: str
    certificate_expires: str = ""


class DomainCondition(msgspec.Struct, frozen=True):
    """A condition of a domain at a location, which is true."""

    type: ConditionType
    reason: Reason
    message: str


class DomainReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A domain as ``location`` serves it. ``ingress``: it takes requests by host name."""

    location: str
    endpoints: tuple[DomainEndpoint, ...] = ()
    conditions: tuple[DomainCondition, ...] = ()
    ingress: bool = True


class DomainState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reports about a domain, by location."""

    locations: tuple[DomainReport, ...] = ()


def read_domain_state(state: bytes) -> DomainState:
    """The reports in the state of a record; none if it has no usable ones."""
    try:
        return msgspec.json.decode(state, type=DomainState)
    except msgspec.MsgspecError:
        return DomainState()


def update_domain_state(state: bytes, reports: Iterable[DomainReport], unknown: Collection[str]) -> bytes:
    """``state`` with ``reports`` in place of the former ones; those of the locations ``unknown`` stay.

    Locations without an ingress count only where none has one.
    """
    stay = (location for location in read_domain_state(state).locations if location.location in unknown)
    merged = sorted([*stay, *reports], key=lambda location_report: location_report.location)
    serving = [report for report in merged if report.ingress]
    return msgspec.json.encode(DomainState(tuple(serving or merged)))
