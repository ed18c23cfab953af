"""What a workload used in the last day, from the engines' readers; needs no daemon."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.engines.plugin import make_readers
from reconciler.engines.usage_history import SupportsUsageHistory, UsagePoint, UsageRow
from reconciler.errors import UsageError
from reconciler.model.key import Key, Kind
from reconciler.queries.existence import check_present
from reconciler.records.store import Records
from reconciler.settings import Settings


def list_usage(settings: Settings, records: Records, key: Key) -> list[UsageRow]:
    """The points of ``key`` in the last day, by location, oldest first. Blocks.

    Raises UsageError for what is no workload, NotFoundError for one that there is not, and PermissionError.
    """
    if key.kind is not Kind.WORKLOAD:
        raise UsageError(f"{key} uses nothing by itself; name a workload, as workload/GVC/NAME")
    check_present(records, key)
    return [
        UsageRow(key, location, point) for location, points in read_usage(settings, key).items() for point in points
    ]


def read_usage(settings: Settings, key: Key) -> dict[str, Sequence[UsagePoint]]:
    """The points of the workload ``key`` in the last day by location, without those that have none. Blocks.

    Raises PermissionError.
    """
    readers = (reader for reader in make_readers(settings) if isinstance(reader, SupportsUsageHistory))
    found = {reader.location: reader.usage_history(key) for reader in readers}
    return {location: points for location, points in sorted(found.items()) if points}
