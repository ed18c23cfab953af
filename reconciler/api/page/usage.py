"""What a workload used in the last day, for its page."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from reconciler.api.call import Call
from reconciler.model.key import Key, Kind
from reconciler.queries.usage import read_usage
from reconciler.render.usage import UsageChart, UsageHour, draw_charts, find_span, list_hours


class LocationUsage(NamedTuple):
    """The charts of a workload at a location over the time in ``words``, and the rows of the table with the same."""

    location: str
    words: str
    charts: list[UsageChart]
    hours: list[UsageHour]


async def draw_usage(call: Call, key: Key) -> list[LocationUsage]:
    """The charts of the workload ``key``; none of another kind, or where nothing was measured."""
    if key.kind is not Kind.WORKLOAD:
        return []
    now = call.api.clock.now()
    try:
        histories = await asyncio.to_thread(read_usage, call.api.settings, key)
    except PermissionError:  # of the user of the API; the page has all the rest
        return []
    return [
        LocationUsage(location, find_span(points, now).words, draw_charts(points, now), list_hours(points, now))
        for location, points in histories.items()
    ]
