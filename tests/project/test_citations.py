"""Every citation of a page of the documentation, in code, tests or pages, names a page and section that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from docs.generate.markdown import headings
from reconciler.convert.rules import RULEBOOK
from reconciler.rulebook import load_rulebook
from tests.project.tree import ROOT, listed

RULES = load_rulebook() | RULEBOOK
CITATION = re.compile(r"\b(docs/(?:platform/)?[a-z]+\.md|README\.md)(?:#([\w-]+))?")
STANDARDS = {"https://yaml.org/spec/1.2.2/", "https://yaml.org/type/merge.html"}
FOREIGN = re.compile(r"\b[Dd]ocuments? [1-9]\b|\b[0-9]-[a-z]+\.md\b|\.md, sections? [0-9]|\N{SECTION SIGN}")
"""How descriptions were cited that are not part of the project."""

SAMPLES = ("tests/cases/", "tests/data/", "tests/sops/", "tests/status/golden/")
"""Files whose text is input or output of the program, and may mention any page."""


@cache
def anchors(page: str) -> dict[str, str]:
    """The headings of a page by anchor."""
    return headings((ROOT / page).read_text())


@cache
def texts() -> dict[str, str]:
    """Path → content of every text file of the project."""
    contents = {}
    for path in listed():
        raw = (ROOT / path).read_bytes() if (ROOT / path).is_file() else b""
        if b"\0" not in raw:
            contents[path] = raw.decode("utf-8", "replace")
    return contents


def lines(pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """``PATH:LINE`` of every place that matches."""
    for path, text in texts().items():
        for match in pattern.finditer(text):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}", match


def dangling(page: str, anchor: str | None) -> bool:
    return not (ROOT / page).is_file() or (anchor is not None and anchor not in anchors(page))


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_names_the_page_that_describes_it(name: str) -> None:
    source = RULES[name].source
    cited = CITATION.fullmatch(source)
    assert source in STANDARDS or (cited and cited[2] and not dangling(cited[1], cited[2])), source


def test_no_citation_dangles() -> None:
    cited = [(place, match) for place, match in lines(CITATION) if not place.startswith(SAMPLES)]
    assert len(cited) > 300
    assert [f"{place}: {match[0]}" for place, match in cited if dangling(match[1], match[2])] == []


def test_nothing_is_cited_that_is_not_part_of_the_project() -> None:
    assert [f"{place}: {match[0]}" for place, match in lines(FOREIGN) if not place.startswith("tests/data/")] == []
