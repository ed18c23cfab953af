"""The guides work as printed: their commands are run, their excerpts are what they print, their names exist."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docs.generate.pages import COMING_FROM, DOCS, GUIDES, TUTORIALS
from reconciler.cli import read_commands
from reconciler.documents.schema.loader import load_schema
from reconciler.settings.loader import load_settings
from tests.docs.shell import blocks, typed
from tests.project.tree import ROOT
from tests.support.programs import path_without

JOURNEY = ("docs/quickstart.md", "README.md", "docs/review.md", "docs/operations.md")
"""Pages whose commands are run one after the other, in one shell, as a reader would run them."""
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{name}" for name in GUIDES | COMING_FROM | TUTORIALS))
EXCERPT, BLOCK = "@@ excerpt", "@@ block"
"""Lines that the script prints before each command of an excerpt, and before each block without output."""
VARIES = re.compile(r"\b[0-9a-f]{7,40}\b")
"""Ids and digests."""
REASON = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`")
FULL = "org: acme\nsources: [{name: main, url: manifests}]\nlocations: {here: {engine: recorded}}\n"
"""Settings with all that is required."""


class Excerpt(NamedTuple):
    """A command, and lines that it prints."""

    command: str
    printed: list[str]


def text(page: str) -> str:
    return (ROOT / page).read_text()


def excerpts(block: str) -> list[Excerpt]:
    """Every command of a console with the lines below it."""
    extracts: list[Excerpt] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            extracts.append(Excerpt(line[2:], []))
        elif line:
            extracts[-1].printed.append(line)
    return extracts


def outputs(printed: str) -> list[list[str]]:
    """What each command of the excerpts printed, in order."""
    lines = printed.splitlines()
    marks = [number for number, line in enumerate(lines) if line in (EXCERPT, BLOCK)]
    return [lines[begin + 1 : end] for begin, end in pairwise([*marks, len(lines)]) if lines[begin] == EXCERPT]


def check(home: Path, install: str) -> None:
    """Run every page of the journey in one shell and compare the excerpts."""
    shown: list[Excerpt] = []
    lines = [install]
    for page in JOURNEY:
        for language, block in re.findall(r"^```(sh|console)\n(.*?)^```$", text(page), re.M | re.S):
            if language == "sh":
                lines += [f"echo '{BLOCK}'", block]
                continue
            shown += excerpts(block)
            lines += [f"echo '{EXCERPT}'\n({each.command}) 2>&1 || true" for each in excerpts(block)]
    # Podman would pull the images of the pages.
    printed = typed("\n".join(lines), home, ROOT, PATH=path_without("podman", home / ".programs"))
    assert "16 created (20 steps)" in printed
    for (command, wanted), got in zip(shown, outputs(printed), strict=True):
        there = {VARIES.sub("#", line) for line in got}
        assert [line for line in wanted if VARIES.sub("#", line) not in there] == [], f"{command}: {got}"


def test_all_commands_and_excerpts_are_what_happens(tmp_path: Path) -> None:
    check(tmp_path, f"export PATH={Path(sys.executable).parent}:$PATH")


@pytest.mark.slow
def test_the_quick_start_installs_as_printed(tmp_path: Path) -> None:
    (install,) = blocks(text("docs/quickstart.md"), "sh install")
    check(tmp_path, install)


def test_the_ci_commands_need_only_a_clone(tmp_path: Path) -> None:
    (run,) = [block for block in blocks(text("docs/review.md"), "") if "reconciler diff" in block]
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


@pytest.mark.parametrize(("page", "resources"), [("docs/manifests.md", 2), ("docs/secrets.md", 1)])
def test_manifests_in_the_pages_are_valid(page: str, resources: int, tmp_path: Path) -> None:
    (manifests,) = [block for block in blocks(text(page), "yaml") if block.startswith("kind:")]
    (tmp_path / "some.yaml").write_text(manifests)
    printed = typed(f"{Path(sys.executable).parent}/reconciler validate .", tmp_path, tmp_path)
    assert printed.startswith("no findings in ")
    assert f" {resources} resource" in printed


def test_settings_in_the_pages_are_valid(tmp_path: Path) -> None:
    found = [block for page in PAGES for block in blocks(text(page), "yaml") if not block.startswith("kind:")]
    assert len(found) > 3
    for number, block in enumerate(found):
        own = set(re.findall(r"^(\w+):", block, re.M))
        rest = [line for line in FULL.splitlines() if line.partition(":")[0] not in own]
        path = tmp_path / f"{number}.yaml"
        path.write_text("\n".join([*rest, block]))
        load_settings(path)


def test_every_setting_that_is_named_exists() -> None:
    schema = load_schema("settings")
    named = {name for page in PAGES for name in re.findall(r"`([a-z]\w*(?:\[\])?(?:\.\w+(?:\[\])?)+)[`:]", text(page))}
    names = {name for name in named if not name.endswith(".platform.local")}  # no hosts
    of_settings = {name for name in names if re.split(r"[\[.]", name)[0] in schema["properties"]}
    assert "sources[].credentials" in of_settings
    assert [name for name in sorted(of_settings) if not is_setting(schema, name)] == []


def is_setting(schema: dict[str, Any], path: str) -> bool:
    """Whether ``sources[].status.branch`` leads to something in the schema."""
    node = schema
    for part in path.split("."):
        node = node.get("properties", {}).get(part.removesuffix("[]"), {})
        node = node.get("items", {}) if part.endswith("[]") else node
    return bool(node)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_is_named_exists(page: str) -> None:
    named = set(re.findall(r"(?:`|^|\$ )reconciler ([a-z]+)", text(page), re.M))
    assert named - read_commands().keys() == set()


def test_every_reason_that_is_named_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", (DOCS / "status.md").read_text()))
    named = {reason for page in PAGES for reason in REASON.findall(text(page))}
    assert "InvalidRevision" in named
    assert named - documented == set()


def test_every_file_that_is_named_exists() -> None:
    named = {
        path
        for page in PAGES
        for path in re.findall(r"(?<![/\w])((?:systemd|schemas|examples)/[\w./@-]*\w)(?![\w*])", text(page))
    }
    assert "systemd/settings.yaml" in named
    assert [path for path in sorted(named) if "KIND" not in path and not (ROOT / path).exists()] == []


def test_every_target_of_make_that_is_named_exists() -> None:
    makefile = text("Makefile")
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make (\w+)\b", text(page), re.M)}
    assert named >= {"run", "test", "bench", "lint", "soak", "fuzz"}
    assert [name for name in named if f"\n{name}:" not in makefile] == []
