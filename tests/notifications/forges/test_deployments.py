"""Deployments of forges: one for each time that a source comes to a commit, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.records.notifications.deliveries import DeliveryStatus
from tests.notifications.forges.history import FORGE, History
from tests.notifications.forges.stub_forge import Failure, Request, StubForge, run_stub
from tests.notifications.harness import COMMIT, NEXT

Refuse = Callable[[Request], Failure | None]
THIRD = "c" * 40
ENDED = {"github": "inactive", "gitlab": "success"}
"""How a deployment stands that a later one follows: GitLab has no word for it."""
CANCELED = {"github": "inactive", "gitlab": "canceled"}
FAILED = {"github": "failure", "gitlab": "failed"}
BEGUN = {"github": "in_progress", "gitlab": "running"}
OPEN = ("in_progress", "queued", "pending", "running", "created", None)
BOTH = pytest.mark.parametrize("kind", ["github", "gitlab"])


@BOTH
async def test_each_rollback_is_a_deployment_of_its_own(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        for commit in (COMMIT, NEXT, COMMIT, NEXT, THIRD, COMMIT):
            await history.apply(commit)
        # Runs that change nothing, and a restart, add none.
        await history.crash()
        for outcome in ("unchanged", "running", "applied"):
            history.happen(outcome, COMMIT)
            await history.deliver()
        await history.close()
        assert history.deployments() == [*((commit, ENDED[kind]) for commit in "ababc"), ("a", "success")]
        states = [[state for state in one["states"] if state] for one in stub.deployments.values()]
        assert [one[:2] for one in states] == [[BEGUN[kind], "success"]] * 6
        assert not stub.faults


@pytest.mark.parametrize("is_carried_out", [True, False])
@BOTH
async def test_a_crash_at_any_request_of_a_rollback_makes_no_second_deployment(
    kind: str, is_carried_out: bool, tmp_path: Path
) -> None:
    number, asked = 0, 1
    while number < asked:
        number += 1
        with run_stub(kind) as stub:
            history = History(stub, tmp_path / f"state-{number}")
            for commit in (COMMIT, NEXT):
                await history.apply(commit)
            before = len(stub.requests)
            if is_carried_out:
                stub.lost = {before + number}
            else:
                stub.refuse = _close_connection(stub, before + number)
            await history.apply(COMMIT)
            await history.close()
            states = [("a", ENDED[kind]), ("b", ENDED[kind]), ("a", "success")]
            assert history.deployments() == states, f"request {number}"
            assert not stub.faults
            asked = len(stub.requests) - before
    assert asked > 4


def _close_connection(stub: StubForge, number: int) -> Refuse:
    return lambda _request: Failure(0) if len(stub.requests) == number else None


@BOTH
async def test_a_deployment_whose_answer_was_lost_ends_when_its_commit_is_superseded(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        delivery = history.post.records.deliveries.next_waiting(FORGE, history.post.clock.now())
        assert delivery is not None
        # The status, the look for a deployment, and the one that is made.
        stub.lost = {3}
        await history.send(delivery)
        history.happen("running", NEXT)
        await history.deliver()
        await history.close()
        assert history.deployments() == [("a", CANCELED[kind]), ("b", BEGUN[kind])]
        assert not stub.faults


@BOTH
async def test_a_forge_that_was_down_has_the_last_commit_at_the_end_and_nothing_open(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        # The forge is down meanwhile.
        for outcome, commit in (("applied", COMMIT), ("running", NEXT), ("applied", NEXT), ("running", COMMIT)):
            history.happen(outcome, commit)
        history.happen("applied", COMMIT)
        await history.deliver()
        await history.close()
        assert [commit for commit, _ in history.deployments()] == ["a", "b", "a"]
        assert history.deployments()[-1] == ("a", "success")
        assert not [state for _, state in history.deployments() if state in OPEN]
        assert stub.statuses[COMMIT][-1]["state"] == "success"
        assert not stub.faults


@BOTH
async def test_a_rollback_that_fails_leaves_the_former_deployment_as_it_was(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        for commit in (COMMIT, NEXT):
            await history.apply(commit)
        for outcome in ("running", "failed"):
            history.happen(outcome, COMMIT, failed="x" * (outcome == "failed"))
            await history.deliver()
        # The next try succeeds: that is the same deployment.
        await history.apply(COMMIT)
        await history.close()
        assert [commit for commit, _ in history.deployments()] == ["a", "b", "a"]
        first, _, last = stub.deployments.values()
        assert FAILED[kind] not in first["states"]
        assert last["states"][-2:] == [FAILED[kind], "success"]
        assert not stub.faults


async def test_sources_that_share_an_environment_end_no_deployment_of_each_other(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        history = History(stub, tmp_path / "state", sources=("shop", "edge"))
        await history.apply(COMMIT, "shop")
        await history.apply(COMMIT, "edge")
        assert history.deployments() == [("a", "success"), ("a", "success")]
        await history.apply(NEXT, "edge")
        await history.apply(COMMIT, "edge")
        assert history.deployments() == [("a", "success"), ("a", "inactive"), ("b", "inactive"), ("a", "success")]
        # One that fails ends none, and the next one ends the last that was good.
        for commit, outcome in ((NEXT, "failed"), (THIRD, "applied")):
            history.happen(outcome, commit, "shop", failed="x" * (outcome == "failed"))
            await history.deliver()
        shop = [one["states"][-1] for one in stub.deployments.values() if one["task"] == "reconciler/shop"]
        assert shop == ["inactive", "failure", "success"]
        await history.close()
        assert [one["task"] for one in stub.deployments.values()] == [
            "reconciler/shop", *["reconciler/edge"] * 3, *["reconciler/shop"] * 2
        ]  # fmt: skip
        assert not stub.faults


@BOTH
async def test_a_deployment_that_somebody_deleted_is_made_again(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        stub.deployments.clear()
        history.happen("applied", COMMIT)
        await history.deliver()
        await history.close()
        assert history.deployments() == [("a", "success")]


@pytest.mark.parametrize("status", [403, 404, 422])
@BOTH
async def test_a_token_without_the_right_for_deployments_shows_commits(kind: str, status: int, tmp_path: Path) -> None:
    with run_stub(kind) as stub, capture_logs() as logs:
        history = History(stub, tmp_path / "state")
        stub.refuse = lambda request: Failure(status) if "/deployments" in request.path else None
        for commit in (COMMIT, NEXT, COMMIT):
            await history.apply(commit)
        assert {one.status for one in history.deliveries()} == {DeliveryStatus.SENT}
        # Each was sent once.
        assert sum(map(len, stub.statuses.values())) == len(history.deliveries())
        await history.close()
        assert stub.statuses[COMMIT][-1]["state"] == "success"
        assert not stub.deployments
    [line] = [line for line in logs if line["event"] == "notification"]
    assert f"{COMMIT} is shown without deployment: " in line["message"]


def _refuse_rights(right: str) -> Refuse:
    """What GitHub does for an App without ``right``: it gives no token with it, and nothing is done without it."""

    def refuse(request: Request) -> Failure | None:
        if request.path.endswith("/access_tokens") and right in request.body["permissions"]:
            return Failure(422, body=b'{"message": "The permissions requested are not granted to this installation."}')
        return Failure(403) if f"/{right}" in request.path else None

    return refuse


async def test_an_app_without_the_right_for_deployments_shows_commits(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        history = History(stub, tmp_path / "state", app=True)
        stub.refuse = _refuse_rights("deployments")
        await history.apply(COMMIT)
        assert {one.status for one in history.deliveries()} == {DeliveryStatus.SENT}
        await history.close()
        [run] = stub.check_runs.values()
        assert run["conclusion"] == "success"


async def test_a_commit_waits_for_the_rights_of_an_app(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        history = History(stub, tmp_path / "state", app=True)
        stub.refuse = _refuse_rights("checks")
        history.happen("applied", COMMIT)
        delivery = history.post.records.deliveries.next_waiting(FORGE, history.post.clock.now())
        assert delivery is not None
        await history.send(delivery)
        stub.refuse = lambda _request: None
        await history.deliver()
        await history.close()
        [run] = stub.check_runs.values()
        assert run["conclusion"] == "success"


@BOTH
async def test_a_commit_that_is_gone_from_the_repository_leaves_no_deployment_open(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        gone = Failure(422 if kind == "github" else 404, body=b'{"message": "No commit found for SHA"}')
        stub.refuse = lambda request: gone if f"/statuses/{COMMIT}" in request.path else None
        await history.apply(NEXT)
        await history.close()
        assert history.deployments() == [("a", CANCELED[kind]), ("b", "success")]
        assert stub.statuses[NEXT][-1]["state"] == "success"
