"""The first screen: what waits for the caller, what is not well and why, and what changed last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from starlette.responses import Response

from reconciler.access.rules import APPROVE
from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.table import make_page_operation
from reconciler.model.key import Key, Kind
from reconciler.queries.history import list_runs
from reconciler.queries.summary import summarize_status
from reconciler.records.tables.runs import Run
from reconciler.status.summary import Outlook, SourceSummary, StatusSummary, UnreadyResource, rank_outlook

_RUNS = 15
"""The newest runs that the first screen shows."""
_MOST_EVIDENCE = 3
"""The most resources whose evidence comes by itself; that of others is a click away."""


class Overview(NamedTuple):
    """The first screen, with what the caller may view; sources, runs and the host are those of the org.

    ``sees_org`` is whether these are shown.
    """

    summary: StatusSummary
    outlook: Outlook
    sees_org: bool
    sources: list[SourceSummary]
    waiting: list[UnreadyResource]
    unwell: list[UnreadyResource]
    runs: list[Run]
    may_approve: bool
    may_edit: bool


async def show_home(call: Call) -> Response:
    """The first screen."""
    overview = await call.apart(lambda: _read_overview(call), call.api.overview_slots)
    return render_page(call, "home.html", overview=overview, most_evidence=_MOST_EVIDENCE)


def _read_overview(call: Call) -> Overview:
    api, records = call.api, call.reader.records
    summary = summarize_status(api.settings, records, "", api.clock.now(), daemon_runs=api.is_alive())
    org = Key(Kind.ORG, "", call.org)
    sees_org = call.may("view", org)
    unready = [resource for resource in summary.unready if call.may("view", resource.key)]
    shown = [summary.outlook] if sees_org else [resource.outlook for resource in unready]
    return Overview(
        summary,
        max(shown, key=rank_outlook, default=Outlook.WELL),
        sees_org,
        list(summary.sources) if sees_org else [],
        list(_select_outlook(unready, Outlook.WAITING)),
        list(_select_outlook(unready, Outlook.FAILING, Outlook.PROGRESSING)),
        list(list_runs(api.settings, records, "", _RUNS)) if sees_org else [],
        call.may(APPROVE, org),
        call.may("edit", org),
    )


def _select_outlook(resources: Iterable[UnreadyResource], *outlooks: Outlook) -> Iterable[UnreadyResource]:
    return (resource for resource in resources if resource.outlook in outlooks)


PAGES = (make_page_operation("/", show_home, "What waits for you, what is not well, and what changed last."),)
