"""Finds the resource or source that people name by a part of its key."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from reconciler.errors import NotFoundError, UsageError
from reconciler.model.key import KINDS, Key
from reconciler.model.target import SOURCE, Target
from reconciler.queries.existence import MAX_CANDIDATES, did_you_mean

if TYPE_CHECKING:
    from reconciler.records.store import Records
    from reconciler.settings import Settings

_MOST_NAMED = 5
"""The most keys that a message lists."""


def resolve_target(settings: Settings, records: Records, target: Target) -> Key | str:
    """The key of the resource, or ``source/NAME``, that ``target`` names; a name alone can be either.

    A whole key is returned as it is, whether it exists or not. Raises UsageError where several resources match, and
    NotFoundError where none does.
    """
    return find_named_source(settings, target) or resolve_resource(settings, records, target)


def find_named_source(settings: Settings, target: Target) -> str:
    """``source/NAME`` where ``target`` names a source, or alone the name of one in the settings; else ""."""
    names = () if target.kind or target.gvc else (source.name for source in settings.sources)
    return target.source or (f"{SOURCE}/{target.name}" if target.name in names else "")


def resolve_resource(settings: Settings, records: Records, target: Target) -> Key:
    """The one resource, in Git or recorded, that ``target`` names. Raises UsageError and NotFoundError."""
    if target.org not in ("", settings.org):
        raise NotFoundError(f"{target} is of the org {target.org}; the settings are of {settings.org}")
    if (key := target._replace(org="").key) is not None:
        return key
    if target.source:
        raise UsageError(f"{target} is a source; name a resource")
    keys = records.find_keys(target.name, target.kind, target.gvc)
    if len(keys) == 1:
        return keys[0]
    if keys:
        listed = ", ".join(map(str, keys[:_MOST_NAMED])) + (", …" if keys[_MOST_NAMED:] else "")
        raise UsageError(f"{target.text!r} names {len(keys)} resources: {listed}; write the whole key of one")
    raise NotFoundError(_explain_missing(settings, records, target))


def _explain_missing(settings: Settings, records: Records, target: Target) -> str:
    """That nothing has the name, with the nearest one."""
    kinds = [target.kind] if target.kind else KINDS
    keys = chain.from_iterable(records.desired.keys_of_kind(kind, MAX_CANDIDATES) for kind in kinds)
    names = {key.name for key in map(Key.parse, keys) if target.gvc in ("", key.gvc)}
    what, where = target.kind or "resource", f" in the gvc {target.gvc}" if target.gvc else ""
    if not (target.kind or target.gvc):
        what = "resource or source"
        names.update(source.name for source in settings.sources)
    hint = did_you_mean(target.name, names)
    if target.gvc and not (target.kind or hint):
        # The word before the slash may be a kind with a typing error.
        hint = did_you_mean(target.gvc, KINDS)
    return f"there is no {what} {target.name!r}{where}{hint}"
