"""Percentiles of response times: how exact they are, and what they take."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.host.autoscaling.latency import ERROR, LEAST, MOST, PERCENTILES, Histogram


@given(st.lists(st.floats(LEAST, MOST), min_size=1, max_size=200))
def test_a_percentile_is_within_its_error_of_the_exact_one(times: list[float]) -> None:
    histogram = Histogram()
    for each in times:
        histogram.add(each)
    exact = {name: sorted(times)[ceil(part * len(times)) - 1] for name, part in PERCENTILES.items()}
    assert histogram.percentiles() == pytest.approx(exact, rel=ERROR * (1 + 1e-9))


def test_without_a_response_there_is_no_percentile() -> None:
    assert Histogram().percentiles() == {}


def test_two_histograms_merge_to_one_of_all_responses() -> None:
    whole, left, right = Histogram(), Histogram(), Histogram()
    for number in range(1, 1000):
        whole.add(number)
        (left if number % 3 else right).add(number)
    left.merge(right)
    assert left.percentiles() == whole.percentiles()


def test_whatever_is_added_there_are_314_buckets_at_most() -> None:
    histogram = Histogram()
    for step in range(4000):
        histogram.add(1e-9 * 1.02**step)
    histogram.add(0.0)
    histogram.add(float("inf"))
    assert len(histogram) == 314
