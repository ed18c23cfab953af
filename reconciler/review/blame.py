"""Finds the commits that caused the changes of a plan, by walking the history of their files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from reconciler.clock import Clock
from reconciler.documents.locator import locate_document
from reconciler.documents.reader import parse_documents
from reconciler.errors import SourceError
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.model.key import Key
from reconciler.model.resource import GVC_PLACEHOLDER, Manifest, Resource
from reconciler.model.revision import is_json
from reconciler.pipeline.desired_view import DesiredStateView
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.planning.blame import WHOLE, Blame, blamable_paths, changed_paths, count_blamed_changes, pointer_of
from reconciler.planning.plan import Action, Step, StepId
from reconciler.source.file_history import HISTORY_END, CommitTouch, FileHistories

UNLIMITED_COMMITS = 50
"""The most changes of a plan whose blame is shown without ``--blame``."""
MAX_COMMITS = 20_000
"""The most commits visited for one plan."""
TIMEOUT_SECONDS = 2.0
"""The longest search in seconds; changes not found by then count as older."""
MAX_FILE_BYTES = 1 << 20
"""The largest size in bytes of a file that is searched."""


def add_blames(pipeline: SourcePipeline, prepared: PlannedRevision, with_blame: bool | None) -> PlannedRevision:
    """``prepared`` with the blame of its changes, if ``with_blame``, or if that is None and they are few. Raises
    SourceError.
    """
    plan = prepared.plan
    if plan is None or with_blame is False or (with_blame is None and count_blamed_changes(plan) > UNLIMITED_COMMITS):
        return prepared
    view = pipeline.view().with_changes(prepared.loaded.change_set)
    search = BlameSearch(pipeline, view, prepared.revision.commit)
    blames: dict[tuple[StepId, str], Blame] = {}
    for step in plan.steps:
        blames |= {(step.id, path): blame for path, blame in search.of(step).items()}
    return msgspec.structs.replace(prepared, blames=blames)


class BlameSearch:
    """The search for one plan, with limits for all of it; each file version is decoded once."""

    def __init__(self, pipeline: SourcePipeline, view: DesiredStateView, tip: str) -> None:
        self._pipeline = pipeline
        self._view = view
        self._decoder = view.bodies.decoder
        self._tip = tip
        self._clock: Clock = pipeline.clock
        self._until = pipeline.clock.monotonic() + TIMEOUT_SECONDS
        self._left = MAX_COMMITS
        self._history = FileHistories(pipeline.source.repository, self._go_on)
        self._manifests = lru_cache(maxsize=64)(self._decode)
        self._touches = lru_cache(maxsize=256)(self._all_touches)

    def of(self, step: Step) -> dict[str, Blame]:
        """Return the blame of ``step`` by field path; changes not found within the limits count as older."""
        open_paths = blamable_paths(step)
        entry = (
            self._pipeline.records.desired.get(step.key)
            if step.action is Action.DELETE
            else self._view.index.entry(str(step.key))
        )
        if not open_paths or entry is None:
            return {}
        blames: dict[str, Blame] = {}
        for touch in self._touches(entry.path, self._base(step)):
            if touch == HISTORY_END:
                return blames | {path: Blame("", "", entry.path, 0) for path in open_paths}
            before, after = self._resource_in(touch.before, step.key), self._resource_in(touch.after, step.key)
            for path in changed_paths(step.id, _get_body(before), _get_body(after), open_paths):
                where = self._line_of(path, after) if after is not None else 0
                blames[path] = Blame(touch.commit, touch.author, entry.path, where)
            open_paths = [path for path in open_paths if path not in blames]
            if not open_paths:
                break
        return blames

    def _all_touches(self, path: str, base: str) -> _Replayed:
        return _Replayed(self._history.of(path, self._tip, base))

    def _go_on(self) -> bool:
        self._left -= 1
        return self._left >= 0 and self._clock.monotonic() < self._until

    def _base(self, step: Step) -> str:
        """The recorded commit that ``step`` changes; "" if nothing is recorded."""
        records = self._pipeline.records.applied.get(step.key)
        here = next((record for record in records if record.location == step.location), None)
        record = here or next(iter(records), None)
        return record.revision.rpartition(":")[2] if record is not None and step.action is not Action.CREATE else ""

    def _resource_in(self, blob: str, key: Key) -> Resource | None:
        """The resource ``key`` in a file; None if the file does not have it, or cannot be read."""
        for manifest in self._manifests(blob) if blob else ():
            if (manifest.kind, manifest.name) == (key.kind, key.name) and manifest.gvc in (key.gvc, GVC_PLACEHOLDER):
                return resource_of(manifest, key.gvc, "", blob)
        return None

    def _decode(self, blob: str) -> tuple[Manifest, ...]:
        repository = self._pipeline.source.repository
        try:
            if repository.size(blob) > MAX_FILE_BYTES:
                return ()
            return self._decoder.with_host_secrets(self._decoder.decode(blob), blob).manifests
        except SourceError:
            return ()

    def _line_of(self, path: str, resource: Resource) -> int:
        if path == WHOLE:
            return resource.line
        raw, as_json = self._pipeline.source.repository.read(resource.blob), is_json(resource.blob)
        documents = parse_documents(raw, is_json=as_json).documents
        value = next(document.value for document in documents if document.index == resource.position)
        return locate_document(raw, resource.position, is_json=as_json).key(pointer_of(path, value))[0]


def _get_body(resource: Resource | None) -> bytes | None:
    return resource.body if resource is not None else None


class _Replayed:
    """A generator that can be iterated again: the next resource of a file reuses the known commits."""

    def __init__(self, rest: Iterator[CommitTouch]) -> None:
        self._known: list[CommitTouch] = []
        self._rest = rest

    def __iter__(self) -> Iterator[CommitTouch]:
        position = 0
        while True:
            if position == len(self._known):
                fresh = next(self._rest, None)
                if fresh is None:
                    return
                self._known.append(fresh)
            yield self._known[position]
            position += 1
