"""The versions of a resource in Git, for its page: read once for each applied commit."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.api.call import Call
from reconciler.errors import ReconcilerError
from reconciler.model.key import Key
from reconciler.planning.versions import ResourceHistory

MOST_CACHED = 64
"""The most histories that are cached."""


class ShownHistory(NamedTuple):
    """The versions of a resource, None where they are unknown; ``fault`` says why, "" for what is not in Git."""

    history: ResourceHistory | None
    fault: str = ""


def read_shown_history(call: Call, key: Key) -> ShownHistory:
    """The versions of ``key``, as of the applied commit."""
    from reconciler.queries.versions import MOST_COMMITS, read_versions

    records, cached = call.reader.records, call.api.page.histories
    entry = records.desired.get(key)
    row = records.sources.get(entry.source) if entry is not None else None
    if entry is None or row is None:
        return ShownHistory(None)
    mark = (str(key), row.commit)
    if (history := cached.get(mark)) is None:
        try:
            history = read_versions(call.api.settings, records, key)
        except ReconcilerError as error:
            return ShownHistory(None, str(error))
        while len(cached) >= MOST_CACHED:
            cached.pop(next(iter(cached), mark), None)
        # What a busy moment cut short is searched again by the next request.
        if history.is_whole or history.commits >= MOST_COMMITS:
            cached[mark] = history
    return ShownHistory(history)
