"""What there is at a location, held against what was applied there: differences that nobody asked for in Git."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from reconciler.model.drift_policy import Ignore
from reconciler.model.key import Key
from reconciler.model.record import Record
from reconciler.planning.diff import diff
from reconciler.planning.plan import ChangeClass, FieldChange, StepId

IGNORE = "reconciler/ignore"
"""The tag of a resource that names the fields which may differ, parted by commas."""

_NAME = r"[^.\[\]]*"
_MOST_PATTERNS = 1_000
"""Paths of fields that are kept as patterns."""

ANYTHING = "*"


class DriftKind(StrEnum):
    """In which way a location differs from the records; unexpected: it is ours, and neither recorded nor in Git."""

    MISSING = "missing"
    CHANGED = "changed"
    UNEXPECTED = "unexpected"


class ObservedState(msgspec.Struct, frozen=True, gc=False):
    """What an engine sees of a resource; ``body`` (JSON, normal form) is empty where it knows the digest alone."""

    digest: str
    version: int
    body: bytes = b""


class Drift(msgspec.Struct, frozen=True, order=True):
    """One resource that is otherwise at its location than recorded.

    ``changes`` lead back: from what there is to what was applied; none where the engine knows no fields. ``digest``
    is of what there is, empty where there is nothing.
    """

    key: Key
    location: str
    what: DriftKind
    digest: str = ""
    changes: tuple[FieldChange, ...] = ()

    @property
    def id(self) -> StepId:
        """Key and location."""
        return StepId(self.key, self.location)


def drift_of(record: Record, there: ObservedState | None) -> Drift | None:
    """How ``there`` (None: nothing) differs from ``record``; None where it does not."""
    if there is None:
        return Drift(record.key, record.location, DriftKind.MISSING)
    if (there.digest, there.version) == (record.digest, record.version):
        return None
    changes = list(_fields(record, there))
    if there.body and not changes:
        return None
    return Drift(record.key, record.location, DriftKind.CHANGED, there.digest, tuple(changes))


def _fields(record: Record, there: ObservedState) -> Iterator[FieldChange]:
    if there.version != record.version:
        yield FieldChange("version", there.version, record.version, ChangeClass.IN_PLACE)
    if there.body:
        yield from diff(record.key.kind, there.body, record.body, record.location)


def without_ignored(drift: Drift, body: bytes, ignores: Iterable[Ignore]) -> Drift | None:
    """``drift`` without the fields that may differ, by the settings or the tag in ``body``; None where none is left."""
    paths = {rule.path or ANYTHING for rule in ignores if fnmatchcase(str(drift.key), rule.key)}
    if any(not rule.path for rule in ignores if fnmatchcase(str(drift.key), rule.key)):
        return None
    paths |= ignored_paths(body)
    if not paths or drift.what is not DriftKind.CHANGED:
        return drift
    if not drift.changes:
        return None if ANYTHING in paths else drift
    left = tuple(change for change in drift.changes if not any(path_matches(path, change.path) for path in paths))
    return msgspec.structs.replace(drift, changes=left) if left else None


def ignored_paths(body: bytes) -> set[str]:
    """The paths that the tag ``reconciler/ignore`` in ``body`` (JSON) names."""
    if IGNORE.encode() not in body:
        return set()
    words = str((msgspec.json.decode(body).get("tags") or {}).get(IGNORE, ""))
    return {word.strip() for word in words.split(",") if word.strip()}


def path_matches(path: str, field: str) -> bool:
    """Whether ``field`` is at or below ``path``, in which ``*`` stands for any one name."""
    return _pattern(path).match(field) is not None


@lru_cache(_MOST_PATTERNS)
def _pattern(path: str) -> re.Pattern[str]:
    first, *rest = map(re.escape, path.split("*"))
    # What stands before the last star is taken where it comes first, for good: else each star would multiply the time.
    between = "".join(f"(?>{_NAME}?{part})" for part in rest[:-1])
    return re.compile(first + between + "".join(f"{_NAME}{part}" for part in rest[-1:]) + r"(?=[.\[]|$)")


def describe(drift: Drift) -> str:
    """``changed at here: spec.containers[main].image``, fields named and their values not."""
    paths = [change.path for change in drift.changes]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{drift.what}{location_suffix(drift.location)}" + (f": {', '.join(paths[:3])}{more}" if paths else "")


def location_suffix(location: str) -> str:
    """`` at here``, or nothing where there is no place."""
    return f" at {location}" if location else ""


def snippet(drifts: Iterable[Drift]) -> list[str]:
    """Lines for the settings that let all of ``drifts`` be as they are."""
    found: dict[str, None] = {}
    for drift in drifts:
        paths = [f", path: {_quoted(change.path)}" for change in drift.changes] or [""]
        found |= dict.fromkeys(f"    - {{key: {drift.key}{path}}}" for path in paths)
    return ["drift:", "  ignore:", *found] if found else []


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def encode(drift: Drift) -> bytes:
    """``drift`` as the records keep it."""
    return msgspec.json.encode(drift)


def decode(raw: bytes) -> Drift:
    """``drift`` from the records."""
    return msgspec.json.decode(raw, type=Drift)
