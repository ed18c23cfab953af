"""The examples of a rule as users would write them: each file of its cases with its name, and what is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyrage
import yaml

from docs.generate.literals import visible
from tests.support.rule_cases import CASES, NAME, SETTINGS, wrapped

_COLUMNS = re.compile(r"(#\s*[←↓]\s*)([^\n]*)")
_COMMENTS = re.compile(r"(?:^# [^\n]*\n)+")


class Part(NamedTuple):
    """A file with its label, or a label alone where ``text`` is None; labels are Markdown."""

    label: str
    text: str | None = None
    language: str = "yaml"


def shown(rule: str) -> Iterator[str]:
    """The Markdown of the examples of ``rule``, from the files of its cases."""
    folder = CASES / rule
    yield from _example("Breaks the rule:", folder / "fails.yaml")
    printed = (folder / "fails.txt").read_bytes().decode("utf-8", "replace")
    yield f"Output:\n\n{block('text', _unmarked(printed))}"
    yield from _example("Follows the rule:", folder / "passes.yaml")


def _example(title: str, path: Path) -> Iterator[str]:
    yield f"{title}\n"
    for part in _parts(path.read_bytes()):
        yield f"{part.label}\n"
        if part.text is not None:
            yield block(part.language, part.text)


def _parts(raw: bytes) -> Iterator[Part]:
    case = wrapped(raw)
    if not case:
        yield Part(f"`{NAME}`", _unmarked(raw.decode("utf-8", "replace")))
        return
    note = _COMMENTS.match(raw.decode())
    if note:
        yield Part(" ".join(line.removeprefix("# ") for line in note[0].splitlines()))
    if "identity" in case:
        key = pyrage.x25519.Identity.from_str(case["identity"].strip()).to_public()
        yield Part(f"The settings name the identity whose recipient is `{key}`.")
    if "settings" in case:
        yield Part(f"`{SETTINGS}`", case["settings"])
    if "locations" in case:
        bound = {name: {"engine": engine} for name, engine in case["locations"].items()}
        yield Part(f"`{SETTINGS}`, in part", yaml.safe_dump({"locations": bound}, default_flow_style=None))
    for name, content in case.get("before", {}).items():
        yield _file(name, content, ", as it was applied")
    for name, content in case.get("files", {}).items():
        yield _file(name, content)
    for name, text in case.get("host", {}).items():
        yield Part(f"`{name}`, in `secrets.directory` on the host", text, "text")


def _file(name: str, content: Any, when: str = "") -> Part:
    label = f"`{visible(name)}`"
    if isinstance(content, dict):
        target = f"symbolic link to `{content['link to']}`" if "link to" in content else "submodule"
        return Part(f"{label}, a {target}")
    language = "yaml" if name.endswith((".yaml", ".yml")) else "text"
    if isinstance(content, bytes):
        content = content.decode("utf-8", "replace")
    return Part(f"{label}{when}", "".join(map(_once, content if isinstance(content, list) else [content])), language)


def _once(part: Any) -> str:
    """A part of a file, what is repeated in it written once."""
    if isinstance(part, str):
        return part
    text, times = part["repeat"], part["times"]
    if not text.endswith("\n"):
        return f"{text}… {times:,} times … "
    indent = " " * (len(text) - len(text.lstrip(" ")))
    return f"{text}{indent}# … {times:,} times\n"


def _unmarked(text: str) -> str:
    """``text`` with the marks of expected findings, but without their columns, which only tests need."""
    return _COLUMNS.sub(lambda mark: mark[1] + re.sub(r":\d+", "", mark[2]), text)


def block(language: str, text: str) -> str:
    """A fenced block that nothing in ``text`` can end, with what a page cannot show escaped."""
    safe = visible(text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", safe)), default=0))
    return f"{fence}{language}\n{safe.rstrip()}\n{fence}\n"
