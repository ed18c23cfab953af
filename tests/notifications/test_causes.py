"""Causes: two of them are two messages, one that spans sources is one, and very many are one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.notifications.causes import MANY, MOST_CAUSES, find_cause, is_shared
from reconciler.notifications.message import EventType, State
from reconciler.reasons import Reason
from reconciler.records.notifications.troubles import Trouble
from reconciler.records.tables.events import NewEvent
from tests.notifications.harness import Post, notify, rule
from tests.records.samples import record

MakePost = Callable[..., Post]
API, WEB = "workload/shop/api", "workload/shop/web"
NO_KEY = "not healthy at local: SecretUnusable: secret/db has no key `url`"
NO_IMAGE = "not healthy at local: ImagePullFailed: the image registry.example.com/api:1.4 cannot be pulled: no such tag"


@pytest.fixture(name="post")
def post_that_delivers(make_post: MakePost) -> Post:
    """Records whose messages arrive at once."""
    post = make_post(sources=("main", "edge"))
    post.delivers = True
    return post


def fail(post: Post, message: str, *names: str) -> None:
    post.records.events.append_many(
        NewEvent(f"workload/shop/{name}", Reason.UNHEALTHY, message, "local") for name in names
    )


@pytest.mark.parametrize(
    ("event", "reason", "message", "cause"),
    [
        (EventType.HEALTH, "Unhealthy", NO_KEY, "secret/db"),
        (EventType.HEALTH, "Unhealthy", NO_IMAGE, "image/registry.example.com/api:1.4"),
        (EventType.HEALTH, "Unhealthy", 'Back-off pulling image "nginx:9"', "image/nginx:9"),
        (EventType.HEALTH, "Unhealthy", "volume 0 of volumeset/shop/data is lost", "volumeset/shop/data"),
        (EventType.HEALTH, "Unhealthy", "it exits with 1", "Unhealthy@main"),
        (EventType.HEALTH, "Unhealthy", "an image of 3 GB, and workload/shop/api", "Unhealthy@main"),
        (EventType.HEALTH, "Unhealthy", "see https://x.example/secret/db", "Unhealthy@main"),
        (EventType.DRIFT, "DriftDetected", "changed at local: secret/db", "DriftDetected@main"),
        (EventType.DAEMON, "LocationUnreachable", "no answer from location/here", "LocationUnreachable"),
    ],
)
def test_the_cause_is_what_a_text_names_that_others_may_share(
    event: EventType, reason: str, message: str, cause: str
) -> None:
    assert find_cause(Trouble(str(event), API, "local", "main", reason, message, 1.0)) == cause
    assert is_shared(cause) == ("@" not in cause and "/" in cause)


def test_what_is_troubled_is_no_cause_of_itself() -> None:
    text = "not healthy: volumeset/shop/data is damaged"
    trouble = Trouble("health", "volumeset/shop/data", "local", "main", "Unhealthy", text, 1.0)
    assert find_cause(trouble) == "Unhealthy@main"


def test_two_causes_of_one_source_are_two_messages(post: Post) -> None:
    fail(post, NO_KEY, *(f"w{number:02}" for number in range(40)))
    fail(post, NO_IMAGE, "api", "web")
    fail(post, "not healthy at local: it exits with 1", "cache")
    post.collect()
    post.collect(after=31)
    assert sorted(post.titles()) == [
        "2 resources are unhealthy: image/registry.example.com/api:1.4",
        "40 resources are unhealthy: secret/db",
        "workload/shop/cache is unhealthy",
    ]
    for name in range(40):
        post.happen(f"workload/shop/w{name:02}", Reason.HEALTHY)
    post.collect()
    post.collect(after=301)
    assert post.titles()[3:] == ["40 resources are healthy again"]
    ids = {message.id for message in post.messages() if message.resources[:1] or message.state is State.SUCCESS}
    assert len(ids) == 3


def test_a_cause_that_spans_sources_is_one_message(post: Post) -> None:
    for name, source in (("api", "main"), ("web", "edge")):
        post.records.applied.put(record(f"workload/shop/{name}", "local", source=source))
    fail(post, NO_KEY, "api", "web")
    post.collect()
    post.collect(after=31)
    (message,) = post.messages()
    assert (message.title, message.source) == ("2 resources are unhealthy: secret/db", "")


def test_a_rule_for_a_source_has_its_share_of_a_cause(make_post: MakePost) -> None:
    rules = (rule("main", ("main",), sources=("main",)), rule("edge", ("edge",), sources=("edge",)))
    post = make_post(notify(*rules, channels=("main", "edge")), sources=("main", "edge"))
    post.delivers = True
    for name, source in (("api", "main"), ("web", "edge")):
        post.records.applied.put(record(f"workload/shop/{name}", "local", source=source))
    fail(post, NO_KEY, "api", "web")
    post.collect()
    post.collect(after=31)
    assert (post.titles("main"), post.titles("edge")) == (
        ["workload/shop/api is unhealthy"],
        ["workload/shop/web is unhealthy"],
    )
    for name in ("api", "web"):
        post.happen(f"workload/shop/{name}", Reason.HEALTHY)
    post.collect()
    post.collect(after=301)
    assert post.titles("main")[1:] == ["workload/shop/api is healthy again"]


def test_a_text_that_names_another_cause_each_time_makes_no_message(post: Post) -> None:
    for turn in range(60):
        post.happen(API, Reason.UNHEALTHY, f"not healthy: secret/s{turn} has no key `x`")
        post.collect(after=60)
    assert post.titles() == ["workload/shop/api is unhealthy"]


def test_what_goes_up_and_down_with_another_text_each_time_is_one_message_an_interval(post: Post) -> None:
    for turn in range(180):
        reason = Reason.HEALTHY if turn % 2 else Reason.UNHEALTHY
        post.happen(API, reason, f"not healthy: secret/s{turn} has no key `x`")
        post.collect(after=20)
    assert 2 <= len(post.titles()) <= 13


def test_ten_thousand_causes_in_a_minute_are_one_message(post: Post) -> None:
    for second in range(20):
        numbers = range(second * 500, second * 500 + 500)
        post.records.events.append_many(
            NewEvent(f"workload/shop/w{n}", Reason.UNHEALTHY, f"secret/s{n} has no key `x`", "local") for n in numbers
        )
        post.collect(after=3)
    post.collect(after=40)
    post.collect(after=150)
    (message,) = post.messages()
    assert message.title.endswith("resources are unhealthy")
    post.collect(after=200)
    assert post.titles()[1:] == ["10000 resources are unhealthy"]
    assert {trouble.cause for trouble in post.records.troubles.all()} == {MANY}
    for number in range(10_000):
        post.records.troubles.close("health", f"workload/shop/w{number}")
    fail(post, NO_KEY, "api")
    post.collect(after=31)
    assert [trouble.cause for trouble in post.records.troubles.all()] == ["secret/db"]


def test_a_few_causes_that_begin_together_are_a_message_each(post: Post) -> None:
    for number in range(MOST_CAUSES):
        fail(post, f"secret/s{number} has no key `x`", f"w{number}")
    post.collect()
    post.collect(after=31)
    assert sorted(post.titles()) == [f"workload/shop/w{number} is unhealthy" for number in range(MOST_CAUSES)]


def test_facts_of_one_kind_are_a_message_for_each_reason(post: Post) -> None:
    post.happen("", Reason.SETTINGS_REFUSED, "line 3 is wrong", "")
    post.happen("source/main", Reason.DISK_FULL, "the disk is full", "")
    post.happen("source/main", Reason.DISK_RECOVERED, "there is room", "")
    post.collect()
    post.collect(after=31)
    (message,) = post.messages()
    assert [resource.reason for resource in message.resources] == [str(Reason.SETTINGS_REFUSED)]
    post.happen("volumeset/shop/data", Reason.SNAPSHOT_FAILED, "no room")
    post.happen("volumeset/shop/data", Reason.VOLUME_CHECK_FAILED, "a checksum differs")
    post.collect()
    post.collect(after=31)
    assert sorted(resource.reason for one in post.messages()[1:] for resource in one.resources) == [
        str(Reason.SNAPSHOT_FAILED),
        str(Reason.VOLUME_CHECK_FAILED),
    ]
