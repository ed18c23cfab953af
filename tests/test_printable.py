"""Printed text controls no terminal, hides nothing, and ends no markup around it."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
import yaml

from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_document
from reconciler.printable import (
    UNSAFE,
    code_span,
    escape_text,
    guard_stream,
    is_name,
    may_hide,
    printable_json,
    printable_lines,
    replace_unsafe,
)
from reconciler.status.yaml_text import quote_text

BAD = re.compile(rf"[\x00-\x08\x0b-\x1f{UNSAFE}]")
CHARACTERS = [
    *map(chr, [0, 7, 0x0D, 0x1B, 0x7F, 0x80, 0x85, 0x9B, 0xAD, 0x61C, 0x200B, 0x200E, 0x200F, 0x2028]),
    *map(chr, [0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xFFF9, 0xE0041]),
]
HARMLESS = "aé日本\u0915\u094d\u200d\u0937 \U0001f469\u200d\U0001f680 \xa0|`~"


@pytest.mark.parametrize("character", CHARACTERS, ids=lambda character: f"{ord(character):04x}")
def test_a_character_that_cannot_be_shown_is_escaped_at_every_border(character: str) -> None:
    text = f"a{character}b"
    assert not BAD.search(escape_text(text))
    assert not BAD.search(printable_lines(text))
    assert not BAD.search(code_span(text))
    shown = printable_json(json.dumps(text, ensure_ascii=False))
    assert not BAD.search(shown)
    assert json.loads(shown) == text
    assert not BAD.search(render_document({"a": text}))
    assert yaml.safe_load(render_document({"a": text})) == {"a": text}
    assert not BAD.search(quote_text(text))
    assert not is_name(text)


def test_every_unsafe_character_is_replaced_beside_others() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    unsafe = BAD.findall(everything)
    assert [sign for sign in unsafe if BAD.search(escape_text(f"a{sign}"))] == []
    assert [sign for sign in unsafe if replace_unsafe(f"a{sign}") != "a?"] == []


def test_a_half_of_a_character_is_escaped() -> None:
    assert escape_text("a\ud83db") == "a\\ud83db"
    assert quote_text("a\ud83db") == '"a?b"'


def test_text_that_can_be_shown_stays_as_it_is() -> None:
    assert printable_lines(HARMLESS) == printable_json(HARMLESS) == HARMLESS
    assert render_document({"a": f"x {HARMLESS}"}) == f'a: "x {HARMLESS}"\n'
    assert escape_text("a\tb\nc") == "a\\u0009b\\u000ac"
    assert printable_lines("a\tb\nc") == "a\tb\nc"


@pytest.mark.parametrize("character", [each for each in CHARACTERS if each >= "\x80"], ids=ascii)
def test_a_key_that_hides_something_is_refused_where_it_stands(character: str) -> None:
    breaks = character in "\x85\u2028\u2029"
    for key in (f'"a\\U{ord(character):08x}b"', f'"a{character}b"', f"a{character}b" if not breaks else '"\\u202e"'):
        raw = f"kind: gvc\ntags:\n  {key}: x\n".encode()
        (fault,) = parse_documents(raw).faults
        assert fault.rule in ("control-character", "syntax"), key
        if key.isascii():
            assert fault.rule == "control-character"
            assert (fault.line, fault.column) == (3, 3)
        assert character not in fault.message


def test_a_value_keeps_its_characters() -> None:
    raw = b'kind: gvc\ndescription: "a\\u202eb\\u009b"\n'
    (document,) = parse_documents(raw).documents
    assert document.value["description"] == "a\u202eb\x9b"


def test_keys_are_checked_only_where_a_file_may_hide_something() -> None:
    assert not may_hide(b"kind: gvc\n")
    assert not may_hide("é日本\U0001f600".encode())
    assert all(may_hide(each.encode()) for each in CHARACTERS if each >= "\x80")


@pytest.mark.parametrize("value", ["a`b", "``", "x`<img/src=q>@octocat", "a|b", "a\nb"])
def test_code_in_markdown_is_not_left(value: str) -> None:
    span = code_span(value)
    fence = re.match("`+", span)
    assert fence is not None
    assert fence[0] not in span[len(fence[0]) : -len(fence[0])].replace(" ", "")[1:-1].replace("`" * 9, "")
    assert "\n" not in span
    assert not re.search(r"(?<!\\)\|", span)


def guarded(text: str, **environ: str) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace")
    guard_stream(stream, environ)
    guard_stream(stream, environ)
    stream.write(text)
    stream.flush()
    return raw.getvalue().decode()


def test_no_stream_of_ours_passes_on_what_steers_a_terminal() -> None:
    assert guarded("a\x1b[2Jb\x9bc\u202ed\n\te") == "a\\u001b[2Jb\\u009bc\\u202ed\n\te"


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal, as that of a person is."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("healthy\rfailed", "healthy\\u000dfailed"),
        ("a\r\nb", "a\\u000d\nb"),
        ("\r\x1b[J", "\r\x1b[J"),
        ("\r\x1b[3A\x1b[J", "\r\x1b[3A\x1b[J"),
        ("\r\x1b[31mred", "\\u000d\x1b[31mred"),
    ],
)
def test_a_terminal_returns_only_to_redraw_our_own_lines(text: str, shown: str) -> None:
    raw = io.BytesIO()
    stream = Terminal(raw, encoding="utf-8")
    guard_stream(stream, {})
    stream.write(text)
    stream.flush()
    assert raw.getvalue().decode() == shown


def test_the_log_of_a_job_holds_no_commands_but_our_annotations() -> None:
    text = "::stop-commands::x\n  ::set-output::y\n##[group]z ##vso[task]\n::error file=a.yaml,line=1::x\na::b\n"
    assert guarded(text) == text
    shown = guarded(text, GITHUB_ACTIONS="true")
    assert not re.search(r"^\s*::(?!error file=)|##\[|##vso\[", shown, re.MULTILINE)
    assert "\n::error file=a.yaml,line=1::x\na::b\n" in shown
