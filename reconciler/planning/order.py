"""Which step waits for which, and one total order that respects it."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.record import Record
from reconciler.model.resource import Bond
from reconciler.planning.plan import Action, Step
from reconciler.planning.references import recorded_targets
from reconciler.planning.scope import APPLY_ORDER, Scope

Edges = list[set[int]]
"""For each step, what it waits for: both as indices of the steps by rank, which cost a tenth of their ids."""


def ordered(scope: Scope, steps: Iterable[Step]) -> tuple[Step, ...]:
    """``steps`` with what each waits for, in an order that any one-by-one run could take.

    Ties go by apply order, key and location, so the same input always gives the same sequence.
    """
    by_rank = sorted(steps, key=_rank)
    by_key: dict[str, list[int]] = defaultdict(list)
    for index, step in enumerate(by_rank):
        by_key[str(step.key)].append(index)
    edges: Edges = [_forward(scope, step, by_rank, by_key) for step in by_rank]
    if any(step.action is not Action.CREATE for step in by_rank):
        _backward(scope, by_rank, by_key, edges)
        _hand_over(scope, by_rank, edges)
    bound = _bound(scope, by_rank, edges)
    return tuple([bound[index] for index in _sorted(edges)])


def _bound(scope: Scope, steps: list[Step], edges: Edges) -> list[Step]:
    ids = [step.id for step in steps]
    bound = []
    for step, awaited in zip(steps, edges, strict=True):
        needs = _needs_healthy(scope, step)
        if awaited or needs:
            waits_for = tuple(sorted([ids[index] for index in awaited]))
            step = msgspec.structs.replace(step, waits_for=waits_for, needs_healthy=needs)
        bound.append(step)
    return bound


def _forward(scope: Scope, step: Step, steps: list[Step], by_key: dict[str, list[int]]) -> set[int]:
    """A step waits for the steps of what it refers to: at its own location, or everywhere for depends-on."""
    found: set[int] = set()
    if step.action is Action.DELETE:
        return found
    for reference in scope.desired[step.key].references:
        if reference.bond is Bond.NONE:
            continue
        for index in by_key.get(reference.target, ()):
            other = steps[index]
            near = reference.bond is Bond.HEALTHY or not other.location or other.location == step.location
            if near and other.action is not Action.DELETE and other.key != step.key:
                found.add(index)
    return found


def _needs_healthy(scope: Scope, step: Step) -> tuple[Key, ...]:
    noted_only = step.key.kind in PLACED and not step.location
    if step.action is Action.DELETE or noted_only:
        return ()
    wanted = [ref.target for ref in scope.desired[step.key].references if ref.bond is Bond.HEALTHY]
    here = {target for target in wanted if not target.startswith("/")} - scope.external if wanted else ()
    return tuple(sorted(map(Key.parse, here)))


def _backward(scope: Scope, steps: list[Step], by_key: dict[str, list[int]], edges: Edges) -> None:
    """What is deleted waits until everything that referred to it is gone or refers to it no more."""
    doomed = {str(step.key) for step in steps if step.action is Action.DELETE}
    if not doomed:
        return
    for index, step in enumerate(steps):
        for awaiting in (each for target in _targets_before(scope, step) & doomed for each in by_key[target]):
            other = steps[awaiting]
            near = not other.location or other.location == step.location
            if other.action is Action.DELETE and near and other.key != step.key:
                edges[awaiting].add(index)


def _targets_before(scope: Scope, step: Step) -> frozenset[str]:
    if step.action is Action.CREATE:
        return frozenset()
    record = _record(scope, step)
    return recorded_targets(record, scope.org) if record is not None else frozenset()


def _record(scope: Scope, step: Step) -> Record | None:
    return next((r for r in scope.records.get(step.key, ()) if r.location == step.location), None)


def _hand_over(scope: Scope, steps: list[Step], edges: Edges) -> None:
    """A volume set is released by its old workload before the new one acquires it."""
    before: dict[tuple[str, str], list[int]] = defaultdict(list)
    after: dict[int, set[str]] = {}
    for index, step in enumerate(steps):
        if step.key.kind is not Kind.WORKLOAD:
            continue
        gone = step.action is Action.DELETE
        after[index] = set() if gone else _volume_sets(ref.target for ref in scope.desired[step.key].references)
        for target in _volume_sets_before(scope, step) - after[index]:
            before[target, step.location].append(index)
    pairs = {
        (taker, giver)
        for taker, taken in after.items()
        for name in taken
        for giver in before[name, steps[taker].location]
    }
    for taker, giver in sorted(pairs, key=lambda pair: (steps[pair[0]].id, steps[pair[1]].id)):
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


def _reaches(start: int, goal: int, edges: Edges) -> bool:
    seen, stack = {start}, [start]
    while stack:
        fresh = edges[stack.pop()] - seen
        seen |= fresh
        stack.extend(fresh)
    return goal in seen


def _sorted(edges: Edges) -> Iterator[int]:
    """Kahn's algorithm with a heap; steps in a cycle (validation refuses them) would come last, by rank."""
    waiting = [len(awaited) for awaited in edges]
    followers: list[list[int]] = [[] for _ in edges]
    for index, awaited in enumerate(edges):
        for other in awaited:
            followers[other].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    while ready:
        index = heapq.heappop(ready)
        yield index
        for follower in followers[index]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    yield from (index for index, count in enumerate(waiting) if count)


def _rank(step: Step) -> tuple[int, Key, str]:
    rank = APPLY_ORDER.get(step.key.kind, len(APPLY_ORDER))
    return (100 - rank if step.action is Action.DELETE else rank), step.key, step.location
