"""The figures and links of README hold, and it leads to every page of the documentation."""

from __future__ import annotations

import os.path
import re
from pathlib import Path

from docs.generate.markdown import links
from docs.generate.pages import DOCS
from tests.docs.shell import blocks
from tests.project.tree import ROOT

README = ROOT / "README.md"
STEPS = 2
"""Links to follow from README to any page."""
SESSION = 10
"""Lines of the first excerpt, without empty ones."""


def linked(page: Path) -> set[Path]:
    """The Markdown files that a page links to."""
    targets = (link.partition("#")[0] for link in links(page.read_text()) if not re.match("[a-z]+:", link))
    paths = {Path(os.path.normpath(page.parent / target)) for target in targets if target.endswith(".md")}
    return {path for path in paths if path.exists()}


def test_every_page_is_two_links_away_at_most() -> None:
    reached, newest = {README}, {README}
    for _ in range(STEPS):
        newest = {target for page in newest for target in linked(page)} - reached
        reached |= newest
    assert set(DOCS.rglob("*.md")) - reached == set()


def test_every_page_beside_it_is_linked_once_in_the_list_of_topics() -> None:
    _, _, topics = README.read_text().partition("\n## Documentation\n")
    named = re.findall(r"\]\((docs/[\w-]+\.md)\)", topics.partition("\n## ")[0])
    assert len(named) == len(set(named))
    assert {f"docs/{path.name}" for path in DOCS.glob("*.md")} - set(named) == {"docs/rules.md", "docs/schemas.md"}


def test_its_session_has_ten_lines() -> None:
    (session,) = blocks(README.read_text(), "console")
    assert len(list(filter(None, session.splitlines()))) == SESSION


def test_limits_come_before_the_installation() -> None:
    headings = re.findall(r"^## (.+)$", README.read_text(), re.M)
    assert headings.index("Limits") < headings.index("Install")


def test_it_installs_as_the_quick_start_does() -> None:
    (install,) = blocks((DOCS / "quickstart.md").read_text(), "sh install")
    assert install in blocks(README.read_text(), "")


def test_its_figures_are_rows_of_the_benchmarks() -> None:
    text, benchmarks = README.read_text(), (DOCS / "benchmarks.md").read_text()
    (part,) = re.findall(r"^## Speed$(.*?)^## ", text, re.M | re.S)
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    assert len(rows) > 1
    assert [row for row in rows if row not in benchmarks.splitlines()] == []
    (command,) = re.findall(r"`(make bench[^`]*)`", part)
    assert f"Measured with `{command}`" in benchmarks


def test_it_names_how_to_run_and_to_test() -> None:
    assert "make run\n" in blocks(README.read_text(), "")
    assert "`make test`" in README.read_text()
