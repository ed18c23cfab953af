"""The volumes of this host: promises that their disk cannot hold, and what else their sets report."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.checks import Check, UserIdentity, make_warning
from reconciler.doctor.secrets import readable_records
from reconciler.engines.engine_state import engine_conditions
from reconciler.model.key import Kind
from reconciler.reasons import ConditionType
from reconciler.settings import Settings

ABOUT = "volumes"
FOUND = {
    ConditionType.DISK_OVERCOMMITTED: "use a larger disk, or fewer or smaller volumes; alert on the free space of it",
}
"""Conditions of volume sets that concern this host, with what to do."""


def check_volumes(settings: Settings, who: UserIdentity) -> Iterator[Check]:
    """Check what the locations report of their volumes, each report of a location once."""
    with readable_records(settings, who) as records:
        items = records.applied.items(Kind.VOLUMESET) if records is not None else ()
        reports = {
            (record.location, engine_condition.type, engine_condition.message)
            for record in items
            for engine_condition in engine_conditions(record.state)
        }
    for location, kind, message in sorted(report for report in reports if report[1] in FOUND):
        yield make_warning(ABOUT, f"at {location}, {message}", FOUND[kind])
