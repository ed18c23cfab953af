"""The sender: in order, once, and no channel waits for another."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import pytest

from reconciler.notifications.channels.channel import SendFailed, SendRefused
from reconciler.notifications.channels.webhook import make_webhook_id
from reconciler.notifications.message import EventType, Message, State
from reconciler.notifications.outbox import decode_message
from reconciler.notifications.retries import LONGEST_ASIDE
from reconciler.notifications.sender import GIVE_UP_SECONDS, channel_scope
from reconciler.reasons import ConditionType
from reconciler.records.notifications.deliveries import DeliveryStatus
from tests.notifications.harness import EVERY, NEXT, NotedChannel, Post, notify, rule

MakePost = Callable[..., Post]


def add_failures(post: Post, count: int) -> list[str]:
    """Let ``count`` commits fail; returns their ids."""
    commits = [f"{number:040}" for number in range(count)]
    for commit in commits:
        post.run("failed", commit, failed="x")
    return commits


async def test_messages_arrive_in_their_order_and_at_most_one_a_second(make_post: MakePost) -> None:
    post, channel = make_post(), NotedChannel()
    commits = add_failures(post, 20)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(60)
    assert [message.commit for message in channel.got] == commits
    assert all(later - earlier >= 1 for earlier, later in pairwise(channel.times))
    assert {one.status for one in post.records.deliveries.list()} == {DeliveryStatus.SENT}
    await sender.close()


@pytest.mark.parametrize("hours", [2, pytest.param(24, marks=pytest.mark.slow)])
async def test_after_a_day_without_the_receiver_the_last_states_arrive_in_order(
    make_post: MakePost, hours: int
) -> None:
    post, channel = make_post(notify(rule(states=EVERY))), NotedChannel()
    channel.is_down = True
    sender = post.new_sender(channel)
    sender.open()
    for hour in range(hours):
        for outcome in ("running", "waiting", "applied" if hour % 2 else "failed"):
            post.run(outcome, f"{hour:040}", failed="x" * (outcome == "failed"))
            await post.clock.advance(1200)
    assert channel.got == []
    assert len(channel.times) < hours * 3600 / 250 + 8
    condition = post.records.conditions.get(channel_scope("ops"))[0]
    assert (condition.type, condition.status, condition.message) == (ConditionType.NOTIFYING, False, "it is down")
    channel.is_down = False
    channel.times.clear()
    await post.clock.advance(600)
    assert [int(message.commit) for message in channel.got] == list(range(hours))
    assert all(
        message.state is (State.SUCCESS if int(message.commit) % 2 else State.FAILURE) for message in channel.got
    )
    assert all(later - earlier >= 1 for earlier, later in pairwise(channel.times))
    assert post.records.conditions.get(channel_scope("ops"))[0].status
    await sender.close()


class _Poisoned(NotedChannel):
    """A receiver that answers messages about the commits ``poisoned`` with an error, whenever they come."""

    def __init__(self, poisoned: Sequence[int], retry_after: float | None = None) -> None:
        super().__init__()
        self.poisoned = set(poisoned)
        self.retry_after = retry_after
        self.tried: list[tuple[float, int]] = []

    async def send(self, message: Message, reference: str) -> str:
        assert self.clock is not None
        self.tried.append((self.clock.now(), int(message.commit)))
        if int(message.commit) in self.poisoned and not self.is_down:
            self.times.append(self.clock.now())
            raise SendFailed("it answers 500", retry_after=self.retry_after)
        return await super().send(message, reference)


@pytest.mark.parametrize("poisoned", [(0,), (3,), (0, 1, 2)])
async def test_a_message_that_fails_alone_holds_up_no_other(make_post: MakePost, poisoned: tuple[int, ...]) -> None:
    post, channel = make_post(), _Poisoned(poisoned)
    add_failures(post, 20)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(600)
    assert sorted(int(message.commit) for message in channel.got) == [
        number for number in range(20) if number not in poisoned
    ]
    assert all(later - earlier >= 1 for earlier, later in pairwise(channel.times))
    post.clock.block(GIVE_UP_SECONDS)
    await post.clock.advance(60)
    ended = {int(decode_message(one).commit): one.status for one in post.records.deliveries.list()}
    assert {number for number, status in ended.items() if status is DeliveryStatus.EXPIRED} == set(poisoned)
    await sender.close()


async def test_a_message_that_fails_alone_arrives_once_the_receiver_takes_it(make_post: MakePost) -> None:
    post, channel = make_post(), _Poisoned([0])
    add_failures(post, 3)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(120)
    channel.poisoned.clear()
    post.clock.block(LONGEST_ASIDE)
    await post.clock.advance(10)
    assert [int(message.commit) for message in channel.got] == [1, 2, 0]
    await sender.close()


async def test_a_receiver_that_asks_to_wait_for_one_message_takes_the_others(make_post: MakePost) -> None:
    post, channel = make_post(), _Poisoned([0], retry_after=60.0)
    add_failures(post, 20)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(1_200)
    assert sorted(int(message.commit) for message in channel.got) == list(range(1, 20))
    for (earlier, number), (later, _) in pairwise(channel.tried):
        assert later - earlier >= (60 if number == 0 else 1)
    await sender.close()


@pytest.mark.parametrize("hours", [0.5, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("retry_after", [None, 120.0])
async def test_a_receiver_that_was_away_gets_all_in_order_but_what_it_never_takes(
    make_post: MakePost, retry_after: float | None, hours: float
) -> None:
    post, channel = make_post(), _Poisoned([5])
    channel.is_down = True
    channel.faults = [SendFailed("it answers 503", retry_after=retry_after) for _ in range(2_000)]
    add_failures(post, 40)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(hours * 3_600)
    assert not channel.got
    assert all(later - earlier >= (retry_after or 1) for earlier, later in pairwise(channel.times))
    channel.is_down, channel.faults = False, []
    channel.times.clear()
    await post.clock.advance(600)
    assert [int(message.commit) for message in channel.got] == [number for number in range(40) if number != 5]
    assert all(later - earlier >= 1 for earlier, later in pairwise(channel.times))
    await sender.close()


async def test_a_later_state_takes_the_place_of_one_that_fails(make_post: MakePost) -> None:
    class OnlyEnds(NotedChannel):
        async def send(self, message: Message, reference: str) -> str:
            if message.state.is_final:
                return await super().send(message, reference)
            post.run("failed", NEXT, failed="x")
            post.collect()
            raise SendFailed("it answers 500")

    post, channel = make_post(notify(rule(states=EVERY))), OnlyEnds()
    post.run("running", NEXT)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(10)
    assert channel.states == [State.FAILURE]
    first, last = reversed(post.records.deliveries.list())
    assert (first.status, last.status) == (DeliveryStatus.EXPIRED, DeliveryStatus.SENT)
    assert first.answer == f"it answers 500; the message {last.id}, about the same, takes its place"
    await sender.close()


async def test_a_channel_that_hangs_delays_no_other(make_post: MakePost) -> None:
    class Hanging(NotedChannel):
        async def send(self, message: Message, reference: str) -> str:
            await asyncio.Event().wait()
            return ""

    post = make_post(notify(channels=("slow", "ops")))
    slow, channel = Hanging("slow"), NotedChannel()
    add_failures(post, 5)
    sender = post.new_sender(slow, channel)
    sender.open()
    await post.clock.advance(10)
    assert len(channel.got) == 5
    await sender.close()


async def test_what_a_receiver_refuses_is_not_sent_again_and_the_next_one_is(make_post: MakePost) -> None:
    post, channel = make_post(), NotedChannel()
    channel.faults = [SendRefused("hooks.example.com answers 400")]
    add_failures(post, 2)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(0.5)
    condition = post.records.conditions.get(channel_scope("ops"))[0]
    assert (condition.reason, condition.message) == ("SendRefused", "hooks.example.com answers 400")
    await post.clock.advance(10)
    assert [int(message.commit) for message in channel.got] == [1]
    assert [one.status for one in post.records.deliveries.list()] == [DeliveryStatus.SENT, DeliveryStatus.REFUSED]
    assert post.records.conditions.get(channel_scope("ops"))[0].status
    await sender.close()


async def test_a_receiver_that_asks_to_wait_is_left_alone_for_that_long(make_post: MakePost) -> None:
    post, channel = make_post(), NotedChannel()
    channel.faults = [SendFailed("it answers 429", retry_after=900.0)]
    add_failures(post, 2)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(899)
    assert (len(channel.times), len(channel.got)) == (1, 0)
    await post.clock.advance(10)
    assert len(channel.got) == 2
    await sender.close()


async def test_a_receiver_that_times_out_after_it_accepted_has_one_repetition_that_is_marked(
    make_post: MakePost,
) -> None:
    class Late(NotedChannel):
        async def send(self, message: Message, reference: str) -> str:
            await super().send(message, reference)
            if len(self.got) == 1:
                raise SendFailed("it does not answer", reached=True)
            return ""

    post, channel = make_post(), Late()
    add_failures(post, 1)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(60)
    assert [message.may_repeat for message in channel.got] == [False, True]
    assert len({make_webhook_id(message) for message in channel.got}) == 1
    await sender.close()


async def test_a_later_state_edits_the_message_of_the_former_one(make_post: MakePost) -> None:
    post, channel = make_post(notify(rule(states=EVERY))), NotedChannel(edits=True)
    sender = post.new_sender(channel)
    sender.open()
    for outcome, commit in (("running", NEXT), ("applied", NEXT), ("running", "c" * 40)):
        post.run(outcome, commit)
        await post.clock.advance(5)
    assert channel.references == ["", "note-1", ""]
    assert [message.sequence for message in channel.got] == sorted(message.sequence for message in channel.got)
    await sender.close()


async def test_another_end_of_a_thing_waits_for_the_interval(make_post: MakePost) -> None:
    post, channel = make_post(notify(rule(interval=300.0))), NotedChannel()
    sender = post.new_sender(channel)
    sender.open()
    for turn in range(60):
        post.run("applied" if turn % 2 else "failed", failed="" if turn % 2 else "x")
        await post.clock.advance(20)
    await post.clock.advance(400)
    assert all(later - earlier >= 300 for earlier, later in pairwise(channel.times))
    assert 2 <= len(channel.got) <= 6
    assert channel.states[-1] is State.SUCCESS
    await sender.close()


async def test_a_channel_that_is_gone_from_the_settings_keeps_nothing_waiting(make_post: MakePost) -> None:
    post = make_post(notify(channels=("ops", "gone")))
    add_failures(post, 1)
    post.collect()
    post.settings = msgspec.structs.replace(post.settings, notifications=notify())
    post.new_collector().open()
    ended = {one.channel: one.status for one in post.records.deliveries.list()}
    assert ended == {"ops": DeliveryStatus.WAITING, "gone": DeliveryStatus.EXPIRED}


class _SlowToAnswer(NotedChannel):
    """Whoever is killed before the answer came does not know that the message arrived."""

    async def send(self, message: Message, reference: str) -> str:
        await asyncio.sleep(0)
        answer = await super().send(message, reference)
        for _ in range(5):
            await asyncio.sleep(0)
        return answer


async def kill_at_random(post: Post, kills: int, seed: int) -> NotedChannel:
    """Let things happen, and kill the sender at ``kills`` random points, which no clean-up follows."""
    numbers, channel = random.Random(seed), _SlowToAnswer()
    for kill in range(kills):
        if kill % 3 == 0:
            post.run("failed", f"{kill:040}", failed="x")
        sender = post.new_sender(channel)
        sender.open()
        tasks = sender.tasks
        for _ in range(numbers.randrange(30)):
            await asyncio.sleep(0)
        if numbers.random() < 0.7:
            await post.clock.advance(numbers.uniform(0, 4))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(kills)
    await sender.close()
    return channel


async def assert_once(post: Post, kills: int, seed: int) -> None:
    channel = await kill_at_random(post, kills, seed)
    commits = [f"{kill:040}" for kill in range(0, kills, 3)]
    firsts = Counter(message.commit for message in channel.got if not message.may_repeat)
    assert sorted({message.commit for message in channel.got}) == commits
    assert all(count == 1 for count in firsts.values())
    repeated = Counter(make_webhook_id(message) for message in channel.got)
    assert len(repeated) == len(commits), "a receiver that deduplicates by the id has each of them once"


async def test_killed_anywhere_every_message_arrives_and_a_repetition_is_marked(make_post: MakePost) -> None:
    await assert_once(make_post(), 60, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_killed_a_thousand_times_every_message_arrives(make_post: MakePost, seed: int) -> None:
    await assert_once(make_post(), 250, seed)


async def test_a_bug_of_a_channel_is_tried_again_and_its_text_is_not_shown(make_post: MakePost) -> None:
    post, channel = make_post(), NotedChannel()
    channel.faults = [ValueError("hunter2")]
    add_failures(post, 1)
    sender = post.new_sender(channel)
    sender.open()
    await post.clock.advance(1)
    (delivery,) = post.records.deliveries.list()
    assert "ValueError" in delivery.answer
    assert "hunter2" not in delivery.answer
    await post.clock.advance(30)
    assert [message.event for message in channel.got] == [EventType.RUN]
    await sender.close()
