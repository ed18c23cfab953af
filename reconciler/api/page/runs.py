"""Runs: what each changed, and how it ended."""

from __future__ import annotations

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.page.sharing import share_view
from reconciler.api.table import make_page_operation
from reconciler.errors import NotFoundError
from reconciler.model.key import Key, Kind
from reconciler.queries.history import describe_run, list_runs
from reconciler.render.history import draw_bars

_MOST_RUNS = 200
_RUNS = 50
_EVENTS = 200
_MOST_DIGITS = 19


async def show_runs(call: Call) -> Response:
    """The last runs, of one source or of all."""
    call.require("view", Key(Kind.ORG, "", call.org))
    source, last = call.query("source"), call.count("last", _RUNS, _MOST_RUNS)
    runs = await call.apart(lambda: list_runs(call.api.settings, call.reader.records, source, last))
    names = [one.name for one in call.api.settings.sources]
    return render_page(
        call,
        "runs.html",
        runs=runs,
        source=source,
        sources=names,
        last=last,
        most=_MOST_RUNS,
    )


async def show_run(call: Call) -> Response:
    """One run, with its events."""
    call.require("view", Key(Kind.ORG, "", call.org))
    text = call.request.path_params["id"]
    if not text.isdecimal() or len(text) >= _MOST_DIGITS:
        raise NotFoundError(f"there is no run {text[:20]}")
    details = await call.apart(lambda: describe_run(call.reader.records, int(text), _EVENTS))
    events = [event for event in details.events if _may_view(call, str(event.key))]
    timeline, hidden = details.timeline, 0
    bars = draw_bars(timeline, details.find_message) if timeline is not None else []
    shown = [bar for bar in bars if not bar.phase.key or _may_view(call, bar.phase.key)]
    if timeline is not None:
        hidden = timeline.left_out + len(bars) - len(shown)
    trace = timeline.trace if timeline is not None else ""
    return render_page(
        call, "run.html", run=details.run, events=events, most=_EVENTS, bars=shown, hidden=hidden, trace=trace
    )


def _may_view(call: Call, text: str) -> bool:
    """Whether the caller may view what an event is about: a resource, or a source of the org."""
    try:
        return call.may("view", Key.parse(text))
    except ValueError:
        return True


PAGES = (
    share_view(make_page_operation("/ui/runs", show_runs, "The last runs.", "view", ("source", "last"))),
    share_view(make_page_operation("/ui/runs/{id}", show_run, "One run, with its events.", "view")),
)
