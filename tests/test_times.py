"""Times as text, and back."""

from __future__ import annotations

import pytest

from reconciler.times import iso, parse_time


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "soon"]
)
def test_a_time_that_cannot_be_shown_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_time_is_shown_as_it_was_parsed(text: str) -> None:
    assert iso(parse_time(text)) == text
