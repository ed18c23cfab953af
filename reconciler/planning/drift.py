"""Drift: how a location differs from the state that was applied there."""

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
from reconciler.planning.diff import diff_bodies
from reconciler.planning.field_paths import QUOTED
from reconciler.planning.plan import ChangeClass, FieldChange, StepId

IGNORE = "reconciler/ignore"
"""The tag of a resource that lists, with commas, the fields whose drift is ignored."""

_NAME = (rf"(?:{QUOTED}|[^.\[\]]*)", rf"(?:{QUOTED}|[^.\[\]]*?)")
_QUOTED_NAME = (r'(?:[^"\\]|\\.)*', r'(?:[^"\\]|\\.)*?')
"""What a star stands for, outside and inside of quotes: as much as possible, and as little."""
_MOST_PATTERNS = 1_000
"""The most paths whose compiled patterns are cached."""

ANYTHING = "*"


class DriftKind(StrEnum):
    """How a location differs from the records; unexpected: it has our labels, and is neither recorded nor in Git."""

    MISSING = "missing"
    CHANGED = "changed"
    UNEXPECTED = "unexpected"


class ObservedState(msgspec.Struct, frozen=True, gc=False):
    """A resource as an engine observes it; ``body`` (JSON, normal form) is empty if it knows only the digest."""

    digest: str
    version: int
    body: bytes = b""


class Drift(msgspec.Struct, frozen=True, order=True):
    """One resource that differs at its location from its record.

    ``changes`` go from the observed to the applied state; none if the engine knows no fields. ``digest`` is that of the
    observed state, "" if the resource is missing.
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


def drift_of(record: Record, observed: ObservedState | None) -> Drift | None:
    """The drift of ``observed`` (None: missing) from ``record``; None if there is none."""
    if observed is None:
        return Drift(record.key, record.location, DriftKind.MISSING)
    if (observed.digest, observed.version) == (record.digest, record.version):
        return None
    changes = list(_list_drifted_fields(record, observed))
    if observed.body and not changes:
        return None
    return Drift(record.key, record.location, DriftKind.CHANGED, observed.digest, tuple(changes))


def _list_drifted_fields(record: Record, observed: ObservedState) -> Iterator[FieldChange]:
    if observed.version != record.version:
        yield FieldChange("version", observed.version, record.version, ChangeClass.IN_PLACE)
    if observed.body:
        yield from diff_bodies(record.key.kind, observed.body, record.body, record.location)


def without_ignored(drift: Drift, body: bytes, ignores: Iterable[Ignore]) -> Drift | None:
    """``drift`` without the fields that the settings or the tag in ``body`` ignore; None if none remains."""
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
    """Whether ``field`` is at or below ``path``; ``*`` in it matches one name."""
    return _compile_path_pattern(path).match(field) is not None


@lru_cache(_MOST_PATTERNS)
def _compile_path_pattern(path: str) -> re.Pattern[str]:
    first, *rest = path.split("*")
    names, before = [], first
    for part in rest:
        # A star between quotes is a part of a name, which may have dots and brackets; another one may be all of it.
        names.append(_QUOTED_NAME if before.rfind('["') > before.rfind('"]') else _NAME)
        before += f"*{part}"
    # Atomic groups: each part before the last star matches once, or else every star would multiply the time.
    between = "".join(f"(?>{least}{re.escape(part)})" for (_, least), part in zip(names[:-1], rest[:-1], strict=True))
    last = "".join(f"{most}{re.escape(part)}" for (most, _), part in zip(names[-1:], rest[-1:], strict=True))
    return re.compile(re.escape(first) + between + last + r"(?=[.\[]|$)")


def describe_drift(drift: Drift) -> str:
    """``changed at here: spec.containers[main].image``, fields without their values."""
    paths = [change.path for change in drift.changes]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{drift.what}{location_suffix(drift.location)}" + (f": {', '.join(paths[:3])}{more}" if paths else "")


def location_suffix(location: str) -> str:
    """`` at here``, or "" without a location."""
    return f" at {location}" if location else ""


def format_ignore_settings(drifts: Iterable[Drift]) -> list[str]:
    """Lines for the settings that ignore all ``drifts``."""
    entries: dict[str, None] = {}
    for drift in drifts:
        paths = [f", path: {_quote_path(change.path)}" for change in drift.changes] or [""]
        entries |= dict.fromkeys(f"    - {{key: {drift.key}{path}}}" for path in paths)
    return ["drift:", "  ignore:", *entries] if entries else []


def _quote_path(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def encode_drift(drift: Drift) -> bytes:
    """``drift`` as bytes for the records."""
    return msgspec.json.encode(drift)


def parse_drift(raw: bytes) -> Drift:
    """A drift from the records."""
    return msgspec.json.decode(raw, type=Drift)
