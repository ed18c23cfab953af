"""The order of steps: which steps wait for which, and a total order that respects this."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from reconciler.model.key import PLACED, Key, Kind
from reconciler.model.kinds.table import TABLE
from reconciler.model.record import Record
from reconciler.model.resource import Dependency, Reference
from reconciler.planning.inputs import PlannerInput
from reconciler.planning.plan import Action, Step, StepId
from reconciler.planning.recorded_references import recorded_targets
from reconciler.planning.successors import successor_edges

References = tuple[Reference, ...]
Edges = list[frozenset[int]]
"""For each step the steps that it waits for, as indices by rank, which cost a tenth of ids."""


def order_steps(scope: PlannerInput, steps: list[Step]) -> None:
    """Sort ``steps`` in place, into an order in which they could run one by one, each with the steps it waits for.

    Apply order, key and location break ties, so the same input always gives the same order.
    """
    steps.sort(key=_get_step_rank)
    references = [() if step.action is Action.DELETE else scope.desired[step.key].references for step in steps]
    by_key = _index_awaitable_steps(references, steps)
    edges = _build_forward_edges(references, steps, by_key)
    if any(step.action is not Action.CREATE for step in steps):
        sets = [set(awaited) for awaited in edges]
        _add_backward_edges(scope, steps, by_key, sets)
        _volume_handover_edges(scope, steps, sets)
        for doomed, successor in successor_edges(steps):
            if not _is_reachable(successor, doomed, sets):
                sets[doomed].add(successor)
        edges = [frozenset(awaited) for awaited in sets]
    _bind_waits(scope, references, steps, edges)
    steps[:] = [steps[index] for index in _sort_steps(edges)]


def _index_awaitable_steps(references: list[References], steps: list[Step]) -> dict[str, list[int]]:
    """The steps of each key that others may wait for: few of 100,000, of which an index would take 25 MB."""
    targets = {ref.target for refs in {id(refs): refs for refs in references}.values() for ref in refs}
    by_key: dict[str, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        name = str(step.key)
        if name in targets or step.action is Action.DELETE:
            by_key[name].append(index)
    return by_key


def _bind_waits(scope: PlannerInput, references: list[References], steps: list[Step], edges: Edges) -> None:
    """Replace each step by one with the steps it waits for; steps with equal waits share one tuple."""
    waits: dict[frozenset[int], tuple[StepId, ...]] = {}
    healthy: dict[int, tuple[Key, ...]] = {}
    for position, (step, refs, awaited) in enumerate(zip(steps, references, edges, strict=True)):
        if awaited not in waits:
            waits[awaited] = tuple(sorted([steps[index].id for index in awaited]))
        if id(refs) not in healthy:
            healthy[id(refs)] = _needs_healthy(scope, refs)
        recorded_only = step.key.kind in PLACED and not step.location
        needs = step.needs_healthy or (() if recorded_only else healthy[id(refs)])
        if awaited or needs:
            steps[position] = msgspec.structs.replace(step, waits_for=waits[awaited], needs_healthy=needs)


def _build_forward_edges(references: list[References], steps: list[Step], by_key: dict[str, list[int]]) -> Edges:
    """A step waits for the steps of its references; computed once for all steps with the same references at a location.

    Most members of a GVC share theirs: saves 0.2 s for 100,000 steps.
    """
    cache: dict[tuple[int, str], frozenset[int]] = {}
    edges: Edges = []
    for index, (step, refs) in enumerate(zip(steps, references, strict=True)):
        awaited = cache.get((id(refs), step.location))
        if awaited is None:
            awaited = cache[id(refs), step.location] = frozenset(
                _list_awaited_steps(refs, step.location, steps, by_key)
            )
        edges.append(awaited.difference(by_key[str(step.key)]) if index in awaited else awaited)
    return edges


def _list_awaited_steps(
    references: References, location: str, steps: list[Step], by_key: dict[str, list[int]]
) -> Iterator[int]:
    """The steps of the referenced resources: at the same location, or at all locations for depends-on."""
    for reference in references:
        if reference.bond is Dependency.NONE:
            continue
        for index in by_key.get(reference.target, ()):
            other = steps[index]
            near = reference.bond is Dependency.HEALTHY or not other.location or other.location == location
            if near and other.action is not Action.DELETE:
                yield index


def _needs_healthy(scope: PlannerInput, references: References) -> tuple[Key, ...]:
    targets = [ref.target for ref in references if ref.bond is Dependency.HEALTHY]
    here = {target for target in targets if not target.startswith("/")} - scope.external if targets else ()
    return tuple(sorted(map(Key.parse, here)))


def _add_backward_edges(
    scope: PlannerInput, steps: list[Step], by_key: dict[str, list[int]], edges: list[set[int]]
) -> None:
    """A delete waits for the delete or update of everything that referred to the resource."""
    doomed = {str(step.key) for step in steps if step.action is Action.DELETE}
    if not doomed:
        return
    for index, step in enumerate(steps):
        for awaiting in (number for target in _targets_before(scope, step) & doomed for number in by_key[target]):
            other = steps[awaiting]
            near = not other.location or other.location == step.location
            if other.action is Action.DELETE and near and other.key != step.key:
                edges[awaiting].add(index)


def _targets_before(scope: PlannerInput, step: Step) -> frozenset[str]:
    if step.action is Action.CREATE:
        return frozenset()
    record = _find_step_record(scope, step)
    return recorded_targets(record, scope.org) if record is not None else frozenset()


def _find_step_record(scope: PlannerInput, step: Step) -> Record | None:
    return next((r for r in scope.records.get(step.key, ()) if r.location == step.location), None)


def _volume_handover_edges(scope: PlannerInput, steps: list[Step], edges: list[set[int]]) -> None:
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
        # Two workloads that swap would wait for each other: the first goes ahead.
        if giver != taker and not _is_reachable(giver, taker, edges):
            edges[taker].add(giver)


def _volume_sets_before(scope: PlannerInput, step: Step) -> set[str]:
    """The volume sets of the recorded workload; a search in the raw bytes skips the many workloads without any."""
    record = None if step.action is Action.CREATE else _find_step_record(scope, step)
    if record is None or b"volumeset/" not in record.body:
        return set()
    return _volume_sets(recorded_targets(record, scope.org))


def _volume_sets(targets: Iterable[str]) -> set[str]:
    return {target for target in targets if target.startswith("volumeset/")}


def _is_reachable(start: int, goal: int, edges: list[set[int]]) -> bool:
    seen, stack = {start}, [start]
    while stack:
        fresh = edges[stack.pop()] - seen
        seen |= fresh
        stack.extend(fresh)
    return goal in seen


def _sort_steps(edges: Edges) -> Iterator[int]:
    """Kahn's algorithm with a heap; steps in a cycle (validation refuses them) come last, by rank."""
    waiting = [len(awaited) for awaited in edges]
    followers: dict[int, list[int]] = defaultdict(list)
    for index, awaited in enumerate(edges):
        for other in awaited:
            followers[other].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    while ready:
        index = heapq.heappop(ready)
        yield index
        for follower in followers.get(index, ()):
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    yield from (index for index, count in enumerate(waiting) if count)


def _get_step_rank(step: Step) -> tuple[int, Key, str]:
    rank = TABLE[step.key.kind].rank
    return (100 - rank if step.action is Action.DELETE else rank), step.key, step.location
