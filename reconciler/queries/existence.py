"""Checks that a name from an operator exists; else raises one error, with the nearest name and one exit code.

A deleted resource with events still counts as known, since operators look for its history.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from reconciler.errors import NotFoundError
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.model.revision import shorten_id
from reconciler.model.suggest import LIKE, find_closest_word

if TYPE_CHECKING:
    from reconciler.records.store import Records
    from reconciler.settings import Settings, SourceSettings

MAX_CANDIDATES = 5_000
"""The most names searched for the nearest one."""
NEARLY = 0.85
"""The similarity from which a whole key is suggested; high, since all keys of a kind begin alike."""


def did_you_mean(word: str, words: Iterable[str], enough: float = LIKE) -> str:
    """``; did you mean X?`` if one of ``words`` is close to ``word``, else ""."""
    close = find_closest_word(word, islice(words, MAX_CANDIDATES), enough)
    return f"; did you mean {close}?" if close else ""


def find_source(settings: Settings, name: str) -> SourceSettings:
    """The source called ``name``, or ``source/NAME``. Raises NotFoundError that lists the sources."""
    name = source_of(name) or name
    source_settings = next((source for source in settings.sources if source.name == name), None)
    if source_settings is None:
        there = ", ".join(source.name for source in settings.sources)
        raise NotFoundError(f"there is no source {name!r}; the settings have {there}")
    return source_settings


def check_key(records: Records, key: Key) -> None:
    """Raise NotFoundError, with the nearest key, if ``key`` never was in Git or recorded."""
    if not records.events.mentions(str(key)):
        check_present(records, key)


def check_present(records: Records, key: Key) -> None:
    """Raise NotFoundError, with the nearest key, if ``key`` is neither in Git nor recorded now."""
    if not is_present(records, key):
        hint = _nearest_key(records, key) or _name_refused(records)
        raise NotFoundError(f"there is no {key}, neither in Git nor in the records{hint}")


def check_target(settings: Settings, records: Records, target: Key | str) -> None:
    """As ``check_key``; ``target`` can also be ``source/NAME``, a source that is or was in the settings."""
    if isinstance(target, Key):
        check_key(records, target)
    elif not records.events.mentions(target):
        find_source(settings, target.partition("/")[2])


def check_gvc(records: Records, name: str) -> None:
    """Raise NotFoundError, with the nearest name, if no GVC ``name`` ever was in Git or recorded."""
    key = Key(Kind.GVC, "", name)
    if is_present(records, key) or records.applied.keys_of_gvc(name) or records.events.mentions_gvc(name):
        return
    prefix = f"{Kind.GVC}/"
    names = (key.removeprefix(prefix) for key in _list_keys(records, prefix))
    raise NotFoundError(f"there is no gvc {name!r}, neither in Git nor in the records{did_you_mean(name, names)}")


def is_present(records: Records, key: Key) -> bool:
    """Whether ``key`` is in Git, or recorded."""
    return records.desired.get(str(key)) is not None or records.applied.exists(key)


def source_of(target: str) -> str:
    """The name in ``source/NAME``, "" if ``target`` is no source."""
    kind, _, name = target.partition("/")
    return name if kind == "source" else ""


def _nearest_key(records: Records, key: Key) -> str:
    """The key of another kind with the same name, else the most similar one of the same kind."""
    kinds = [kind for kind in Kind if (kind in GVC_SCOPED) is bool(key.gvc)]
    same = next((other for kind in kinds if is_present(records, other := Key(kind, key.gvc, key.name))), None)
    if same is not None:
        return f"; did you mean {same}?"
    candidates = _list_keys(records, f"{key.kind}/")
    home = str(key).removesuffix(key.name)
    beside = find_closest_word(
        key.name, islice((text.removeprefix(home) for text in candidates if text.startswith(home)), MAX_CANDIDATES)
    )
    return f"; did you mean {home}{beside}?" if beside else did_you_mean(str(key), candidates, NEARLY)


def _name_refused(records: Records) -> str:
    """``; …``: a newest commit that is refused, since what it adds is not in the records; "" if none is."""
    from reconciler.records.tables.runs import REFUSED

    for name in dict.fromkeys(run.source for run in records.runs.list(MAX_CANDIDATES)):
        newest = records.runs.last_read(name)
        if newest is not None and newest.outcome == REFUSED:
            commit = shorten_id(newest.commit)
            return f"; what {commit} of {name} adds is not known, as it is refused: reconciler status"
    return ""


def _list_keys(records: Records, prefix: str) -> list[str]:
    names = {row[0] for row in records.applied.scan()} | {row[0] for row in records.desired.scan()}
    return sorted(key for key in names if key.startswith(prefix))
