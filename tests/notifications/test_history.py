"""A hundred thousand messages that were sent: nothing reads or sweeps all of them, and nobody waits for that."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reconciler.queries.notifications import list_notifications
from reconciler.reasons import Reason
from reconciler.records.notifications.deliveries import KEEP_DELIVERIES, Delivery, DeliveryStatus
from reconciler.records.store import FILE
from tests.notifications.harness import EVERY, NEXT, NotedChannel, Post, notify, rule

SETTINGS = notify(rule(states=EVERY))
CPU_SECONDS = 0.02
"""What one step may take, and for how long others wait that write; one that reads everything takes twice that."""
UNSENT = ("deliveries_waiting", "deliveries_due", "deliveries_collected", "deliveries_sending")
"""Indexes that have only what is not sent yet."""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state with as many messages as there can be."""
    history = Post(tmp_path_factory.mktemp("history"), SETTINGS)
    history.run("failed", failed="x", message="a message of some length " * 20)
    history.collect()
    history.deliver()
    [former] = history.records.deliveries.list()
    with history.records.transaction():
        for number in range(KEEP_DELIVERIES):
            history.records.deliveries.add(rename_delivery(former, f"run/main/{number:040}"))
    history.close()
    return history.path


@pytest.fixture
def post(state: Path, tmp_path: Path) -> Iterator[Post]:
    """Records of one test, with these messages."""
    shutil.copy(state, tmp_path / FILE)
    with closing(Post(tmp_path, SETTINGS)) as post:
        yield post


def rename_delivery(former: Delivery, thing: str) -> Delivery:
    """``former``, but about ``thing``."""
    return Delivery(**{name: getattr(former, name) for name in former.__struct_fields__} | {"thing": thing})


@contextmanager
def noted_statements(post: Post) -> Iterator[set[str]]:
    """The statements about deliveries that both connections run meanwhile."""
    statements: set[str] = set()
    connections = [records._database._connection for records in (post.records, post.mine)]
    for connection in connections:
        connection.set_trace_callback(lambda sql: statements.add(sql) if "deliveries" in sql else None)
    yield statements
    for connection in connections:
        connection.set_trace_callback(None)


async def send_all_kinds(post: Post) -> NotedChannel:
    """Restart the sender, and let commits and troubles come, be superseded, fail, and arrive."""
    channel = NotedChannel(edits=True)
    channel.is_down = True
    sender = post.new_sender(channel)
    sender.open()
    for outcome, commit in (("running", NEXT), ("waiting", "c" * 40), ("failed", "d" * 40)):
        post.run(outcome, commit, failed="x")
        await post.clock.advance(10)
    post.happen("workload/shop/api", Reason.UNHEALTHY)
    await post.clock.advance(60)
    channel.is_down = False
    await post.clock.advance(600)
    await sender.close()
    return channel


async def test_no_statement_reads_all_messages(post: Post) -> None:
    with noted_statements(post) as statements:
        channel = await send_all_kinds(post)
        assert len(list_notifications(post.records, 100)) == 100
    assert channel.got
    assert len(statements) > 10
    for statement in statements:
        plan = [str(row[3]) for row in post.records._database.all(f"EXPLAIN QUERY PLAN {statement}")]
        is_bounded = "ORDER BY id DESC LIMIT" in statement or any(step.endswith(UNSENT) for step in plan)
        assert is_bounded or not [step for step in plan if step.startswith(("SCAN deliveries", "SCAN mine"))], plan
        assert not [step for step in plan if "TEMP B-TREE" in step], statement


def test_as_many_are_remembered_as_there_can_be_and_each_step_is_short(post: Post) -> None:
    [former] = post.records.deliveries.list(1)
    taken = []
    for number in range(200):
        began = time.thread_time()
        post.records.deliveries.add(rename_delivery(former, f"run/main/new-{number}"))
        taken.append(time.thread_time() - began)
    assert sorted(taken)[len(taken) // 2] < CPU_SECONDS
    count = "SELECT count(*), max(id) - min(id) FROM deliveries"
    assert post.records._database.one(count) == (KEEP_DELIVERIES, KEEP_DELIVERIES - 1)


def test_the_last_messages_are_listed_at_once(post: Post) -> None:
    began = time.thread_time()
    listed = list_notifications(post.records, 100)
    assert time.thread_time() - began < 10 * CPU_SECONDS
    assert {one.delivery.status for one in listed} == {DeliveryStatus.SENT}


def test_a_restart_reads_only_what_is_not_sent(post: Post) -> None:
    post.run("failed", NEXT, failed="y")
    post.collect()
    taken = []
    for _ in range(5):
        began = time.thread_time()
        post.new_collector().open()
        taken.append(time.thread_time() - began)
    assert min(taken) < CPU_SECONDS
    assert post.records.deliveries.list(1)[0].status is DeliveryStatus.WAITING
