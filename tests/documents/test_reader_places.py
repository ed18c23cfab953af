"""Where values stand: found again by a second parse."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.documents.event_positions import pointers_by_position
from reconciler.documents.limits import Limits
from reconciler.documents.locator import locate_document
from reconciler.documents.positions import Pointer, Positions
from reconciler.documents.reader import parse_documents
from reconciler.printable import is_name
from tests.support.examples import examples

RAW = b"""# the first line is a comment
kind: workload
tags: {a: x,
       "b": y}
spec:
  containers:
    - name: main
      env:
      - {name: A, value: "1"}
    -
      name: side
  defaults: &defaults
    cpu: 50m
  local: *defaults
  empty:
---
---
second: 1
"""


@pytest.mark.parametrize(
    ("pointer", "value", "key"),
    [
        ((), (2, 1), (2, 1)),
        (("kind",), (2, 7), (2, 1)),
        (("tags",), (3, 7), (3, 1)),
        (("tags", "b"), (4, 13), (4, 8)),
        (("spec",), (6, 3), (5, 1)),
        (("spec", "containers"), (7, 5), (6, 3)),
        (("spec", "containers", 0), (7, 7), (7, 7)),
        (("spec", "containers", 0, "env", 0, "value"), (9, 26), (9, 19)),
        (("spec", "containers", 1), (11, 7), (11, 7)),
        (("spec", "containers", 1, "name"), (11, 13), (11, 7)),
        (("spec", "defaults", "cpu"), (13, 10), (13, 5)),
        (("spec", "empty"), (15, 9), (15, 3)),
    ],
)
def test_values_and_keys_are_found(pointer: Pointer, value: tuple[int, int], key: tuple[int, int]) -> None:
    places = locate_document(RAW, 0)

    assert (places.value(pointer), places.key(pointer)) == (value, key)


def test_a_missing_field_has_the_place_of_its_parent() -> None:
    places = locate_document(RAW, 0)

    assert places.value(("spec", "missing", 3, "deep")) == (6, 3)
    assert places.key(("spec", "missing")) == (5, 1)
    assert places.value(("spec", "local", "cpu")) == (14, 10)
    assert places.key(("spec", "containers", 7)) == (6, 3)
    assert places.key(("missing",)) == (2, 1)


def test_documents_are_counted_as_the_reader_counts_them() -> None:
    for document in parse_documents(RAW).documents:
        assert locate_document(RAW, document.index).value(())[0] == document.line
    assert locate_document(RAW, 1).value(("second",)) == (18, 9)
    assert locate_document(RAW, 2).value(("second",)) == (1, 1)


def test_a_position_has_the_pointer_of_its_value_or_key() -> None:
    by_position = pointers_by_position(RAW)

    assert by_position[2, 1] == (), "the outermost of the values that begin there"
    assert by_position[7, 7] == ("spec", "containers", 0)
    assert by_position[9, 19] == by_position[9, 26] == ("spec", "containers", 0, "env", 0, "value")
    assert by_position[18, 9] == ("second",)
    assert pointers_by_position(b"") == {}
    assert pointers_by_position(b"a: 1\nb: [2, }\n") == {}, "a broken document has none"


def test_a_broken_file_is_located_as_far_as_it_goes() -> None:
    places = locate_document(b"a: 1\nb: [2, }\n", 0)

    assert places.value(("b", 0)) == (2, 5)
    assert locate_document(b"\xff", 0).value(("a",)) == (1, 1)
    assert locate_document(b"{a: {b: {c: 1}}}", 0, Limits(depth=1)).value(("a", "b", "c")) == (1, 5)
    assert locate_document(b"{a: 1, [x, y]: 2, a: 3, b: 4}", 0).value(("b",)) == (1, 28)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff"))
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT.filter(is_name), inner, max_size=4)
)


class Quoting(yaml.SafeDumper):
    """Texts in double quotes, so that nothing about them is open to interpretation; no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def dumped(value: Any, flow: bool) -> bytes:
    return yaml.dump(
        value, Dumper=Quoting, default_flow_style=flow, allow_unicode=True, encoding="utf-8", sort_keys=False
    )


def finite(value: Any) -> bool:
    return "inf" not in repr(value)


@settings(max_examples=examples(150), deadline=None)
@given(VALUES.filter(finite), st.booleans())
def test_dumped_yaml_is_read_back(value: Any, flow: bool) -> None:
    reading = parse_documents(dumped(value, flow))

    assert reading.faults == []
    assert json.dumps([document.value for document in reading.documents]) == json.dumps([value])


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=60) | st.text("[]{},:-?&*!|>'\"%#@ \n\ta0~<.", max_size=60).map(str.encode))
def test_nothing_makes_the_reader_raise(raw: bytes) -> None:
    reading = parse_documents(raw)

    for document in reading.documents:
        assert locate_document(raw, document.index).value(())[0] == document.line
    for fault in reading.faults:
        assert fault.line >= 1
        assert fault.column >= 1


def pointers(value: Any, at: Pointer = ()) -> list[Pointer]:
    below = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else [])
    return [at, *(found for key, member in below for found in pointers(member, (*at, key)))]


def changed(value: Any, at: Pointer, mark: str) -> Any:
    if not at:
        return mark
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = changed(copy[at[0]], at[1:], mark)
    return copy


@settings(max_examples=examples(100), deadline=None)
@given(VALUES.filter(finite), st.booleans(), st.data())
def test_a_marked_scalar_is_found_where_it_stands(value: Any, flow: bool, data: st.DataObject) -> None:
    pointer = data.draw(st.sampled_from(pointers(value)))
    raw = dumped(changed(value, pointer, "@MARK@"), flow)

    assert after(raw, locate_document(raw, 0), pointer).startswith('"@MARK@"')


def after(raw: bytes, places: Positions, pointer: Pointer) -> str:
    line, column = places.value(pointer)
    return raw.decode().split("\n")[line - 1][column - 1 :]


@pytest.mark.parametrize("text", ["\U0001f600", 'a "\U0001f600" \\\U0001f600\\ b', "\\ud83d\\ude00"])
def test_values_behind_a_pair_of_escapes_are_found_where_they_stand(text: str) -> None:
    raw = json.dumps({"first": [text, {text: 1}], "last": True}).encode()
    places = locate_document(raw, 0)
    assert parse_documents(raw).documents[0].value == json.loads(raw)
    assert places.key(("last",)) == (1, raw.index(b'"last"') + 1)
    assert places.value(("last",)) == (1, raw.index(b"true") + 1)
    assert places.value(("first", 1, text)) == (1, raw.index(b"1}") + 1)


def test_a_place_takes_the_same_memory_at_any_depth() -> None:
    flat, deep = (_memory(b"[" * depth + b"1," * 5_000 + b"]" * depth) for depth in (1, 60))
    assert deep < 1.2 * flat


def _memory(raw: bytes) -> int:
    tracemalloc.start()
    try:
        locate_document(raw, 0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
