"""The README works as printed: its commands are run, its excerpts are what they print."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from reconciler.cli import COMMANDS
from reconciler.documents.schema.loader import load_schema
from tests.docs.shell import blocks, typed
from tests.project.tree import ROOT

README = (ROOT / "README.md").read_text()
MARK = "@@ "
"""Begins the line that the script prints before each command of an excerpt."""
VARIES = re.compile(r"\b[0-9a-f]{7,40}\b")
"""Ids and digests."""


def excerpts() -> list[tuple[str, list[str]]]:
    """Every command of the excerpts with the lines that it is said to print."""
    told: list[tuple[str, list[str]]] = []
    for block in blocks(README, "console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                told.append((line[2:], []))
            elif line:
                told[-1][1].append(line)
    return told


def sessions(printed: str) -> list[list[str]]:
    """What each command of the excerpts printed, in order."""
    lines = printed.splitlines()
    marks = [number for number, line in enumerate(lines) if line.startswith(MARK)]
    return [lines[begin + 1 : end] for begin, end in pairwise([*marks, len(lines)])]


def check(home: Path, install: str) -> None:
    """Run the quick start and then the excerpts in one shell, as somebody would who reads on."""
    shown = excerpts()
    lines = [f"echo '{MARK}'\n({command}) 2>&1 || true" for command, _ in shown]
    printed = typed("\n".join([install, *blocks(README, "sh"), *lines]), home, ROOT)
    assert "16 created (20 steps)" in printed
    assert "- {name: main, url: manifests" in README
    for (command, wanted), got in zip(shown, sessions(printed), strict=True):
        there = {VARIES.sub("#", line) for line in got}
        assert [line for line in wanted if VARIES.sub("#", line) not in there] == [], f"{command}: {got}"


def test_the_quick_start_and_the_excerpts_are_what_happens(tmp_path: Path) -> None:
    check(tmp_path, f"export PATH={Path(sys.executable).parent}:$PATH")


@pytest.mark.slow
def test_the_quick_start_installs_as_printed(tmp_path: Path) -> None:
    (install,) = blocks(README, "sh install")
    check(tmp_path, install)


def test_what_ci_runs_needs_nothing_but_a_clone(tmp_path: Path) -> None:
    (run,) = [block for block in blocks(README, "") if "reconciler diff" in block]
    script = f"""
        export PATH={Path(sys.executable).parent}:$PATH
        reconciler init upstream
        git -C upstream switch --quiet --create other
        git clone --quiet --branch main upstream clone && cd clone
        git config user.name Ada && git config user.email ada@example.com
        sed -i 's/maxScale: 6/maxScale: 8/' shop/api.yaml
        git commit --quiet --all --message Grow
        {run}
        cat plan.md"""
    assert "maxScale" in typed(script, tmp_path, tmp_path)


def test_the_manifests_in_the_readme_are_sound(tmp_path: Path) -> None:
    (manifests,) = blocks(README, "yaml")
    (tmp_path / "blog.yaml").write_text(manifests)
    told = typed(f"{Path(sys.executable).parent}/reconciler validate .", tmp_path, tmp_path)
    assert told == "no findings in 2 documents, 2 resources\n"


def test_commands_and_settings_that_are_listed_exist() -> None:
    listed = re.findall(r"^\| `reconciler (\w+)", README, re.M)
    assert listed == [name for name in COMMANDS if name in listed], "docs/commands.md has every command"
    known = load_schema("settings")["properties"]
    (part,) = re.findall(r"^## Settings$(.*?)^## ", README, re.M | re.S)
    named = re.findall(r"^\| `([a-zA-Z.\[\]]+)`", part, re.M)
    of_sources = known["sources"]["items"]["properties"]
    assert named
    assert [n for n in named if n.split("[]")[0] not in known] == []
    assert [n for n in named if n.startswith("sources[].") and n.partition("[].")[2] not in of_sources] == []


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*"))]
)
def test_links_lead_somewhere(page: str) -> None:
    place = (ROOT / page).parent
    linked = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / page).read_text())
    assert [link for link in linked if not (place / link).exists()] == []


def test_files_that_the_service_needs_are_there() -> None:
    named = re.findall(r"(?<!/)\b((?:systemd|schemas|examples)/[\w./-]*\w)", README)
    assert "systemd/reconciler.service" in named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_target_of_make_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:`|^)make (\w+)(?:`|$)", README, re.M))
    assert named >= {"run", "test", "bench", "lint", "soak"}
    assert [name for name in named if f"\n{name}:" not in makefile] == []
