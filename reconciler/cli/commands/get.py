"""`reconciler get`: show what is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, nearest, read_records, settings_option
from reconciler.cli.output.printing import coloured
from reconciler.errors import NotFoundError
from reconciler.render.layout import strip_control

if TYPE_CHECKING:
    from reconciler.model.key import Kind
    from reconciler.queries.source_state import SourceState
    from reconciler.records.store import Records
    from reconciler.settings import Settings
    from reconciler.status.conditions import ResourceFacts

_HEADING = ("KEY", "HEALTH", "READY", "VERSION", "LOCATIONS")


@click.command(epilog="Example: reconciler get workload api --gvc shop -o yaml")
@click.argument("kind", required=False)
@click.argument("name", required=False)
@click.option("--gvc", metavar="G", help="Only what lives in this GVC.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Default: text.")
@settings_option
def command(settings_file: Path, kind: str | None, name: str | None, gvc: str | None, output: str) -> None:
    """Show the records: all resources, those of KIND, or the one called NAME.

    It shows what was last applied and its last known status; secret data shows as ***. A source whose newest revision
    is refused or cannot be read, or that is held or suspended, has a line on standard error; JSON has all sources
    below `sources`. The exit code does not depend on the status of resources.
    """
    from reconciler.queries.source_state import source_state

    wanted = _kind(kind)
    settings = load(settings_file)
    records = read_records(settings)
    found = _matching(records, settings, wanted, gvc, name)
    first = next(found, None)
    if first is None:
        _check_there(records, wanted, gvc, name)
    sources = [source_state(records, source.name) for source in settings.sources]
    show = {"text": _text, "json": _json, "yaml": _yaml}[output]
    show([] if first is None else chain([first], found), sources)


def _kind(text: str | None) -> Kind | None:
    """The kind called ``text``; raises click's UsageError that names the nearest."""
    from reconciler.model.key import KINDS

    if text is None or text in KINDS:
        return None if text is None else KINDS[text]
    raise click.UsageError(f"there is no kind {text!r}{nearest(text, KINDS)}")


def _matching(
    records: Records, settings: Settings, kind: Kind | None, gvc: str | None, name: str | None
) -> Iterator[ResourceFacts]:
    from reconciler.status.facts import FactsReader

    gathering = FactsReader(records, settings)
    for key, _ in groupby(records.applied.items(kind, gvc, name), lambda record: record.key):
        yield gathering.facts(key)


def _check_there(records: Records, kind: Kind | None, gvc: str | None, name: str | None) -> None:
    """Raise NotFoundError where a named resource does not exist, or is not applied yet."""
    from reconciler.model.key import Key
    from reconciler.queries.existence import check_gvc

    if gvc is not None:
        check_gvc(records, gvc)
    if name is None:
        return
    place = f" in the gvc {gvc}" if gvc else ""
    wanted = (Key.parse(key) for key, _ in records.desired.scan())
    if any(key.kind == kind and key.name == name and gvc in (None, key.gvc) for key in wanted):
        raise NotFoundError(f"the {kind} {name!r}{place} is in Git, and not applied yet; see: reconciler describe")
    names = {record.key.name for record in records.applied.items(kind, gvc)}
    raise NotFoundError(f"there is no {kind} {name!r}{place}{nearest(name, names)}")


def _text(found: Iterable[ResourceFacts], sources: Iterable[SourceState]) -> None:
    from reconciler.cli.output.resources import HEALTH_COLOURS, ready_words, version
    from reconciler.queries.source_state import source_lines
    from reconciler.render.layout import columns
    from reconciler.status.conditions import conditions

    rows = [_HEADING]
    for facts in found:
        places = " ".join(record.location for record in facts.records if record.location)
        ready = ready_words(conditions(facts))
        rows.append((str(facts.key), str(facts.health), ready, str(version(facts)), places or "-"))
    if len(rows) > 1:
        click.echo(columns(rows, colours=HEALTH_COLOURS if coloured(sys.stdout) else None))
    else:
        click.echo("nothing is recorded", err=True)
    for line in (line for source in sources for line in source_lines(source)):
        click.echo(strip_control(line), err=True)


# Items are written one by one, since 100,000 of them as dicts would take a gigabyte.
def _json(found: Iterable[ResourceFacts], sources: Iterable[SourceState]) -> None:
    import msgspec

    from reconciler.cli.output.resources import item
    from reconciler.queries.source_state import source_document

    click.echo('{"items": [', nl=False)
    for number, facts in enumerate(found):
        text = msgspec.json.format(msgspec.json.encode(item(facts)), indent=2).decode()
        click.echo(("," if number else "") + "\n" + text, nl=False)
    listed = msgspec.json.format(msgspec.json.encode(list(map(source_document, sources))), indent=2).decode()
    click.echo(f'\n], "sources": {listed}}}')


def _yaml(found: Iterable[ResourceFacts], sources: Iterable[SourceState]) -> None:
    from reconciler.cli.output.resources import item
    from reconciler.documents.writer import written
    from reconciler.queries.source_state import source_document

    empty = True
    for facts in found:
        click.echo(("items:\n" if empty else "") + written([item(facts)]), nl=False)
        empty = False
    if empty:
        click.echo("items: []")
    click.echo(written({"sources": list(map(source_document, sources))}), nl=False)
