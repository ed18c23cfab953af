"""The two files of the status branch about a whole source: ``reconciler.yaml`` and a README for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from reconciler.model.key import Key, Kind
from reconciler.model.record import Health
from reconciler.printable import code_span, escape_text
from reconciler.reasons import ConditionType
from reconciler.records.tables.conditions import Condition
from reconciler.status.conditions import ResourceFacts, compute_conditions
from reconciler.status.render import conditions_block
from reconciler.status.rollup import find_worst_health
from reconciler.status.yaml_text import format_word, quote_text, without_controls

RUN_FILE = "reconciler.yaml"
README_FILE = "README.md"
MOST_LISTED = 100

_COLUMNS = (Health.HEALTHY, Health.RECORDED, Health.LOADING, Health.UNHEALTHY, Health.DELETING, Health.UNKNOWN)
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_NOT_READY = re.compile(rb"^notReady: (\d+)$", re.MULTILINE)


class SourceOverview(msgspec.Struct, frozen=True):
    """A source as a whole.

    ``counts`` are of recorded resources. ``unready`` is the number of unready resources, and ``not_ready`` lists the
    first.
    """

    source: str
    revision: str
    counts: Mapping[tuple[Kind, Health], int]
    conditions: tuple[Condition, ...] = ()
    unready: int = 0
    not_ready: Sequence[ResourceFacts] = ()

    @property
    def total(self) -> int:
        """The number of recorded resources."""
        return sum(self.counts.values())

    @property
    def health(self) -> Health:
        """The worst health of all resources; a source without any is Healthy."""
        return find_worst_health({health for (_, health), count in self.counts.items() if count} or {Health.HEALTHY})


def run_file(overview: SourceOverview) -> bytes:
    """``reconciler.yaml`` (schemas/run-status.json)."""
    lines = [f"source: {format_word(overview.source)}"]
    if overview.revision:
        lines.append(f"revision: {quote_text(overview.revision)}")
    lines += [f"health: {overview.health}", f"resources: {overview.total}", f"notReady: {overview.unready}"]
    kinds = sorted({kind for kind, _ in overview.counts})
    lines.append("kinds:" if kinds else "kinds: {}")
    for kind in kinds:
        counts = (
            f"{health}: {overview.counts[kind, health]}" for health in _COLUMNS if overview.counts.get((kind, health))
        )
        lines.append(f"  {kind}: {{{', '.join(counts)}}}")
    lines.append(conditions_block(overview.conditions))
    return ("\n".join(lines) + "\n").encode()


def unready_in(file: bytes | None) -> int | None:
    """The number of unready resources in a ``reconciler.yaml``; None if it contains none."""
    match = _NOT_READY.search(file or b"")
    return int(match[1]) if match else None


def render_readme(overview: SourceOverview, path: Callable[[Key], str]) -> bytes:
    """``README.md``: counts by kind and health, and at most 100 unready resources, each with its reason.

    ``path`` returns the path of the status file of a resource, which its row links to.
    """
    revision = code_span(without_controls(overview.revision)) or "no revision yet"
    total = f"{overview.total} resource{'' if overview.total == 1 else 's'}"
    lines = [
        f"# Status of {_escape_markdown(overview.source)}",
        "",
        f"{revision} · {overview.health} · {total}, {overview.unready or 'none'} not ready",
        "",
        "Written by reconciler: this file and those of resources change with them, files of others are left alone.",
    ]
    bad = [condition for condition in overview.conditions if _is_abnormal(condition)]
    if bad:
        lines += [
            "",
            "## Conditions",
            "",
            *(f"- **{condition.reason}** {_escape_markdown(condition.message)}" for condition in bad),
        ]
    if overview.counts:
        lines += ["", "## Resources", "", *_format_health_table(overview)]
    if overview.not_ready:
        lines += ["", "## Not ready", "", *_format_unready_table(overview, path)]
    return ("\n".join(lines) + "\n").encode()


def _is_abnormal(condition: Condition) -> bool:
    return condition.status is ConditionType(condition.type).abnormal


def _format_health_table(overview: SourceOverview) -> list[str]:
    shown = [health for health in _COLUMNS if any(overview.counts.get((kind, health)) for kind in Kind)]
    rows = ["| kind | " + " | ".join(shown) + " | all |", "|---|" + "---:|" * (len(shown) + 1)]
    for kind in sorted({kind for kind, _ in overview.counts}):
        counts = [overview.counts.get((kind, health), 0) for health in shown]
        rows.append(f"| {kind} | " + " | ".join(str(count or "") for count in counts) + f" | {sum(counts)} |")
    return rows


def _format_unready_table(overview: SourceOverview, path: Callable[[Key], str]) -> list[str]:
    rows = ["| resource | reason | message |", "|---|---|---|"]
    for facts in overview.not_ready[:MOST_LISTED]:
        ready = compute_conditions(facts)[0]
        link = f"[{_escape_markdown(str(facts.key))}]({path(facts.key).replace('%', '%25')})"
        rows.append(f"| {link} | {ready.reason} | {_escape_markdown(ready.message)} |")
    more = overview.unready - min(len(overview.not_ready), MOST_LISTED)
    return [*rows, "", f"and {more} more"] if more > 0 else rows


def _escape_markdown(text: str) -> str:
    """``text`` escaped for Markdown, so that no message can create links, markup or another row."""
    return _MARKUP.sub(r"\\\1", escape_text(without_controls(" ".join(text.split()))))
