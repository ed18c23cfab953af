"""The common page, from what containers expose: every page is parsed by prometheus_client."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from reconciler.engines.host.metrics.exposition import MAX_FAMILIES, ExpositionParser, ScrapeError
from reconciler.engines.metrics_page import render_page
from reconciler.engines.target_metrics import Family, TargetMetrics, label_text
from tests.support.cases import cases


def exposed(text: bytes, size: int = 7) -> dict[str, Family]:
    """What a container exposes, read in parts of ``size`` bytes."""
    parser = ExpositionParser()
    for at in range(0, len(text), size):
        parser.feed(text[at : at + size])
    return parser.finish()


def labels(number: int) -> str:
    """The labels of a replica; its region has what must be escaped."""
    return label_text({"org": "acme", "region": 'a"\\b\nc', "replica": f"web-{number}"})


def target(number: int, text: str) -> TargetMetrics:
    return TargetMetrics(labels(number), exposed(text.encode()))


def page_of(targets: list[TargetMetrics]) -> str:
    return b"".join(render_page(targets)).decode()


def own(page: str) -> str:
    """A page without the series about scrapes."""
    return "".join(line for line in page.splitlines(keepends=True) if "platform_scrape_" not in line)


@pytest.mark.parametrize("case", cases("metrics/pages.yaml"))
def test_a_page_has_the_metrics_of_all_replicas(case: dict[str, Any]) -> None:
    targets = [target(number, text) for number, text in enumerate(case["replicas"], 1)]
    page = page_of(targets)
    expected = case["page"]
    for number in range(1, len(targets) + 1):
        expected = expected.replace(f"L{number}", labels(number))
    assert own(page) == expected
    families = list(text_string_to_metric_families(page))
    samples = [sample for family in families for sample in family.samples if "platform_" not in sample.name]
    assert len(samples) == sum(not line.startswith("#") for line in expected.splitlines())
    assert {sample.labels["region"] for sample in samples} <= {'a"\\b\nc'}
    headers = [line.split()[:3] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(headers) == len({name for *_, name in headers})


@pytest.mark.parametrize("case", cases("metrics/refused.yaml"))
def test_rubbish_is_refused(case: dict[str, Any]) -> None:
    text = case["text"].encode() * case.get("repeat", 1) + case.get("bytes", "").encode("latin-1")
    with pytest.raises(ScrapeError) as refused:
        exposed(text, 16_384 if "repeat" in case else 3)
    assert str(refused.value) == case["error"]


def test_metrics_without_samples_are_bounded_too() -> None:
    with pytest.raises(ScrapeError, match="more than 10000 metrics"):
        exposed(b"".join(b"# TYPE m%d gauge\n" % number for number in range(MAX_FAMILIES + 1)), 16_384)


def test_a_failed_scrape_is_a_series_too() -> None:
    page = page_of([target(1, "a 1\n"), TargetMetrics(labels(2), error="connection refused", seconds=0.25)])
    values = {
        (sample.name, sample.labels["replica"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert values[("platform_scrape_up", "web-1")] == 1
    assert values[("platform_scrape_up", "web-2")] == 0
    assert values[("platform_scrape_duration_seconds", "web-2")] == 0.25
    assert ("a", "web-2") not in values


LINES = st.sampled_from(
    [
        "# TYPE a gauge",
        "# TYPE a histogram",
        "# TYPE a_sum counter",
        "# HELP a x",
        "a 1",
        'a{org="x"} 2',
        "a_sum 3",
        'a_bucket{le="1"} 4',
        "a_count 5",
        'a{x="\\q}"} 6 7',
        "# HELP a_sum y",
        'a{quantile="0.5"} 1',
        "platform_a 1",
    ]
)


@given(st.lists(st.lists(LINES, max_size=8), max_size=3))
def test_no_mixture_breaks_the_page(replicas: list[list[str]]) -> None:
    targets = [target(number, "".join(f"{line}\n" for line in lines)) for number, lines in enumerate(replicas)]
    page = page_of(targets)
    list(text_string_to_metric_families(page))
    named = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    lines = [line.partition("{")[0] for line in own(page).splitlines() if not line.startswith("#")]
    assert len(named) == len(set(named))
    assert len(lines) == sum("#" not in line and "platform" not in line for lines in replicas for line in lines)


@given(st.binary(max_size=200), st.integers(1, 64))
def test_no_bytes_do_more_than_fail_a_scrape(text: bytes, size: int) -> None:
    try:
        families = exposed(b"a 1\n" + text, size)
    except ScrapeError:
        return
    page = page_of([TargetMetrics(labels(1), families)])
    list(text_string_to_metric_families(page))
    assert 'replica="web-1"' in page
