"""`reconciler describe`: show all that is known about one resource."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, parse_target, read_records, settings_option
from reconciler.cli.output.printing import coloured
from reconciler.errors import NotFoundError
from reconciler.render.layout import paint

if TYPE_CHECKING:
    from reconciler.model.key import Key
    from reconciler.records.store import Records
    from reconciler.status.conditions import ResourceFacts

_EVENTS = 10
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z])")


@click.command(epilog="Example: reconciler describe workload/shop/api")
@click.argument("key", callback=parse_target)
@settings_option
def command(settings_file: Path, key: Key | str) -> None:
    """Show all that is known about KEY: its fields, conditions, locations and last events.

    Keys look like workload/GVC/NAME, gvc/NAME and secret/NAME. For source/NAME it shows whether the newest commit is
    live, and if not, why.
    """
    from reconciler.queries.existence import check_key, find_source, source_of
    from reconciler.status.facts import FactsReader

    settings = load(settings_file)
    records = read_records(settings)
    on = coloured(sys.stdout)
    if isinstance(key, str):
        from reconciler.cli.output.source import source_sections

        _print(source_sections(settings, records, find_source(settings, source_of(key)), on), on)
        return
    facts = FactsReader(records, settings).facts(key)
    if not facts.exists:
        check_key(records, key)
        raise NotFoundError(f"{key} was deleted; see: reconciler events {key}")
    _print(_sections(facts, records, on), on)


def _print(sections: Iterable[tuple[str, str]], on: bool) -> None:
    for title, lines in sections:
        if lines:
            click.echo("\n" + paint(title, "bold", on) if title else "", nl=bool(title))
            click.echo(lines)


def _sections(facts: ResourceFacts, records: Records, on: bool) -> Iterator[tuple[str, str]]:
    """Titles with their lines; the caller omits a section without lines."""
    from reconciler.cli.commands.events import as_line
    from reconciler.cli.output.resources import HEALTH_COLOURS, body, replicas
    from reconciler.reasons import ConditionType
    from reconciler.render.layout import columns
    from reconciler.status.conditions import conditions

    colours = HEALTH_COLOURS if on else None
    yield "", paint(str(facts.key), "bold", on) + "\n" + columns(list(_summary(facts)), "  ", colours)
    lacking = list(_lacking(facts))
    messages: dict[str, str] = {ConditionType.NOT_ENFORCED: "some of it has no effect, see below"} if lacking else {}
    rows = [
        (each.type, str(each.status), each.reason, messages.get(each.type, each.message)) for each in conditions(facts)
    ]
    yield "Conditions", columns(rows, "  ", {"True": "green", "False": "red"} if on else None) if rows else ""
    places = list(_places(facts))
    yield "Locations", columns(places, "  ", colours) if places else ""
    found = [row for record in facts.records for row in replicas(record)]
    states = {"ready": "green", "not ready": "yellow"} if on else None
    yield "Replicas", columns(found, "  ", states) if found else ""
    yield "No effect", columns(lacking, "  ") if lacking else ""
    failures = list(_failures(facts))
    yield "Failures", columns(failures, "  ") if failures else ""
    fields = {name: value for name, value in body(facts).items() if name not in ("kind", "name", "gvc")}
    yield "Fields", _yaml(fields) if fields else ""
    yield "Events", "\n".join("  " + as_line(event, on) for event in records.events.list(facts.key, limit=_EVENTS))


def _summary(facts: ResourceFacts) -> Iterator[tuple[str, str]]:
    from reconciler.cli.output.resources import version
    from reconciler.reasons import Reason
    from reconciler.times import iso

    yield "Health", str(facts.health)
    orphaned = facts.wait is not None and facts.wait.reason is Reason.ORPHANED
    where = "no longer in the settings" if orphaned else facts.path or "no longer in Git"
    yield "Source", f"{facts.source} ({where})"
    newest = max(facts.records, key=lambda record: record.applied_at, default=None)
    if newest is None:
        yield "Version", "not applied yet"
        return
    yield "Version", str(version(facts))
    yield "Revision", newest.revision
    yield "Applied", iso(newest.applied_at)
    if newest.alias:
        yield "Alias", newest.alias


def _places(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    from reconciler.cli.output.resources import endpoint

    placed = [record for record in facts.records if record.location]
    for record in placed:
        left = "not bound here any more: nobody looks" if record.location in facts.unbound else endpoint(record)
        yield record.location, str(record.health), f"version {record.version}", left
    for location in sorted(set(facts.unbound) - {record.location for record in placed}):
        yield location, "-", "not bound here", ""


def _lacking(facts: ResourceFacts) -> Iterator[tuple[str, str]]:
    """The fields that are not enforced: one sentence a row, in full, with its locations."""
    from reconciler.reasons import ConditionType
    from reconciler.status.engine_state import engine_conditions

    places: dict[str, list[str]] = {}
    for record in facts.records:
        shown = [each.message for each in engine_conditions(record.state) if each.type is ConditionType.NOT_ENFORCED]
        for sentence in _SENTENCES.split(" ".join(shown)):
            if sentence:
                places.setdefault(sentence, []).append(record.location)
    yield from ((", ".join(at), sentence) for sentence, at in places.items())


def _failures(facts: ResourceFacts) -> Iterator[tuple[str, ...]]:
    from reconciler.times import iso

    for failure in facts.failures:
        again = f"tried {failure.attempts} times"
        if failure.retry:
            again += f", again at {iso(failure.next_attempt)}"
        yield failure.location or "-", failure.reason, failure.message, again


def _yaml(fields: object) -> str:
    from reconciler.documents.writer import written

    return indent(written(fields), "  ", lambda line: line != "\n").removesuffix("\n")
