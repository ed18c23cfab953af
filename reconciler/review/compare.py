"""What would change between two commits, from Git alone: the first is taken for recorded, the second is planned."""

from __future__ import annotations

import msgspec

from reconciler.clock import SystemClock
from reconciler.engines.registry import ENGINES
from reconciler.errors import SourceEmpty
from reconciler.model.finding import Finding
from reconciler.model.record import Health, Record
from reconciler.model.revision import Revision
from reconciler.pipeline.desired_view import View
from reconciler.pipeline.externals import Surroundings
from reconciler.pipeline.file_reader import Read
from reconciler.pipeline.load import accept
from reconciler.pipeline.source_pipeline import Line, Prepared
from reconciler.planning.blame import Blames
from reconciler.planning.plan import Plan
from reconciler.records.store import Records
from reconciler.review.blame import blamed
from reconciler.settings import LocationSettings, Settings, SourceSettings


class Compared(msgspec.Struct, frozen=True):
    """The plan from one commit to the other, None where the second has errors; and how much of the second was read.

    ``read`` gives the bytes of its files, ``blames`` who asked for the changes where that was looked for.
    """

    findings: list[Finding]
    revision: Revision
    plan: Plan | None
    documents: int
    resources: int
    read: Read
    blames: Blames | None = None


def compare(settings: Settings, source: SourceSettings, before: str, after: str, blame: bool | None = None) -> Compared:
    """Plan the way from ``before`` to ``after`` (anything Git understands). Raises SourceError.

    It is SourceEmpty where ``after`` has no manifest, since that is never taken for "delete everything".

    Faults in ``before`` do not matter: what is sound in it counts, be it nothing. Every location is taken for bound.
    Who asked for the changes since is looked for where ``blame`` says so, or (None) they are few.
    """
    records = Records.open(None)
    lenient = msgspec.structs.replace(settings, on_invalid="skip", locations={})
    first = _line(lenient, source, records)
    base = _base(first, before)
    places = _all_places(first, base) if base is not None else set()
    bound = {place: LocationSettings(engine=next(iter(ENGINES))) for place in places}
    strict = msgspec.structs.replace(settings, on_invalid="refuse", locations=bound)
    if base is not None:
        _record(_line(strict, source, records), base)
    second = _line(strict, source, records)
    extra = _all_places(second, second.prepare(after)) - places
    if extra:
        bound |= {place: LocationSettings(engine=next(iter(ENGINES))) for place in extra}
        second = _line(msgspec.structs.replace(strict, locations=bound), source, records)
    prepared = blamed(second, second.prepare(after), blame)
    delta = prepared.loaded.delta
    return Compared(prepared.findings, prepared.revision, prepared.plan, delta.documents, len(delta.added),
                    prepared.read, prepared.blames)  # fmt: skip


def _line(settings: Settings, source: SourceSettings, records: Records) -> Line:
    line = Line(settings, source, records, SystemClock())
    # What no identity opens, and what stands on the host, is compared as it is written.
    ring = msgspec.structs.replace(line.dialect.keyring, required=False)
    line.dialect, line.host = msgspec.structs.replace(line.dialect, keyring=ring), None
    line.around = Surroundings(frozenset(settings.locations), line.around.external, unknown=True)
    return line


def _base(line: Line, before: str) -> Prepared | None:
    """What ``before`` holds; None where that is nothing, since every repository has to begin somewhere."""
    try:
        return line.prepare(before)
    except SourceEmpty:
        return None


def _view(line: Line, prepared: Prepared) -> View:
    view = line.view()
    view.overlay(prepared.loaded.delta)
    return view


def _all_places(line: Line, prepared: Prepared) -> set[str]:
    places = _view(line, prepared).places
    gvcs = (key.partition("/")[2] for key in prepared.loaded.delta.added if key.startswith("gvc/"))
    return {place for gvc in gvcs for place in places.of(gvc)}


def _record(line: Line, prepared: Prepared) -> None:
    """Write ``prepared`` down as if it had been applied."""
    scope = line.scope(_view(line, prepared), prepared.loaded)
    with line.records.transaction():
        accept(line.records, prepared.loaded, line.name)
        line.records.applied.put_many(
            Record(
                key,
                place,
                line.name,
                resource.digest,
                resource.body,
                1,
                scope.engines[place],
                Health.HEALTHY,
                revision=str(prepared.revision),
            )
            for key, resource in sorted(scope.desired.items())
            for place in scope.places(key)
        )
