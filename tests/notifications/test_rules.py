"""Rules: quiet hours in a time zone, and tags of resources."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec
import pytest

from reconciler.notifications.outbox import decode_message
from reconciler.notifications.rules import end_quiet_hours, gvc_of, next_digest
from reconciler.reasons import Reason
from reconciler.records.notifications.deliveries import DeliveryStatus
from reconciler.settings.notifications import DigestSettings, QuietHoursSettings
from tests.notifications.harness import Post, notify, rule
from tests.records.samples import record

MakePost = Callable[..., Post]
NIGHT = QuietHoursSettings("22:00", "07:00", "Europe/Berlin")
NOON = QuietHoursSettings("12:00", "13:30")


def to_seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("quiet", "at", "sent"),
    [
        (NIGHT, "2026-01-10T21:59:59+01:00", "2026-01-10T21:59:59+01:00"),
        (NIGHT, "2026-01-10T22:00:00+01:00", "2026-01-11T07:00:00+01:00"),
        (NIGHT, "2026-01-11T03:00:00+01:00", "2026-01-11T07:00:00+01:00"),
        (NIGHT, "2026-01-11T07:00:00+01:00", "2026-01-11T07:00:00+01:00"),
        (NIGHT, "2026-03-28T23:00:00+01:00", "2026-03-29T07:00:00+02:00"),
        (NIGHT, "2026-10-24T23:00:00+02:00", "2026-10-25T07:00:00+01:00"),
        (NOON, "2026-01-10T12:00:00+00:00", "2026-01-10T13:30:00+00:00"),
        (NOON, "2026-01-10T13:30:00+00:00", "2026-01-10T13:30:00+00:00"),
        (None, "2026-01-10T23:00:00+00:00", "2026-01-10T23:00:00+00:00"),
    ],
)
def test_quiet_hours_end_in_their_time_zone(quiet: QuietHoursSettings | None, at: str, sent: str) -> None:
    assert end_quiet_hours(rule(quiet_hours=quiet), to_seconds(at)) == to_seconds(sent)


def test_a_message_waits_for_the_end_of_quiet_hours_and_troubles_that_end_before_are_none(make_post: MakePost) -> None:
    # The clock of the test begins at midnight.
    post = make_post(notify(rule(quiet_hours=QuietHoursSettings("23:00", "06:00"))))
    post.delivers = True
    post.run("failed", failed="x")
    post.happen("workload/shop/api", Reason.UNHEALTHY)
    post.happen("workload/shop/web", Reason.UNHEALTHY)
    post.collect()
    post.collect(after=3600)
    post.happen("workload/shop/api", Reason.HEALTHY)
    post.collect(after=3600)
    assert {delivery.due for delivery in post.records.deliveries.list()} == {to_seconds("2026-01-01T06:00:00+00:00")}
    post.collect(after=4 * 3600)
    assert post.titles()[1:] == ["workload/shop/web is unhealthy"]


def test_a_rule_for_tags_has_what_is_about_resources_with_them(make_post: MakePost) -> None:
    post = make_post(notify(rule("shop", tags={"team": "shop"})))
    post.delivers = True
    for name, team in (("api", "shop"), ("web", "bank")):
        applied = record(f"workload/shop/{name}", "local")
        body = msgspec.json.encode(msgspec.json.decode(applied.body) | {"tags": {"team": team}})
        post.records.applied.put(msgspec.structs.replace(applied, body=body))
        post.happen(f"workload/shop/{name}", Reason.UNHEALTHY)
    post.run("failed", keys=("workload/shop/web",), failed="x")
    post.run("failed", "b" * 40, keys=("workload/shop/web", "workload/shop/api"), failed="x")
    post.collect()
    post.collect(after=60)
    assert [message.commit[:1] for message in post.messages()] == ["b", ""]
    assert post.titles()[1:] == ["workload/shop/api is unhealthy"]


def test_a_digest_is_one_message_a_day(make_post: MakePost) -> None:
    digest = DigestSettings("08:00")
    post = make_post(notify(rule("daily", digest=digest, states=("success", "failure", "recovery"))))
    post.delivers = True
    for hour in range(48):
        for outcome in ("running", "failed", "applied") if hour in (1, 2, 30) else ():
            post.run(outcome, f"{hour:040}", failed="x" * (outcome == "failed"))
            post.collect()
        post.collect(after=3600)
    sent = [one for one in post.records.deliveries.list() if one.status is DeliveryStatus.SENT]
    assert [(one.thing.split("/")[0], one.ended) for one in reversed(sent)] == [
        ("digest", to_seconds("2026-01-01T08:00:00+00:00")),
        ("digest", to_seconds("2026-01-02T08:00:00+00:00")),
    ]
    first = decode_message(sent[1])
    assert first.title == "2 messages since the last digest of daily"
    assert first.lines == (
        "2026-01-01T01:00:00Z main: 000000000000 is applied; all is well again",
        "2026-01-01T02:00:00Z main: 000000000000 is applied; all is well again",
    )
    parts = [one for one in post.records.deliveries.list() if one.status is DeliveryStatus.DIGESTED]
    assert {one.answer for one in parts} == {f"part of the message {one.id}" for one in sent}


def test_a_digest_has_the_hour_of_its_time_zone() -> None:
    berlin = DigestSettings("08:00", "Europe/Berlin")
    assert next_digest(berlin, to_seconds("2026-03-28T08:00:00+01:00")) == to_seconds("2026-03-29T08:00:00+02:00")
    assert next_digest(berlin, to_seconds("2026-03-28T07:59:00+01:00")) == to_seconds("2026-03-28T08:00:00+01:00")


@pytest.mark.parametrize(
    ("at", "due"),
    [
        ("2026-03-29T01:59:00+01:00", "2026-03-29T03:30:00+02:00"),
        ("2026-03-29T03:10:00+02:00", "2026-03-29T03:30:00+02:00"),
        ("2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00"),
        ("2026-10-25T02:29:00+02:00", "2026-10-25T02:30:00+02:00"),
        ("2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"),
        ("2026-10-25T02:15:00+01:00", "2026-10-26T02:30:00+01:00"),
    ],
)
def test_a_digest_comes_once_a_day_where_the_clock_is_changed(at: str, due: str) -> None:
    assert next_digest(DigestSettings("02:30", "Europe/Berlin"), to_seconds(at)) == to_seconds(due)


@pytest.mark.parametrize(
    ("key", "gvc"),
    [("workload/shop/api", "shop"), ("gvc/shop", "shop"), ("secret/db", ""), ("source/main", ""), ("", "")],
)
def test_a_key_has_the_gvc_of_its_resource(key: str, gvc: str) -> None:
    assert gvc_of(key) == gvc
