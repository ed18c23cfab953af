"""Which step waits for which, and one total order that respects it."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.record import Record
from reconciler.model.resource import Bond
from reconciler.planning.plan import Action, Step, StepId
from reconciler.planning.references import recorded_targets
from reconciler.planning.scope import APPLY_ORDER, Scope

Edges = dict[StepId, set[StepId]]


def ordered(scope: Scope, steps: list[Step]) -> tuple[Step, ...]:
    """``steps`` with what each waits for, in an order that any one-by-one run could take.

    Ties go by apply order, key and location, so the same input always gives the same sequence.
    """
    by_key: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_key[str(step.key)].append(step)
    ids = [step.id for step in steps]
    edges: Edges = {
        step_id: set() if step.action is Action.DELETE else set(_forward(scope, step, by_key))
        for step_id, step in zip(ids, steps, strict=True)
    }
    if any(step.action is not Action.CREATE for step in steps):
        _backward(scope, steps, by_key, edges)
        _hand_over(scope, steps, edges)
    return tuple(_sorted([_bound(scope, step, edges[step_id]) for step_id, step in zip(ids, steps, strict=True)]))


def _bound(scope: Scope, step: Step, awaited: set[StepId]) -> Step:
    needs = _needs_healthy(scope, step)
    if not awaited and not needs:
        return step
    return msgspec.structs.replace(step, waits_for=tuple(sorted(awaited)), needs_healthy=needs)


def _forward(scope: Scope, step: Step, by_key: dict[str, list[Step]]) -> Iterator[StepId]:
    """A step waits for the steps of what it refers to: at its own location, or everywhere for depends-on."""
    for reference in scope.desired[step.key].references:
        if reference.bond is Bond.NONE:
            continue
        for other in by_key.get(reference.target, ()):
            near = reference.bond is Bond.HEALTHY or not other.location or other.location == step.location
            if near and other.action is not Action.DELETE and other.key != step.key:
                yield other.id


def _needs_healthy(scope: Scope, step: Step) -> tuple[Key, ...]:
    noted_only = step.key.kind in PLACED and not step.location
    if step.action is Action.DELETE or noted_only:
        return ()
    wanted = {ref.target for ref in scope.desired[step.key].references if ref.bond is Bond.HEALTHY}
    if not wanted:
        return ()
    return tuple(sorted(Key.parse(target) for target in wanted - scope.external if not target.startswith("/")))


def _backward(scope: Scope, steps: list[Step], by_key: dict[str, list[Step]], edges: Edges) -> None:
    """What is deleted waits until everything that referred to it is gone or refers to it no more."""
    doomed = {name for name, own in by_key.items() if any(step.action is Action.DELETE for step in own)}
    if not doomed:
        return
    for step in steps:
        for other in (other for target in _targets_before(scope, step) & doomed for other in by_key[target]):
            near = not other.location or other.location == step.location
            if other.action is Action.DELETE and near and other.key != step.key:
                edges[other.id].add(step.id)


def _targets_before(scope: Scope, step: Step) -> frozenset[str]:
    if step.action is Action.CREATE:
        return frozenset()
    record = _record(scope, step)
    return recorded_targets(record, scope.org) if record is not None else frozenset()


def _record(scope: Scope, step: Step) -> Record | None:
    return next((r for r in scope.records.get(step.key, ()) if r.location == step.location), None)


def _hand_over(scope: Scope, steps: list[Step], edges: Edges) -> None:
    """A volume set is released by its old workload before the new one acquires it."""
    before: dict[tuple[str, str], list[StepId]] = defaultdict(list)
    after: dict[StepId, set[str]] = {}
    for step in steps:
        if step.key.kind is not Kind.WORKLOAD:
            continue
        gone = step.action is Action.DELETE
        after[step.id] = set() if gone else _volume_sets(ref.target for ref in scope.desired[step.key].references)
        for target in _volume_sets_before(scope, step) - after[step.id]:
            before[target, step.location].append(step.id)
    pairs = [
        (taker, giver) for taker, taken in after.items() for name in taken for giver in before[name, taker.location]
    ]
    for taker, giver in sorted(set(pairs)):
        # Two that swap would wait for each other: the first of them goes ahead.
        if giver != taker and not _reaches(giver, taker, edges):
            edges[taker].add(giver)


def _volume_sets_before(scope: Scope, step: Step) -> set[str]:
    """Most workloads mount none, which is seen without reading their bodies."""
    record = None if step.action is Action.CREATE else _record(scope, step)
    if record is None or b"volumeset/" not in record.body:
        return set()
    return _volume_sets(recorded_targets(record, scope.org))


def _volume_sets(targets: Iterable[str]) -> set[str]:
    return {target for target in targets if target.startswith("volumeset/")}


def _reaches(start: StepId, goal: StepId, edges: Edges) -> bool:
    seen, stack = {start}, [start]
    while stack:
        fresh = edges[stack.pop()] - seen
        seen |= fresh
        stack.extend(fresh)
    return goal in seen


def _sorted(steps: list[Step]) -> Iterator[Step]:
    """Kahn's algorithm with a heap; steps in a cycle (validation refuses them) would come last, by rank."""
    by_rank = sorted(steps, key=_rank)
    number = {step.id: index for index, step in enumerate(by_rank)}
    waiting = [len(step.waits_for) for step in by_rank]
    followers: list[list[int]] = [[] for _ in by_rank]
    for index, step in enumerate(by_rank):
        for other in step.waits_for:
            followers[number[other]].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    while ready:
        index = heapq.heappop(ready)
        yield by_rank[index]
        for follower in followers[index]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    yield from (step for step, count in zip(by_rank, waiting, strict=True) if count)


def _rank(step: Step) -> tuple[int, Key, str]:
    rank = APPLY_ORDER.get(step.key.kind, len(APPLY_ORDER))
    return (100 - rank if step.action is Action.DELETE else rank), step.key, step.location
