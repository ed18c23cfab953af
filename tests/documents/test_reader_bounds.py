"""Hostile and giant files: each is refused with its place, in under a second, and the documents before it are read."""

from __future__ import annotations

import codecs
import os
import tracemalloc
from pathlib import Path
from threading import Thread

import pytest

from reconciler.documents.limits import LIMITS, Limits, read_within
from reconciler.documents.locator import locate_document
from reconciler.documents.reader import parse_documents
from reconciler.errors import UsageError
from tests.support.pace import in_time


def bomb(levels: int) -> bytes:
    lines = ['l0: &l0 ["x", "x"]']
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines).encode()


def tower(levels: int, floors: int) -> bytes:
    """Each anchor is ``floors`` levels on top of the one before: shallow as written, deep as meant."""
    lines = ["- &l0 x"]
    lines += [f"- &l{n} {'[' * floors}*l{n - 1}{']' * floors}" for n in range(1, levels)]
    return "\n".join(lines).encode()


HOSTILE: dict[str, tuple[bytes, str | tuple[str, ...]]] = {
    "a hundred megabytes": (b"a: " + b"x" * (100 << 20), "too-large 1:1"),
    "a document of more than a megabyte": (b"a: 1\n---\nb: " + b"x" * (2 << 20), "too-large 3:1"),
    "ten thousand documents": (b"--- {a: 1}\n" * 10_000, "too-many-documents 5001:1"),
    "ten thousand empty documents": (b"---\n" * 10_000, "too-many-documents 5001:1"),
    "lists 300,000 deep": (b"[" * 300_000, "too-deep 1:"),
    "mappings 300,000 deep": (b"{a: " * 300_000, "too-deep 1:257"),
    "dashes 300,000 deep": (b"- " * 300_000, "too-deep 1:129"),
    "keys 300,000 deep": (b"? " * 300_000, "key-type 1:3"),
    "lists 900 deep": (b"[" * 900, "too-deep 1:65"),
    "pairs of brackets 300,000 deep": (b"[{" * 300_000, ("key-type 1:3", "too-deep 1:1001")),
    "an alias bomb": (bomb(10), "too-many-nodes 6:"),
    "aliases that pile up depth": (tower(10, 20), "too-deep 5:"),
    "a thousand and one aliases": (b"[&a x" + b", *a" * 1_001 + b"]", "too-many-aliases 1:4008"),
    "a list of a million nulls": (b"[" + b"~," * 500_000 + b"]", "too-many-nodes 1:"),
    "a mapping that is merged too often": (
        b"a: &a {" + b",".join(b"k%d: 1" % n for n in range(500)) + b"}\nb: {<<: [" + b"*a," * 900 + b"]}",
        "too-many-nodes 2:",
    ),
    "a hundred thousand tag handles": (
        b"".join(b"%%TAG !a%d! x\n" % n for n in range(100_000)) + b"---\na\n",
        "too-many-directives 1:1",
    ),
    "a sea of opening quotes": (b'a: "' + b"\n" * 1_000_000, "syntax 1:4"),
    "a sea of carriage returns and tabs": (b"a:\n" + b"\t\r" * 1_000_000, "tab 2:1"),
    "UTF-16": (codecs.BOM_UTF16_LE + "a: 1".encode("utf-16-le"), "encoding 1:1"),
    "UTF-16 from the other end": (codecs.BOM_UTF16_BE + "a: 1".encode("utf-16-be"), "encoding 1:1"),
    "UTF-16 that does not say so": ("a: 1".encode("utf-16-le"), "encoding 1:2"),
    "UTF-32": (codecs.BOM_UTF32_LE + "a: 1".encode("utf-32-le"), "encoding 1:1"),
    "Latin-1": ("a: 1\nb: ä, grün".encode()[:-4] + b"\xfcn", "encoding 2:8"),
    "half a character at the end": ("a: ä".encode()[:-1], "encoding 1:4"),
    "a NUL byte": (b"a: 1\nb: x\x00y\n", "encoding 2:5"),
    "a program": (b"\x7fELF\x02\x01\x01\x00", "encoding 1:8"),
}


