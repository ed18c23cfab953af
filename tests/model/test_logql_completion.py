"""Completions of a query that somebody types."""

from __future__ import annotations

import pytest

from reconciler.logql.completion import MOST_COMPLETIONS, complete_query
from reconciler.logql.parser import parse_log_query

WEB = {"gvc": "shop", "workload": "web", "location": "here", "replica": "web-1", "container": "main"}
STREAMS = [WEB, {**WEB, "workload": "api", "replica": "api-1"}, {**WEB, "gvc": "blog", "location": "east"}]
IN_SHOP = '{gvc="shop", '


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("", ["gvc/blog", "gvc/shop", "workload/blog/web", "workload/shop/api", "workload/shop/web", "{"]),
        ("SHOP", ["gvc/shop", "workload/shop/api", "workload/shop/web"]),
        ("workload/shop/web", []),
        ("{", ['{container="', '{gvc="', '{location="', '{replica="', '{workload="']),
        ("{ lo", ['{ location="', '{ workload="']),
        (IN_SHOP, [f'{IN_SHOP}{label}="' for label in ("container", "location", "replica", "workload")]),
        ("{gvc=", ['{gvc="blog"', '{gvc="shop"']),
        ('{gvc =~ "s', ['{gvc =~ "shop"']),
        (f'{IN_SHOP}workload="', [f'{IN_SHOP}workload="api"', f'{IN_SHOP}workload="web"']),
        ('{gvc="blog", location="', ['{gvc="blog", location="east"']),
        ('{gvc="shop"', ['{gvc="shop"}', '{gvc="shop", ']),
        ('{gvc="a}b', []),
        ('{gvc="sh\\"', []),
        ('{other="', []),
        ('{gvc="shop"} |= "err', []),
        ('"', []),
    ],
)
def test_a_text_is_completed_at_its_end(text: str, completed: list[str]) -> None:
    assert [one.text for one in complete_query(text, STREAMS)] == completed


def test_filters_follow_the_braces_and_can_be_read() -> None:
    found = complete_query('{gvc="shop"}', STREAMS)
    assert [one.label for one in found] == ['|= "', '!= "', '|~ "', '!~ "', "| json", "| logfmt"]
    for one in found:
        parse_log_query(f'{one.text}x"' if one.text.endswith('"') else one.text)


def test_a_value_stays_one_value() -> None:
    strange = 'a"b\\c} |= "'
    found = complete_query("{replica=", [{**WEB, "replica": strange}])
    query = parse_log_query(f"{found[0].text}}}")
    assert query.matchers[0].value == strange


def test_of_many_the_first_are_listed() -> None:
    streams = [{**WEB, "workload": f"web-{number:03}"} for number in range(500)]
    assert len(complete_query("web", streams)) == MOST_COMPLETIONS
    assert [one.label for one in complete_query('{workload="499', streams)] == ["web-499"]
