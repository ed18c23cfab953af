"""Rules in manifests of GVCs: they begin and end with the manifest, and reach only what is theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.errors import RefusedError
from reconciler.model.kinds.notify_tags import find_notify_faults, parse_notify_tags
from reconciler.model.record import Health
from reconciler.notifications.gvc_rules import load_rules
from reconciler.notifications.message import EventType, State
from reconciler.notifications.rules import Subject
from reconciler.operations.notifications import check_target, find_rule
from reconciler.reasons import Reason
from reconciler.records.notifications.deliveries import Delivery, DeliveryStatus
from reconciler.settings.notifications import (
    ChannelSettings,
    NotificationRuleSettings,
    NotificationSettings,
    WebhookChannelSettings,
)
from tests.notifications.harness import NEXT, Post, notify, rule
from tests.records.samples import record
from tests.support.clock import START

MakePost = Callable[..., Post]
API, BANK = "workload/shop/api", "workload/bank/api"
HOOK = WebhookChannelSettings(Path("/secret"), "http://127.0.0.1:9/")
CHANNELS = {
    "ops": ChannelSettings(webhook=HOOK),
    "shop": ChannelSettings(webhook=HOOK, gvcs=("shop",)),
    "all": ChannelSettings(webhook=HOOK, gvcs=("*",)),
}


def settings(*rules: NotificationRuleSettings) -> NotificationSettings:
    return NotificationSettings(dict(CHANNELS), rules or (rule("ops"),))


@pytest.fixture(name="post")
def post_of_two_gvcs(make_post: MakePost) -> Post:
    """Records of a rule of the settings and three channels, whose messages arrive at once."""
    post = make_post(settings())
    post.delivers = True
    return post


def apply(post: Post, gvc: str, **tags: str) -> None:
    """The manifest of ``gvc`` is applied with ``tags``."""
    named = {f"reconciler/{name.replace('_', '-')}": value for name, value in tags.items()}
    body = msgspec.json.encode({"kind": "gvc", "name": gvc, "tags": named})
    post.records.applied.put(msgspec.structs.replace(record(f"gvc/{gvc}"), body=body))
    post.happen(f"gvc/{gvc}", Reason.UPDATED, "tags", "")
    post.collect()


def break_workloads(post: Post) -> None:
    for key in (API, BANK):
        post.happen(key, Reason.UNHEALTHY, "not healthy: secret/db has no key `x`")
    post.collect()
    post.collect(after=31)


def list_waiting(post: Post) -> list[Delivery]:
    """What is to be sent later."""
    waiting = (DeliveryStatus.WAITING, DeliveryStatus.COLLECTED)
    return [delivery for delivery in post.records.deliveries.list() if delivery.status in waiting]


def test_a_gvc_is_sent_what_is_about_it_alone(post: Post) -> None:
    apply(post, "shop", notify="shop")
    break_workloads(post)
    assert post.titles("shop") == ["workload/shop/api is unhealthy"]
    assert "bank" not in str(post.messages("shop"))
    assert post.titles("ops") == ["2 resources are unhealthy: secret/db"]
    for key in (API, BANK):
        post.happen(key, Reason.HEALTHY)
    post.collect()
    post.collect(after=301)
    assert post.titles("shop")[1:] == ["workload/shop/api is healthy again"]


def test_a_channel_of_several_gvcs_has_what_is_about_each(post: Post) -> None:
    apply(post, "shop", notify="shop, all")
    apply(post, "bank", notify="all")
    break_workloads(post)
    assert post.titles("all") == ["2 resources are unhealthy: secret/db"]
    assert post.titles("shop") == ["workload/shop/api is unhealthy"]


def test_a_channel_that_is_not_open_is_sent_nothing_and_others_are(post: Post) -> None:
    apply(post, "bank", notify="shop, ops, nope, all")
    apply(post, "shop", notify="nope")
    break_workloads(post)
    assert post.titles("shop") == []
    assert post.titles("all") == ["workload/bank/api is unhealthy"]
    assert post.titles("ops") == ["2 resources are unhealthy: secret/db"]


def test_a_rule_ends_with_the_tag_and_with_the_gvc(post: Post) -> None:
    apply(post, "shop", notify="shop")
    break_workloads(post)
    apply(post, "shop")
    post.happen(API, Reason.HEALTHY)
    post.collect()
    post.collect(after=600)
    assert len(post.titles("shop")) == 1
    apply(post, "shop", notify="shop")
    post.happen(API, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=600)
    assert len(post.titles("shop")) == 2
    post.records.applied.remove([("gvc/shop", "")])
    post.happen("gvc/shop", Reason.DELETED, location="")
    post.happen("workload/shop/web", Reason.UNHEALTHY)
    post.collect()
    post.collect(after=600)
    assert len(post.titles("shop")) == 2


def test_a_rule_is_there_after_a_restart(post: Post) -> None:
    apply(post, "shop", notify="shop", notify_severity="error", notify_events="health, refused, cron")
    fresh = post.new_collector()
    fresh.open()
    post.collector = fresh
    break_workloads(post)
    assert post.titles("shop") == ["workload/shop/api is unhealthy"]
    (own,) = load_rules(post.notifications, post.records).own.values()
    assert (own.name, own.channels, own.events, own.severity) == ("gvc/shop", ("shop",), ("health", "cron"), "error")


def test_a_gvc_is_sent_commits_that_change_nothing_else(post: Post) -> None:
    apply(post, "shop", notify="shop")
    post.run("failed", failed="x", message="no room", gvcs=("shop",), keys=(API, "gvc/shop"))
    post.run("failed", NEXT, failed="x", message="no room", gvcs=("bank", "shop"), keys=(API, BANK))
    post.run("failed", "c" * 40, failed="x", message="no room", gvcs=("shop",), keys=(API, "secret/db"))
    post.run("failed", "d" * 40, failed="x", message="no room")
    post.run("refused", "e" * 40, message="1 error")
    post.collect()
    assert [message.commit[:1] for message in post.messages("shop")] == ["a"]
    assert len(post.messages("ops")) == 5


def test_a_rule_sends_what_is_as_serious_as_its_tag_wants(post: Post) -> None:
    apply(post, "shop", notify="shop", notify_severity="error", notify_events="health, drift")
    post.happen(API, Reason.DRIFT_DETECTED, "changed: the image")
    post.happen("", Reason.SETTINGS_REFUSED, "line 3 is wrong", "")
    break_workloads(post)
    assert post.titles("shop") == ["workload/shop/api is unhealthy"]


def test_rules_of_the_settings_come_first_and_an_open_channel_has_none_of_its_own(make_post: MakePost) -> None:
    post = make_post(settings(rule("mine", ("shop",), events=("run",)), rule("also", ("shop",), gvcs=("shop",))))
    apply(post, "shop", notify="shop")
    rules = load_rules(post.notifications, post.records)
    about = Subject(EventType.HEALTH, State.FAILURE, gvcs=("shop",), keys=(API,))
    found = rules.find_for("shop", about)
    assert found is not None
    assert found.name == "also"
    bare = load_rules(NotificationSettings(CHANNELS), post.records)
    assert list(bare.by_name) == ["ops", "gvc/shop"]


def test_a_rule_of_a_gvc_can_be_tried_and_muted(post: Post) -> None:
    apply(post, "shop", notify="shop")
    assert find_rule(post.settings, post.records, "gvc/shop") == "gvc/shop"
    check_target(post.settings, post.records, "rule/gvc/shop")
    with pytest.raises(RefusedError, match="there is no rule 'gvc/bank'"):
        check_target(post.settings, post.records, "rule/gvc/bank")
    post.records.mutes.put("rule/gvc/shop", "a migration", "ada", post.clock.now() + 3600)
    break_workloads(post)
    assert (post.titles("shop"), len(post.titles("ops"))) == ([], 1)


def test_a_gvc_has_quiet_hours_of_its_own(post: Post) -> None:
    # The clock of the test begins at midnight.
    apply(post, "shop", notify="shop", notify_quiet_hours="23:00-05:30 Europe/Berlin")
    post.run("failed", failed="x", message="no room", gvcs=("shop",), keys=(API,))
    break_workloads(post)
    assert len(post.titles("ops")) == 2
    assert {delivery.due for delivery in list_waiting(post)} == {START + 4.5 * 3600}
    post.collect(after=4.5 * 3600)
    assert list_waiting(post) == []
    assert len(post.titles("shop")) == 2


def test_a_gvc_is_sent_a_digest_at_its_time(post: Post) -> None:
    apply(post, "shop", notify="shop", notify_digest="08:00")
    post.run("failed", failed="x", message="no room", gvcs=("shop",), keys=(API,))
    break_workloads(post)
    post.collect(after=8 * 3600)
    assert [message.event for message in post.messages("shop")][-1] is EventType.DIGEST
    assert [delivery.status for delivery in post.records.deliveries.list() if delivery.channel == "shop"] == [
        DeliveryStatus.SENT,
        DeliveryStatus.DIGESTED,
        DeliveryStatus.DIGESTED,
    ]


def test_a_gvc_is_reminded_of_what_is_still_wrong(post: Post) -> None:
    apply(post, "shop", notify="shop", notify_repeat="1h")
    break_workloads(post)
    for _ in range(8):
        post.collect(after=900)
    assert post.titles("shop") == ["workload/shop/api is unhealthy"] * 3
    assert len(post.titles("ops")) == 1


@pytest.mark.parametrize("tags", [{"notify_digest": "08:00"}, {"notify_quiet_hours": "23:00-06:00"}])
@pytest.mark.parametrize("closed", [True, False])
def test_what_waits_by_a_rule_is_not_sent_after_its_end(post: Post, tags: dict[str, str], closed: bool) -> None:
    apply(post, "shop", notify="shop, all", **tags)
    post.run("failed", failed="x", message="no room", gvcs=("shop",), keys=(API,))
    post.collect()
    assert {delivery.channel for delivery in list_waiting(post)} == {"shop", "all"}
    if closed:
        post.notifications.channels["shop"] = ChannelSettings(webhook=HOOK, gvcs=("bank",))
        post.collector = post.new_collector()
        post.collector.open()
    else:
        apply(post, "shop", notify="all", **tags)
    assert {delivery.channel for delivery in list_waiting(post)} == {"all"}
    post.collect(after=9 * 3600)
    sent = [delivery.channel for delivery in post.records.deliveries.list() if delivery.status is DeliveryStatus.SENT]
    assert set(sent) == {"ops", "all"}


@pytest.mark.parametrize(
    ("tags", "fields"),
    [
        ({}, (None, None, 0.0)),
        ({"quiet-hours": "22:00 - 07:00"}, (("22:00", "07:00", "UTC"), None, 0.0)),
        ({"quiet-hours": "22:00-07:00 Europe/Berlin"}, (("22:00", "07:00", "Europe/Berlin"), None, 0.0)),
        ({"quiet-hours": "22:00-07:00 Europe/Nowhere", "repeat": "5m"}, (None, None, 300.0)),
        ({"quiet-hours": "22:00-22:00", "repeat": "299s"}, (None, None, 0.0)),
        ({"quiet-hours": "24:00-07:00", "repeat": "soon"}, (None, None, 0.0)),
        ({"digest": "08:00 Asia/Tokyo"}, (None, ("08:00", "Asia/Tokyo"), 0.0)),
        ({"digest": "8:00"}, (None, None, 0.0)),
        ({"digest": "08:00 ../../etc/passwd"}, (None, None, 0.0)),
    ],
)
def test_a_value_that_is_wrong_has_no_effect_and_is_a_finding(tags: dict[str, str], fields: tuple[object, ...]) -> None:
    named = {"reconciler/notify": "shop"} | {f"reconciler/notify-{name}": text for name, text in tags.items()}
    found = parse_notify_tags(named)
    assert found is not None
    assert (found.quiet_hours, found.digest, found.repeat) == fields
    wrong = {str(flaw.at[-1]) for flaw in find_notify_faults(named)}
    effects = dict(zip(("quiet-hours", "digest", "repeat"), fields, strict=True))
    assert wrong == {f"reconciler/notify-{name}" for name in tags if not effects[name]}


def test_a_rule_that_is_new_is_sent_what_is_wrong_now_once(post: Post) -> None:
    apply(post, "bank", notify="all")
    broken = [BANK, *(f"workload/shop/{name}" for name in ("api", "web", "db"))]
    for key in broken:
        post.records.applied.put(record(key, "local", health=Health.UNHEALTHY))
        post.happen(key, Reason.UNHEALTHY, "it exits with 1")
    post.happen("workload/shop/nightly", Reason.EXECUTION_FAILED, "run-1: it exits with 1")
    post.collect()
    post.collect(after=31)
    before = post.titles("ops")
    assert (len(post.titles("all")), post.titles("shop")) == (1, [])
    apply(post, "shop", notify="shop, all")
    for _ in range(10):
        post.collect(after=60)
    assert post.titles("shop") == ["3 resources of main are unhealthy"]
    assert post.titles("all")[1:] == ["4 resources of main are unhealthy"]
    assert post.titles("ops") == before
    post.collector = post.new_collector()
    post.collector.open()
    apply(post, "shop", notify="shop, all", notify_repeat="4h")
    for _ in range(10):
        post.collect(after=60)
    assert (len(post.titles("shop")), len(post.titles("all")), post.titles("ops")) == (1, 2, before)


def test_a_rule_that_comes_back_is_sent_what_is_wrong_still(post: Post) -> None:
    apply(post, "shop", notify="shop")
    break_workloads(post)
    apply(post, "shop")
    post.collect(after=600)
    apply(post, "shop", notify="shop")
    post.collect(after=600)
    assert post.titles("shop") == ["workload/shop/api is unhealthy"] * 2


def test_a_channel_of_new_settings_is_sent_what_is_wrong_now(make_post: MakePost) -> None:
    post = make_post(notify(rule("ops", severity="error")))
    post.delivers = True
    post.happen(API, Reason.UNHEALTHY, "it exits with 1")
    post.happen("volumeset/shop/data", Reason.VOLUME_NEARLY_FULL, "little is free")
    post.collect()
    post.collect(after=31)
    assert post.titles() == ["workload/shop/api is unhealthy"]
    post.notifications = notify(rule("ops"), rule("more", ("more",)), channels=("ops", "more"))
    post.settings = msgspec.structs.replace(post.settings, notifications=post.notifications)
    post.records.applied.put(record(API, "local", health=Health.UNHEALTHY))
    for _ in range(2):
        post.collector = post.new_collector()
        post.collector.open()
        for _ in range(10):
            post.collect(after=60)
    volume = "volumeset/shop/data has a problem with a volume"
    assert post.titles() == ["workload/shop/api is unhealthy", volume]
    assert sorted(post.titles("more")) == [volume, "workload/shop/api is unhealthy"]
