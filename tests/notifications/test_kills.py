"""SIGKILL at random points: each outcome is one message, and a repetition says that it may be one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.records.notifications.deliveries import Delivery, DeliveryStatus
from reconciler.records.store import FILE, Records
from tests.notifications.killed_sender import OUTCOMES, Job, read_number
from tests.notifications.receiver import Receiver
from tests.support.clock import START
from tests.support.waiting import serving

PATIENCE = 60.0
STEP = 60.0
"""Seconds that pass between two daemons."""


class Daemons:
    """Daemons of one state, one after the other."""

    def __init__(self, state: Path, receiver: Receiver, server: subprocess.Popen[bytes]) -> None:
        self._state = state
        self._receiver = receiver
        self._server = server
        self._began = time.monotonic()
        self._now = START

    def start(self, waits_for: tuple[str, ...] = (), later: float = STEP) -> int:
        """Start one, ``later`` than the last one; returns the number of its process."""
        self._now += later
        job = Job(str(self._state), self._receiver.url, self._now, self._began, waits_for)
        return self._ask(msgspec.json.encode(job))

    def wait(self) -> None:
        """Wait until it has ended."""
        self._ask(b"wait")

    def _ask(self, line: bytes) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(line + b"\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


@contextmanager
def open_daemons(state: Path, receiver: Receiver) -> Iterator[Daemons]:
    """What starts daemons that send to ``receiver``."""
    state.mkdir()
    (state / "secret").write_text("hunter2")
    program = [sys.executable, "-m", "tests.notifications.killed_sender"]
    with (state / "log").open("wb") as log:
        server = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    with server:
        try:
            yield Daemons(state, receiver, server)
        finally:
            assert server.stdin is not None
            server.stdin.close()


def wait_for_request(receiver: Receiver, count: int) -> None:
    """Wait until more than ``count`` requests came, and no longer."""
    deadline = time.monotonic() + PATIENCE
    while len(receiver.requests) <= count:
        assert time.monotonic() < deadline, "no message comes"
        time.sleep(0.0005)


def kill_at_random(daemons: Daemons, receiver: Receiver, kills: int, seed: int) -> None:
    """Start and kill a daemon ``kills`` times: some while a message is sent, some at any time."""
    numbers = random.Random(seed)
    for kill in range(kills):
        count = len(receiver.requests)
        process = daemons.start()
        if kill % 2:
            wait_for_request(receiver, count)
            time.sleep(numbers.uniform(0, 0.005))
        else:
            time.sleep(numbers.uniform(0, 0.06))
        os.kill(process, signal.SIGKILL)
        daemons.wait()


def read_deliveries(state: Path) -> list[Delivery]:
    """All deliveries."""
    with closing(Records.open(state / FILE)) as records:
        return list(records.deliveries.list(1_000_000))


def assert_at_most_repeated(events: list[dict[str, Any]], deliveries: list[Delivery]) -> None:
    """Each message was accepted, once without a mark, and no more often than it was tried."""
    by_thing = {one.thing: one for one in deliveries}
    assert {one.status for one in deliveries} == {DeliveryStatus.SENT}
    accepted = Counter(event["subject"] for event in events)
    assert set(accepted) == set(by_thing)
    unmarked = Counter(event["subject"] for event in events if not event["data"]["mayRepeat"])
    assert max(unmarked.values()) == 1
    assert all(count <= by_thing[thing].tries for thing, count in accepted.items())
    assert len({event["id"] for event in events}) == len(by_thing), "a receiver can tell repetitions by the id"


@pytest.mark.parametrize("kills", [12, pytest.param(1_000, marks=pytest.mark.slow)])
def test_daemons_that_are_killed_send_each_outcome_and_each_digest_once(tmp_path: Path, kills: int) -> None:
    state, receiver = tmp_path / "state", Receiver()
    receiver.silent_each = 7
    with serving(receiver), open_daemons(state, receiver) as daemons:
        kill_at_random(daemons, receiver, kills, seed=kills)
        daemons.start(("waiting", "sending"), 0.0)
        daemons.wait()
        daemons.start(("waiting", "sending", "collected"), 2 * 86_400.0)
        daemons.wait()
    outcomes, deliveries = read_number(state, OUTCOMES), read_deliveries(state)
    each = [one for one in deliveries if one.channel == "each"]
    assert len(each) == outcomes > kills / 4
    assert_at_most_repeated([event for event in receiver.events if event["data"]["event"] == "run"], each)
    collected = [one for one in deliveries if one.status is DeliveryStatus.DIGESTED]
    assert len(collected) == outcomes
    digests = [one for one in deliveries if one.channel == "daily" and one.status is not DeliveryStatus.DIGESTED]
    assert {one.answer for one in collected} == {f"part of the message {digest.id}" for digest in digests}
    assert_at_most_repeated([event for event in receiver.events if event["data"]["event"] == "digest"], digests)
    assert len(digests) >= kills * STEP / 86_400
