"""The shorter way for plain files gives what the parser gives, or nothing.

LINES_FILES says how many made-up files are tried: 4,000 unless it says otherwise.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reconciler.documents.composer import Composer
from reconciler.documents.fast_path import DEEPEST, TEXT_FIELDS, parse
from reconciler.documents.limits import LIMITS, Limits
from tests.bench.plain import workload

FILES = int(os.environ.get("LINES_FILES") or 4_000)
ROOT = Path(__file__).parent.parent.parent

PLAIN = {
    "a mapping": "a: 1\nb: x\nc: true\nd: 1.5\ne: null\nf: ~\ng: -1\n",
    "no line break at the end": "a: 1\nb:",
    "quotes": "a: \"1\"\nb: 'x # y'\nc: \"it's: so\"\nd: ''\n",
    "comments": '# a\na: 1 # b\n  # c\nb: # d\n  c: "e" # f\n\n   \n# g',
    "signs within a text": "a: b:c#d e :f, [g] {h} & * ! | > % @ \\ ' \"\n",
    "lists": "a:\n  - 1\n  - b: 1\n    c:\n      - d\n  - e: f\n",
    "lists in the column of their key": "a:\n- 1\n- b: 1\n  c:\n  - d\n  e:\n- f:\ng: 1\n",
    "other widths": "a:\n   b:\n    c: 1\n   d:\n    -   e: 1\n        f: 2\n",
    "a list at the root": "- a\n- b: 1\n",
    "an indented root": "  a: 1\n  b:\n    - c\n",
    "nothing at a key": "a:\n  b:\nc:\n- d:\n- e:\n    f:\n",
    "tags": "tags:\n  a: 1.10\n  b: true\n  c: null\n  d: ''\n  e:\n    f: 1.10\n",
    "a list for tags": "tags:\n- 1.10\n- a: 1.10\n",
    "tags below the root": "spec:\n  tags:\n    a: 1.10\n",
    "documents": "# a\n---\na: 1\n---\n# nothing\n---\nb: 2\n---\n",
    "nothing": "\n# a\n",
    "braces": "a: {b: 1, c: x, d: true, e: null, f: ~, g: 30s}\nh: {}\ni:\n  - {j: k}  # l\n  - {}\n",
    "a key for braces": "- a: {b: c}\n  d: 1\n- a: {b: c}\n",
    "tags in braces below the root": "tags:\n  a:\n    b: {c: 1}\n",
}

OTHER = (
    "a: |\n  b\n", "a: >-\n  b\n", "a: [b]\n", "a: &b c\n", "a: *b\n", "a: !c d\n", "<<: a\n", "? a\n",
    "a: b\n  c\n", "a:\n  b\n", 'a: "b\n  c"\n', 'a: "\\n"\n', "a: 'it''s'\n", "a: b: c\n", "a: b:\n", '"a": 1\n',
    "a b: 1\n", "1: a\n", "no: a\n", "a: no\n", "a: 012\n", "a: .nan\n", "a: 1\na: 2\n", "a:\n- b: 1\n  b: 2\n",
    "- - a\n", "-\n  a: 1\n", "a\n", "a: b\n  c: 1\n", "a: 1\n b: 2\n", "  a: 1\nb: 2\n", "a:\n    b: 1\n  c: 2\n",
    "a: 1\n- b\n", "- a\nb: 1\n", "a:\n  b: 1\n  - c\n", "a:\n  - b\n  c: 1\n", "- a: 1\n b: 2\n", "a:\tb\n",
    "a: 1\r\n", "a: é\n", "a: 1\n...\n", "--- # a\na: 1\n", "%YAML 1.2\n---\na: 1\n", "a: `b\n", "a: -\n", "# a\x07\n",
)  # fmt: skip

BRACES = (
    "{b: }", "{b}", "{b: {c: d}}", "{b: [c]}", "{ b: c }", "{b: c,d: e}", "{b:c}", "{b: c:d}", "{b: c d}", "{b: 'c'}",
    "{b: c\n  }", "{b: c} d", "{b: c}d", "{b: c, b: d}", "{no: b}", "{b: no}", "{b: 012}", "{b: c, }", "{<<: b}",
    "{b: -c}", "{b: c-}", "{b: #c}", "{b: c#}", "{b: ?c}", "{b:  c}", "{b: c,  d: e}", "{b: \"c\"}", "{b: &c}",
    "{b: .nan}",
)  # fmt: skip
"""Mappings in braces that are not plain."""


def quick(raw: bytes) -> str | None:
    """What the shorter way gives, told 1 from 1.0 and true, keys in their order; None where it leaves the file."""
    found = parse(raw, LIMITS, TEXT_FIELDS)
    return None if found is None else json.dumps(found)


def parsed(raw: bytes) -> str:
    composer = Composer(raw, LIMITS, TEXT_FIELDS, key_lines=True)
    found = [(line, value) for _, line, value, _ in composer.documents()]
    assert not composer.faults.faults
    return json.dumps(found)


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_plain_files_are_read_as_the_parser_reads_them(text: str) -> None:
    assert quick(text.encode()) == parsed(text.encode())


@pytest.mark.parametrize("text", OTHER)
def test_whatever_is_not_plain_is_left_to_the_parser(text: str) -> None:
    assert quick(text.encode()) is None
    assert quick(f"z:\n  - y: 1\n---\n{text}".encode()) is None


@pytest.mark.parametrize("braces", BRACES)
def test_braces_that_are_not_plain_are_left_to_the_parser(braces: str) -> None:
    assert quick(f"a: {braces}\n".encode()) is None
    assert quick(f"- {braces}\n".encode()) is None


def test_tags_in_braces_stay_as_written() -> None:
    for raw in (b"tags: {a: 1}\n", b"  tags: {a: 1}\n", b"tags:\n  a: {b: 1}\n", b"tags:\n- {a: 1}\n", b"{a: b}\n"):
        assert quick(raw) is None


def test_what_the_benchmarks_read_and_what_users_begin_with_is_plain_or_the_same() -> None:
    generated = workload(7, 0, 0).encode()
    assert quick(generated) == parsed(generated)
    files = [path.read_bytes() for path in sorted((ROOT / "examples").rglob("*.yaml"))]
    taken = [raw for raw in files if quick(raw) is not None]
    assert taken
    assert [quick(raw) for raw in taken] == [parsed(raw) for raw in taken]


def test_the_limits_are_the_parsers_to_keep() -> None:
    raw = b"a: 1\n---\nb: 2\n"
    assert parse(raw, Limits(documents=2), TEXT_FIELDS) is not None
    for limits in (Limits(documents=1), Limits(nodes=6), Limits(document_bytes=6), Limits(depth=DEEPEST - 1)):
        assert parse(raw, limits, TEXT_FIELDS) is None
    deep = [f"{' ' * at}k:\n{' ' * at}- k:" for at in range(0, 60, 2)]
    depths = [n for n in range(len(deep) + 1) if parse("\n".join(deep[:n]).encode(), LIMITS, TEXT_FIELDS)]
    assert 2 * max(depths) <= DEEPEST
    assert depths == list(range(1, max(depths) + 1))


@pytest.mark.parametrize("kind", ["secret", " secret", '"secret"', "'secret'"])
def test_lines_of_secrets_are_not_kept(kind: str) -> None:
    assert quick(f"kind: {kind}\nname: a\ndata: hunter2\n".encode()) is None
    assert quick(b"kind: workload\nname: a\n") is not None


def test_no_two_readings_share_what_can_be_changed() -> None:
    raw = b"a:\n  - b:\nc:\n  d: 1\ne: {f: 1}\n"
    first, second = (parse(raw, LIMITS, TEXT_FIELDS) for _ in range(2))
    assert first is not None
    first[0][1]["a"][0]["b"] = first[0][1]["c"]["d"] = first[0][1]["e"]["f"] = "changed"
    assert second == [(1, {"a": [{"b": None}], "c": {"d": 1}, "e": {"f": 1}})] == parse(raw, LIMITS, TEXT_FIELDS)


def test_of_many_made_up_files_each_is_read_as_the_parser_reads_it_or_left() -> None:
    random = Random(7)
    taken = 0
    for _ in range(FILES):
        raw = written(random).encode()
        found = quick(raw)
        if found is not None:
            taken += 1
            assert found == parsed(raw), raw
    assert taken > FILES // 20


KEYS = ("a", "b", "c", "d", "tags", "x/y.z", "A-b", "no")
COMMON = ("x", "1", "true", "", "null", '"q"', "a b", "1.5", "{}", "{a: 1, tags: x}")
SCALARS = (
    *COMMON, *BRACES, "-1", "0x1F", "012", "12:30", "'s'", "''", "a: b", "a #c", "a#c", "a:b", "a  b", "a:", "[x]",
    "- x", "|", "&a", "-", "---", "...", "$(X)", "x  ", "  x", '"a" b', "<<", "? x", ": x", "+1", "1e3", "a :b",
    "'it''s'", ".",
)  # fmt: skip
LINES = ("- x", "- a: 1", "- a:", "b: 1", "b:", "", "# c", "---", "x")
SIGNS = ":# -\\\"'\t[{&*!|>%~,?0."


def written(random: Random) -> str:
    """Some documents as lines, most of which are then broken somewhere."""
    lines = _lines(random, _tree(random, 0), random.choice((0, 0, 0, 1, 2)))
    if random.random() < 0.3:
        lines += [random.choice(("---", "---", "--- ", "...")), *_lines(random, _tree(random, 0), 0)]
    for _ in range(random.choice((0, 0, 1, 2))):
        index = random.randrange(len(lines))
        line, at = lines[index], random.randrange(len(lines[index]) + 1)
        lines[index] = random.choice(
            (f" {line}", line[1:], line[2:], f"  {line}", line[:at] + random.choice(SIGNS) + line[at:], lines[-1])
        )
        lines.insert(index, " " * random.randrange(6) + random.choice(LINES))
    return "\n".join(lines) + random.choice(("\n", "", "\n\n"))


def _tree(random: Random, depth: int) -> Any:
    kind = random.random()
    if depth and (depth > 4 or kind < 0.4):
        return random.choice(SCALARS if random.random() < 0.06 else COMMON)
    if kind < 0.8:
        return {random.choice(KEYS): _tree(random, depth + 1) for _ in range(random.randrange(1, 5))}
    return [_tree(random, depth + 1) for _ in range(random.randrange(1, 4))]


def _lines(random: Random, value: Any, at: int) -> list[str]:
    if isinstance(value, dict):
        return [line for key, member in value.items() for line in _pair(random, f"{' ' * at}{key}:", member, at)]
    return [line for item in value for line in _item(random, item, at)]


def _pair(random: Random, head: str, value: Any, at: int) -> list[str]:
    if isinstance(value, str):
        return [f"{head} {value}{random.choice(('', '', '', ' ', ' # c'))}"]
    beside = isinstance(value, list) and random.random() < 0.4
    return [head, *_lines(random, value, at if beside else at + random.choice((2, 2, 2, 1, 4)))]


def _item(random: Random, value: Any, at: int) -> list[str]:
    if isinstance(value, str):
        return [f"{' ' * at}- {value}"]
    gap = random.choice((1, 1, 3))
    inner = _lines(random, value, at + 1 + gap)
    return [f"{' ' * at}-{' ' * gap}{inner[0].lstrip(' ')}", *inner[1:]]
