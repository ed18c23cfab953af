"""What a workload used in the last day, for its page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from reconciler.api.call import Call
from reconciler.engines.usage_history import UsagePoint
from reconciler.model.key import Key, Kind
from reconciler.queries.usage import read_usage
from reconciler.render.usage import SERIES, UsageChart, UsageHour, draw_charts, find_span, list_hours


class LocationUsage(NamedTuple):
    """The charts of a workload at a location over the time in ``words``, and the rows of the table with the same.

    ``unknown`` is what was never measured there, and ``is_cluster`` whether that is since a cluster does not.
    """

    location: str
    words: str
    charts: list[UsageChart]
    hours: list[UsageHour]
    unknown: list[str]
    is_cluster: bool


async def draw_usage(call: Call, key: Key) -> list[LocationUsage]:
    """The charts of the workload ``key``; none of another kind, or where nothing was measured."""
    if key.kind is not Kind.WORKLOAD:
        return []
    now = call.api.clock.now()
    try:
        histories = await asyncio.to_thread(read_usage, call.api.settings, key)
    except PermissionError:  # of the user of the API; the page has all the rest
        return []
    return [_describe_usage(call, location, points, now) for location, points in histories.items()]


def _describe_usage(call: Call, location: str, points: Sequence[UsagePoint], now: float) -> LocationUsage:
    charts, settings = draw_charts(points, now), call.api.settings.locations.get(location)
    drawn = {chart.title for chart in charts}
    unknown = [series.title for series in SERIES if series.title not in drawn]
    is_cluster = settings is not None and settings.engine == "kubernetes"
    return LocationUsage(location, find_span(points, now).words, charts, list_hours(points, now), unknown, is_cluster)
