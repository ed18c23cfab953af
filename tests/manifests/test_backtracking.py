"""Which regular expressions take exponential time, and that finding them takes little."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.manifests.rules.kind.backtracking import has_nested_repeats

_PARTS = st.lists(st.sampled_from([*"()[]{}*+?|\\^$.a1,:=!<>P", "(?:", "\\Q", "\\E", "{2,}", "[:alpha:]"]), max_size=30)


@pytest.mark.parametrize(
    "pattern",
    [
        "/(a*)*b(a*)*$",
        "(a+)+",
        "([a-z]+)*",
        "([a-z]+-?)+x",
        "(?:a|b*)*",
        "((a*)b?)*",
        "(a*){2,}",
        r"(\w+\s?)*",
        "((a+))+",
        "([a-z]*){0,}",
        "(?P<x>a+)+",
        "(^a*$)*",
    ],
)
def test_a_repeat_of_nothing_but_repeats_is_found(pattern: str) -> None:
    assert has_nested_repeats(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "/api(/[a-z0-9-]+)*",
        "a*b*",
        "(ab)*",
        "(a*b)*",
        "(a?)*",
        r"([a-z]+\.)+example",
        "(?>a*)*",
        "(a*+)*",
        "(a*)?",
        "(a{1,5})*",
        "[(*)*]",
        r"\(a*\)*",
        "(?i)abc.*",
        r"/v[0-9]+(\.[0-9]+)?/.*",
        r"\Q(a*)*\E",
        "",
    ],
)
def test_other_repeats_pass(pattern: str) -> None:
    assert not has_nested_repeats(pattern)


@given(_PARTS.map("".join))
def test_no_text_raises(pattern: str) -> None:
    assert has_nested_repeats(pattern) in (True, False)


def test_its_time_is_linear() -> None:
    began = time.process_time()
    for part in ("(", "(?:", "a*", "(a", "[", "{2,}", "(a|b", "\\Q"):
        has_nested_repeats(part * 20_000)
    assert time.process_time() - began < 5.0
