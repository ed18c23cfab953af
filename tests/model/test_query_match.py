"""Queries: what a star takes, and that no query takes long."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.query_match import QueryBudget, make_selector, matches_query, term_count
from tests.support.pace import in_time


def query(*values: str) -> dict[str, Any]:
    return {"spec": {"match": "all", "terms": [{"op": "~", "tag": "t", "value": value} for value in values]}}


def takes(value: str, text: str) -> bool:
    return matches_query(query(value), {"tags": {"t": text}}, "acme")


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_star_stands_for_any_text(value: str, text: str) -> None:
    pattern = ".*".join(map(re.escape, value.split("*")))
    assert takes(value, text) is (re.fullmatch(pattern, text) is not None or value in text)


TEXTS = st.sampled_from(["", "1", "1.0", "2", "10", "a", "ab", "b", "true"])
VALUES = st.one_of(TEXTS, st.booleans(), st.integers(0, 10), st.none())
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "tags": st.dictionaries(st.sampled_from("tu"), VALUES, max_size=2),
        "a": st.one_of(
            VALUES,
            st.fixed_dictionaries({"b": VALUES}),
        ),
    },
)
TERMS = st.fixed_dictionaries(
    {"op": st.sampled_from(["=", "!=", ">", ">=", "<", "<=", "~", "exists", "!exists"]), "value": VALUES}
).flatmap(
    lambda term: st.sampled_from(
        [{**term, "tag": "t"}, {**term, "property": "name"}, {**term, "property": "a.b"}, {**term, "tag": "u"}]
    )
)
QUERIES = st.fixed_dictionaries(
    {"match": st.sampled_from(["all", "any", "none"]), "terms": st.lists(TERMS, max_size=3)}
).map(lambda spec: {"spec": spec})


def holds(term: dict[str, Any], body: dict[str, Any]) -> bool:
    """Whether ``term`` is true of ``body``, as the page of queries defines it."""
    inner = body.get("a")
    value = {
        "t": body.get("tags", {}).get("t"),
        "u": body.get("tags", {}).get("u"),
        "name": body.get("name"),
        "a.b": inner.get("b") if isinstance(inner, dict) else None,
    }[term.get("tag") or term["property"]]
    if term["op"] in ("exists", "!exists"):
        return (value is None) == (term["op"] == "!exists")
    if value is None:
        return bool(term["op"] == "!=")
    left, right = (str(each).lower() if isinstance(each, bool) else str(each) for each in (value, term["value"]))
    if term["op"] == "~":
        return right in left
    if term["op"] in ("=", "!="):
        return (left == right) == (term["op"] == "=")
    try:
        below, above = float(left) < float(right), float(left) > float(right)
    except ValueError:
        below, above = left < right, left > right
    return {">": above, ">=": not below, "<": below, "<=": not above}[term["op"]]


@given(QUERIES, st.lists(BODIES, max_size=4))
def test_a_selector_takes_what_its_terms_ask_for(query: dict[str, Any], bodies: list[dict[str, Any]]) -> None:
    select = make_selector(query, "acme")
    for body in bodies:
        verdicts = [holds(term, body) for term in query["spec"]["terms"]]
        match = query["spec"]["match"]
        assert select(body) is {"all": all(verdicts), "any": any(verdicts), "none": not any(verdicts)}[match]


def test_many_stars_take_no_time() -> None:
    assert in_time(lambda: takes("*a" * 40 + "*b", "a" * 250), 1.0)[0] is False
    assert in_time(lambda: takes("*a" * 40 + "*b", "a" * 249 + "b"), 1.0)[0] is True


def test_comparisons_are_taken_until_none_is_left() -> None:
    left = QueryBudget(5)
    assert left.take(term_count(query("a", "b")), 2)
    assert not left.take(term_count(query("a", "b")), 1)
    assert left.take(term_count(query("a")), 1)
    assert left.take(term_count({}), 100)


WEB = {"kind": "workload", "gvc": "shop", "name": "web"}
LINK_TERMS: list[tuple[dict[str, Any], bool]] = [
    ({"rel": "gvc", "value": "/org/acme/gvc/shop"}, True),
    ({"rel": "gvc", "value": "//gvc/shop"}, True),
    ({"rel": "gvc", "value": "/org/other/gvc/shop"}, False),
    ({"rel": "gvc", "value": "/org/acme/gvc/sho"}, False),
    ({"rel": "gvc", "op": "!=", "value": "/org/acme/gvc/shop"}, False),
    ({"rel": "gvc", "op": "!=", "value": "//gvc/other"}, True),
    ({"rel": "gvc", "op": "~", "value": "/org/*/gvc/sh*"}, True),
    ({"rel": "self", "value": "//gvc/shop/workload/web"}, True),
    ({"rel": "deployment", "op": "exists"}, True),
    ({"rel": "org", "value": "/org/acme"}, True),
    ({"rel": "identity", "op": "exists"}, False),
    ({"rel": "identity", "op": "!exists"}, True),
    ({"rel": "identity", "op": "!=", "value": "//gvc/shop/identity/web"}, True),
]


@pytest.mark.parametrize(("term", "selected"), LINK_TERMS)
def test_a_term_about_a_link_compares_those_of_the_document(term: dict[str, Any], selected: bool) -> None:
    for match, expected in (("all", selected), ("any", selected), ("none", not selected)):
        assert matches_query({"spec": {"match": match, "terms": [term]}}, WEB, "acme") is expected


def test_a_resource_of_the_org_has_no_gvc() -> None:
    for op, expected in (("exists", False), ("!exists", True)):
        terms = [{"rel": "gvc", "op": op}]
        assert matches_query({"spec": {"terms": terms}}, {"kind": "secret", "name": "db"}, "acme") is expected
