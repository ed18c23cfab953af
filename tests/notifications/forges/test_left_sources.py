"""A source that the settings have no longer: what waits for it at a forge ends, and says why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from reconciler.notifications.forge_repositories import update_repositories
from reconciler.notifications.message import State
from reconciler.records.notifications.deliveries import DeliveryStatus
from reconciler.settings import SourceSettings
from reconciler.settings.forges import ForgeSettings
from reconciler.settings.notifications import (
    ChannelSettings,
    NotificationRuleSettings,
    NotificationSettings,
    WebhookChannelSettings,
)
from tests.notifications.forges.history import FORGE, History
from tests.notifications.forges.setup import KINDS
from tests.notifications.forges.stub_forge import StubForge, run_stub
from tests.notifications.harness import COMMIT, NEXT

OTHER = SourceSettings("other", "https://git.example.com/acme/other.git", branch="main")
SHOP = SourceSettings("shop", "https://git.example.com/acme/shop.git", branch="main")
ENDED = {
    "github": "success", "gitlab": "canceled", "gitea": "warning", "forgejo": "warning", "bitbucket": "STOPPED",
    "bitbucket-server": "CANCELLED",
}  # fmt: skip
WAITING = {"hold_digest": "h" * 64, "waiting": 1}
REMOVED = f"shop: {COMMIT[:12]} is superseded: the source shop was removed from the settings"


def last_status(stub: StubForge, commit: str = COMMIT) -> tuple[str, str]:
    """The last state of a commit, and what it says."""
    status = stub.statuses[commit][-1]
    return status["state"], status["description"]


@pytest.mark.parametrize("others", [(OTHER,), ()], ids=["others", "none"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_commit_that_waits_ends_with_the_reason(
    kind: str, others: tuple[SourceSettings, ...], tmp_path: Path
) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        history.happen("waiting", COMMIT, **WAITING)
        await history.deliver()
        await history.reload(*others)
        await history.deliver()
        assert last_status(stub) == (ENDED[kind], REMOVED)
        written = len(stub.requests)
        # Nothing more is said, and nothing is left to say.
        await history.crash()
        await history.deliver()
        await history.close()
        assert len(stub.requests) == written
        assert not stub.faults


@pytest.mark.parametrize("kind", ["github", "gitlab"])
async def test_its_deployment_ends(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        await history.reload(OTHER)
        await history.deliver()
        canceled = "inactive" if kind == "github" else "canceled"
        assert history.deployments() == [("a", canceled)]
        # It comes back, and applies the commit: that is another deployment.
        await history.reload(SHOP, OTHER)
        await history.apply(COMMIT)
        await history.close()
        assert history.deployments() == [("a", canceled), ("a", "success")]
        assert last_status(stub)[0] == "success"
        assert not stub.faults


async def test_a_daemon_that_is_killed_between_the_steps_ends_the_commit_once(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        stub.lost = {2}
        changed = msgspec.structs.replace(history.post.settings, sources=(OTHER,))
        # Killed before any message was made of it, then before it was sent, then before its answer was on disk.
        update_repositories(history.post.mine, changed)
        await history.reload(OTHER)
        await history.crash()
        await history.deliver()
        ended = [one for one in history.deliveries() if one.state == State.SUPERSEDED]
        await history.close()
        assert [(one.status, one.tries, one.may_repeat) for one in ended] == [(DeliveryStatus.SENT, 2, True)]
        assert [status["state"] for status in stub.statuses[COMMIT]] == ["pending", "warning", "warning"]


async def test_a_source_that_is_back_before_its_commit_ended_goes_on(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        await history.reload(OTHER)
        await history.reload(SHOP, OTHER)
        history.happen("waiting", COMMIT, **WAITING)
        await history.deliver()
        assert last_status(stub)[0] == "pending"
        history.happen("applied", COMMIT)
        await history.deliver()
        await history.close()
        assert last_status(stub)[0] == "success"
        assert not stub.faults


async def test_an_outcome_that_was_not_sent_yet_comes_first(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        # No message was made of these.
        history.post.run("applied", COMMIT, source="shop")
        history.post.run("running", NEXT, source="shop")
        await history.reload(OTHER)
        await history.deliver()
        await history.close()
        assert last_status(stub)[0] == "success"
        state, description = last_status(stub, NEXT)
        assert state == "warning"
        assert "the source shop was removed" in description
        assert not stub.faults


async def test_a_token_that_it_had_is_used_as_long_as_it_can_be_read(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        fresh = tmp_path / "another"
        fresh.write_text("planted-token-2")
        stub.secrets.add("planted-token-2")
        await history.reload(OTHER, token_file=fresh, repository="acme/other")
        old = history.post.path.parent / "token"
        raw = old.read_text()
        old.unlink()
        history.happen("applied", NEXT, "other")
        deliveries, now = history.post.records.deliveries, history.post.clock.now()
        first = deliveries.next_waiting(FORGE, now)
        assert first is not None
        await history.send(first)
        assert deliveries.get(first.id).status is DeliveryStatus.WAITING  # type: ignore[union-attr]
        other = deliveries.next_waiting(FORGE, now, first.id)
        assert other is not None
        await history.send(other)
        assert last_status(stub, NEXT)[0] == "success"
        old.write_text(raw)
        await history.deliver()
        await history.close()
        assert last_status(stub)[0] == "warning"
        used = {(request.path.split("/")[5], request.headers["authorization"]) for request in stub.requests}
        assert used == {("shop", f"token {raw.strip()}"), ("other", "token planted-token-2")}
        assert not stub.faults


async def test_a_source_that_is_no_longer_at_the_forge_ends_there(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state", sources=("shop", "other"))
        history.happen("running", COMMIT)
        await history.deliver()
        shop, other = history.post.settings.sources
        notifications = history.post.notifications
        history.forge = msgspec.structs.replace(history.forge, sources=("other",))
        history.post.notifications = msgspec.structs.replace(notifications, forges={FORGE: history.forge})
        history.post.settings = msgspec.structs.replace(
            history.post.settings, sources=(shop, other), notifications=history.post.notifications
        )
        await history.crash()
        await history.deliver()
        await history.close()
        assert last_status(stub)[0] == "warning"
        assert "the source shop is no longer at this forge in the settings" in last_status(stub)[1]


async def test_a_source_with_another_repository_ends_at_the_former_one(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        await history.reload(SHOP, repository="acme/store")
        history.happen("applied", NEXT)
        await history.deliver()
        await history.close()
        assert "the source shop has another repository in the settings" in last_status(stub)[1]
        shown = [(request.path.split("/")[5], request.path.split("/")[7]) for request in stub.requests]
        assert shown == [("shop", COMMIT), ("shop", COMMIT), ("store", NEXT)]
        assert not stub.faults


@pytest.mark.parametrize("kind", ["github", "gitlab"])
async def test_a_branch_with_another_name_leaves_nothing_on_the_former_one(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        await history.reload(msgspec.structs.replace(SHOP, branch="trunk"))
        for outcome in ("running", "applied"):
            history.happen(outcome, COMMIT, branch="trunk")
            await history.deliver()
        await history.close()
        last = {status.get("ref", ""): status["state"] for status in stub.statuses[COMMIT]}
        assert last == ({"main": "canceled", "trunk": "success"} if kind == "gitlab" else {"": "success"})
        assert history.deployments()[-1] == ("a", "success")
        assert not stub.faults


def _rename_forge(settings: NotificationSettings, **changes: str) -> NotificationSettings:
    forge: ForgeSettings = settings.forges[FORGE]
    return NotificationSettings({}, (), forges={"another": msgspec.structs.replace(forge, **changes)})


@pytest.mark.parametrize("gone", ["forge", "notifications", "context"])
async def test_a_forge_that_is_gone_is_logged_once_with_the_commit(gone: str, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        history.happen("applied", NEXT)
        history.happen("running", COMMIT)
        await history.deliver()
        post = history.post
        notifications = {
            "forge": NotificationSettings({}, ()),
            "notifications": None,
            "context": _rename_forge(post.notifications, context="ci"),
        }[gone]
        settings = msgspec.structs.replace(post.settings, notifications=notifications)
        with capture_logs() as logs:
            for _ in range(2):
                assert update_repositories(post.mine, settings) == []
        await history.close()
        [line] = logs
        assert line["message"] == (
            f"the settings have no forge forge any more, so reconciler/shop stays pending at {stub.url}/acme/shop on "
            f"{COMMIT}"
        )


async def test_a_forge_with_another_name_takes_the_statuses_over(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        history.happen("running", COMMIT)
        await history.deliver()
        post = history.post
        settings = msgspec.structs.replace(post.settings, notifications=_rename_forge(post.notifications))
        with capture_logs() as logs:
            assert update_repositories(post.mine, settings) == []
        await history.close()
        assert not logs
        assert last_status(stub)[0] == "pending"


async def test_another_source_with_the_same_status_is_not_overwritten(tmp_path: Path) -> None:
    """Two forges of the settings show the same repository; one of them no longer has the source."""
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state", sources=("shop", "other"))
        history.happen("running", COMMIT)
        await history.deliver()
        post = history.post
        forge = history.forge
        both = {
            FORGE: msgspec.structs.replace(forge, sources=("other",)),
            "second": msgspec.structs.replace(forge, sources=("shop",)),
        }
        history.forge = both[FORGE]
        post.notifications = NotificationSettings({}, (), forges=both)
        post.settings = msgspec.structs.replace(post.settings, notifications=post.notifications)
        await history.crash()
        await history.deliver()
        assert {one.state for one in history.deliveries()} == {State.RUNNING}
        await history.close()
        assert last_status(stub)[0] == "pending"


async def test_a_channel_that_has_the_beginning_of_a_run_has_its_end(tmp_path: Path) -> None:
    hook = ChannelSettings(webhook=WebhookChannelSettings(tmp_path / "secret", "http://127.0.0.1:9/"))
    rule = NotificationRuleSettings("all", ("ops",), states=("running", "success"))
    with run_stub("gitea") as stub:
        history = History(stub, tmp_path / "state")
        post = history.post
        for sources in ((SHOP, OTHER), (OTHER,), (OTHER,)):
            post.notifications = NotificationSettings({"ops": hook}, (rule,))
            post.settings = msgspec.structs.replace(post.settings, sources=sources, notifications=post.notifications)
            post.collector = post.new_collector()
            post.collector.open()
            if SHOP in sources:
                post.run("running", source="shop")
                post.collect()
                post.deliver()
        titles = post.titles()
        await history.close()
        assert titles == ["shop: aaaaaaaaaaaa is being applied", REMOVED]
