"""What a channel does after failures, without a channel."""

from __future__ import annotations

from itertools import pairwise

from reconciler.notifications.retries import LONGEST_ASIDE, LONGEST_WAIT, PAUSE_SECONDS, Retries


def test_a_receiver_that_is_away_is_asked_less_and_less_often() -> None:
    retries, waits, probes = Retries(), [], 0
    for number in range(2, 60):
        waits.append(retries.fail(1, None).channel)
        if retries.is_probing:
            probes += 1
            waits[-1] = retries.fail(number, None).channel
    assert all(earlier <= later for earlier, later in pairwise(waits))
    assert waits[-1] == LONGEST_WAIT
    assert probes < len(waits) / 5


def test_what_fails_while_another_arrives_waits_by_itself() -> None:
    retries = Retries()
    while not retries.is_probing:
        retries.fail(1, None)
    retries.succeed(2)
    waits = [retries.fail(1, None) for _ in range(30)]
    assert {wait.channel for wait in waits} == {PAUSE_SECONDS}
    assert all(earlier.message <= later.message for earlier, later in pairwise(waits))
    assert waits[-1].message == LONGEST_ASIDE + PAUSE_SECONDS


def test_no_message_is_sent_before_the_time_that_the_receiver_asks_for() -> None:
    retries = Retries()
    waits = [retries.fail(1, 900.0)]
    while not retries.is_probing:
        waits.append(retries.fail(1, 900.0))
    assert all(wait.channel >= 900 for wait in waits)
    retries.succeed(2)
    alone = retries.fail(1, 900.0)
    assert alone.channel == 900
    assert alone.message > 900
