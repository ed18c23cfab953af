"""What Capacity AI recommends for what was used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.host.autoscaling.capacity import (
    SLOTS,
    Amount,
    UsageHistory,
    recommend_amount,
    record_usage,
)
from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.workload.spec import ContainerSpec, uses_capacity_ai
from reconciler.model.kinds.workload import Autoscaling
from tests.engines.host.autoscaling.test_autoscaling import wanted_of
from tests.support.cases import cases

MIB = 2**20


def lived(
    history: UsageHistory | None, digest: str, course: list[list[float]], now: float
) -> tuple[UsageHistory | None, float]:
    """``history`` after a course of use, sampled four times a minute; two replicas, of which one is idle."""
    for minutes, *amounts in course:
        for _ in range(int(minutes * 4)):
            uses = [Used(amounts[0], int(amounts[1] * MIB)), Used(0.0, MIB)] if amounts else []
            history = record_usage(history, digest, uses, now)
            now += 15
    return history, now


@pytest.mark.parametrize("case", cases("autoscaling/capacity.yaml"))
def test_recommendations_follow_the_use(case: dict[str, Any]) -> None:
    history, now = lived(None, "first", case["used"], 1000.0)
    history, _ = lived(history, "second", case.get("then", []), now)
    history = msgspec.json.decode(msgspec.json.encode(history), type=UsageHistory | None)
    (cpu, memory), (least_cpu, least_memory) = case["limits"], case.get("least", (0, 0))
    container = ContainerSpec("main", "", cpu, memory * MIB, least_cpu, least_memory * MIB)
    amount = recommend_amount(history, container)
    assert (amount and [amount.cpu, amount.memory / MIB]) == case.get("recommended")


@pytest.mark.parametrize(
    ("type_", "metric", "setting", "on"),
    [
        ("serverless", "concurrency", None, True),
        ("standard", "disabled", None, True),
        ("standard", "", None, True),
        ("standard", "rps", True, True),
        ("standard", "rps", False, False),
        ("standard", "cpu", None, False),
        ("standard", "memory", None, False),
        ("cron", "", None, False),
    ],
)
def test_it_is_on_by_default_but_not_with_cpu_and_not_on_cron(
    type_: str, metric: str, setting: bool | None, on: bool
) -> None:
    assert uses_capacity_ai(wanted_of(type_, Autoscaling(metric), setting)) is on


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 64_000), st.integers(0, 2**36)), max_size=80),
    st.integers(1, 64_000),
    st.integers(1, 2**36),
)
def test_a_recommendation_keeps_the_bounds_of_the_document(
    course: list[tuple[float, float, int]], cpu: int, memory: int
) -> None:
    history, now = None, 0.0
    for passed, used_cpu, used_memory in course:
        now += passed
        history = record_usage(history, "digest", [Used(used_cpu, used_memory)], now)
        assert len(history.slots) <= SLOTS
    amount = recommend_amount(history, ContainerSpec("main", cpu=cpu, memory=memory))
    if amount is None:
        return
    assert amount.cpu <= cpu
    assert amount.memory <= memory
    assert amount.cpu >= min(cpu, 25, amount.memory // (3 * MIB))
    assert amount == Amount(cpu, amount.memory) or amount.cpu >= 25
    assert history is not None
    assert amount.memory >= min(memory, max(slot.memory for slot in history.slots))
