"""Keys with the signs that paths and pointers are written with: each stays itself, wherever it is joined and split."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.locator import locate_document
from reconciler.documents.writer import render_document
from reconciler.model.key import Kind
from reconciler.model.resource import pointer_parts, pointer_text
from reconciler.planning.blame import pointer_of
from reconciler.planning.diff import diff_bodies
from reconciler.planning.drift import path_matches
from reconciler.planning.field_paths import item_path, member_path, steps_of

SIGNS = st.text("ab./~[]\"'\\:{}0²*", max_size=6)
"""Names with signs of paths, pointers, patterns and YAML, and the empty one."""
ODD = ["", ".", "a.b", ".a", "a/b", "~1", "~0", '"', 'a"]', "]", "[0]", "0", "007", "²", "9" * 900, "\\", "a\\"]


@given(st.lists(st.tuples(SIGNS, st.booleans()), min_size=1, max_size=4))
def test_a_path_of_fields_has_one_meaning(steps: list[tuple[str, bool]]) -> None:
    path = "spec"
    for name, is_item in steps:
        path = item_path(path, name) if is_item else member_path(path, name)
    assert [step.name for step in steps_of(path)] == ["spec", *(name for name, _ in steps)]


@given(st.lists(SIGNS, min_size=1, max_size=3, unique=True), st.data())
def test_a_change_of_a_tag_is_placed_and_ignored_by_its_path(names: list[str], data: st.DataObject) -> None:
    before = {"kind": "gvc", "name": "shop", "tags": dict.fromkeys(names, "1")}
    chosen = data.draw(st.sampled_from(names))
    after = before | {"tags": {**before["tags"], chosen: "2"}}
    (change,) = diff_bodies(Kind.GVC, msgspec.json.encode(before), msgspec.json.encode(after), "here")
    assert pointer_of(change.path, after) == ("tags", chosen)
    assert path_matches(change.path.replace("*", "?"), change.path.replace("*", "?"))
    assert path_matches("tags[*]", change.path) or change.path.startswith("tags.")


@pytest.mark.parametrize("name", ODD)
def test_a_pointer_with_any_key_leads_to_its_value(name: str) -> None:
    value = {"tags": {"first": "x", name: ["x", {name: "y"}]}}
    at = ("tags", name, 1, name)
    again = pointer_parts(pointer_text(at))
    assert pointer_text(again) == pointer_text(at)
    places = locate_document(render_document(value).encode(), 0)
    assert places.key(again) == places.key(at) != places.key(at[:2])


def test_a_star_stands_for_a_name_with_dots() -> None:
    assert path_matches("tags[*]", 'tags["example.com/team"]')
    assert path_matches('tags["example.com/*"]', 'tags["example.com/a.b[c]"]')
    assert not path_matches('tags["example.com/*"]', 'tags["other.com/a"]')
    assert not path_matches("tags[*].x", 'tags["a.b"].y')