@pytest.mark.parametrize(("raw", "expected"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_a_fault_with_its_place_within_a_second(raw: bytes, expected: str | tuple[str, ...]) -> None:
    reading, _ = in_time(lambda: parse_documents(raw), 1.0)
    first = reading.faults[0]
    assert f"{first.rule} {first.line}:{first.column}".startswith(expected)


@pytest.mark.parametrize(("raw", "expected"), HOSTILE.values(), ids=HOSTILE.keys())
def test_places_in_a_hostile_file_are_found_as_far_as_the_limits_go(
    raw: bytes, expected: str | tuple[str, ...]
) -> None:
    (line, column), _ = in_time(lambda: locate_document(raw, 0).value(("a", 0)), 1.0)
    assert line >= 1
    assert column >= 1


def test_documents_before_a_limit_are_read() -> None:
    reading = parse_documents(b"a: 1\n---\n" + b"[" * 300_000)

    assert [document.value for document in reading.documents] == [{"a": 1}]
    assert [fault.rule for fault in reading.faults] == ["too-deep"]


def test_input_at_the_limits_is_read() -> None:
    assert parse_documents(b"[" * 64 + b"]" * 64).faults == []
    assert parse_documents(b"[&a x" + b", *a" * 1_000 + b"]").faults == []
    assert parse_documents(b"--- 1\n" * 5_000).faults == []
    assert parse_documents(b"[" + b"1," * 99_999 + b"]").faults == []
    assert parse_documents(tower(4, 20)).faults == []


def test_each_limit_counts_what_its_name_states() -> None:
    tight = Limits(depth=2, aliases=1, nodes=6, document_bytes=40, file_bytes=80, documents=2, faults=3)

    def rules(raw: bytes) -> list[str]:
        return [fault.rule for fault in parse_documents(raw, tight).faults]

    assert rules(b"{a: [1, 2, 3]}") == []
    assert rules(b"{a: [1, 2, 3, 4]}") == ["too-many-nodes"]
    assert rules(b"[&a [1], *a]") == []
    assert rules(b"[&a [1, 2], *a]") == ["too-many-nodes"]
    assert rules(b"[&a 1, *a, *a]") == ["too-many-aliases"]
    assert rules(b"[[[]]]") == ["too-deep"]
    assert rules(b"a: " + b"x" * 40) == ["too-large"]
    assert rules(b"# " + b"x" * 80) == ["too-large"]
    assert rules(b"--- 1\n--- 2\n--- 3\n") == ["too-many-documents"]
    assert rules(b"[no, no, no, no]") == ["ambiguous-scalar"] * 3


def test_a_file_full_of_faults_is_read_no_further_than_the_hundredth() -> None:
    assert len(parse_documents(b"[" + b"no, " * 10_000 + b"]").faults) == LIMITS.faults
    assert len(parse_documents(b"{" + b"a: 1, " * 10_000 + b"}").faults) == LIMITS.faults


def test_a_file_may_have_as_many_documents_as_it_may_and_ordinary_ones() -> None:
    ordinary = "kind: gvc\nname: a\nspec: " + str(list(range(93))) + "\n"
    assert parse_documents("---\n".join([ordinary] * 5_000).encode()).faults == []
    wide = b"\n---\n".join([b"[" + b"1," * 90_000 + b"]"] * 60)
    assert [(fault.rule, fault.message) for fault in parse_documents(wide).faults] == [
        ("too-many-nodes", "this file has more than 250,300 values in its first 3 documents")
    ]


def test_a_small_file_is_read_without_memory_for_a_large_one(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"kind: gvc\n")
    tracemalloc.start()
    try:
        assert read_within(path) == b"kind: gvc\n"
        assert tracemalloc.get_traced_memory()[1] < LIMITS.file_bytes / 10
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 1, 100, 101])
def test_a_pipe_is_read_within_the_limit_too(size: int, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = Thread(target=path.write_bytes, args=(b"x" * size,))
    writer.start()
    try:
        if size > 100:
            with pytest.raises(UsageError):
                read_within(path, 100)
        else:
            assert read_within(path, 100) == b"x" * size
    finally:
        writer.join()
