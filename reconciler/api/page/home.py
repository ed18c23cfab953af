"""The first screen: what waits for the caller, what is not well and why, and what changed last."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from starlette.responses import Response

from reconciler.access.rules import APPROVE
from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.page.sharing import share_view
from reconciler.api.table import make_page_operation
from reconciler.model.key import Key, Kind
from reconciler.queries.history import list_runs
from reconciler.queries.sources import OpenReview, list_open_reviews
from reconciler.queries.summary import Audience, summarize_status
from reconciler.reasons import ConditionType
from reconciler.records.tables.runs import Run
from reconciler.status.summary import Outlook, SourceSummary, StatusSummary, UnreadyResource, rank_outlook

_RUNS = 15
"""The newest runs that the first screen shows."""
_MOST_EVIDENCE = 3
"""The most resources whose evidence comes by itself; that of others is a click away."""
_ROWS, _MOST_RESOURCES = 20, 300
"""The resources that a section of the first screen shows, and those that it counts."""


class Section(NamedTuple):
    """The first resources of a section, and how many more it has."""

    rows: list[UnreadyResource]
    more: int


class Overview(NamedTuple):
    """The first screen, with what the caller may view; sources, reviews, runs and the host are those of the org.

    ``sees_org`` is whether these are shown. ``disk`` is what a full disk means, "" with room on it.
    """

    summary: StatusSummary
    outlook: Outlook
    sees_org: bool
    sources: list[SourceSummary]
    waiting: Section
    unwell: Section
    reviews: list[OpenReview]
    more_reviews: int
    runs: list[Run]
    disk: str
    may_approve: bool
    may_edit: bool


async def show_home(call: Call) -> Response:
    """The first screen."""
    overview = await call.apart(lambda: _read_overview(call), call.api.overview_slots)
    return render_page(call, "home.html", overview=overview, most_evidence=_MOST_EVIDENCE)


def _read_overview(call: Call) -> Overview:
    api, records = call.api, call.reader.records
    audience = Audience(partial(call.may, "view"), _MOST_RESOURCES)
    now, is_alive = api.clock.now(), api.is_alive()
    summary = summarize_status(api.settings, records, "", now, daemon_runs=is_alive, audience=audience)
    org = Key(Kind.ORG, "", call.org)
    sees_org = call.may("view", org)
    reviews = list_open_reviews(api.settings) if sees_org else []
    unready = summary.unready
    shown = [summary.outlook] if sees_org else [resource.outlook for resource in unready]
    return Overview(
        summary,
        max(shown, key=rank_outlook, default=Outlook.WELL),
        sees_org,
        list(summary.sources) if sees_org else [],
        _select_outlook(unready, Outlook.WAITING),
        _select_outlook(unready, Outlook.FAILING, Outlook.PROGRESSING),
        reviews[:_ROWS],
        len(reviews) - len(reviews[:_ROWS]),
        list(list_runs(api.settings, records, "", _RUNS)) if sees_org else [],
        _find_disk_message(summary.sources) if sees_org else "",
        call.may(APPROVE, org),
        call.may("edit", org),
    )


def _find_disk_message(sources: Iterable[SourceSummary]) -> str:
    conditions = (source.status.conditions.get(ConditionType.DISK_FULL) for source in sources)
    return next((condition.message for condition in conditions if condition is not None and condition.status), "")


def _select_outlook(resources: Iterable[UnreadyResource], *outlooks: Outlook) -> Section:
    rows = [resource for resource in resources if resource.outlook in outlooks]
    return Section(rows[:_ROWS], len(rows) - len(rows[:_ROWS]))


PAGES = (
    share_view(make_page_operation("/", show_home, "What waits for you, what is not well, and what changed last.")),
)
