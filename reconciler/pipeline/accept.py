"""Makes a loaded revision the last good one."""

from __future__ import annotations

from collections import Counter

from reconciler.manifests.change_set import ChangeSet
from reconciler.model.resource import Resource
from reconciler.pipeline.load import LoadedRevision
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import Records
from reconciler.records.tables.desired import DesiredEntry
from reconciler.records.tables.sources import SourceRow
from reconciler.records.tables.suspensions import source_target


def index_revision(records: Records, loaded: LoadedRevision, source: str) -> None:
    """Make ``loaded`` the last good revision: write the index, the data of its secrets and the row of its source.

    A resource that another source applied and no longer declares passes to this source.
    """
    revision = loaded.revision
    row = SourceRow(
        source,
        revision.ref,
        revision.commit,
        revision.tree,
        loaded.selection,
        revision.author,
        revision.subject,
        revision.time,
    )
    if loaded.change_set.is_empty() and row == records.sources.get(source):
        return
    with records.transaction():
        records.desired.replace(
            source,
            loaded.change_set.list_removed(),
            (_make_index_entry(source, r) for r in _list_changed_resources(loaded.change_set)),
        )
        # Steps update the status of changed resources; a resource that only moved to another file has no step.
        records.status_queue.add_many(source, _list_moved_keys(loaded.change_set))
        for key in loaded.change_set.list_removed():
            # A resource that was never applied is removed without a step, which would update the status.
            if not records.applied.exists(key):
                records.status_queue.add_many(source, [key])
                records.conditions.forget(key)
        # Who comes back before its delete was approved has no step either, and waits for nothing any more.
        for key in records.conditions.scopes_where(ConditionType.WAITING, _list_new_keys(loaded.change_set)):
            records.conditions.drop(key, ConditionType.WAITING)
            records.status_queue.add_many(source, [key])
        _adopt_resources(records, source, _list_new_keys(loaded.change_set))
        for resource in loaded.change_set.added.values():
            if resource.secret_data and not resource.transient:
                records.secret_data.put(resource.key, resource.digest, resource.secret_data)
        records.sources.put(row)


def _adopt_resources(records: Records, source: str, keys: list[str]) -> None:
    """Let ``source`` own those of ``keys`` that another source applied; an event for each of these says so."""
    adopted = records.applied.adopt(source, keys)
    for key, owner in adopted:
        records.status_queue.add_many(source, [key])
        records.status_queue.add_many(owner, [key])
    for owner, count in Counter(owner for _, owner in adopted).items():
        message = f"its Git declares {count} resource{'s' if count > 1 else ''} of the source {owner}"
        records.events.append(source_target(source), Reason.ADOPTED, message)


def _list_changed_resources(delta: ChangeSet) -> list[Resource]:
    """Resources whose index row changed; after a full reload, this can be empty."""
    return [
        resource
        for key, resource in delta.added.items()
        if _get_index_row(delta.previous.get(key)) != _get_index_row(resource)
    ]


def _list_new_keys(delta: ChangeSet) -> list[str]:
    return [key for key in delta.added if key not in delta.previous]


def _list_moved_keys(delta: ChangeSet) -> list[str]:
    pairs = ((key, delta.previous.get(key), resource) for key, resource in delta.added.items())
    return [
        key for key, resource, now in pairs if resource and resource.digest == now.digest and resource.path != now.path
    ]


def _get_index_row(entry: object) -> tuple[object, ...]:
    # A new key has no former entry, and so differs from any row.
    return tuple(getattr(entry, name, None) for name in ("digest", "path", "line", "blob", "position"))


def _make_index_entry(source: str, resource: Resource) -> DesiredEntry:
    return DesiredEntry(
        str(resource.key),
        source,
        resource.path,
        resource.position,
        resource.line,
        resource.blob,
        resource.digest,
        resource.references,
    )
