"""Changes of JSON: values are those that are wanted, and everything else stays as it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.editing.json_edits import JsonDocuments
from tests.support.cases import cases

NAMES = st.sampled_from(["a", "b", "c", "kind", 'q"', "\u00e9"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([1.5, "", "x", "1", "\u00e9\n", '"', "{", ",]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)
LAYOUTS = st.sampled_from([None, 1, 2, 4, "\t"])


def in_order_of(old: Any, new: Any) -> Any:
    """``new`` with its fields as ``old`` has them, and the others behind them."""
    if isinstance(old, dict) and isinstance(new, dict):
        if not old.keys() & new.keys():
            return new
        names = [*(name for name in old if name in new), *(name for name in new if name not in old)]
        return {name: in_order_of(old[name], new[name]) if name in old else new[name] for name in names}
    return new


@given(old=OBJECTS, new=OBJECTS, indent=LAYOUTS)
def test_a_changed_document_has_the_wanted_value(old: dict[str, Any], new: dict[str, Any], indent: Any) -> None:
    documents = JsonDocuments(json.dumps(old, indent=indent))
    documents.replace(0, old, new)
    assert json.dumps(json.loads(documents.text()), sort_keys=True) == json.dumps(new, sort_keys=True)


@given(old=OBJECTS, new=OBJECTS, indent=LAYOUTS)
def test_a_changed_document_is_written_as_before(old: dict[str, Any], new: dict[str, Any], indent: Any) -> None:
    old, new = ({name: "x" if isinstance(each, list) else each for name, each in of.items()} for of in (old, new))
    text = json.dumps({"first": {"second": 1}, **old}, indent=indent, ensure_ascii=False) + "\n"
    documents = JsonDocuments(text)
    changed = {"first": {"second": 1}, **in_order_of(old, new)}
    documents.replace(0, {"first": {"second": 1}, **old}, changed)
    if '"\\' not in text and "[" not in text:
        assert documents.text() == json.dumps(changed, indent=indent, ensure_ascii=False) + "\n"


@given(values=st.lists(OBJECTS, min_size=1, max_size=5), indent=LAYOUTS, picked=st.data())
def test_documents_of_a_list_change_one_by_one(values: list[dict[str, Any]], indent: Any, picked: Any) -> None:
    documents = JsonDocuments(json.dumps(values, indent=indent))
    present = dict(enumerate(values))
    for _ in range(3):
        if not present:
            break
        number = picked.draw(st.sampled_from(sorted(present)))
        if picked.draw(st.booleans()):
            documents.remove(number)
            del present[number]
        else:
            new = picked.draw(OBJECTS)
            documents.replace(number, present[number], new)
            present[number] = new
    text = documents.text()
    assert (json.loads(text) if text else []) == [*present.values()]


@pytest.mark.parametrize("case", cases("json/edits.yaml"))
def test_a_change_of_json_is_written_as_its_case_expects(case: dict[str, Any]) -> None:
    documents = JsonDocuments(case["input"])
    if "removed" in case:
        documents.remove(case["removed"])
    else:
        number = case.get("number", 0)
        old = json.loads(documents.texts()[number])
        documents.replace(number, old, {**old, **case["changes"]})
    assert documents.text() == case["output"]
