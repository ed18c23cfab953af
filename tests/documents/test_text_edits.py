"""A changed value is changed where it is written; everything else keeps its bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.editing.edits import edit_text
from reconciler.documents.writer import render_document


class Case(NamedTuple):
    """``before`` with the values ``new`` is ``after``."""

    before: str
    new: dict[str, Any]
    after: str


CASES = {
    "a scalar keeps its quotes and its comment": Case(
        "a: 'it'   # why\nb: \"x\"\nc: plain\n",
        {"a": "it's", "b": 'say "w"', "c": "on"},
        'a: \'it\'\'s\'   # why\nb: "say \\"w\\""\nc: "on"\n',
    ),
    "the comment right above a field goes with it, others stay": Case(
        "# Of the file.\n\n# About a.\na: 1\n# About b.\n# More.\nb: 2  # two\n\n# The rest.\nc: 3\n",
        {"a": 1, "c": 3},
        "# Of the file.\n\n# About a.\na: 1\n\n# The rest.\nc: 3\n",
    ),
    "new fields come last, where their mapping ends": Case(
        "spec:\n    a: 1  # one\n\n# The rest.\nb: 2\n",
        {"spec": {"a": 1, "c": ["x"]}, "b": 2},
        "spec:\n    a: 1  # one\n    c:\n      - x\n\n# The rest.\nb: 2\n",
    ),
    "a list is indented as others of the file are": Case(
        "a:\n- x\n", {"a": ["x"], "b": [{"c": ["w"]}]}, "a:\n- x\nb:\n- c:\n  - w\n"
    ),
    "an item goes with its comment": Case(
        "a:\n  # first\n  - x  # one\n  # second\n  - w\n  - z\n",
        {"a": ["x", "z"]},
        "a:\n  # first\n  - x  # one\n  - z\n",
    ),
    "an item between others is new": Case(
        "a:\n  - x  # one\n  - z\n", {"a": ["x", "w", "z"]}, "a:\n  - x  # one\n  - w\n  - z\n"
    ),
    "an item without a name changes in its place": Case(
        "a:\n  - p: 1  # one\n    q: 2\n  - p: 3\n",
        {"a": [{"p": 5, "q": 2}, {"p": 3}]},
        "a:\n  - p: 5  # one\n    q: 2\n  - p: 3\n",
    ),
    "items with names change their order with their comments": Case(
        "a:\n  - name: x  # one\n    v: 1\n  # second\n  - {name: w, v: 2}",
        {"a": [{"name": "w", "v": 3}, {"name": "x", "v": 1}]},
        "a:\n  # second\n  - {name: w, v: 3}\n  - name: x  # one\n    v: 1",
    ),
    "the first field of an item goes": Case("a:\n  - b: 1\n    c: 2\n", {"a": [{"c": 2}]}, "a:\n  - c: 2\n"),
    "members between brackets": Case(
        "a: {b: 1,   c: 2, d: 3,}\ne: [x, 'w', z]\nf: [g]  # f\n",
        {"a": {"c": 2, "m": "p, q"}, "e": ["x", "w"], "f": ["g", {"h": [1, None]}]},
        "a: {c: 2, m: 'p, q',}\ne: [x, 'w']\nf: [g, {h: [1, null]}]  # f\n",
    ),
    "what becomes empty, and what was": Case(
        "a:\n  b: 1\nc:\n- x\nd: {}\ne:\nf: 1\n",
        {"a": {}, "c": [], "d": {"g": 1}, "e": "now", "f": None},
        "a: {}\nc: []\nd:\n  g: 1\ne: now\nf: null\n",
    ),
    "lists in lists": Case("a:\n  - - x\n    - w\n  - z\n", {"a": [["x"], "z"]}, "a:\n  - - x\n  - z\n"),
    "a block": Case(
        "a: |\n  one\n  two\n\n# About b.\nb: >-\n  x\n  w\nc: 1\n",
        {"a": "three\nfour\n", "b": "z", "c": 1, "d": "five\nsix"},
        "a: |\n  three\n  four\n\n# About b.\nb: z\nc: 1\nd: |-\n  five\n  six\n",
    ),
    "a block with blank lines at its end": Case("a: |+\n  x\n\nb: 1\n", {"a": "x\n\n", "b": 2}, "a: |+\n  x\n\nb: 2\n"),
    "no block before a comment that would become part of it": Case(
        "a: x  # why\nb: 1\n", {"a": "w\nz\n", "b": 1}, 'a: "w\\nz\\n"  # why\nb: 1\n'
    ),
    "another value for an alias": Case("a: &a 1\nb: *a\n", {"a": 1, "b": 2}, "a: &a 1\nb: 2\n"),
    "what an alias repeats is written anew": Case(
        "a: &a {x: 1}\nb: *a\n", {"a": {"x": 2}, "b": {"x": 1}}, "a:\n  x: 2\nb:\n  x: 1\n"
    ),
    "a field over a merged one": Case(
        "a: &a {x: 1, w: 2}\nb:\n  <<: *a\n",
        {"a": {"x": 1, "w": 2}, "b": {"x": 3, "w": 2}},
        "a: &a {x: 1, w: 2}\nb:\n  <<: *a\n  x: 3\n",
    ),
    "a merged field that goes is written anew": Case(
        "a: &a {x: 1, w: 2}\nb:\n  <<: *a\n",
        {"a": {"x": 1, "w": 2}, "b": {"w": 2}},
        "a:\n  x: 1\n  w: 2\nb:\n  w: 2\n",
    ),
    "a key of several lines": Case("? a\n: 1\nb: 2\n", {"a": 1, "b": 3}, "? a\n: 1\nb: 3\n"),
    "text beyond the basic plane": Case(
        'a: "\U0001f600"\nb: x\n', {"a": "\U0001f600", "b": "w"}, 'a: "\U0001f600"\nb: w\n'
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_text(name: str) -> None:
    case = CASES[name]
    assert edit_text(case.before, yaml.safe_load(case.before), case.new, yaml.safe_load) == case.after


leaves = st.sampled_from(
    [*"xy", "on", "1", "a: b", "a, [b]", "it's", '"', "", "two\nlines\n", " deep\n\n", 5, True, None]
)
names = st.sampled_from(["name", "a", "b", "c c", "on"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
mappings = st.dictionaries(names, values, min_size=1, max_size=4)


@given(mappings, mappings, st.sampled_from(["block", "mixed", "flow"]), st.booleans())
def test_every_value_becomes_every_other(
    old: dict[str, Any], new: dict[str, Any], style: str, has_comments: bool
) -> None:
    """Also in text that other programs write."""
    flow = {"block": False, "mixed": None, "flow": True}[style]
    text = render_document(old) if style == "block" else yaml.safe_dump(old, default_flow_style=flow, sort_keys=False)
    if has_comments:
        text = f"# first\n{text}# last\n"
    if yaml.safe_load(text) != old:  # a comment that became part of a block
        return
    after = edit_text(text, old, new, yaml.safe_load)
    assert yaml.safe_load(after) == new
    if old == new:
        assert after == text
