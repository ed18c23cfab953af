"""Files of simple lines are read as the parser reads them; every other file is left to the parser.

LINES_FILES is the number of random files that are tried: 3,000 by default.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reconciler.documents.composer import Composer
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.line_reader import DEEPEST, TEXT_FIELDS, _line, read_lines
from reconciler.documents.locator import Locator
from reconciler.documents.positions import Position
from tests.bench import manifests
from tests.bench.plain import workload

FILES = int(os.environ.get("LINES_FILES") or 3_000)
ROOT = Path(__file__).parent.parent.parent

SIMPLE = {
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
    "a list for tags": "tags:\n- 1.10\n- a: 1.10\n- {a: 1.10}\n- [1.10]\n",
    "tags below the root": "spec:\n  tags:\n    a: 1.10\n",
    "brackets in tags": "tags:\n  a: {b: 1.10}\n  c: [1.10]\n",
    "empty tags": "tags: {}\n",
    "documents": "# a\n---\na: 1\n---\n# nothing\n---\nb: 2\n---\n",
    "nothing": "\n# a\n",
    "text outside ASCII": "a: é\nb: Größe 3\nc: 日本語\n",
    "line breaks of another system": "a: 1\r\nb:\r\n  - |\r\n    c\r\n\r\n    d\r\ne: [f]\r\n",
    "a mapping in braces": "a: {b: 1, c: x, d: true, e: null, f: ~, g: 30s}\nh: {}\ni:\n  - {j: k}  # l\n  - {}\n",
    "a key for braces": "- a: {b: c}\n  d: 1\n- a: {b: c}\n",
    "spaces in braces": "a: { b: c,d: e ,  f:  'g, h' }\nb: { }\n",
    "a list in brackets": "a: []\nb: [c, 1, 1.10, true, ~, null, -1, -x, --y=z, 'd, e', \"f # g\"]\n",
    "brackets in a list": "- [a, b]\n- c: [d]\n  e: [ ]\n",
    "literal text": "a: |\n  b\n\n    c: d\n  # e\n  - f\n\n\ng: |-\n  h\n# i\nj:\n  - |\n    k\n  - l: |\n      m\n",
    "folded text": "a: >\n  b\n  c: d\ne: >-\n  f\n  # g\nh:\n- >-\n  i\n  j\n",
    "text that begins with an empty line": "a: |\n\n  b\n",
    "text at the end of a document": "a: |\n  b\n---\nc: |-\n  d\n\n---\ne: >\n  f\n\n",
    "text beside the column of its key": "a:\n- b: |\n   c\n- d: >-\n     e\n",
    "text of a list": "- |\n a\n - b\n",
    "text in tags": "tags:\n  a: |\n    1.10\n  b: >-\n    true\n",
}

OTHER = (
    "a: |+\n  b\n", "a: |2\n  b\n", "a: |\n  b", "a: |\n", "a: |\n\n", "a: |\nb\n", "a: |\n# b\n  c\n",
    "a: |\n   b\n  c\n",
    "a: |\n  b\n  \n  c\n", "a: |\n  b\n \n   # c\n", "a: |\n    \n  b\n", "a: |\n  b\tc\n", "a: >\n  b\n\n  c\n",
    "a: >\n  b\n    c\n", "a: >\n\n  b\n", "a: b |\n  c\n", "a: b: |\n  c\n", "- - |\n    a\n", "|\n a\n",
    "a: # b: |\n  c\n", '"a": |\n  b\n', "no: |\n  a\n", "a: |\n  b\na: |\n  b\n", "a: [b\n", "a: b]\nc: [d]]\n",
    "a: &b c\n", "a: *b\n", "a: !c d\n", "<<: a\n", "? a\n", "a: b\n  c\n", "a:\n  b\n", 'a: "b\n  c"\n',
    'a: "\\n"\n',
    "a: 'it''s'\n", "a: b: c\n", "a: b:\n", '"a": 1\n', "a b: 1\n", "1: a\n", "no: a\n", "a: no\n", "a: 012\n",
    "a: .nan\n", "a: 1\na: 2\n", "a:\n- b: 1\n  b: 2\n", "- - a\n", "-\n  a: 1\n", "a\n", "a: b\n  c: 1\n",
    "a: 1\n b: 2\n",
    "  a: 1\nb: 2\n", "a:\n    b: 1\n  c: 2\n", "a: 1\n- b\n", "- a\nb: 1\n", "a:\n  b: 1\n  - c\n",
    "a:\n  - b\n  c: 1\n",
    "- a: 1\n b: 2\n", "a:\tb\n", "a: 1\rb: 2\n", "é: 1\n", "a: 1\n...\n", "--- # a\na: 1\n",
    "%YAML 1.2\n---\na: 1\n",
    "a: `b\n", "a: -\n", "# a\x07\n", "a: b\u00a0c\n", "a: b\u2028c\n", "a: \u202eb\n", "\ufeffa: 1\n",
    "a: \u0661:\n",
    "tags: {a: 1}\n", "tags: [1]\n", "  tags: {a: 1}\n", "{a: b}\n",
)  # fmt: skip

FLOW = (
    "{b: }", "{b}", "{b: {c: d}}", "{b: [c]}", "{b:c}", "{b: c:d}", "{b: c d}", "{b: c\n  }", "{b: c} d", "{b: c}d",
    "{b: c, b: d}", "{no: b}", "{b: no}", "{b: 012}", "{b: c, }", "{b: c,}", "{<<: b}", "{b: #c}", "{b: c#}",
    "{b: ?c}",
    "{b: &c}", "{b: .nan}", "{\"b\": c}", "{b: é}", "[b, ]", "[b,]", "[,b]", "[b,,c]", "[,]", "[b c]", "[b: c]",
    "[[b]]",
    "[{b: c}]", "[b]c", "[b] c", "[no]", "[012]", "[?]", "[*b]", "['b''c']", "['b\"]", "[\"\\n\"]", "[b #c]", "[-]",
    "[- b]",
)  # fmt: skip
"""Lists and mappings in brackets that are not simple."""


def read(raw: bytes) -> str | None:
    """What this reader gives, with 1 unlike 1.0 and true, and keys in their order; None if it leaves the file."""
    found = read_lines(raw, LIMITS, TEXT_FIELDS)
    return None if found is None else json.dumps([(each.index, each.line, each.value) for each in found])


def parse(raw: bytes) -> str:
    """What the parser gives."""
    composer = Composer(raw, LIMITS, TEXT_FIELDS, key_lines=True)
    found = [(each.index, each.line, each.value) for each, _ in composer.documents()]
    assert not composer.faults.faults
    return json.dumps(found)


def roots(raw: bytes, *, simple: bool) -> list[dict[str, Position]]:
    """The positions of the keys at the root of each document that is a mapping."""
    locator = Locator(raw, simple=simple)
    documents = read_lines(raw, LIMITS, TEXT_FIELDS) or []
    return [
        {key: locator.key(each, (key,)) for key in (*each.value, "b")}
        for each in documents
        if isinstance(each.value, dict)
    ]


@pytest.mark.parametrize("text", SIMPLE.values(), ids=SIMPLE)
def test_simple_files_are_read_as_the_parser_reads_them(text: str) -> None:
    assert read(text.encode()) == parse(text.encode())
    assert roots(text.encode(), simple=True) == roots(text.encode(), simple=False)


@pytest.mark.parametrize("text", OTHER)
def test_other_files_are_left_to_the_parser(text: str) -> None:
    assert read(text.encode()) is None
    assert read(f"z:\n  - y: 1\n---\n{text}".encode()) is None


@pytest.mark.parametrize("text", FLOW)
def test_brackets_that_are_not_simple_are_left_to_the_parser(text: str) -> None:
    assert read(f"a: {text}\n".encode()) is None
    assert read(f"- {text}\n".encode()) is None


def test_manifests_as_people_write_them_are_simple() -> None:
    files = [text.encode() for _, text in manifests.files(300)]
    simple = [raw for raw in files if read(raw) is not None]
    assert len(simple) >= 0.9 * len(files)
    generated = workload(7, 0, 0).encode()
    assert [read(raw) for raw in (*simple, generated)] == [parse(raw) for raw in (*simple, generated)]


def test_the_examples_are_read_as_the_parser_reads_them() -> None:
    simple = [raw for path in sorted((ROOT / "examples").rglob("*.yaml")) if read(raw := path.read_bytes()) is not None]
    assert simple
    assert [read(raw) for raw in simple] == [parse(raw) for raw in simple]


def test_a_file_near_a_limit_is_left_to_the_parser() -> None:
    raw = b"a: 1\n---\nb: 2\n"
    assert read_lines(raw, Limits(documents=2), TEXT_FIELDS) is not None
    for limits in (
        Limits(documents=1),
        Limits(nodes=6),
        Limits(file_nodes=6),
        Limits(document_bytes=6),
        Limits(depth=DEEPEST - 1),
    ):
        assert read_lines(raw, limits, TEXT_FIELDS) is None
    assert read_lines(raw, LIMITS, frozenset({"tags", "data"})) is None


def test_the_deepest_file_that_is_simple_is_within_the_limit_of_the_parser() -> None:
    steps = [f"{' ' * at}k:\n{' ' * at}- k:" for at in range(0, 80, 2)]
    simple = [
        count for count in range(len(steps) + 1) if read_lines("\n".join(steps[:count]).encode(), LIMITS, TEXT_FIELDS)
    ]
    assert simple == list(range(1, max(simple) + 1))
    assert 2 * max(simple) + 2 <= DEEPEST < LIMITS.depth


@pytest.mark.parametrize(
    "kind",
    [
        "kind: secret", "kind:  Secret", 'kind: "secret"', "kind: 'secret'", '{"kind":"secret"}', "kind: >-\n  secret",
        "'kind': secret", '"kind": secret', "kind : secret", "? kind\n: secret", "kind: !!str secret",
        "kind: &a secret",         "kind: # c\n  secret", 'kind: "\\x73ecret"', "kind: secret # c", "{kind: secret}",
    ],
)  # fmt: skip
def test_no_line_of_a_file_with_a_secret_is_cached(kind: str) -> None:
    before = _line.cache_info()
    for text in (f"{kind}\nname: a{kind[:1]}\ndata: hunter2\n", f"name: b{kind[:1]}\ndata: hunter2\n{kind}\n"):
        read(text.encode())
    assert _line.cache_info() == before
    read(f"kind: workload\nname: {id(kind)}\ndata: //secret/hunter2\n".encode())
    assert _line.cache_info() != before


def test_long_lines_are_left_to_the_parser_and_not_cached() -> None:
    read(b"a: b\n")  # the empty line at the end is cached
    before = _line.cache_info().currsize
    assert read(f"a: {'b' * 300}\n".encode()) is None
    assert read(f"a: [{'b, ' * 40}b]\n".encode()) is None
    assert _line.cache_info().currsize == before


def test_two_readings_share_no_list_or_mapping() -> None:
    raw = b"a:\n  - b:\nc:\n  d: 1\ne: {f: 1}\ng: [1]\n"
    first, second = (read_lines(raw, LIMITS, TEXT_FIELDS) for _ in range(2))
    assert first is not None
    value = first[0].value
    value["a"][0]["b"] = value["c"]["d"] = value["e"]["f"] = value["g"][0] = "changed"
    assert second == read_lines(raw, LIMITS, TEXT_FIELDS)
    assert "changed" not in repr(second)


def test_each_of_many_random_files_is_read_as_the_parser_reads_it_or_left() -> None:
    random = Random(7)
    simple = 0
    for _ in range(FILES):
        raw = made_up(random).encode()
        found = read(raw)
        if found is not None:
            simple += 1
            assert found == parse(raw), raw
            assert roots(raw, simple=True) == roots(raw, simple=False), raw
    assert simple > FILES // 20


KEYS = ("a", "b", "c", "d", "tags", "x/y.z", "A-b", "no")
COMMON = (
    "x", "1", "true", "", "null", '"q"', "a b", "1.5", "{}", "{a: 1, tags: x}", "[]", "[a, 1.10, 'b, c']", "é", "-x",
    "|\n x", "|-\n x: 1\n\n # y", ">-\n x\n y", ">\n x",
)  # fmt: skip
SCALARS = (
    *COMMON, *FLOW, "-1", "0x1F", "012", "12:30", "'s'", "''", "a: b", "a #c", "a#c", "a:b", "a  b", "a:", "[x]",
    "- x", "|", "&a", "-", "---", "...", "$(X)", "x  ", "  x", '"a" b', "<<", "? x", ": x", "+1", "1e3", "a :b",
    "'it''s'", ".", "|+\n x\n", "|\n  x\n y", ">\n x\n\n y", ">\n x\n  y", "|\n\n x", "|\n \n x", "|\n x\n \n  # y",
    "|1\n x",
)  # fmt: skip
LINES = ("- x", "- a: 1", "- a:", "b: 1", "b:", "", "# c", "---", "x", "b: |", "- >-", " ", "   ", "b: [c]")
SIGNS = ":# -\\\"'\t[]{}&*!|>%~,?0.\r\u00e9\u00a0"


def made_up(random: Random) -> str:
    """Some documents as lines; most files are broken somewhere."""
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
    text = "\n".join(lines) + random.choice(("\n", "", "\n\n", "\n  \n"))
    return text.replace("\n", "\r\n") if random.random() < 0.1 else text


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
        return _scalar(random, head, value, at)
    beside = isinstance(value, list) and random.random() < 0.4
    return [head, *_lines(random, value, at if beside else at + random.choice((2, 2, 2, 1, 4)))]


def _item(random: Random, value: Any, at: int) -> list[str]:
    if isinstance(value, str):
        return _scalar(random, f"{' ' * at}-", value, at)
    gap = random.choice((1, 1, 3))
    inner = _lines(random, value, at + 1 + gap)
    return [f"{' ' * at}-{' ' * gap}{inner[0].lstrip(' ')}", *inner[1:]]


def _scalar(random: Random, head: str, value: str, at: int) -> list[str]:
    """A key or an item with its value; a block of text is indented below it."""
    first, *rest = value.split("\n")
    margin = " " * (at + random.choice((0, 1, 1, 3)))
    comment = random.choice(("", "", "", " ", " # c")) if not rest else ""
    return [f"{head} {first}{comment}", *(f"{margin}{line}" if line else "" for line in rest)]
