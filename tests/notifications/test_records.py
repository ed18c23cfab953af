"""The tables of notifications: bounded, and forgotten with the setting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.doctor.records import check_records
from reconciler.notifications.sender import channel_scope, forget_channels
from reconciler.reasons import ConditionType, Reason
from reconciler.records.notifications import deliveries
from reconciler.settings.forges import ForgeSettings
from reconciler.status.conditions import make_condition
from tests.notifications.harness import Post, notify

MakePost = Callable[..., Post]


def test_the_oldest_messages_are_forgotten(make_post: MakePost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "KEEP_DELIVERIES", 50)
    monkeypatch.setattr(deliveries, "KEEP_NOTICES", 70)
    post = make_post()
    for number in range(120):
        post.run("failed", f"{number:040}", failed="x")
    post.collect()
    assert [int(message.commit) for message in post.messages()] == list(range(70, 120))


def test_without_the_setting_what_waits_is_forgotten_and_what_was_sent_stays(make_post: MakePost) -> None:
    post = make_post()
    post.run("failed", failed="x")
    post.collect()
    post.deliver()
    post.run("failed", "b" * 40, failed="x")
    post.happen("workload/shop/api", Reason.UNHEALTHY)
    post.collect()
    post.records.notices.forget()
    assert post.titles() == ["main: aaaaaaaaaaaa failed: "]
    assert (post.records.troubles.all(), post.records.notices.cursor()) == ([], None)


def test_the_condition_of_a_channel_is_shown_by_doctor_and_goes_with_it(make_post: MakePost) -> None:
    post = make_post(notify(channels=("ops", "gone")))
    forge = ForgeSettings(token_file=Path("/token"))
    for name in ("ops", "gone", "git"):
        condition = make_condition(ConditionType.NOTIFYING, False, Reason.SEND_FAILED, "it does not answer")
        post.records.conditions.set(channel_scope(name), condition)
    forget_channels(post.records, msgspec.structs.replace(notify(), forges={"git": forge}))
    assert sorted(post.records.conditions.scopes_below("/channel/")) == ["/channel/git", "/channel/ops"]
    checks = {check.about: check.message for check in check_records(post.settings, "", post.clock.now())}
    assert checks["channel ops"] == "messages have not arrived for 0 s: it does not answer"
    assert "channel git" in checks
    assert "channel gone" not in checks
    forget_channels(post.records, None)
    assert not post.records.conditions.scopes_below("/channel/")
