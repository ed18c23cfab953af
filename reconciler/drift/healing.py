"""Connects drift with plans: what a plan must heal, and what it has healed."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.engines.protocol import Outcome, Result
from reconciler.planning.drift import Drift, location_suffix, parse_drift, without_ignored
from reconciler.planning.plan import Plan, StepId
from reconciler.reasons import Reason
from reconciler.records.sql import stored_row
from reconciler.records.store import Records
from reconciler.records.tables.drift import DriftRow
from reconciler.settings import Settings
from reconciler.times import ExpiryTime


def drifts_to_heal(records: Records, settings: Settings, source: str) -> dict[StepId, Drift]:
    """The drifts that the next plan of ``source`` must heal; differences that the settings now ignore are left out."""
    if not settings.drift.heal:
        return {}
    drifts = (_decode_drift(row) for row in records.drifts.all(source) if not row.in_conflict)
    left = (without_ignored(drift, b"", settings.drift.ignore) for drift in drifts)
    return {drift.id: drift for drift in left if drift is not None}


def record_healed(records: Records, plan: Plan, outcomes: Iterable[Outcome], run: int, expiry: ExpiryTime) -> None:
    """Record which drifts ``plan`` has healed; an applied resource no longer differs."""
    drifted = {(row.key, row.location) for row in records.drifts.all(plan.source)}
    if not drifted:
        return
    applied = {one.id for one in outcomes if one.result is Result.APPLIED}
    for step in plan.steps:
        if step.id not in applied or (str(step.key), step.location) not in drifted:
            continue
        records.drifts.remove(step.key, step.location)
        if step.heals:
            records.heal_counts.add(step.key, step.location, step.digest, expiry)
            message = f"as applied again{location_suffix(step.location)}, version {step.version}"
            records.events.append(step.key, Reason.DRIFT_HEALED, message, location=step.location, run=run)


def _decode_drift(row: DriftRow) -> Drift:
    with stored_row("drifts", row.key):
        return parse_drift(row.packed)
