"""One source: what is recorded about it, and its newest commit; and the open reviews of all sources."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.errors import SourceError, UsageError
from reconciler.notifications.forges.address import find_forge, has_source, make_pull_url
from reconciler.notifications.forges.followed import FollowedPulls, find_followed
from reconciler.queries.existence import find_source
from reconciler.records.store import Records
from reconciler.records.tables.suspensions import source_target
from reconciler.settings import Settings, SourceSettings
from reconciler.settings.forges import ForgeSettings
from reconciler.source.source import open_source
from reconciler.status.source_status import SourceDetails, read_source_status

_RUNS, _EVENTS = 5, 10
"""The most runs and events of a description."""


def describe_source(settings: Settings, records: Records, name: str, *, daemon_runs: bool) -> SourceDetails:
    """All that is known about the source ``name``; reads its repository. Raises NotFoundError."""
    source = find_source(settings, name)
    counts: dict[str, int] = {}
    for (_, health), count in records.applied.counts(name).items():
        counts[str(health)] = counts.get(str(health), 0) + count
    try:
        newest, unreadable = open_source(source, settings.state).revision(""), ""
    except SourceError as error:
        newest, unreadable = None, str(error)
    return SourceDetails(
        status=read_source_status(records, name),
        url=source.url,
        newest=newest,
        unreadable=unreadable,
        health_counts=counts,
        runs=records.runs.list(_RUNS, name),
        events=records.events.list(source_target(name), limit=_EVENTS),
        daemon_runs=daemon_runs,
    )


class OpenReview(NamedTuple):
    """A pull request into the branch of ``source``. ``url`` is for people, "" if it is not known.

    ``summary`` is a line of its plan, "" while there is none.
    """

    source: str
    number: int
    url: str
    summary: str


def list_open_reviews(settings: Settings) -> list[OpenReview]:
    """The open pull requests that the daemon follows: by source, the newest ones first; none without that setting."""
    forges = settings.notifications.forges.values() if settings.notifications is not None else ()
    pairs = [
        (source, forge)
        for source in settings.sources
        for forge in forges
        if forge.pull_requests is not None and has_source(forge, source)
    ]
    return [
        OpenReview(source.name, pull.number, _find_pull_url(source, forge, pull.number), pull.summary)
        for source, forge in pairs
        for _, pull in sorted(FollowedPulls(find_followed(settings, source.name)).pulls.items(), reverse=True)
        if pull.head and not pull.merged
    ]


def _find_pull_url(source: SourceSettings, forge: ForgeSettings, number: int) -> str:
    try:
        address = find_forge(source.url, kind=forge.type, site=forge.url, repository=forge.repository)
    except UsageError:
        return ""
    return make_pull_url(address, number)
