"""Troubles: one cause is one message, and what goes up and down is one message an interval."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from reconciler.model.record import Health
from reconciler.notifications.message import EventType, State
from reconciler.notifications.troubles import TRANSITIONS
from reconciler.reasons import ConditionType, Reason
from reconciler.reasons import EventType as KubernetesEventType
from reconciler.records.tables.events import NewEvent
from reconciler.settings import SourceSettings
from reconciler.status.conditions import make_condition
from tests.notifications.harness import Post, notify, rule
from tests.records.samples import record

MakePost = Callable[..., Post]
API = "workload/shop/api"


@pytest.fixture(name="make_post")
def make_post_that_delivers(make_post: MakePost) -> MakePost:
    """Records whose messages arrive at once."""

    def make(*args: Any, **more: Any) -> Post:
        post = make_post(*args, **more)
        post.delivers = True
        return post

    return make


def test_an_unhealthy_workload_and_its_recovery_are_a_message_each(make_post: MakePost) -> None:
    post = make_post()
    post.happen(API, Reason.UNHEALTHY, "not healthy at local: it exits with 1")
    post.collect()
    assert post.titles() == []
    post.collect(after=31)
    assert post.titles() == ["workload/shop/api is unhealthy"]
    (resource,) = post.messages()[0].resources
    assert (resource.key, resource.location, resource.message) == (
        API,
        "local",
        "not healthy at local: it exits with 1",
    )
    post.happen(API, Reason.HEALTHY)
    post.collect(after=31)
    assert len(post.titles()) == 1
    post.collect(after=300)
    assert post.titles()[1:] == ["workload/shop/api is healthy again"]
    assert [message.state for message in post.messages()] == [State.FAILURE, State.SUCCESS]


@pytest.mark.parametrize(
    ("key", "begins", "ends", "titles"),
    [
        (
            "volumeset/shop/data",
            Reason.VOLUME_NEARLY_FULL,
            Reason.VOLUME_HAS_ROOM,
            ["volumeset/shop/data has a problem with a volume", "volumeset/shop/data is well again"],
        ),
        (
            "domain/shop.example",
            Reason.CERTIFICATE_EXPIRING,
            Reason.CERTIFICATE_RENEWED,
            ["domain/shop.example has a problem with a certificate", "domain/shop.example is well again"],
        ),
    ],
)
def test_a_level_that_is_passed_is_a_message_and_so_is_its_end(
    make_post: MakePost, key: str, begins: Reason, ends: Reason, titles: list[str]
) -> None:
    post = make_post()
    post.happen(key, begins, "soon")
    post.collect(after=31)
    post.collect(after=31)
    assert post.titles() == titles[:1]
    post.happen(key, ends)
    post.collect(after=301)
    post.collect(after=301)
    assert post.titles() == titles


def test_what_comes_and_goes_before_any_message_is_no_message(make_post: MakePost) -> None:
    post = make_post()
    post.happen(API, Reason.UNHEALTHY)
    post.happen(API, Reason.HEALTHY)
    post.collect()
    post.collect(after=3600)
    assert post.titles() == []


def test_one_bad_secret_that_breaks_forty_workloads_is_one_message(make_post: MakePost) -> None:
    post = make_post()
    for number in range(40):
        post.happen(f"workload/shop/w{number:02}", Reason.UNHEALTHY, "not healthy at local: no key `url` in secret/db")
    post.collect()
    post.collect(after=31)
    (message,) = post.messages()
    assert message.title == "40 resources are unhealthy: secret/db"
    assert message.lines == ("40 of them: not healthy at local: no key `url` in secret/db",)
    assert (len(message.resources), message.left_out, message.counts) == (20, 20, {"troubled": 40})


def test_ten_thousand_failures_in_a_minute_are_one_message(make_post: MakePost) -> None:
    post = make_post()
    for second in range(20):
        post.records.events.append_many(
            NewEvent(f"workload/shop/w{second * 500 + number}", Reason.UNHEALTHY, f"it fails {number}", "local")
            for number in range(500)
        )
        post.collect(after=1)
    post.collect(after=40)
    post.collect(after=200)
    assert post.titles() == ["10000 resources are unhealthy"]


def test_what_goes_up_and_down_is_one_message_an_interval_with_the_count(make_post: MakePost) -> None:
    post = make_post()
    sent: list[float] = []
    for turn in range(180):
        post.happen(API, Reason.HEALTHY if turn % 2 else Reason.UNHEALTHY, f"turn {turn}")
        post.collect(after=20)
        sent += [post.clock.now()] * (len(post.messages()) - len(sent))
    assert 2 <= len(sent) <= 13
    assert all(later - earlier >= 300 for earlier, later in pairwise(sent))
    assert any("It changed" in line and "times since" in line for line in post.messages()[-1].lines)


def test_a_message_that_changes_each_time_is_no_news(make_post: MakePost) -> None:
    post = make_post()
    for turn in range(60):
        post.happen(API, Reason.UNHEALTHY, f"not healthy: {turn} restarts")
        post.collect(after=60)
    assert post.titles() == ["workload/shop/api is unhealthy"]


def test_a_new_trouble_waits_for_the_interval_and_names_who_recovered(make_post: MakePost) -> None:
    post = make_post()
    post.happen(API, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    post.happen("workload/shop/web", Reason.UNHEALTHY)
    post.happen(API, Reason.HEALTHY)
    post.collect(after=60)
    assert len(post.titles()) == 1
    post.collect(after=240)
    assert post.titles()[1:] == ["workload/shop/web is unhealthy"]
    assert post.messages()[1].lines == ("workload/shop/api is healthy again",)


def test_what_is_still_wrong_is_repeated_where_the_rule_wants_it(make_post: MakePost) -> None:
    post = make_post(notify(rule(repeat=3600.0)))
    post.happen(API, Reason.UNHEALTHY)
    for _ in range(130):
        post.collect(after=60)
    assert post.titles() == ["workload/shop/api is unhealthy"] * 3


def test_nothing_is_sent_about_members_while_their_source_is_suspended(make_post: MakePost) -> None:
    post = make_post()
    post.records.applied.put(record(API, "local"))
    source = record(API, "local").source
    post.records.suspensions.put(f"source/{source}", "maintenance", "ada", None)
    post.happen(API, Reason.UNHEALTHY)
    for _ in range(10):
        post.collect(after=60)
    assert post.titles() == []
    post.records.suspensions.remove(f"source/{source}")
    for _ in range(6):
        post.collect(after=60)
    assert post.titles() == ["workload/shop/api is unhealthy"]


def test_a_mute_delays_a_message_until_it_is_over(make_post: MakePost) -> None:
    post = make_post()
    post.records.mutes.put("gvc/shop", "a migration", "ada", post.clock.now() + 600)
    post.happen(API, Reason.UNHEALTHY)
    for _ in range(9):
        post.collect(after=60)
    assert post.titles() == []
    post.collect(after=61)
    assert post.titles() == ["workload/shop/api is unhealthy"]


@pytest.mark.parametrize("shorter", [False, True])
def test_a_mute_that_ends_before_its_time_delays_nothing_until_then(make_post: MakePost, shorter: bool) -> None:
    post = make_post()
    post.records.mutes.put("gvc/shop", "a migration", "ada", post.clock.now() + 36_000)
    post.happen(API, Reason.UNHEALTHY)
    for _ in range(9):
        post.collect(after=60)
    assert post.titles() == []
    if shorter:
        post.records.mutes.put("gvc/shop", "a migration", "ada", post.clock.now() + 1)
    else:
        post.records.mutes.remove("gvc/shop")
    for _ in range(6):
        post.collect(after=60)
    assert post.titles() == ["workload/shop/api is unhealthy"]


def test_a_deleted_workload_is_no_trouble_any_more(make_post: MakePost) -> None:
    post = make_post()
    post.happen(API, Reason.UNHEALTHY)
    post.happen(API, Reason.DELETED)
    post.collect()
    post.collect(after=60)
    assert post.titles() == []


@pytest.mark.parametrize("left", [("edge",), ("main", "edge"), ("main",)])
def test_what_moves_to_another_source_ends_there(make_post: MakePost, left: tuple[str, ...]) -> None:
    post = make_post(sources=("main", "edge"))
    post.delivers = True
    post.records.applied.put(record(API, "local", health=Health.UNHEALTHY))
    post.happen(API, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    post.records.applied.put(record(API, "local", source="edge", health=Health.UNHEALTHY))
    post.settings = msgspec.structs.replace(
        post.settings, sources=tuple(SourceSettings(name=name, url=f"/{name}") for name in left)
    )
    post.collector = post.new_collector()
    post.collector.open()
    assert [trouble.source for trouble in post.records.troubles.all()] == ["edge"]
    post.happen(API, Reason.HEALTHY)
    post.collect()
    post.collect(after=301)
    ends = [title for title in post.titles() if "again" in title]
    assert ends == [f"{API} is healthy again"]


def test_a_stale_source_is_a_trouble_of_the_daemon_until_it_can_be_read(make_post: MakePost) -> None:
    post = make_post()
    message = "no revision could be read for longer than 600 s"
    post.records.conditions.set(
        "main", make_condition(ConditionType.SOURCE_STALE, True, Reason.SOURCE_UNREACHABLE, message)
    )
    for _ in range(10):
        post.collect(after=60)
    assert post.titles() == ["source/main has a problem"]
    post.records.conditions.set("main", make_condition(ConditionType.SOURCE_STALE, False, Reason.FETCHED))
    post.collect()
    post.collect(after=301)
    assert post.titles()[1:] == ["source/main is well again"]


def test_a_full_disk_is_one_message_though_each_source_has_an_event(make_post: MakePost) -> None:
    post = make_post(sources=("main", "edge"))
    for name in ("main", "edge"):
        post.happen(f"source/{name}", Reason.DISK_FULL, "the disk is full", "")
    post.collect()
    post.collect(after=31)
    assert post.titles() == ["the daemon has a problem"]


def test_backups_are_a_trouble_of_their_own_until_one_is_made(make_post: MakePost) -> None:
    post = make_post()
    post.happen("", Reason.BACKUP_STALE, "the newest is old", "")
    post.happen("source/main", Reason.DISK_FULL, "the disk is full", "")
    post.collect()
    post.collect(after=31)
    assert sorted(post.titles()) == ["the backup of the records has a problem", "the daemon has a problem"]
    post.happen("source/main", Reason.DISK_RECOVERED, "there is room", "")
    post.happen("", Reason.BACKUP_FAILED, "the place is full", "")
    for _ in range(10):
        post.collect(after=60)
    assert post.titles()[2:] == ["the daemon is well again"]
    assert [trouble.message for trouble in post.records.troubles.all()] == ["the place is full"]
    post.happen("", Reason.BACKUP_RECOVERED, "the newest is new", "")
    post.collect()
    post.collect(after=31)
    assert post.titles()[3:] == ["the backup of the records is well again"]


def test_the_certificate_of_the_api_is_a_trouble_of_its_own(make_post: MakePost) -> None:
    post = make_post()
    post.happen("", Reason.CERTIFICATE_EXPIRING, "it expires at 3", "")
    post.happen("", Reason.BACKUP_STALE, "the newest is old", "")
    post.collect()
    post.collect(after=31)
    post.happen("", Reason.CERTIFICATE_RENEWED, "it is new", "")
    post.collect()
    post.collect(after=301)
    assert sorted(post.titles()) == [
        "the API has a problem with a certificate",
        "the API is well again",
        "the backup of the records has a problem",
    ]


def test_a_fact_is_sent_once_and_has_no_end(make_post: MakePost) -> None:
    post = make_post()
    post.happen("workload/shop/nightly", Reason.EXECUTION_FAILED, "run-1: it exits with 1")
    for _ in range(20):
        post.collect(after=60)
    assert post.titles() == ["workload/shop/nightly has failing executions"]


def test_each_channel_has_a_fact_however_long_it_waits(make_post: MakePost) -> None:
    rules = (
        rule("fast", ("fast",), wait=1.0, interval=1.0),
        rule("slow", ("slow",), wait=600.0),
        rule("also", ("also",)),
    )
    post = make_post(notify(*rules, channels=("fast", "slow", "also")))
    for number in range(2):
        post.happen("workload/shop/nightly", Reason.EXECUTION_FAILED, f"run-{number}: it exits with 1")
        post.collect(after=1)
        post.collect(after=2)
    for _ in range(40):
        post.collect(after=30)
    titles = ["workload/shop/nightly has failing executions"]
    assert (post.titles("fast"), post.titles("also"), post.titles("slow")) == (titles * 2, titles, titles)
    assert post.records.troubles.all() == []


def test_events_from_before_the_first_start_are_not_sent(make_post: MakePost) -> None:
    post = make_post()
    post.records.notices.forget()
    post.happen(API, Reason.UNHEALTHY)
    fresh = post.new_collector()
    fresh.open()
    fresh.collect()
    post.clock.block(60)
    fresh.collect()
    assert post.titles() == []


@pytest.mark.parametrize("reason", TRANSITIONS)
def test_what_begins_a_trouble_is_a_warning_and_what_ends_one_is_not(reason: Reason) -> None:
    assert (reason.event_type is KubernetesEventType.NORMAL) == TRANSITIONS[reason].ends
    assert TRANSITIONS[reason].kind in EventType
