"""Files in JSON: their events, and which of them are manifests."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.encoding import check_encoding
from reconciler.documents.json.recognition import is_json_manifest
from reconciler.documents.limits import LIMITS
from reconciler.documents.locator import Locator
from reconciler.documents.reader import parse_documents, read_json_events
from tests.support.cases import cases

TEXTS = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs", "Cc", "Cn", "Co"]), max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
LAYOUTS = st.sampled_from([None, 0, 2, "\t"])


@given(value=st.dictionaries(TEXTS, VALUES), indent=LAYOUTS, plain=st.booleans())
def test_json_is_read_as_every_reader_of_json_does(value: dict[str, Any], indent: Any, plain: bool) -> None:
    reading = parse_documents(json.dumps(value, indent=indent, ensure_ascii=plain).encode(), is_json=True)
    if not any(fault.rule == "control-character" for fault in reading.faults):
        assert reading.faults == []
        assert json.dumps([each.value for each in reading.documents]) == json.dumps([value])


@given(value=st.lists(VALUES, max_size=5), indent=LAYOUTS)
def test_the_items_of_a_list_are_documents_at_their_places(value: list[Any], indent: Any) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=True)
    raw = text.encode()
    reading = parse_documents(raw, is_json=True)
    if not any(fault.rule == "control-character" for fault in reading.faults):
        assert json.dumps([document.value for document in reading.documents]) == json.dumps(value)
    locator, decoder, lines = Locator(raw, is_json=True), json.JSONDecoder(), text.split("\n")
    for item in reading.documents:
        line, column = locator.of(item.index).value(())
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        assert json.dumps(decoder.raw_decode(rest)[0]) == json.dumps(item.value)
        assert line == item.line


ORDINARY = st.recursive(
    st.sampled_from([None, True, 0, -7, 80, 1.5, 1e300, 2**63, 10**30])
    | st.sampled_from(["", "x", "a b", '"', "\\n", "\n", "\t", "1", "\u00e9"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "tags", "k\n", "b"]), inner),
    max_leaves=10,
)


@given(value=ORDINARY, indent=LAYOUTS, cut=st.integers(0, 400), sign=st.sampled_from(["", *'{}[],:"0-. \r\n\t/']))
def test_ordinary_files_are_read_as_their_events_are(value: Any, indent: Any, cut: int, sign: str) -> None:
    text = json.dumps(value, indent=indent)
    raw = (text[:cut] + sign + text[cut + (len(sign) == 0) :]).encode()
    assert parse_documents(raw, is_json=True) == read_json_events(raw)
    if check_encoding(raw, TIGHT, is_stream=True) is None:
        assert parse_documents(raw, TIGHT, is_json=True) == read_json_events(raw, TIGHT)


TIGHT = msgspec.structs.replace(LIMITS, depth=3, nodes=12, file_nodes=20, document_bytes=60, documents=2)


@pytest.mark.parametrize("depth", [62, 63, 64, 65])
@pytest.mark.parametrize("form", ["[", '{"a":'])
def test_the_depth_is_counted_alike(depth: int, form: str) -> None:
    raw = b'{"x":' + form.encode() * depth + b"1" + (b"]" if form == "[" else b"}") * depth + b"}"
    assert parse_documents(raw, is_json=True) == read_json_events(raw)
    assert bool(parse_documents(raw, is_json=True).faults) is (depth > 63)


def test_a_key_may_have_more_characters_than_yaml_allows() -> None:
    value = {"k" * 5000: {"v": "x" * 5000}}
    assert [each.value for each in parse_documents(json.dumps(value).encode(), is_json=True).documents] == [value]


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"[" * 70, "too-deep"),
        (b'[[{"a":' + b"[" * 70, "too-deep"),
        (b'{"a":[' + b"1," * 200_000 + b"1]}", "too-many-nodes"),
        (b"[" + b"{}," * 6000 + b"{}]", "too-many-documents"),
        (b'{"a":"' + b"x" * (1 << 20) + b'"}', "too-large"),
        (b'[{"a":"' + b"x" * (1 << 20) + b'"}]', "too-large"),
        (b"[" + (b'{"a":"' + b"x" * (1 << 19) + b'"},') * 40, "too-large"),
        (b"[" * 300_000, "too-deep"),
    ],
)
def test_the_limits_of_yaml_hold(raw: bytes, rule: str) -> None:
    started = time.process_time()
    assert parse_documents(raw, is_json=True).faults[-1].rule == rule
    assert time.process_time() - started < 5


def test_a_list_may_be_larger_than_a_document() -> None:
    value = [{"a": "x" * 1000}] * 2000
    reading = parse_documents(json.dumps(value).encode(), is_json=True)
    assert (len(reading.documents), reading.faults) == (2000, [])
    assert len(json.dumps(value)) > LIMITS.document_bytes
    assert Locator(json.dumps(value).encode(), is_json=True).of(1999).value(("a",))[1] > LIMITS.document_bytes


@pytest.mark.parametrize("case", cases("json/recognition.yaml"))
def test_the_content_of_a_file_decides_whether_it_is_a_manifest(case: dict[str, Any]) -> None:
    assert is_json_manifest(case["input"].encode()) is case["is_manifest"]


@pytest.mark.parametrize(
    "raw",
    [
        b"{" * (1 << 20),
        b'{"kind":"gvc",' * 300_000,
        b'"kind"' + b" " * (1 << 23),
        b'{"kind":"gvc","name":"' + b"\\" * (1 << 22),
        b'{"kind":"gvc","name":1/*' + b"/*" * (1 << 21),
        b'{"kind":"gvc","x":"' * 200_000,
        b'[{"kind":"gvc"}' + b',{"kind":"Deployment"}' * 300_000 + b"]",
    ],
)
def test_other_files_cost_little(raw: bytes) -> None:
    started = time.process_time()
    is_json_manifest(raw)
    assert time.process_time() - started < 2
