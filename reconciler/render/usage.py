"""What a workload used over time, as a table, as JSON values, and as lines of a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from reconciler.engines.usage_history import DAY, UsagePoint, UsageRow
from reconciler.render.layout import table_text
from reconciler.render.style import TextStyle
from reconciler.times import format_iso_time

_HEADING = ("TIME", "LOCATION", "CPU", "MEMORY", "REQUESTS", "LATENCY", "READY")
UNKNOWN = "-"
WIDTH, HEIGHT = 480, 48
"""The size of a chart in its own units."""


class ChartSpan(NamedTuple):
    """The time of a chart until now: ``seconds`` in so many ``slots``, in ``words``."""

    seconds: float
    slots: int
    words: str


SPANS = (
    ChartSpan(3600.0, 30, "hour"),
    ChartSpan(6 * 3600.0, 72, "6 hours"),
    ChartSpan(DAY, 96, "24 hours"),
)
"""The shortest that has all points is drawn: what began a minute ago would be a dot in a day."""


def usage_table(rows: Iterable[UsageRow], style: TextStyle) -> str:
    """A line for each minute at each location below a heading; "" if there are none."""
    cells = [
        (
            format_iso_time(row.point.at),
            row.location,
            format_cpu(row.point.cpu),
            format_memory(row.point.memory),
            format_requests(row.point.requests),
            format_latency(row.point.latency),
            f"{row.point.ready}/{row.point.wanted}",
        )
        for row in rows
    ]
    return table_text(_HEADING, cells, style, {})


def usage_document(row: UsageRow) -> dict[str, Any]:
    """A minute as JSON values: CPU in millicores, memory in bytes, requests a second, latency in milliseconds."""
    point = row.point
    return {
        "workload": str(row.key),
        "location": row.location,
        "time": format_iso_time(point.at),
        "cpuMillicores": _round_amount(point.cpu),
        "memoryBytes": None if point.memory is None else round(point.memory),
        "requestsPerSecond": _round_amount(point.requests),
        "latencyMilliseconds": _round_amount(point.latency),
        "replicasReady": point.ready,
        "replicasWanted": point.wanted,
    }


def _round_amount(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 2)


def format_cpu(amount: float | None) -> str:
    """``120m``, thousandths of a core."""
    return UNKNOWN if amount is None else f"{amount:.0f}m"


def format_memory(amount: float | None) -> str:
    """``64.0Mi``."""
    return UNKNOWN if amount is None else f"{amount / 2**20:.1f}Mi"


def format_requests(amount: float | None) -> str:
    """``3.5/s``."""
    return UNKNOWN if amount is None else f"{amount:.3g}/s"


def format_latency(amount: float | None) -> str:
    """``12.5ms``."""
    return UNKNOWN if amount is None else f"{amount:.3g}ms"


def format_replicas(amount: float | None) -> str:
    """``3``."""
    return UNKNOWN if amount is None else f"{amount:.0f}"


class ChartMark(NamedTuple):
    """A slot of a chart: where it begins, how wide it is, and its words."""

    x: float
    width: float
    words: str


class UsageChart(NamedTuple):
    """A line over the last hours. ``lines`` are texts of ``points`` of SVG, one for each stretch without a gap.

    ``wanted`` are those of a second line. ``summary`` says in words what the picture shows.
    """

    title: str
    now: str
    summary: str
    lines: list[str]
    wanted: list[str]
    marks: list[ChartMark]


class UsageHour(NamedTuple):
    """A row of the table beside the charts: the hour before ``at`` (seconds since the epoch), in words."""

    at: float
    cells: list[str]


class _Series(NamedTuple):
    title: str
    read: Callable[[UsagePoint], float | None]
    show: Callable[[float | None], str]


SERIES = (
    _Series("CPU", lambda point: point.cpu, format_cpu),
    _Series("Memory", lambda point: point.memory, format_memory),
    _Series("Requests", lambda point: point.requests, format_requests),
    _Series("Latency", lambda point: point.latency, format_latency),
    _Series("Replicas ready", lambda point: point.ready, format_replicas),
)


def find_span(points: Sequence[UsagePoint], now: float) -> ChartSpan:
    """The time of the charts of ``points``, which are in order."""
    age = now - points[0].at if points else 0.0
    return next((span for span in SPANS if age <= span.seconds), SPANS[-1])


def draw_charts(points: Sequence[UsagePoint], now: float) -> list[UsageChart]:
    """A chart of each amount that is known at any time of the day until ``now``."""
    span = find_span(points, now)
    return [chart for series in SERIES if (chart := _draw_chart(series, points, now, span)) is not None]


def list_hours(points: Sequence[UsagePoint], now: float) -> list[UsageHour]:
    """The means of each hour with any point, the newest first."""
    groups: dict[int, list[UsagePoint]] = {}
    for point in points:
        groups.setdefault(int((now - point.at) // 3600), []).append(point)
    return [
        UsageHour(now - hour * 3600, [series.show(_compute_mean(map(series.read, group))) for series in SERIES])
        for hour, group in sorted(groups.items())
    ]


def _draw_chart(series: _Series, points: Sequence[UsagePoint], now: float, span: ChartSpan) -> UsageChart | None:
    slots = _fill_slots(points, now, span, series.read)
    amounts = [amount for amount in slots if amount is not None]
    if not amounts:
        return None
    is_counted = series.read(UsagePoint(0.0)) is not None
    targets = _fill_slots(points, now, span, lambda point: point.wanted) if is_counted else []
    most = max([*amounts, *(amount for amount in targets if amount is not None), 1e-9])
    last = next(amount for amount in map(series.read, reversed(points)) if amount is not None)
    low, high = series.show(min(amounts)), series.show(max(amounts))
    summary = f"{series.title} in the last {span.words}: now {series.show(last)}, between {low} and {high}"
    if targets:
        summary += f"; {points[-1].wanted} wanted"
    step = WIDTH / span.slots
    begin = now - span.seconds
    marks = [
        ChartMark(
            round(slot * step, 1),
            step,
            f"{format_iso_time(begin + (slot + 1) * span.seconds / span.slots)} {series.show(amount)}",
        )
        for slot, amount in enumerate(slots)
        if amount is not None
    ]
    return UsageChart(
        series.title, series.show(last), summary, _trace_lines(slots, most), _trace_lines(targets, most), marks
    )


def _fill_slots(
    points: Sequence[UsagePoint], now: float, span: ChartSpan, read: Callable[[UsagePoint], float | None]
) -> list[float | None]:
    """The mean of each slot, None where nothing is known."""
    groups: list[list[float]] = [[] for _ in range(span.slots)]
    for point in points:
        amount, slot = read(point), int((point.at - (now - span.seconds)) / span.seconds * span.slots)
        if amount is not None and slot >= 0:
            groups[min(slot, span.slots - 1)].append(amount)
    return [_compute_mean(group) for group in groups]


def _compute_mean(amounts: Iterable[float | None]) -> float | None:
    values = [amount for amount in amounts if amount is not None]
    return sum(values) / len(values) if values else None


def _trace_lines(slots: Sequence[float | None], most: float) -> list[str]:
    """The stretches of ``slots`` that are known, each from the left to the right edge of its slots."""
    stretches: list[list[str]] = [[]]
    step = WIDTH / max(1, len(slots))
    for slot, amount in enumerate(slots):
        if amount is None:
            stretches.append([])
            continue
        y = f"{HEIGHT - 1 - (HEIGHT - 2) * amount / most:.1f}"
        stretches[-1] += [f"{slot * step:.1f},{y}", f"{(slot + 1) * step:.1f},{y}"]
    return [" ".join(stretch) for stretch in stretches if stretch]
