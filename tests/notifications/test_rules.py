"""Rules: quiet hours in a time zone, and tags of resources."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec
import pytest

from reconciler.notifications.rules import end_quiet_hours, gvc_of
from reconciler.reasons import Reason
from reconciler.settings.notifications import QuietHoursSettings
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


@pytest.mark.parametrize(
    ("key", "gvc"),
    [("workload/shop/api", "shop"), ("gvc/shop", "shop"), ("secret/db", ""), ("source/main", ""), ("", "")],
)
def test_a_key_has_the_gvc_of_its_resource(key: str, gvc: str) -> None:
    assert gvc_of(key) == gvc
