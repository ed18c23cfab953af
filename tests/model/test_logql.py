"""Log queries select lines; faulty ones are refused with the place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.logql.label_filters import LabelMatcher
from reconciler.logql.parser import parse_log_query
from reconciler.logql.query import LABELS, LogQuery
from reconciler.logql.regex import LONGEST, ExpressionError, compile_expression
from reconciler.logql.tokens import QueryError
from tests.support.cases import cases

STREAMS = {
    "shop/web": ("shop", "web", "here", "r-1", "main"),
    "shop/api": ("shop", "api", "here", "r-2", "main"),
    "shop/old-web": ("shop", "old-web", "there", "r-3", "main"),
    "blog/web": ("blog", "web", "there", "r-1", "side"),
}
WEB = dict(zip(LABELS, STREAMS["shop/web"], strict=True))
LINES = ["error one", "an error in b", "fine", "ünïcode", 'error "quoted" \\d', ""]


def wrong_at(query: str) -> int:
    """The column where ``query`` goes wrong; 0 where it does not."""
    try:
        parse_log_query(query)
    except QueryError as error:
        return error.column
    return 0


@pytest.mark.parametrize("case", cases("model/logql.yaml"))
def test_a_query_selects_lines_or_is_refused_with_its_place(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(QueryError) as caught:
            parse_log_query(case["query"])
        assert str(caught.value).startswith(f"column {case['column']}: ")
        assert caught.value.column == case["column"]
        assert case["error"] in str(caught.value)
        return
    query = parse_log_query(case["query"])
    taken = [name for name, values in STREAMS.items() if query.selects(dict(zip(LABELS, values, strict=True)))]
    written = case.get("written", LINES)
    lines = [line.decode() for line in query.filter_lines([line.encode() for line in written], WEB)]
    assert taken == case.get("streams", [name for name in STREAMS if name.startswith("shop/")])
    assert lines == case.get("lines", written)


@given(st.text(alphabet='{}gvcworkload=~!|"`\\ ,()[]*+?.^$x0\n\t', max_size=40) | st.text(max_size=40))
def test_whatever_is_asked_nothing_but_a_query_error_comes(text: str) -> None:
    for query in (text, f'{{gvc="{text}"}}', f"{{gvc=~`{text}`}} |~ `{text}`", f'{{gvc="x"}} {text}'):
        assert 0 <= wrong_at(query) <= len(query) + 1


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), st.binary(max_size=30))
def test_a_quoted_text_is_found_as_it_stands(text: str, around: bytes) -> None:
    quoted = "".join(f"\\U{ord(character):08x}" for character in text)
    query = parse_log_query(f'{{gvc="{quoted}"}} |= "{quoted}"')
    assert query.selects({"gvc": text})
    line = around + text.encode() + around
    assert query.filter_lines([line], WEB) == [line]
    assert query.may_match(b"first\n" + line)


@given(st.lists(st.sampled_from([b"a", b"b", b"ab", b"", b"\r"]), max_size=5))
def test_a_block_that_is_passed_over_holds_no_wanted_line(lines: list[bytes]) -> None:
    query = parse_log_query('{gvc="x"} |= "a" |~ "."')
    assert query.may_match(b"\n".join(lines)) or list(query.filter_lines(lines, WEB)) == []
    assert parse_log_query('{gvc="x"} != "a"').may_match(b"a")


def test_bytes_that_are_no_text_can_be_asked_for() -> None:
    typed = b'{gvc="x"} |= "\xff" |~ ".\xfe"'.decode("utf-8", "surrogateescape")
    assert parse_log_query(typed).filter_lines([b"a\xffb\xfe", b"ab\xfe"], WEB) == [b"a\xffb\xfe"]


def test_half_a_character_is_no_query() -> None:
    with pytest.raises(QueryError, match="column 7: this is no character"):
        parse_log_query('{gvc="\ud900"}')


def test_there_is_a_bound_to_queries_and_to_expressions() -> None:
    with pytest.raises(QueryError, match="at most 10,000 characters"):
        parse_log_query(f'{{gvc="{"x" * 10_000}"}}')
    with pytest.raises(ExpressionError, match="at most 1,000 characters"):
        compile_expression("x" * (LONGEST + 1))
    assert compile_expression("x" * LONGEST)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(QueryError):
        parse_log_query('{gvc=~"' + "(" * 900 + '"}')


def test_a_query_can_be_made_without_a_text() -> None:
    assert LogQuery((LabelMatcher("gvc", "=", "shop"),)) == parse_log_query('{gvc="shop"}')
