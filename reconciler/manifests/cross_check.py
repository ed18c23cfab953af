"""Cross-resource rules: which resources are checked again after a change, and the findings."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from reconciler.iteration import iterate_batches
from reconciler.manifests.change_set import ChangeSet, keys_touched
from reconciler.manifests.comment_check import unused_advice
from reconciler.manifests.cross_findings import CrossFinding, CrossFindings
from reconciler.manifests.desired_state import DesiredState, ResourceLocation
from reconciler.manifests.rules import cross_check_of, load_rules, trivially_passes
from reconciler.manifests.rules.context import RuleContext
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Workload, declared_ports
from reconciler.model.platform import SECRET_URI
from reconciler.model.resource import LookupRequest, Reference, Resource

DEPENDENT_KINDS: dict[str, frozenset[str]] = {
    Kind.POLICY: frozenset({Kind.IDENTITY}),
    Kind.DOMAIN: frozenset({Kind.GVC, Kind.WORKLOAD}),
    Kind.WORKLOAD: frozenset({Kind.VOLUMESET}),
}
"""Changed kind → kinds of its targets that are checked again, with their referrers.

Without a policy, the workloads of the identities in it lose permissions. A changed location affects the GVCs that find
theirs by a query, without any link.
"""

_OF_PEOPLE = frozenset({"description", "tags"})

LOOKUP_BATCH = 500
"""Resources whose references are read in one batch."""


class PendingCheck(NamedTuple):
    """A key, its place in a file if the index does not have it, and the questions of its rules."""

    key: str
    site: ResourceLocation | None
    questions: tuple[LookupRequest, ...]


_PLACES, _IDENTITIES = frozenset({Kind.LOCATION}), frozenset({Kind.IDENTITY})


def cross_check(delta: ChangeSet, world: DesiredState, findings: CrossFindings) -> None:
    """Add the findings between changed resources, their referrers, and the resources that rules ask about."""
    context = RuleContext(world.index, world.bodies)

    @cache  # thousands of resources have the same questions: this saves 0.2 s for 100,000 workloads
    def list_open_questions(questions: tuple[LookupRequest, ...]) -> list[LookupRequest]:
        return [question for question in questions if not trivially_passes(question, context)]

    for key, site, questions in _list_prefetched_checks(delta, world):
        for question in list_open_questions(questions):
            _answer_question(question, key, site, context, findings)


def _answer_question(
    question: LookupRequest, key: str, site: ResourceLocation | None, world: RuleContext, findings: CrossFindings
) -> None:
    """Add the findings for one question of ``key``; ``site`` is as in ``PendingCheck``."""
    rule = load_rules()[question.rule]
    if findings.any_full and findings.is_full((site or world.index.site(key)).path, rule.severity):
        return
    for message, suggestion in cross_check_of(rule.id)(question, key, world):
        location = site or world.index.site(key)
        findings.add(CrossFinding(location, question.pointer, rule.id, rule.severity, message, suggestion, key))
        if findings.is_full(location.path, rule.severity):
            return


def unused_comments(delta: ChangeSet, used: Container[tuple[str, int]]) -> Iterator[Finding]:
    """Comments that silence nothing, neither in their file nor between resources.

    ``used`` has the path and the line of each comment that silences a finding between resources.
    """
    faulty = {finding.path for finding in delta.findings if finding.severity is Severity.ERROR}
    for path, comment in delta.unused_comments:
        if path not in faulty and (path, comment.line) not in used:
            advice = unused_advice(comment.rule)
            yield Finding(path, comment.line, comment.column, "ignore-comment", Severity.WARNING, *advice)


def _list_prefetched_checks(delta: ChangeSet, world: DesiredState) -> Iterator[PendingCheck]:
    """The questions, with their targets prefetched."""
    for batch in iterate_batches(_list_pending_checks(delta, world), LOOKUP_BATCH):
        asked = [question for pending in batch for question in pending.questions]
        # The detail of some questions is a key too. Those about an identity are answered by its policies.
        targets = {key for question in asked for key in (question.target, question.detail)}
        policies = world.index.prefetch_users(_of_kinds(_IDENTITIES, targets), Kind.POLICY)
        world.index.prefetch({*targets, *policies})
        yield from batch


def _list_pending_checks(delta: ChangeSet, world: DesiredState) -> Iterator[PendingCheck]:
    """Keys with their questions; documents with faults have their place."""
    for key, resource in resources_to_check(delta, world):
        yield PendingCheck(key, None, resource.questions)
    for loose in delta.partial_documents:
        site = ResourceLocation(loose.path, loose.blob, loose.position)
        yield PendingCheck(loose.key, site, loose.questions)


def resources_to_check(delta: ChangeSet, world: DesiredState) -> Iterator[tuple[str, Resource]]:
    """Changed resources with questions, and unchanged ones that a change may affect."""
    for key, resource in delta.added.items():
        if resource.questions:
            yield key, resource
    if world.index.is_first_load():
        return
    for batch in iterate_batches(sorted(_collect_affected_keys(delta, world)), LOOKUP_BATCH):
        world.index.prefetch(batch)
        for key in batch:
            candidate = world.bodies.resource(key)
            if candidate is not None and candidate.questions:
                yield key, candidate


def _collect_affected_keys(delta: ChangeSet, world: DesiredState) -> set[str]:
    """Unchanged resources that refer to a changed resource, or to a target of one."""
    touched = keys_touched(delta)
    changed = [
        key for batch in iterate_batches(touched, LOOKUP_BATCH) for key in _affecting_referrers(batch, delta, world)
    ]
    middle: set[str] = set()
    if locations := [*_of_kinds(_PLACES, touched)]:
        middle.update(world.bodies.gvcs_moved_by(locations))
    for key in changed:
        if key.partition("/")[0] in DEPENDENT_KINDS:
            middle.update(_dependent_targets(key, world.index.references(key)))
            resource = delta.previous.get(key)
            before = world.index.references_before(key) if resource is None else resource.references
            middle.update(_dependent_targets(key, before))
    return {*(middle - delta.added.keys()), *world.index.referrers_of_any({*changed, *middle})}


def _affecting_referrers(keys: Iterable[str], delta: ChangeSet, world: DesiredState) -> Iterator[str]:
    """Those of the changed ``keys`` that can change the answers of resources that refer to them."""
    compared = []
    for key in keys:
        after, before = delta.added.get(key), delta.previous.get(key)
        if after is None or before is None or before.references != after.references:
            yield key
        elif key.partition("/")[0] in _READ_BY_RULES:
            compared.append(key)
    # Most resources affect no other one: then their former bodies are not read.
    referred = world.index.select_referred(compared)
    links = {key: delta.added[key].references for key in compared}
    compared = [key for key in compared if key in referred or any(_dependent_targets(key, links[key]))]
    former = world.bodies.former_bodies(compared)
    for key in compared:
        read = _READ_BY_RULES[key.partition("/")[0]]
        if key not in former or read(former[key]) != read(delta.added[key].body):
            yield key


def _dependent_targets(key: str, references: Iterable[Reference]) -> Iterator[str]:
    """The targets of ``references`` that are checked again, with their referrers, if their referrer ``key`` changes."""
    return _of_kinds(
        DEPENDENT_KINDS.get(key.partition("/")[0], frozenset()), (reference.target for reference in references)
    )


def _of_kinds(kinds: frozenset[str], targets: Iterable[str]) -> Iterator[str]:
    return (target for target in targets if target.partition("/")[0] in kinds)


def _without_words(body: bytes) -> dict[str, Any]:
    """All but what is for people."""
    return {name: value for name, value in msgspec.json.decode(body).items() if name not in _OF_PEOPLE}


def _read_of_gvc(body: bytes) -> object:
    left = _without_words(body)
    spec = left.get("spec") or {}
    return {**left, "spec": {**spec, "env": [(value["name"], _read_value(value)) for value in spec.get("env") or ()]}}


def _read_of_secret(body: bytes) -> object:
    """The keys of its data; the query of a policy may ask for the description and for tags."""
    whole = msgspec.json.decode(body)
    data = whole.get("data")
    return {**whole, "data": sorted(data) if isinstance(data, dict) else ""}


def _read_of_workload(body: bytes) -> object:
    """What a route needs; a rule about volume sets asks for references."""
    spec = msgspec.json.decode(body, type=Workload).spec
    return spec.type, [declared_ports(container) for container in spec.containers]


def _read_value(variable: Mapping[str, str]) -> str:
    """The value of a GVC's variable if a rule reads it: for other values, the name alone matters."""
    name, value = variable["name"], variable["value"]
    return value if name == "PORT" or SECRET_URI in value or "$(" in value else ""


_READ_BY_RULES: dict[str, Callable[[bytes], object]] = {
    Kind.CLOUDACCOUNT: _without_words,
    Kind.GVC: _read_of_gvc,
    Kind.IDENTITY: _without_words,
    Kind.POLICY: _without_words,
    Kind.SECRET: _read_of_secret,
    Kind.WORKLOAD: _read_of_workload,
}
"""What rules read of resources that others refer to. Of all other kinds only existence and links matter."""
