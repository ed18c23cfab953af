"""Variables in compose files: each form with the variable set, empty and unset, and texts that are written wrongly."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate.platform_command import DIFFERENCES
from reconciler.convert.compose.interpolation import MOST_NESTED, InterpolationError, interpolate_text
from reconciler.documents.reader import parse_documents
from tests.support.cases import CASES

ENVIRON = {"SET": "value", "EMPTY": "", "OTHER": "other"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("$SET", "value"),
        ("a${SET}b", "avalueb"),
        ("$SET-$OTHER", "value-other"),
        ("$$SET", "$SET"),
        ("$${SET}", "${SET}"),
        ("$$$SET", "$value"),
        ("}", "}"),
        ("{$SET}", "{value}"),
        ("${SET:-word}", "value"),
        ("${EMPTY:-word}", "word"),
        ("${NONE:-word}", "word"),
        ("${SET-word}", "value"),
        ("${EMPTY-word}", ""),
        ("${NONE-word}", "word"),
        ("${SET:+word}", "word"),
        ("${EMPTY:+word}", ""),
        ("${NONE:+word}", ""),
        ("${SET+word}", "word"),
        ("${EMPTY+word}", "word"),
        ("${NONE+word}", ""),
        ("${SET:?needed}", "value"),
        ("${SET?needed}", "value"),
        ("${EMPTY?needed}", ""),
        ("${NONE:-${SET}}", "value"),
        ("${NONE:-a${EMPTY:-$OTHER}b}", "aotherb"),
        ("${NONE:-}", ""),
        ("$", "$"),
        ("a $ string", "a $ string"),
        ("^x$", "^x$"),
        ("cost: $5", "cost: $5"),
        ("$(date)", "$(date)"),
        ("${NONE:-a$}", "a$"),
        ("${SET:-$${x}}", "value"),
        ("${NONE:-$${x}}", "${x}"),
        ("$$$", "$$"),
        ("${SET:-${NONE:?needed}}", "value"),
        ("http://${NONE:-localhost}:80/?q=$$", "http://localhost:80/?q=$"),
    ],
)
def test_variables_are_replaced(text: str, result: str) -> None:
    assert interpolate_text(text, ENVIRON).text == result


def test_unset_variables_are_named_once_and_those_of_unused_defaults_not_at_all() -> None:
    assert interpolate_text("$NONE $NONE ${SET:-$UNUSED} ${LOST}", ENVIRON).unset == ("NONE", "LOST")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NONE:?set it}", "the variable NONE is required: set it"),
        ("${NONE:?not $SET}", "the variable NONE is required: not $SET"),
        ("${EMPTY:?}", "the variable EMPTY is required"),
        ("${NONE?}", "the variable NONE is required"),
        ("${}", "a variable is $NAME or ${NAME}; a dollar sign before a brace is $$"),
        ("${SET", "${SET has no closing brace, or a form that does not exist"),
        ("${SET:-word", "${SET has no closing brace, or a form that does not exist"),
        ("${SET/a/b}", "${SET has no closing brace, or a form that does not exist"),
        ("${A:-" * (MOST_NESTED + 1) + "}" * (MOST_NESTED + 1), f"variables are nested more than {MOST_NESTED} deep"),
    ],
)
def test_a_wrong_text_is_a_sentence(text: str, message: str) -> None:
    with pytest.raises(InterpolationError) as raised:
        interpolate_text(text, ENVIRON)
    assert str(raised.value) == message


@given(st.text(alphabet="${}:-?+ASET_5 "))
def test_no_text_makes_it_fail_in_another_way(text: str) -> None:
    with contextlib.suppress(InterpolationError):
        interpolate_text(text, ENVIRON)


@given(st.text())
def test_a_text_whose_dollar_signs_are_doubled_stays_as_it_is(text: str) -> None:
    assert interpolate_text(text.replace("$", "$$"), ENVIRON).text == text


(COMPOSE_GO,) = [
    each.value for each in parse_documents((CASES / "interpolation/compose-go.yaml").read_bytes()).documents
]


@pytest.mark.parametrize("vector", COMPOSE_GO["vectors"], ids=lambda vector: str(vector["text"]))
def test_a_vector_of_compose_go_agrees_or_is_a_stated_difference(vector: dict[str, Any]) -> None:
    try:
        text = interpolate_text(vector["text"], COMPOSE_GO["environ"]).text
    except InterpolationError as error:
        wanted = vector.get("error", "")
        agrees = wanted is True or (bool(wanted) and wanted in str(error))
    else:
        agrees = vector.get("result") == text
    assert agrees == (vector["text"] not in [each.text for each in DIFFERENCES])


def test_every_stated_difference_has_a_vector() -> None:
    assert {each.text for each in DIFFERENCES} <= {each["text"] for each in COMPOSE_GO["vectors"]}
