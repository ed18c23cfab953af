"""What is written is read back as the same values, by our reader and by YAML 1.1's."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_document, render_stream
from reconciler.printable import is_name
from tests.support.examples import examples

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

WORDS = st.sampled_from(
    [
        "no",
        "On",
        "y",
        "0644",
        "0o17",
        "1e3",
        "12:30",
        "1_000",
        "2024-01-31",
        ".5",
        "~",
        "<<",
        "=",
        "- a",
        "a: b",
        "a #b",
        "#",
        "a:",
        "100m",
        "0.0.0.0/0",
        "%",
        "@x",
        "`",
        "---",
        "...",
        "key: |",
        "null",
        "",
        " ",
        "\t",
        "0x1F",
        "-c",
        "--x",
        "-.inf",
        "-y",
        "+1",
        ".inf",
        "!x",
        "&x",
        "*x",
        "'",
        '"',
        "\\",
        "tab\tinside",
        "a\n",
        "a\n\n",
        "\na",
        "  a\nb",
        "a\n  b\n\n c",
        "a\n   \nb",
        "\n",
        'it\'s "so"',
        "a\\b",
    ]
)
TEXT = WORDS | st.text(max_size=30).filter(lambda text: not CONTROL.search(text)) | st.text("ab \n:#-", max_size=12)
LEAF = (
    TEXT
    | st.booleans()
    | st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT.filter(is_name), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(400), deadline=None)
@given(VALUES.filter(lambda value: value is not None))
def test_our_reader_reads_back_what_was_written(value: Any) -> None:
    reading = parse_documents(render_document(value).encode(), text_fields=frozenset())
    assert reading.faults == []
    assert [document.value for document in reading.documents] == [value]


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(TEXT.filter(is_name), TEXT, min_size=1))
def test_readers_of_yaml_1_1_read_the_same_texts(value: dict[str, str]) -> None:
    assert yaml.load(render_document(value), yaml.CSafeLoader) == value


class Point(msgspec.Struct):
    """A value of the program."""

    x: int


def test_values_of_the_program_are_written_as_json_has_them() -> None:
    value = {"tuples": ({"url": "a"}, ()), "set": frozenset({1}), "points": [Point(1)], "at": Point(2), "none": ()}
    assert render_document(value) == render_document(msgspec.json.decode(msgspec.json.encode(value)))
    assert "(" not in render_document(value)
    assert render_document(("a",)) == "- a\n"
    with pytest.raises(TypeError):
        render_document({"a": object()})


def test_yaml_is_written_as_people_write_it() -> None:
    value = {
        "kind": "workload",
        "spec": {
            "containers": [{"name": "web", "args": ["-c", "echo a\necho b\n"], "ports": []}],
            "schedule": "30 6 * * 1-5",
            "empty": {},
            "lists": [["a", "b"], {"c": 1.5}],
        },
    }
    assert render_document(value) == (
        "kind: workload\n"
        "spec:\n"
        "  containers:\n"
        "    - name: web\n"
        "      args:\n"
        "        - -c\n"
        "        - |\n"
        "          echo a\n"
        "          echo b\n"
        "      ports: []\n"
        "  schedule: 30 6 * * 1-5\n"
        "  empty: {}\n"
        "  lists:\n"
        "    - - a\n"
        "      - b\n"
        "    - c: 1.5\n"
    )


def test_a_stream_parts_its_documents() -> None:
    assert render_stream([{"a": 1}, {"b": 2}]) == "a: 1\n---\nb: 2\n"


@pytest.mark.parametrize("text", ["\x85a\nb", "a\u2028b\nc", "a\ufeffb\nc"])
def test_line_breaks_of_other_standards_are_escaped(text: str) -> None:
    assert "\\" in render_document({"a": text})
    assert parse_documents(render_document({"a": text}).encode()).documents[0].value == {"a": text}
