"""Whether anything is still on its way: what `reconciler apply --wait` waits for."""

from __future__ import annotations

from reconciler.model.key import PLACED
from reconciler.model.record import Health
from reconciler.records.store import Records


def in_motion(records: Records) -> float | None:
    """When to look again at what time alone can mend (seconds since the epoch; 0: soon); None where there is none.

    That is a failed step owed another try, and whatever is not healthy. What has no place on this host never is.
    """
    due = records.failures.next_attempt()
    if due is not None:
        return due
    ill = {kind for kind, health in records.applied.counts() if health is not Health.HEALTHY}
    found = (record for kind in sorted(ill) for record in records.applied.items(kind))
    moving = (each.health is not Health.HEALTHY and (each.location or each.key.kind not in PLACED) for each in found)
    return 0.0 if any(moving) else None
