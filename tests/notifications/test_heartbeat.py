"""The dead man's switch: a call at intervals, which says whether something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from reconciler.notifications.heartbeat import Heartbeat
from reconciler.notifications.sender import list_troubles_of_daemon
from reconciler.reasons import Reason
from reconciler.settings.notifications import HeartbeatSettings
from tests.notifications.harness import Post
from tests.notifications.receiver import Receiver
from tests.support.waiting import serving, until


async def test_a_sign_of_life_names_what_is_wrong(make_post: Callable[..., Post], tmp_path: Path) -> None:
    server = Receiver()
    with serving(server):
        (tmp_path / "url").write_text(f"{server.url}\n")
        heartbeat = Heartbeat(HeartbeatSettings(url_file=tmp_path / "url"))
        post = make_post()
        await heartbeat.beat(list_troubles_of_daemon(post.mine))
        post.run("failed", message="workload/shop/api: EngineFailed: no room", failed="x")
        post.happen("workload/shop/api", Reason.UNHEALTHY)
        post.collect()
        await heartbeat.beat(list_troubles_of_daemon(post.mine))
        await heartbeat.close()
    assert server.paths == ["/services/hunter2", "/services/hunter2/fail"]
    bodies = [body.decode() for _, body in server.requests]
    assert bodies == [
        "all sources are applied",
        "source/main: failed: workload/shop/api: EngineFailed: no room",
    ]


async def test_the_sender_gives_signs_of_life_at_intervals_and_survives_their_failures(
    make_post: Callable[..., Post],
) -> None:
    server = Receiver()
    server.answers = [(500, {})]
    with serving(server):
        post = make_post()
        heartbeat = HeartbeatSettings(url=server.url, interval=60.0)
        notifications = msgspec.structs.replace(post.notifications, heartbeat=heartbeat)
        post.settings = msgspec.structs.replace(post.settings, notifications=notifications)
        sender = post.new_sender()
        sender.open()
        for count in range(1, 4):
            await until(lambda: len(server.requests) == count, "a sign of life")  # noqa: B023 - it is asked at once
            # The next one is due once the answer to this one came.
            await until(lambda: 60.0 in post.clock.slept[-3:], "it sleeps")
            await post.clock.advance(61)
        await sender.close()
