"""A remote that is away for a day: it is asked ever less often, the log stays short, and the first answer ends it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reconciler import logs
from reconciler.daemon.loop import Daemon
from reconciler.daemon.polling import SourceBackoff
from reconciler.daemon.systemd import SystemdNotifier
from reconciler.pipeline.runner import Runner
from reconciler.records.store import Records
from reconciler.settings import Credentials, LocationSettings, RetrySettings, Settings, SourceSettings
from tests.support.clock import FakeClock
from tests.support.git import GitRepo, HttpsServer
from tests.support.sandbox import SHOP, workload

HOUR = 3600.0
INTERVAL = 300.0
CAP = 1800.0
TOKEN = "a-token-that-opens-the-door"


class CountingDaemon(Daemon):
    """A daemon that reports when it is idle and counts its polls of the source."""

    busy = True
    polls = 0

    async def _run_round(self, wakes: Mapping[str | None, set[str]]) -> None:
        self.busy = True
        self.polls += "main" in wakes
        await super()._run_round(wakes)
        self.busy = False

    async def rests(self) -> None:
        """Return once nothing is in progress, in real time."""
        while self.busy or self.wakes.waiting():
            await asyncio.sleep(0.001)


def settings(path: Path, server: HttpsServer) -> Settings:
    """One source behind the server."""
    (path / "token").write_text(TOKEN)
    credentials = Credentials(username="reader", token_file=path / "token")
    source = SourceSettings(
        name="main",
        url=server.url("main.git"),
        branch="main",
        interval=INTERVAL,
        read_only=True,
        credentials=credentials,
    )
    places = {place: LocationSettings("recorded") for place in ("here", "there")}
    return Settings(org="acme", sources=(source,), locations=places, state=path, retry=RetrySettings(cap=CAP))


async def lose(hours: int, path: Path, server: HttpsServer, repo: GitRepo, log: io.StringIO) -> dict[str, Any]:
    """Follow the source, lose it for some hours, and find it again; what was seen."""
    clock = FakeClock()
    records = Records.open(path / "records.sqlite", clock_now=clock.now)
    daemon = CountingDaemon(Runner(settings(path, server), records, clock), clock, clock, SystemdNotifier({}))
    following = asyncio.create_task(daemon.run())
    await clock.run_until_idle()
    await daemon.rests()
    begun, before = len(list(records.applied.items())), len(log.getvalue().splitlines())
    server.token = "another"
    commit = repo.commit({"shop/web.yaml": workload("web")})
    before_loss = daemon.polls
    for _ in range(int(hours * HOUR / INTERVAL)):
        await clock.advance(INTERVAL)
        await daemon.rests()
    during = [json.loads(line) for line in log.getvalue().splitlines()[before:]]
    retained = len(list(records.applied.items()))
    seen = {
        "begun": begun,
        "polls": daemon.polls - before_loss,
        "log": during,
        "retained": retained,
        "conditions": {condition.type: condition.status for condition in records.conditions.get("main")},
    }
    server.token = TOKEN
    while records.sources.get("main").commit != commit:  # type: ignore[union-attr]
        await clock.advance(INTERVAL)
        await daemon.rests()
        assert clock.monotonic() <= hours * HOUR + CAP + 2 * INTERVAL
    seen["after"] = json.loads(log.getvalue().splitlines()[-1])
    seen["well"] = {condition.type: condition.status for condition in records.conditions.get("main")}
    daemon.stop.set()
    await following
    records.close()
    return seen


@pytest.mark.parametrize("hours", [4, pytest.param(24, marks=pytest.mark.slow)])
async def test_a_day_without_the_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    repo = GitRepo.create(tmp_path / "served" / "main.git", SHOP)
    log = io.StringIO()
    logs.configure_logging("json", "info", log)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with HttpsServer(tmp_path / "served", tmp_path, TOKEN) as server:
        monkeypatch.setenv("GIT_SSL_CAINFO", str(server.certificate))
        seen = await lose(hours, tmp_path, server, repo, log)
    assert (seen["begun"], seen["retained"]) == (3, 3), "nothing is lost"
    assert hours * HOUR / CAP <= seen["polls"] <= hours * HOUR / CAP + 8, "twice as long each time, up to the cap"
    assert 2 <= len(seen["log"]) <= hours + 1, "one line for the change, and one an hour"
    assert {line["outcome"] for line in seen["log"]} == {"unreadable"}
    assert (seen["conditions"]["SourceReachable"], seen["conditions"]["SourceStale"]) == (False, True)
    assert seen["after"]["outcome"] == "applied"
    assert (seen["well"]["SourceReachable"], seen["well"]["SourceStale"]) == (True, False)


def test_rests_grow_to_a_bound_and_end_with_an_answer() -> None:
    now = [0.0]
    outages = SourceBackoff(lambda: now[0], 600.0)
    polls = []
    for _ in range(200):
        now[0] += 30.0
        if not outages.is_backing_off("main"):
            polls.append(now[0])
            outages.record_failure("main", 30.0)
    gaps = [after - before for before, after in pairwise(polls)]
    assert gaps[:7] == [30, 60, 120, 240, 480, 600, 600]
    assert set(gaps[7:]) == {600}
    outages.record_answer("main")
    assert not outages.is_backing_off("main")
