"""Severity: rules choose by it, and a trouble that becomes more serious is news."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.notifications.listing import describe_delivery, format_delivery, list_delivery
from reconciler.notifications.message import EventType, State
from reconciler.notifications.severity import OF_REASONS, Severity, choose_worst, grade_reason
from reconciler.notifications.troubles import TRANSITIONS
from reconciler.reasons import Reason
from reconciler.render.style import TextStyle
from tests.notifications.harness import EVERY, Post, notify, rule

MakePost = Callable[..., Post]
API, NIGHTLY = "workload/shop/api", "workload/shop/nightly"
EVENTS = tuple(str(event) for event in EventType)


@pytest.fixture(name="post")
def post_with_two_channels(make_post: MakePost) -> Post:
    """A pager for what is critical, a room for errors, and a log for all."""
    rules = (
        rule("pager", ("pager",), severity="critical", events=EVENTS),
        rule("room", ("room",), severity="error", events=EVENTS),
        rule("log", ("log",), events=EVENTS, states=EVERY),
    )
    post = make_post(notify(*rules, channels=("pager", "room", "log")))
    post.delivers = True
    return post


def test_a_rule_sends_what_is_as_serious_as_it_wants(post: Post) -> None:
    post.happen(API, Reason.DRIFT_DETECTED, "changed at local: the image")
    post.happen(API, Reason.UNHEALTHY)
    post.happen("location/local", Reason.LOCATION_UNREACHABLE, location="")
    post.run("waiting", hold_digest="h" * 64, waiting=1)
    post.run("failed", failed="x", message="no room")
    post.collect()
    post.happen("location/local", Reason.LOCATION_REACHABLE, location="")
    post.collect(after=31)
    post.happen("location/local", Reason.LOCATION_UNREACHABLE, location="")
    post.collect(after=31)
    post.collect(after=31)
    assert post.titles("pager") == ["location/local has a problem"]
    assert {message.severity for message in post.messages("room")} == {Severity.ERROR, Severity.CRITICAL}
    assert [message.event for message in post.messages("room")][:1] == [EventType.RUN]
    assert {message.severity for message in post.messages("log")} == {
        Severity.WARNING,
        Severity.ERROR,
        Severity.CRITICAL,
    }


def test_the_end_of_something_has_the_severity_of_what_it_ends(post: Post) -> None:
    post.happen(API, Reason.UNHEALTHY)
    post.happen("location/local", Reason.LOCATION_UNREACHABLE, location="")
    post.collect()
    post.collect(after=31)
    post.happen("location/local", Reason.LOCATION_REACHABLE, location="")
    post.collect()
    post.collect(after=301)
    assert [(message.severity, message.state) for message in post.messages("pager")] == [
        (Severity.CRITICAL, State.FAILURE),
        (Severity.CRITICAL, State.SUCCESS),
    ]


def test_a_trouble_that_becomes_more_serious_is_sent_again_and_to_those_who_want_only_that(post: Post) -> None:
    post.happen(NIGHTLY, Reason.EXECUTION_FAILED, "run-1: it exits with 1")
    post.happen(API, Reason.DRIFT_DETECTED, "changed at local: the image")
    post.collect()
    post.collect(after=31)
    assert (len(post.titles("log")), post.titles("room")) == (2, [])
    post.happen(API, Reason.DRIFT_CONFLICT, "healed 5 times within an hour and changed again")
    post.collect()
    post.collect(after=31)
    assert post.titles("room") == ["workload/shop/api differs from Git"]
    post.collect(after=301)
    assert [message.severity for message in post.messages("log") if message.event is EventType.DRIFT] == [
        Severity.WARNING,
        Severity.ERROR,
    ]
    for reason in (Reason.DRIFT_DETECTED, Reason.DRIFT_CONFLICT) * 3:
        post.happen(API, reason, "again")
        post.collect(after=301)
    assert len(post.titles("room")) == 1


def test_lists_show_the_severity(post: Post) -> None:
    post.run("failed", failed="x", message="no room")
    post.collect()
    listed = list_delivery(post.records.deliveries.list(1)[0])
    assert describe_delivery(listed)["severity"] == "error"
    assert "  error  main: aaaaaaaaaaaa failed: no room" in format_delivery(listed, TextStyle())


def test_the_worst_of_several_is_that_of_the_message() -> None:
    assert [severity.rank for severity in Severity] == [0, 1, 2, 3]
    assert choose_worst([Severity.WARNING, Severity.CRITICAL, Severity.ERROR]) is Severity.CRITICAL
    assert choose_worst([]) is Severity.INFO


@pytest.mark.parametrize("reason", OF_REASONS)
def test_each_reason_with_a_severity_of_its_own_begins_a_trouble(reason: Reason) -> None:
    assert not TRANSITIONS[reason].ends
    assert grade_reason(reason) is not Severity.ERROR
