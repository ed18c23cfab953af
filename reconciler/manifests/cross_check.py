"""The questions that rules have about other resources: who has to ask again after a change, and what is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from reconciler.iteration import batches
from reconciler.manifests.change_set import ChangeSet, keys_touched
from reconciler.manifests.desired_state import DesiredState, ResourceLocation
from reconciler.manifests.rules import cross_check_of, rules, trivially_passes
from reconciler.manifests.rules.registry import Advice
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import Kind
from reconciler.model.resource import LookupRequest, Resource, pointer_parts

DEPENDENT_KINDS: dict[str, frozenset[str]] = {
    Kind.POLICY: frozenset({Kind.IDENTITY}),
    Kind.DOMAIN: frozenset({Kind.GVC, Kind.WORKLOAD}),
    Kind.WORKLOAD: frozenset({Kind.VOLUMESET}),
}
"""Kinds of the targets of what changes that are to be asked again, with all that refers to them.

A policy that goes takes from the identities that it names what workloads with these identities rely on. A location
does the same to the GVCs that find theirs by a query, without any link.
"""

LOOKUP_BATCH = 1000
"""Resources about whose neighbours is asked together."""

PendingCheck = tuple[str, ResourceLocation | None, tuple[LookupRequest, ...]]
"""A key, where it is written if that is not where keys are looked up, and what its rules ask."""

_PLACES = frozenset({Kind.LOCATION})


def cross_check(delta: ChangeSet, world: DesiredState) -> Iterator[Finding]:
    """What is wrong between what changed, what refers to it, and what the rules look at besides."""
    replies = cache(cross_check_of)
    # Most of what there is to ask is asked by thousands alike: 0.2 s less of 100,000 workloads.
    settled = cache(lambda questions: all(trivially_passes(question, world) for question in questions))
    for key, site, questions in _expected(delta, world):
        for question in () if settled(questions) else questions:
            for words in replies(question.rule)(question, key, world):
                finding = _finding(key, site or world.site(key), question, world, words)
                yield from () if finding is None else (finding,)


def _expected(delta: ChangeSet, world: DesiredState) -> Iterator[PendingCheck]:
    """What is asked, with what it is asked about made ready to be looked at."""
    for batch in batches(_asking(delta, world), LOOKUP_BATCH):
        world.prefetch(question.target for *_, questions in batch for question in questions)
        yield from batch


def _asking(delta: ChangeSet, world: DesiredState) -> Iterator[PendingCheck]:
    """Keys with what is asked for them; documents with faults say where they are."""
    for key, resource in resources_to_check(delta, world):
        yield key, None, resource.questions
    for loose in delta.partial_documents:
        yield loose.key, ResourceLocation(loose.path, loose.blob, loose.position), loose.questions


def resources_to_check(delta: ChangeSet, world: DesiredState) -> Iterator[tuple[str, Resource]]:
    """Everything that changed and has questions, and of what has not changed all that a change may concern."""
    for key, resource in delta.added.items():
        if resource.questions:
            yield key, resource
    if world.is_first_load():
        return
    for key in sorted(_concerned(delta, world)):
        found = world.resource(key)
        if found is not None and found.questions:
            yield key, found


def _concerned(delta: ChangeSet, world: DesiredState) -> set[str]:
    """Unchanged resources that refer to what changed, or to what something that changed has to do with."""
    changed = keys_touched(delta)
    middle: set[str] = set()
    if any(_of_kinds(_PLACES, changed)):
        middle.update(world.gvcs_with_location_query())
    for key in changed:
        rippling = DEPENDENT_KINDS.get(key.partition("/")[0])
        if rippling is not None:
            middle.update(_of_kinds(rippling, (ref.target for ref in world.references(key))))
            known = delta.previous.get(key)
            before = world.references_before(key) if known is None else known.references
            middle.update(_of_kinds(rippling, (ref.target for ref in before)))
    concerned = middle - delta.added.keys()
    for key in {*changed, *middle}:
        concerned.update(world.referrers(key))
    return concerned


def _of_kinds(kinds: frozenset[str], targets: Iterable[str]) -> Iterator[str]:
    return (target for target in targets if target.partition("/")[0] in kinds)


def _finding(
    key: str, site: ResourceLocation, question: LookupRequest, world: DesiredState, words: Advice
) -> Finding | None:
    """The finding at the value that the question is about; None where a comment silences it."""
    rule = rules()[question.rule]
    line, column = world.position(site, pointer_parts(question.pointer))
    if rule.severity is not Severity.ERROR and world.ignored(site, line, rule.id):
        return None
    return Finding(site.path, line, column, rule.id, rule.severity, *words, key)
