"""Times as text, and back."""

from __future__ import annotations

import pytest

from reconciler.times import format_iso_time, parse_duration, parse_time


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "soon"]
)
def test_a_time_that_cannot_be_shown_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_time_is_shown_as_it_was_parsed(text: str) -> None:
    assert format_iso_time(parse_time(text)) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
        ("0s", 0.0),
        ("20", 20.0),
        ("0.5", 0.5),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "-1", "1 s", "1w", "1s\n", "1.s", "nan", "inf", "1e3", "9" * 400])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 500ms, 20s"):
        parse_duration(text)
