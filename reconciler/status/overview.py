"""The two files of the status branch about a whole source: ``reconciler.yaml`` and a README for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from reconciler.model.key import Key, Kind
from reconciler.model.record import Health
from reconciler.model.revision import shorten_id, shorten_revision
from reconciler.printable import code_span, escape_text
from reconciler.reasons import ConditionType, Reason
from reconciler.records.tables.conditions import Condition
from reconciler.records.tables.runs import Run
from reconciler.records.tables.sources import SourceRow
from reconciler.status.branch.writer import Writer, format_writer
from reconciler.status.conditions import ResourceFacts, compute_conditions
from reconciler.status.render import conditions_block, summarize_deployment
from reconciler.status.rollup import find_worst_health
from reconciler.status.yaml_text import format_word, quote_text, without_controls
from reconciler.times import format_iso_time

README_FILE = "README.md"
MOST_LISTED = 100
MOST_WORKLOADS = 50
"""The most workloads that the README lists: each change of one of them writes it again."""

_COLUMNS = (Health.HEALTHY, Health.RECORDED, Health.LOADING, Health.UNHEALTHY, Health.DELETING, Health.UNKNOWN)
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_COMMAND = re.compile(r"reconciler [a-z]+(?: [\w./:@=-]+)*$", re.ASCII)
"""A command at the end of a message, to copy."""
_NOT_READY = re.compile(rb"^notReady: (\d+)$", re.MULTILINE)


class SourceOverview(msgspec.Struct, frozen=True):
    """A source as a whole.

    ``counts`` are of recorded resources. ``unready`` is the number of unready resources, and ``not_ready`` lists the
    first. ``commit`` is that of the revision, ``refused`` the run that refused a newer one. ``workloads`` are the first
    ones, in order. ``writer`` is the daemon that writes it.
    """

    source: str
    revision: str
    counts: Mapping[tuple[Kind, Health], int]
    conditions: tuple[Condition, ...] = ()
    unready: int = 0
    not_ready: Sequence[ResourceFacts] = ()
    commit: SourceRow | None = None
    workloads: Sequence[ResourceFacts] = ()
    refused: Run | None = None
    writer: Writer | None = None

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
    if overview.writer is not None:
        lines += format_writer(overview.writer)
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
    """``README.md``: the commit, what waits, the first workloads, counts, and the first unready resources.

    ``path`` returns the path of the status file of a resource, which its row links to.
    """
    revision = code_span(shorten_revision(without_controls(overview.revision))) or "no revision yet"
    total = f"{overview.total} resource{'' if overview.total == 1 else 's'}"
    lines = [
        f"# Status of {_escape_markdown(overview.source)}",
        "",
        f"{revision} · {overview.health} · {total}, {overview.unready or 'none'} not ready",
        *_describe_commit(overview.commit),
    ]
    bad = [condition for condition in overview.conditions if _is_abnormal(condition)]
    if bad:
        lines += [
            "",
            "## Conditions",
            "",
            *(f"- **{condition.reason}** {_describe_refusal(condition, overview.refused)}" for condition in bad),
        ]
    if overview.not_ready:
        lines += ["", "## Not ready", "", *_format_unready_table(overview, path)]
    if overview.workloads:
        lines += ["", "## Workloads", "", *_format_workload_table(overview, path)]
    if overview.counts:
        lines += ["", "## Resources", "", *_format_health_table(overview)]
    who = _describe_writer(overview.writer) if overview.writer is not None else "reconciler"
    lines += ["", f"Written by {who}: this file and those of resources change with them, other files stay."]
    return ("\n".join(lines) + "\n").encode()


def _describe_writer(writer: Writer) -> str:
    state = code_span(without_controls(writer.state))
    return f"the reconciler on {_escape_markdown(writer.host)} (state directory {state})"


def _describe_commit(commit: SourceRow | None) -> list[str]:
    """Who changed what, and when: the commit has it, so that two runs write the same."""
    if commit is None or not commit.time:
        return []
    at = format_iso_time(commit.time).replace("T", " ").replace("Z", " UTC")
    return ["", f"**{_escape_markdown(commit.subject)}** by {_escape_markdown(commit.author)}, {at}"]


def _describe_refusal(condition: Condition, run: Run | None) -> str:
    """The message of ``condition``; of a commit that is refused, with who made it: it is not the one on top."""
    message = _format_message(condition.message)
    if run is None or condition.reason != Reason.INVALID_REVISION:
        return message
    origin = ", ".join(map(_escape_markdown, filter(None, (run.subject, run.author))))
    return f"{code_span(shorten_id(without_controls(run.commit)))} ({origin}) is refused: {message}"


def _format_message(message: str) -> str:
    """``message`` with the command at its end as code."""
    match = _COMMAND.search(message)
    if match is None:
        return _escape_markdown(message)
    return f"{_escape_markdown(message[: match.start()])} {code_span(match[0])}"


def _format_workload_table(overview: SourceOverview, path: Callable[[Key], str]) -> list[str]:
    """A row for each workload: its version, and the replicas and address at each location."""
    rows = ["| workload | health | version | replicas | address |", "|---|---|---:|---|---|"]
    for facts in overview.workloads[:MOST_WORKLOADS]:
        records = sorted((record for record in facts.records if record.location), key=lambda record: record.location)
        summaries = [(record.location, summarize_deployment(record)) for record in records]
        replicas = ", ".join(
            f"{summary.ready}/{summary.replicas} {location}"
            for location, summary in summaries
            if summary.replicas is not None
        )
        addresses = dict.fromkeys(summary.endpoint or summary.address for _, summary in summaries)
        version = max((record.version for record in facts.records), default=0) or ""
        shown = ", ".join(_escape_markdown(address) for address in addresses if address)
        link = _link_resource(facts.key, path)
        rows.append(f"| {link} | {facts.health} | {version} | {_escape_markdown(replicas)} | {shown} |")
    count = sum(number for (kind, _), number in overview.counts.items() if kind is Kind.WORKLOAD)
    more = count - len(rows) + 2
    return [*rows, "", f"and {more} more"] if more > 0 else rows


def _link_resource(key: Key, path: Callable[[Key], str]) -> str:
    """The key as a link to its status file."""
    return f"[{_escape_markdown(str(key))}]({path(key).replace('%', '%25')})"


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
        rows.append(f"| {_link_resource(facts.key, path)} | {ready.reason} | {_format_message(ready.message)} |")
    more = overview.unready - min(len(overview.not_ready), MOST_LISTED)
    return [*rows, "", f"and {more} more"] if more > 0 else rows


def _escape_markdown(text: str) -> str:
    """``text`` escaped for Markdown, so that no message can create links, markup or another row."""
    return _MARKUP.sub(r"\\\1", escape_text(without_controls(" ".join(text.split()))))
