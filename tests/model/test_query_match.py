"""Queries: what a star takes, and that no query takes long."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.query_match import QueryBudget, matches
from tests.support.pace import in_time


def query(*values: str) -> dict[str, Any]:
    return {"spec": {"match": "all", "terms": [{"op": "~", "tag": "t", "value": value} for value in values]}}


def takes(value: str, text: str) -> bool:
    return matches(query(value), {"tags": {"t": text}})


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_star_stands_for_any_text(value: str, text: str) -> None:
    pattern = ".*".join(map(re.escape, value.split("*")))
    assert takes(value, text) is (re.fullmatch(pattern, text) is not None or value in text)


def test_many_stars_take_no_time() -> None:
    assert in_time(lambda: takes("*a" * 40 + "*b", "a" * 250), 1.0)[0] is False
    assert in_time(lambda: takes("*a" * 40 + "*b", "a" * 249 + "b"), 1.0)[0] is True


def test_comparisons_are_taken_until_none_is_left() -> None:
    left = QueryBudget(5)
    assert left.take(query("a", "b"), 2)
    assert not left.take(query("a", "b"), 1)
    assert left.take(query("a"), 1)
    assert left.take({}, 100)
