"""Quantities and names: small tables and properties."""

from __future__ import annotations

import re
import shlex
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.convert.compose.shell_words import split_words
from reconciler.convert.drafts import Draft, file_of
from reconciler.convert.names import Names, container_name, make_valid_name, workload_name
from reconciler.convert.notes import MOST_OF_A_RULE, ConversionNote, make_findings
from reconciler.convert.quantities import convert_to_gigabytes, format_cpu, format_memory, parse_quantity
from reconciler.model.key import Kind

NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("0.5", Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("100u", Fraction(1, 10**4)),
        ("1.", 1),
        ("1n", Fraction(1, 10**9)),
        ("2k", 2000),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),
        ("1e3", 1000),
        ("2E-1", Fraction(1, 5)),
        ("3E", 3 * 10**18),
        ("", None),
        ("-1", None),
        ("lots", None),
        ("1 Gi", None),
        (".5", Fraction(1, 2)),
        ("1gi", None),
        (".", None),
        ("m", None),
        ("9" * 40, None),
    ],
)
def test_quantities_are_read_as_kubernetes_does(text: str, number: Fraction | int | None) -> None:
    assert parse_quantity(text) == number


@given(st.integers(1, 10**9))
def test_amounts_are_never_rounded_down(size: int) -> None:
    assert parse_quantity(format_cpu(Fraction(size, 10**6))) >= Fraction(size, 10**6)  # type: ignore[operator]
    assert Fraction(size) <= parse_quantity(format_memory(Fraction(size))) < size + 2**20 + 1  # type: ignore[operator]
    assert size <= convert_to_gigabytes(Fraction(size)) * 10**9 < size + 10**9


@given(st.text(max_size=80))
def test_any_name_becomes_one_that_the_platform_takes(name: str) -> None:
    assert NAME.fullmatch(make_valid_name(name))
    assert len(make_valid_name(name)) <= 64
    workload = workload_name(name)
    assert NAME.fullmatch(workload)
    assert len(workload) <= 49
    assert not workload.endswith("-headless")
    container = container_name(name)
    assert NAME.fullmatch(container)
    assert not container.startswith(("platform-", "debugger-", "istio-"))


@given(st.from_regex(NAME, fullmatch=True).filter(lambda name: len(name) <= 49))
def test_a_good_name_stays(name: str) -> None:
    assert make_valid_name(name) == name


@given(st.lists(st.text("ab-", max_size=3), max_size=12))
def test_names_are_unique(names: list[str]) -> None:
    taken = Names()
    unique = [taken.take(Kind.WORKLOAD, "shop", (name, f"{name}-x")) for name in names]
    assert len(set(unique)) == len(names)


@given(st.text(max_size=20), st.text(max_size=20))
def test_every_file_is_below_its_root(gvc: str, name: str) -> None:
    for kind in (Kind.GVC, Kind.WORKLOAD, Kind.SECRET):
        parts = file_of(Draft(kind, gvc, name, {})).split("/")
        assert all(part and not part.startswith(".") for part in parts)
        assert parts[-1].endswith(".yaml")
        assert "\0" not in "".join(parts)


@given(st.text("ab '\"\\\\\n\t#$é\u00a0", max_size=12))
def test_words_are_split_as_a_shell_does(text: str) -> None:
    try:
        words = shlex.split(text)
    except ValueError:
        with pytest.raises(ValueError, match="no end"):
            split_words(text)
    else:
        assert split_words(text) == words


def test_a_file_has_so_many_notes_of_a_rule_and_one_with_the_number_of_others() -> None:
    notes = [ConversionNote("convert-default", "a", 0, (), f"note {number}") for number in range(1_000)]
    others = [
        ConversionNote("convert-malformed", "a", 0, (), "wrong"),
        ConversionNote("convert-default", "b", 0, (), "b"),
    ]
    found = make_findings([*notes, *others], {"a": b"x: y", "b": b"x: y"})
    assert len(found) == MOST_OF_A_RULE + 2
    assert [each.message for each in found if "more" in each.message] == ["note 99 (and 900 more of these in the file)"]
