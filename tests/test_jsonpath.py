"""JSONPath as kubectl writes it."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from reconciler.model.lists.jsonpath import MOST_LENGTH, parse_template
from tests.support.pace import in_time

SHOP: dict[str, Any] = {
    "kind": "List",
    "items": [
        {"name": "api", "port": 8080, "tags": {"a.b/c": "x"}, "ready": True},
        {"name": "web", "port": 80, "tags": {}, "ready": False},
        {"name": "db", "port": None, "deep": {"name": "inner"}},
    ],
}


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{.kind}", "List"),
        (".kind", "List"),
        ("kind", "List"),
        ("{$.kind}", "List"),
        ("{['kind']}", "List"),
        ("{.items[*].name}", "api web db"),
        ("{.items[0].name}", "api"),
        ("{.items[-1].name}", "db"),
        ("{.items[9].name}", ""),
        ("{.items[0:2].name}", "api web"),
        ("{.items[::2].name}", "api db"),
        ("{.items[0,2].name}", "api db"),
        ("{.items[0]['name','port']}", "api 8080"),
        ("{.items[0].tags['a.b/c']}", "x"),
        (r"{.items[0].tags.a\.b/c}", "x"),
        ("{..name}", "api web db inner"),
        ("{.items[0].tags}", '{"a.b/c":"x"}'),
        ("{.items[*].ready}", "true false"),
        ("{.items[2].port}", "null"),
        ("{.items[?(@.port>100)].name}", "api"),
        ("{.items[?(@.port!=80)].name}", "api db"),
        ('{.items[?(@.name=="web")].port}', "80"),
        ('{.items[?( @.name == "web" )].port}', "80"),
        ("{.items[?(@['name']!='a==b')].name}", "api web db"),
        ("{.items[?(@.ready==true)].name}", "api"),
        ("{.items[?(@.deep.name)].name}", "db"),
        ('{range .items[*]}{.name}{"\\t"}{.port}{"\\n"}{end}', "api\t8080\nweb\t80\ndb\tnull\n"),
        ("{range .items[0:1]}{range .tags.*}<{@}>{end}{end}", "<x>"),
        ("the kind is {.kind}.", "the kind is List."),
        ("{.nothing}", ""),
    ],
)
def test_a_template_finds_what_kubectl_finds(template: str, shown: str) -> None:
    assert parse_template(template).render(SHOP) == shown


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.items[*].name", "brace without its other half"),
        ("{}", "{} is empty"),
        ("{range .items[*]}{.name}", "{range} has no {end}"),
        ("{end}", "{end} ends no {range}"),
        ("{.items[a]}", "is not supported; a path has .name"),
        ("{.items[", "brace without its other half"),
        ("{.a | length}", "is not supported"),
        ("{.items[?(@.port>one)]}", "'one' in a filter is no value; write a text as \"one\""),
        ("{.items[0:2:0]}", "the step of [0:2:0] is 0"),
        ("{.items[?(.port)]}", "is not supported; a path has .name"),
        ("{.items[?(@.port=80)]}", "is not supported; a path has .name"),
        (".a" * 501, "it has 1,002 characters; 1,000 are the most"),
    ],
)
def test_what_is_not_supported_is_named(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse_template(template)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.items[*].nmae}", "nothing has .items[*].nmae; did you mean name?"),
        ("{.objects}", "nothing has .objects; there are items, kind"),
        ("{range .itms[*]}{.name}{end}", "nothing has .itms; did you mean items?"),
        ("{.kind.name}", "nothing has .kind.name"),
        ("{.items[*].name}", ""),
        ("{.items[7]}", ""),
    ],
)
def test_the_nearest_name_is_known_where_nothing_is_found(template: str, why: str) -> None:
    assert parse_template(template).explain_missing(SHOP) == why


@pytest.mark.parametrize("begin", ["[?(@", "[?(@.a ==", "[?(@.a", "{[?(@", "[0,", '{"', "."])
@pytest.mark.parametrize("repeated", [" ", "=", "0,", '"', "'", "\\", "[", "..", "{"])
def test_no_path_takes_long_to_read(begin: str, repeated: str) -> None:
    text = (begin + repeated * MOST_LENGTH)[: MOST_LENGTH - 2] + "x]"
    _, seconds = in_time(lambda: read_quietly(text), 0.05)
    assert seconds < 0.05


def read_quietly(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_template(text)
