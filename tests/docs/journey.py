"""Pages whose commands are run one after the other, and excerpts of what these print."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from tests.project.tree import ROOT

EXCERPT, BLOCK = "@@ excerpt", "@@ block"
"""Lines that the script prints before each command of an excerpt, and before each block without output."""
VARIES = re.compile(r"\b[0-9a-f]{7,40}\b")
"""Ids and digests."""


class Excerpt(NamedTuple):
    """A command, and lines that it prints."""

    command: str
    printed: list[str]


class Journey(NamedTuple):
    """What a reader of some pages types, as a script, and what it shows."""

    script: str
    shown: list[Excerpt]


def text(page: str) -> str:
    """The page at a path from the root of the repository."""
    return (ROOT / page).read_text()


def read_journey(pages: tuple[str, ...], install: str) -> Journey:
    """The commands of ``pages`` in order, after ``install``."""
    shown: list[Excerpt] = []
    lines = [install]
    for page in pages:
        for language, block in re.findall(r"^```(sh|console)\n(.*?)^```$", text(page), re.M | re.S):
            if language == "sh":
                lines += [f"echo '{BLOCK}'", block]
                continue
            shown += excerpts(block)
            lines += [f"echo '{EXCERPT}'\n({each.command}) 2>&1 || true" for each in excerpts(block)]
    return Journey("\n".join(lines), shown)


def find_missing(journey: Journey, printed: str) -> list[str]:
    """Each command whose excerpt has lines that it did not print in a run of the script, with what it printed."""
    missing = []
    for (command, wanted), got in zip(journey.shown, outputs(printed), strict=True):
        there = {VARIES.sub("#", line) for line in got}
        if any(VARIES.sub("#", line) not in there for line in wanted):
            missing.append(f"{command}: {got}")
    return missing


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
