"""Inhibition: nothing about members while what they belong to is held, and all that is still wrong afterwards."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from reconciler.model.record import Health
from reconciler.reasons import Reason
from tests.notifications.harness import Post, notify, rule
from tests.records.samples import record

MakePost = Callable[..., Post]
API, WEB, BANK = "workload/shop/api", "workload/shop/web", "workload/bank/api"


@pytest.fixture(name="post")
def post_with_workloads(make_post: MakePost) -> Post:
    """Records of three workloads, whose messages arrive at once."""
    post = make_post()
    post.delivers = True
    for key in (API, WEB, BANK):
        post.records.applied.put(record(key, "local", health=Health.UNHEALTHY))
    return post


def pass_time(post: Post, minutes: int) -> None:
    for _ in range(minutes):
        post.collect(after=60)


@pytest.mark.parametrize("target", ["gvc/shop", API, "source/main"])
def test_nothing_is_sent_of_what_is_suspended_until_it_is_resumed(post: Post, target: str) -> None:
    post.records.suspensions.put(target, "maintenance", "ada", None)
    post.happen(API, Reason.UNHEALTHY)
    pass_time(post, 20)
    assert post.titles() == []
    post.records.suspensions.remove(target)
    post.happen(target, Reason.RESUMED)
    post.collect()
    assert post.titles() == ["workload/shop/api is unhealthy"]


def test_a_suspension_that_expires_ends_the_silence_too(post: Post) -> None:
    post.records.suspensions.put("gvc/shop", "maintenance", "ada", post.clock.now() + 900)
    post.happen(API, Reason.UNHEALTHY)
    pass_time(post, 14)
    assert post.titles() == []
    pass_time(post, 8)
    assert post.titles() == ["workload/shop/api is unhealthy"]


def test_what_is_not_suspended_is_sent_at_once(post: Post) -> None:
    post.records.suspensions.put("gvc/shop", "maintenance", "ada", None)
    post.happen(API, Reason.UNHEALTHY)
    pass_time(post, 3)
    post.happen(BANK, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    assert post.titles() == ["workload/bank/api is unhealthy"]
    pass_time(post, 20)
    assert len(post.titles()) == 1


def test_what_is_to_be_sent_waits_for_the_end_of_a_suspension_and_is_dropped_if_it_ends_meanwhile(post: Post) -> None:
    post.happen(API, Reason.UNHEALTHY)
    post.happen(WEB, Reason.UNHEALTHY)
    post.collect()
    post.records.suspensions.put("gvc/shop", "maintenance", "ada", None)
    pass_time(post, 6)
    post.happen(WEB, Reason.HEALTHY)
    pass_time(post, 6)
    post.records.suspensions.remove("gvc/shop")
    post.happen("gvc/shop", Reason.RESUMED)
    pass_time(post, 10)
    assert post.titles() == ["workload/shop/api is unhealthy"]


def test_the_end_of_what_was_sent_is_sent_after_the_suspension(post: Post) -> None:
    post.happen(API, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    post.records.suspensions.put(API, "maintenance", "ada", None)
    post.happen(API, Reason.HEALTHY)
    pass_time(post, 20)
    assert post.titles() == ["workload/shop/api is unhealthy"]
    post.records.suspensions.remove(API)
    post.happen(API, Reason.RESUMED)
    pass_time(post, 6)
    assert post.titles()[1:] == ["workload/shop/api is healthy again"]


def test_others_recover_while_one_is_suspended(post: Post) -> None:
    for key in (API, WEB):
        post.happen(key, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    post.records.suspensions.put(API, "maintenance", "ada", None)
    post.happen(WEB, Reason.HEALTHY)
    pass_time(post, 10)
    assert len(post.titles()) == 2
    assert post.messages()[1].lines == ("workload/shop/web is healthy again",)


def test_what_is_suspended_is_not_repeated_and_its_ups_and_downs_are_no_message(make_post: MakePost) -> None:
    post = make_post(notify(rule(repeat=600.0)))
    post.delivers = True
    post.happen(API, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    post.records.suspensions.put(API, "maintenance", "ada", None)
    for _ in range(15):
        for reason in (Reason.HEALTHY, Reason.UNHEALTHY):
            post.happen(API, reason)
            post.collect(after=60)
    assert len(post.titles()) == 1
    post.records.suspensions.remove(API)
    pass_time(post, 12)
    assert len(post.titles()) >= 2


def test_what_is_deleted_while_it_is_suspended_is_no_message(post: Post) -> None:
    post.records.suspensions.put("gvc/shop", "maintenance", "ada", None)
    post.happen(API, Reason.UNHEALTHY)
    pass_time(post, 3)
    post.happen(API, Reason.DELETED)
    post.records.suspensions.remove("gvc/shop")
    post.happen("gvc/shop", Reason.RESUMED)
    pass_time(post, 12)
    assert post.titles() == []


def test_outcomes_of_commits_are_sent_though_a_gvc_is_suspended(post: Post) -> None:
    post.records.suspensions.put("gvc/shop", "maintenance", "ada", None)
    post.run("failed", failed="x", message="no room", gvcs=("shop",), keys=(API,))
    post.collect()
    assert post.titles() == ["main: aaaaaaaaaaaa failed: no room"]


def set_health(post: Post, key: str, health: Health) -> None:
    known = post.records.applied.at(key, "local")
    assert known is not None
    post.records.applied.put(msgspec.structs.replace(known, health=health))


def test_a_location_that_does_not_answer_is_one_message_and_its_resources_are_none(post: Post) -> None:
    for key in (API, WEB, BANK):
        post.happen(key, Reason.UNHEALTHY)
    post.happen("location/local", Reason.LOCATION_UNREACHABLE, "no answer", "")
    post.collect()
    pass_time(post, 15)
    assert post.titles() == ["location/local has a problem"]
    for key in (API, WEB):
        set_health(post, key, Health.HEALTHY)
    post.happen("location/local", Reason.LOCATION_REACHABLE, "it answers", "")
    post.collect()
    post.collect(after=31)
    assert sorted(post.titles()[1:]) == ["location/local is well again", "workload/bank/api is unhealthy"]


def test_what_is_well_when_its_location_answers_again_is_a_message(post: Post) -> None:
    post.happen(API, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    post.happen("location/local", Reason.LOCATION_UNREACHABLE, "no answer", "")
    post.collect()
    pass_time(post, 10)
    # No event says so: its health was unknown meanwhile.
    set_health(post, API, Health.HEALTHY)
    post.happen("location/local", Reason.LOCATION_REACHABLE, "it answers", "")
    pass_time(post, 10)
    assert "workload/shop/api is healthy again" in post.titles()


def test_another_location_inhibits_nothing(post: Post) -> None:
    post.happen("location/far", Reason.LOCATION_UNREACHABLE, "no answer", "")
    post.happen(API, Reason.UNHEALTHY)
    post.collect()
    post.collect(after=31)
    assert sorted(post.titles()) == ["location/far has a problem", "workload/shop/api is unhealthy"]


def restart_without_location(post: Post) -> None:
    """The location does not answer, which is reported; then the daemon is started again."""
    post.happen("location/local", Reason.LOCATION_UNREACHABLE, "no answer", "")
    for key in (API, WEB, BANK):
        set_health(post, key, Health.UNKNOWN)
    post.collect()
    post.collect(after=31)
    post.collector = post.new_collector()
    post.collector.open()


@pytest.mark.parametrize("is_back", [True, False])
def test_a_location_that_came_back_while_the_daemon_was_down_inhibits_nothing(post: Post, is_back: bool) -> None:
    restart_without_location(post)
    if is_back:
        set_health(post, API, Health.UNHEALTHY)
        post.happen(API, Reason.UNHEALTHY)
    else:
        post.happen("location/local", Reason.LOCATION_UNREACHABLE, "no answer", "")
    pass_time(post, 15)
    more = ["location/local is well again", "workload/shop/api is unhealthy"] if is_back else []
    assert sorted(post.titles()) == sorted(["location/local has a problem", *more])


def test_a_location_stays_away_as_long_as_nothing_is_known_of_it(post: Post) -> None:
    restart_without_location(post)
    pass_time(post, 30)
    assert post.titles() == ["location/local has a problem"]
