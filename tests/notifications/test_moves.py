"""What moves to another source while the daemon runs: its rules, mutes and suspensions count from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from reconciler.model.record import Health
from reconciler.notifications.message import State
from reconciler.reasons import ConditionType, Reason
from reconciler.settings import SourceSettings
from reconciler.status.conditions import make_condition
from tests.notifications.harness import Post, notify, rule
from tests.records.samples import record

MakePost = Callable[..., Post]
API, WEB, CRON = "workload/shop/api", "workload/shop/web", "workload/shop/nightly"
CHANNELS = ("of-main", "of-edge", "of-all")
BEGINS, ENDS = f"{API} is unhealthy", f"{API} is healthy again"


@pytest.fixture(name="make_post")
def make_post_of_two_sources(make_post: MakePost) -> MakePost:
    """Records with a channel for each of two sources, and one for both; messages arrive at once."""

    def make(**fields: Any) -> Post:
        rules = (
            rule("of-main", ("of-main",), sources=("main",), **fields),
            rule("of-edge", ("of-edge",), sources=("edge",), **fields),
            rule("of-all", ("of-all",), **fields),
        )
        post = make_post(notify(*rules, channels=CHANNELS), sources=("main", "edge"))
        post.delivers = True
        return post

    return make


def apply(post: Post, key: str, source: str = "main", health: Health = Health.UNHEALTHY) -> None:
    post.records.applied.put(record(key, "local", source=source, health=health))


def fail(post: Post, key: str, reason: Reason = Reason.UNHEALTHY, message: str = "") -> None:
    apply(post, key)
    post.happen(key, reason, message)


def move(post: Post, *keys: str, to: str = "edge") -> None:
    """Let the source ``to`` own ``keys``, in one transaction, as a run does."""
    with post.records.transaction():
        post.records.applied.adopt(to, keys)
        post.happen(f"source/{to}", Reason.ADOPTED, location="")


def end(post: Post, key: str = API, reason: Reason = Reason.HEALTHY) -> None:
    post.happen(key, reason)
    pass_time(post)


def pass_time(post: Post, minutes: int = 12) -> None:
    for _ in range(minutes):
        post.collect(after=60)


def titles(post: Post) -> list[list[str]]:
    return [post.titles(channel) for channel in CHANNELS]


def restart(post: Post) -> None:
    post.collector = post.new_collector()
    post.collector.open()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("begins", "ends", "texts"),
    [
        (Reason.UNHEALTHY, Reason.HEALTHY, [BEGINS, ENDS]),
        (Reason.DRIFT_CONFLICT, Reason.DRIFT_RESOLVED, [f"{API} differs from Git", f"{API} is as in Git again"]),
        (
            Reason.EXECUTIONS_FAILING,
            Reason.EXECUTIONS_RECOVERED,
            [f"{API} has failing executions", f"{API} is well again"],
        ),
    ],
)
def test_an_end_arrives_where_the_beginning_was_sent_and_the_new_source_gets_both(
    make_post: MakePost, begins: Reason, ends: Reason, texts: list[str], restarts: bool
) -> None:
    post = make_post(events=("health", "drift", "cron"))
    fail(post, API, begins)
    pass_time(post)
    assert titles(post) == [texts[:1], [], texts[:1]]
    move(post, API)
    if restarts:
        restart(post)
    pass_time(post)
    assert titles(post) == [texts[:1], texts[:1], texts[:1]]
    assert [trouble.source for trouble in post.records.troubles.all()] == ["edge"]
    end(post, API, ends)
    assert titles(post) == [texts, texts, texts]
    assert all(post.messages(channel)[-1].state is State.SUCCESS for channel in CHANNELS)


def test_what_moves_before_its_message_is_sent_to_the_new_source_alone(make_post: MakePost) -> None:
    post = make_post()
    fail(post, API)
    post.collect(after=5)
    move(post, API)
    pass_time(post)
    assert titles(post) == [[], [BEGINS], [BEGINS]]
    end(post)
    assert titles(post) == [[], [BEGINS, ENDS], [BEGINS, ENDS]]


def test_a_whole_gvc_that_moves_there_and_back_is_one_message(make_post: MakePost) -> None:
    post = make_post()
    keys = [f"workload/shop/w{number}" for number in range(5)]
    for key in keys:
        fail(post, key)
    pass_time(post)
    for to in ("edge", "main", "edge", "main"):
        move(post, *keys, to=to)
        pass_time(post)
    assert [len(post.messages(channel)) for channel in CHANNELS] == [1, 1, 1]
    for key in keys:
        post.happen(key, Reason.HEALTHY)
    pass_time(post)
    assert [[message.state for message in post.messages(channel)] for channel in CHANNELS] == [
        [State.FAILURE, State.SUCCESS]
    ] * 3


def test_who_knew_it_before_the_move_is_sent_only_the_end(make_post: MakePost) -> None:
    post = make_post(repeat=600.0, events=("drift",))
    fail(post, API, Reason.DRIFT_DETECTED)
    pass_time(post, 5)
    move(post, API)
    post.collect()
    sent = len(post.titles("of-main"))
    post.happen(API, Reason.DRIFT_CONFLICT)
    pass_time(post, 60)
    assert len(post.titles("of-main")) == sent
    assert len(post.titles("of-edge")) > 2
    end(post, API, Reason.DRIFT_RESOLVED)
    assert post.titles("of-main")[sent:] == [f"{API} is as in Git again"]


def test_one_that_ends_of_two_that_moved_is_an_end_at_once(make_post: MakePost) -> None:
    post = make_post()
    for key in (API, WEB):
        fail(post, key)
    pass_time(post)
    move(post, API, WEB)
    pass_time(post)
    end(post)
    [_, news] = post.messages("of-main")
    assert (news.title, news.lines) == (f"{WEB} is unhealthy", (f"{API} is healthy again",))
    end(post, WEB)
    assert post.titles("of-main")[2:] == [f"{WEB} is healthy again"]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_mutes_of_the_new_source_count_and_those_of_the_former_no_longer(
    make_post: MakePost, restarts: bool
) -> None:
    post = make_post()
    post.records.mutes.put("source/main", "a migration", "ada", post.clock.now() + 36_000)
    fail(post, API)
    pass_time(post)
    assert titles(post) == [[], [], []]
    move(post, API)
    if restarts:
        restart(post)
    pass_time(post)
    assert titles(post) == [[], [BEGINS], [BEGINS]]
    post.records.mutes.put("source/edge", "another one", "ada", post.clock.now() + 3_600)
    end(post)
    assert titles(post) == [[], [BEGINS], [BEGINS]]
    pass_time(post, 60)
    assert titles(post) == [[], [BEGINS, ENDS], [BEGINS, ENDS]]


def test_a_suspended_source_holds_what_moved_to_it_and_lets_go_what_left(make_post: MakePost) -> None:
    post = make_post()
    post.records.suspensions.put("source/main", "maintenance", "ada", None)
    fail(post, API)
    pass_time(post)
    assert titles(post) == [[], [], []]
    move(post, API)
    pass_time(post)
    assert titles(post) == [[], [BEGINS], [BEGINS]]
    post.records.suspensions.put("source/edge", "maintenance", "ada", None)
    end(post)
    assert titles(post) == [[], [BEGINS], [BEGINS]]
    post.records.suspensions.remove("source/edge")
    post.happen("source/edge", Reason.RESUMED, location="")
    pass_time(post)
    assert titles(post) == [[], [BEGINS, ENDS], [BEGINS, ENDS]]


def test_the_end_of_what_two_sources_had_is_sent_by_a_rule_for_both(make_post: MakePost) -> None:
    post = make_post()
    post.notifications = notify(rule("both", ("of-all",), sources=("main", "edge")), channels=CHANNELS)
    post.settings = msgspec.structs.replace(post.settings, notifications=post.notifications)
    restart(post)
    for key, source in ((API, "main"), (WEB, "edge")):
        apply(post, key, source)
        post.happen(key, Reason.UNHEALTHY, "not healthy at local: no key `url` in secret/db")
    pass_time(post)
    assert post.titles("of-all") == ["2 resources are unhealthy: secret/db"]
    for key in (API, WEB):
        post.happen(key, Reason.HEALTHY)
    pass_time(post)
    assert post.titles("of-all")[1:] == ["2 resources are healthy again"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_source_that_gets_another_name_loses_no_end(make_post: MakePost, restarts: bool) -> None:
    post = make_post()
    fail(post, API)
    pass_time(post)
    names = ("edge", "mainline")
    sources = tuple(SourceSettings(name=name, url=f"/{name}") for name in names)
    post.settings = msgspec.structs.replace(post.settings, sources=sources)
    restart(post)
    pass_time(post)
    move(post, API, to="mainline")
    if restarts:
        restart(post)
    end(post)
    assert titles(post) == [[BEGINS, ENDS], [], [BEGINS, ENDS]]


def test_a_source_that_comes_back_can_be_stale_again(make_post: MakePost) -> None:
    post = make_post()
    stale = make_condition(ConditionType.SOURCE_STALE, True, Reason.SOURCE_UNREACHABLE, "none could be read")
    post.records.conditions.set("main", stale)
    pass_time(post)
    both = post.settings
    post.records.conditions.forget("main")
    post.settings = msgspec.structs.replace(both, sources=both.sources[1:])
    restart(post)
    pass_time(post)
    post.settings = both
    post.records.conditions.set("main", stale)
    restart(post)
    pass_time(post)
    problem = "source/main has a problem"
    assert post.titles("of-all") == [problem, "source/main is well again", problem]


def test_a_source_that_leaves_while_its_runs_fail_leaves_nothing_open(make_post: MakePost) -> None:
    post = make_post(events=("run", "health"))
    post.run("failed", message="no room", failed="x")
    pass_time(post)
    assert [trouble.event for trouble in post.records.troubles.all()] == ["run"]
    post.settings = msgspec.structs.replace(post.settings, sources=post.settings.sources[1:])
    restart(post)
    pass_time(post)
    assert post.records.troubles.all() == []
    assert [len(post.messages(channel)) for channel in CHANNELS] == [1, 0, 1]


def test_a_name_that_is_used_again_after_a_delete_is_a_new_message(make_post: MakePost) -> None:
    post = make_post()
    rules = (rule("web", ("of-all",), tags={"team": "web"}),)
    post.notifications = notify(*rules, channels=CHANNELS)
    post.settings = msgspec.structs.replace(post.settings, notifications=post.notifications)
    restart(post)
    body = b'{"name":"api","tags":{"team":"web"}}'
    for _ in range(2):
        post.records.applied.put(msgspec.structs.replace(record(API, "local", health=Health.UNHEALTHY), body=body))
        post.happen(API, Reason.UNHEALTHY)
        pass_time(post)
        post.records.applied.remove([(API, "local")])
        post.happen(API, Reason.DELETED)
        pass_time(post)
    assert post.titles("of-all") == [BEGINS, ENDS] * 2


def test_a_tag_that_a_rule_wants_lets_what_is_open_be_sent(make_post: MakePost) -> None:
    post = make_post()
    post.notifications = notify(rule("web", ("of-all",), tags={"team": "web"}), channels=CHANNELS)
    post.settings = msgspec.structs.replace(post.settings, notifications=post.notifications)
    restart(post)
    fail(post, API)
    pass_time(post)
    assert post.titles("of-all") == []
    body = b'{"name":"api","tags":{"team":"web"}}'
    post.records.applied.put(msgspec.structs.replace(record(API, "local", health=Health.UNHEALTHY), body=body))
    post.happen(API, Reason.UPDATED)
    pass_time(post)
    assert post.titles("of-all") == [BEGINS]
