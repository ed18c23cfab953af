"""Markdown pages as readers follow them: the anchors of headings, and the links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_FENCED = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.M | re.S)
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.M)
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def headings(text: str) -> dict[str, str]:
    """The anchor of every heading, as the forges make it, to the heading."""
    seen: Counter[str] = Counter()
    found = {}
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading.lower())).replace(" ", "-")
        found[f"{slug}-{seen[slug]}" if seen[slug] else slug] = heading
        seen[slug] += 1
    return found


def links(text: str) -> Iterator[str]:
    """The target of every inline link outside of code."""
    yield from _LINK.findall(re.sub(r"`[^`\n]*`", "", _FENCED.sub("", text)))
