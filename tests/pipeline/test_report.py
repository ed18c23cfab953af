"""What a run reports: whether all that it left ends by itself, and what `apply --wait` waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engines.protocol import Outcome, Result
from reconciler.model.record import Health
from reconciler.pipeline import report
from reconciler.planning.plan import Action
from reconciler.reasons import Reason
from reconciler.status.progress import recheck_at, unhealthy_resources
from tests.support.plans import plan, step
from tests.support.records import record, shop

WEB, DATA, API = "workload/shop/web", "volumeset/shop/data", "workload/shop/api"
STEPS = [
    step(WEB, action=Action.DELETE),
    step(DATA, action=Action.DELETE, waits_for=[WEB]),
    step(API, action=Action.UPDATE, waits_for=[DATA]),
]
ENDING = (Result.WAITING, Reason.TERMINATING)
WAITING = (Result.WAITING, Reason.DEPENDENCY_WAITING)
APPLIED = (Result.APPLIED, Reason.APPLIED)


@pytest.mark.parametrize(
    ("results", "ends"),
    [
        ([ENDING, WAITING, WAITING], True),
        ([ENDING, APPLIED, APPLIED], True),
        ([APPLIED, ENDING, WAITING], True),
        ([APPLIED, APPLIED, APPLIED], False),
        ([APPLIED, APPLIED, ENDING], False),
        ([APPLIED, WAITING, WAITING], False),
        ([ENDING, (Result.FAILED, Reason.ERROR), WAITING], False),
        ([(Result.WAITING, Reason.APPROVAL_REQUIRED), WAITING, WAITING], False),
    ],
)
def test_only_deletes_whose_replicas_end_go_on_alone(results: list[tuple[Result, Reason]], ends: bool) -> None:
    outcomes = [Outcome(one.id, result, reason) for one, (result, reason) in zip(STEPS, results, strict=True)]
    assert report.of_plan("main", "main@sha1:abc", plan(*STEPS), outcomes, []).ends_by_itself is ends


def test_what_is_no_longer_in_git_is_not_waited_for_unless_it_ends(tmp_path: Path) -> None:
    records = shop(tmp_path)
    with records.transaction():
        records.applied.put(record("workload/shop/old", {}, "here", health=Health.UNHEALTHY))
    listed = [str(resource.key) for resource in unhealthy_resources(records)]
    assert listed == ["workload/shop/web"]
    with records.transaction():
        records.failures.clear(record("workload/shop/web", {}).key, "aws-us-west-2")
        records.applied.put(record("workload/shop/web", {}, "aws-us-west-2"))
    assert recheck_at(records) is None
    with records.transaction():
        records.applied.put(record("workload/shop/old", {}, "here", health=Health.DELETING))
    assert recheck_at(records) == 0.0
