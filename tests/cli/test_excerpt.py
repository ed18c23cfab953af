"""The carets stand under the value, on a terminal too, and never under what is secret."""

from __future__ import annotations

import pytest

from reconciler.model.finding import Finding, Severity
from reconciler.render.excerpt import HIDDEN, WIDTH, Excerpts, underline_range


def excerpt(raw: str | bytes, line: int, column: int, *, secrets: bool = True) -> tuple[str, str] | None:
    read = raw.encode() if isinstance(raw, str) else raw
    finding = Finding("x.yaml", line, column, "some-rule", Severity.ERROR, "wrong")
    return Excerpts(lambda _: read, secrets=secrets).of(finding)


@pytest.mark.parametrize(
    ("line", "column", "carets"),
    [
        ("name: wrong # note", 7, "      ^^^^^"),
        ("name: 'it''s' # note", 7, "      ^^^^^^^"),
        ("name: two words", 7, "      ^^^^^^^^^"),
        ("name: {a: [b, cd]}", 15, "              ^^"),
        ("name: {a: [b, cd]}", 7, "      ^"),
        ("name: *other", 7, "      ^^^^^^"),
        ("name:", 6, "     ^"),
        ("name: |", 7, "      ^"),
        ("name: x", 1, "^^^^"),
        ("日本: 日本語", 5, "      ^^^^^^"),
        ("e\u0301t\u0301: ce\u0301", 7, "    ^^"),
    ],
)
def test_the_whole_scalar_is_underlined(line: str, column: int, carets: str) -> None:
    assert excerpt(f"kind: gvc\n{line}\n", 2, column) == (line, carets)


def test_tabs_are_shown_as_spaces() -> None:
    assert excerpt("kind: gvc\nname:\t'x'\t# y\n", 2, 7) == ("name:    'x'    # y", "         ^^^")


def test_control_characters_in_excerpts_are_escaped() -> None:
    shown, carets = excerpt("kind: gvc\nname: \x1b[2J\u202ex y\n", 2, 14) or ("", "")
    assert shown == "name: \\x1b[2J\\u202ex y"
    assert shown[len(carets) - 1] == "y"


@pytest.mark.parametrize("before", [0, 10, 40, 80, 150, 400])
def test_a_long_line_is_cut_around_the_caret(before: int) -> None:
    line = f"{'a' * before}WRONG{'b' * (400 - before)}"
    shown, carets = underline_range(line, before, before + 5)
    assert len(shown) <= WIDTH + 2
    assert shown[carets.index("^") :][: carets.count("^")] == "WRONG"


def test_a_long_value_is_underlined_as_far_as_it_is_shown() -> None:
    shown, carets = underline_range(f"name: {'x' * 300}", 6, 306)
    assert len(carets) == len(shown) - 1


def test_a_text_of_several_lines_is_underlined_on_the_first() -> None:
    assert excerpt("kind: gvc\nname: some\n  words\n", 2, 7) == ("name: some", "      ^^^^")


def test_a_line_that_cannot_be_parsed_gets_one_caret() -> None:
    assert excerpt("kind: gvc\nname: [a\nb: c\n", 3, 2) == ("b: c", " ^")


@pytest.mark.parametrize(("line", "column"), [(0, 0), (9, 1)])
def test_a_place_that_is_none_has_no_excerpt(line: int, column: int) -> None:
    assert excerpt("kind: gvc\n", line, column) is None


def test_a_file_that_is_not_at_hand_has_no_excerpt() -> None:
    assert excerpt(b"", 2, 1) is None


def test_lines_of_a_secret_are_hidden_but_in_settings_nothing_is_one() -> None:
    raw = "kind: secret\nname: x\ndata: {password: hunter2}\n"
    assert excerpt(raw, 3, 18) == (HIDDEN, "")
    assert excerpt(raw, 2, 7) == ("name: x", "      ^")
    assert excerpt(raw, 3, 18, secrets=False) == ("data: {password: hunter2}", "                 ^^^^^^^")


def test_a_value_behind_what_is_shown_of_its_line_is_hidden() -> None:
    assert excerpt("kind: secret # hunter2\n", 1, 16) == (HIDDEN, "")
