"""What a workload used, as charts and as text."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reconciler.api.service import Api
from reconciler.clock import SystemClock
from reconciler.engines.usage_history import FOLDER, MINUTE, UsageHistory, UsagePoint, UsageRow
from reconciler.model.key import Key
from reconciler.render.style import TextStyle
from reconciler.render.usage import HEIGHT, WIDTH, draw_charts, list_hours, usage_document, usage_table
from reconciler.settings import load_settings
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.support.api import api_sandbox

NOW = 1_800_000_000.0
WEB = Key.parse("workload/shop/web")


def minutes_ago(minutes: int, **amounts: float) -> UsagePoint:
    """A point of a minute before now."""
    return UsagePoint(NOW - minutes * MINUTE, **amounts)


def test_a_chart_has_a_line_for_each_stretch_within_its_frame() -> None:
    points = [minutes_ago(minute, cpu=float(minute)) for minute in range(1200, 0, -1) if not 300 <= minute < 600]
    chart = draw_charts(points, NOW)[0]
    assert (chart.title, chart.now, len(chart.lines)) == ("CPU", "1m", 2)
    places = [place.split(",") for line in chart.lines for place in line.split()]
    assert all(0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT for x, y in places)
    assert float(places[-1][0]) == WIDTH
    assert chart.summary.startswith("CPU in the last 24 hours: now 1m, between ")


def test_what_began_a_moment_ago_fills_its_chart() -> None:
    chart = draw_charts([minutes_ago(minute, memory=2.0**20) for minute in (50, 20, 1)], NOW)[0]
    assert "in the last hour: now 1.0Mi" in chart.summary
    assert float(chart.lines[0].split(",")[0]) < WIDTH / 3


def test_an_amount_that_is_never_known_has_no_chart() -> None:
    charts = draw_charts([minutes_ago(1, cpu=3.0, ready=1, wanted=2)], NOW)
    assert [chart.title for chart in charts] == ["CPU", "Replicas ready"]
    assert charts[1].summary.endswith("; 2 wanted")
    assert len(charts[1].wanted) == 1
    assert draw_charts([], NOW) == []


def test_amounts_that_are_all_nothing_are_drawn_at_the_ground() -> None:
    (chart, *_) = draw_charts([minutes_ago(2, cpu=0.0), minutes_ago(1, cpu=0.0)], NOW)
    assert {place.split(",")[1] for place in chart.lines[0].split()} == {f"{HEIGHT - 1:.1f}"}


def test_the_table_beside_a_chart_has_the_means_of_each_hour() -> None:
    points = [minutes_ago(minute, cpu=100.0, requests=1.0, ready=2) for minute in (70, 65)]
    points += [minutes_ago(30, cpu=10.0, latency=2.5), minutes_ago(10, cpu=30.0)]
    newest, oldest = list_hours(points, NOW)
    assert (newest.at, newest.cells) == (NOW, ["20m", "-", "-", "2.5ms", "0"])
    assert (oldest.at, oldest.cells) == (NOW - 3600, ["100m", "-", "1/s", "-", "2"])


def test_text_and_json_have_the_same_points() -> None:
    measured = UsageRow(WEB, "here", UsagePoint(NOW, 120.4, 64.0 * 2**20, 2.5, 12.34, 1, 2))
    unknown = UsageRow(WEB, "east", UsagePoint(NOW))
    text = usage_table([measured, unknown], TextStyle()).splitlines()
    assert text[1].split() == ["2027-01-15T08:00:00Z", "here", "120m", "64.0Mi", "2.5/s", "12.3ms", "1/2"]
    assert text[2].split() == ["2027-01-15T08:00:00Z", "east", "-", "-", "-", "-", "0/0"]
    assert usage_document(measured) == {
        "workload": str(WEB),
        "location": "here",
        "time": "2027-01-15T08:00:00Z",
        "cpuMillicores": 120.4,
        "memoryBytes": 64 * 2**20,
        "requestsPerSecond": 2.5,
        "latencyMilliseconds": 12.34,
        "replicasReady": 1,
        "replicasWanted": 2,
    }
    assert usage_document(unknown)["cpuMillicores"] is None


@pytest.mark.parametrize("engine", ["kubernetes", "host"])
def test_a_page_names_what_is_not_measured(tmp_path: Path, engine: str) -> None:
    with api_sandbox(tmp_path, FILES) as sandbox:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text("{}")
        location = {"engine": engine, **({"cluster": {"kubeconfig": str(kubeconfig)}} if engine != "host" else {})}
        sandbox.configure(locations={"here": location, "there": {"engine": "recorded"}})
        sandbox.api.close()
        sandbox.api = Api(load_settings(sandbox.settings_file), SystemClock(), lambda: True)
        history = UsageHistory(sandbox.state / engine / "here" / FOLDER)
        history.append([(WEB, UsagePoint(time.time() - MINUTE, cpu=3.0, memory=2.0**20, ready=1, wanted=1))])
        shown = Browser(sandbox).log_in().get("/ui/resource/workload/shop/web")
        usage = shown.partition("<h2>Usage</h2>")[2].partition("<h2>")[0]
        assert usage.count("<figure") == 3
        assert "Not measured here: requests, latency." in usage
        assert ("A cluster counts no requests" in usage) == (engine == "kubernetes")
