"""Checks between resources: links without a target and cycles of dependencies.

Only changed resources and their referrers are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from reconciler.iteration import iterate_batches
from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.cross_check import LOOKUP_BATCH, cross_check, unused_comments
from reconciler.manifests.cross_findings import MOST_IN_FILE, CrossFinding, CrossFindings
from reconciler.manifests.desired_state import DesiredState, ResourceLocation
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import KINDS
from reconciler.model.resource import Dependency, Reference
from reconciler.model.rule import error_rule
from reconciler.model.suggest import find_closest_word

RULES = (
    error_rule(
        "missing-reference",
        "A link leads to something that exists: in Git, in the records, at a location that the settings bind, or "
        "listed as external.",
        "A resource needs the targets of its links to run, to be reached or to be allowed; without this rule, a "
        "missing target would fail only at run time.",
        "docs/platform/fields.md#what-a-link-may-lead-to",
    ),
    error_rule(
        "dependency-cycle",
        "Resources do not depend on each other in a cycle.",
        "Each would wait for the next one, and none could be applied first.",
        "docs/manifests.md#order",
    ),
)
"""Rules between resources of any kind."""

MOST_LETTERS = 100_000
"""The maximum of letters that one revision compares with missing targets: a tenth of a second."""

LETTERS_PER_GUESS = 100
"""The fixed cost of one guess, in letters."""

MOST_MISSING = 100
"""The maximum of links without a target that are reported one by one for a document."""

MOST_CIRCLES = 20
"""The maximum of reported cycles: a few hundred resources can have more of them than there are atoms."""

MOST_IN_CIRCLE = 12
"""The maximum of keys of one cycle in a message."""


def check_references(delta: ChangeSet, world: DesiredState, most: int = MOST_IN_FILE) -> list[Finding]:
    """Check every link of changed resources, every link to removed ones, and every cycle through changed ones.

    The errors and the warnings of one file are limited.
    """
    cross_findings = CrossFindings(most)
    _Links(world, cross_findings).collect_missing(delta)
    for number, circle in enumerate(islice(_find_cycles(_list_cycle_suspects(delta, world), world), MOST_CIRCLES + 1)):
        cross_findings.add(_make_cycle_finding(circle, world, is_last=number == MOST_CIRCLES))
    cross_check(delta, world, cross_findings)
    findings: set[Finding] = set()
    silencing: set[tuple[str, int]] = set()
    for finding, comment in cross_findings.list_with_positions(world.positions):
        if comment:
            silencing.add((finding.path, comment))
        else:
            findings.add(finding)
    findings.update(unused_comments(delta, silencing))
    return sorted(findings)


def _list_cycle_suspects(delta: ChangeSet, world: DesiredState) -> list[str]:
    """Keys from which every new cycle is found: those with other references than before.

    Links lead only to kinds of a lower rank (a test checks the schemas for it), so a cycle has a
    ``reconciler/depends-on``; in a first load it begins at one.
    """
    before = delta.previous
    fresh = [
        (key, resource.references)
        for key, resource in delta.added.items()
        if (indexed_resource := before.get(key)) is None or indexed_resource.references != resource.references
    ]
    if world.index.is_first_load():
        fresh = [(key, refs) for key, refs in fresh if Dependency.HEALTHY in [ref.bond for ref in refs]]
    return sorted(key for key, _ in fresh)


class _Links:
    """Caches the answer for each target, since thousands of links may have the same one."""

    def __init__(self, world: DesiredState, findings: CrossFindings) -> None:
        self.world = world
        self.found = findings
        self.answers: dict[str, bool] = {}
        self.hints: dict[str, str] = {}
        self.similar: dict[str, _Candidates] = {}
        self.letters_left = MOST_LETTERS

    def collect_missing(self, delta: ChangeSet) -> None:
        """Find links of changed resources without a target, and links of others to removed resources."""
        for batch in iterate_batches(delta.added.items(), LOOKUP_BATCH):
            self.world.index.prefetch(reference.target for _, resource in batch for reference in resource.references)
            for key, resource in batch:
                self._check(key, resource.references)
        for loose in delta.partial_documents:
            site = ResourceLocation(loose.path, loose.blob, loose.position)
            self._report(loose.key, loose.references, site)
        for gone in delta.list_removed():
            if self._exists(gone):
                continue
            for key in self.world.index.referrers(gone):
                if self.world.index.site(key).source:
                    self._report_other_source(key, gone, delta.previous[gone].path)
                    continue
                self._check(key, [ref for ref in self.world.index.references(key) if ref.target == gone])

    def _report_other_source(self, key: str, gone: str, path: str) -> None:
        """Report the removal of ``gone`` at its former file, since ``key`` is in another source."""
        site = self.world.index.site(key)
        message = f"{gone} cannot be removed: {key} of source {site.source} ({site.path}) refers to it"
        hint = f"remove the link in source {site.source} first, or list {gone} under `external` in the settings"
        self.found.add(
            CrossFinding(ResourceLocation(path, "", 0), None, "missing-reference", Severity.ERROR, message, hint, gone)
        )

    def _check(self, key: str, references: Iterable[Reference]) -> None:
        if not all(self._exists(reference.target) for reference in references):
            self._report(key, references, self.world.index.site(key))

    def _report(self, key: str, references: Iterable[Reference], site: ResourceLocation) -> None:
        if self.found.is_full(site.path, Severity.ERROR):
            return
        missing = [reference for reference in references if not self._exists(reference.target)]
        for number, reference in enumerate(missing[: MOST_MISSING + 1]):
            message = f"{key} refers to {reference.target}, which does not exist"
            hint = self._hint(reference.target)
            if number == MOST_MISSING:
                message = f"{key} refers to {len(missing) - MOST_MISSING:,} more that do not exist, from here on"
                hint = "add them to Git, or correct the links"
            self.found.add(
                CrossFinding(site, reference.pointer, "missing-reference", Severity.ERROR, message, hint, key)
            )

    def _exists(self, target: str) -> bool:
        if target not in self.answers:
            self.answers[target] = self.world.index.exists(target)
        return self.answers[target]

    def _hint(self, target: str) -> str:
        if target not in self.hints:
            near = self._guess(target)
            meant = f"did you mean {near}? else " if near else ""
            self.hints[target] = f"{meant}add it to Git, or list its link under `external` in the settings"
        return self.hints[target]

    def _guess(self, target: str) -> str:
        """The key that was probably meant; "" if there is none, or the limit of comparisons is reached."""
        kind = target.partition("/")[0]
        candidates = self.similar.get(kind)
        if candidates is None:
            keys = self.world.index.similar_keys(kind) if kind in KINDS else ()
            candidates = self.similar[kind] = _Candidates(keys, sum(len(key.rpartition("/")[2]) for key in keys))
        self.letters_left -= candidates.letters + LETTERS_PER_GUESS
        return find_nearest_key(target, candidates.keys) if self.letters_left >= 0 else ""


class _Candidates(NamedTuple):
    """Keys of one kind, and the letters of their names."""

    keys: Sequence[str]
    letters: int


def find_nearest_key(target: str, keys: Iterable[str]) -> str:
    """The key that was probably meant by ``target``: similar by name, preferably of the same GVC; "" for none."""
    parent, _, name = target.rpartition("/")
    by_name: dict[str, str] = {}
    for key in sorted(keys, key=lambda key: key.rpartition("/")[0] != parent):
        by_name.setdefault(key.rpartition("/")[2], key)
    return by_name.get(find_closest_word(name, by_name, 0.7), "")


def _find_cycles(keys: Iterable[str], world: DesiredState) -> Iterator[list[str]]:
    """Cycles, each from a key to itself, with at least one resource of this source."""
    done: set[str] = set()
    for start in keys:
        for cycle in _search_cycles(start, world, done):
            if any(not world.index.site(key).source for key in cycle):
                yield cycle


def _search_cycles(start: str, world: DesiredState, done: set[str]) -> Iterator[list[str]]:
    """Depth first from ``start``, without recursion; ``done`` is shared, so every key is visited once."""
    path: list[str] = []
    on_path: set[str] = set()
    stack: list[tuple[str, bool]] = [(start, False)]
    while stack:
        key, leaving = stack.pop()
        if leaving:
            on_path.discard(path.pop())
            done.add(key)
            continue
        if key in done or key in on_path:
            continue
        path.append(key)
        on_path.add(key)
        stack.append((key, True))
        targets = _list_targets(key, world)
        yield from ([*path[path.index(target) :], target] for target in targets if target in on_path)
        stack.extend((target, False) for target in targets if target not in done)


def _list_targets(key: str, world: DesiredState) -> list[str]:
    targets = {ref.target for ref in world.index.references(key) if ref.bond is not Dependency.NONE}
    return sorted(targets, reverse=True)


def _make_cycle_finding(cycle: list[str], world: DesiredState, *, is_last: bool) -> CrossFinding:
    """The cycle from its first key in this source, at the reference that leads to the next key."""
    turn = cycle.index(min(key for key in cycle if not world.index.site(key).source))
    turned = [*cycle[turn:-1], *cycle[: turn + 1]]
    bound = (ref for ref in world.index.references(turned[0]) if ref.bond is not Dependency.NONE)
    reference = next(ref for ref in bound if ref.target == turned[1])
    shown = turned
    if len(turned) > MOST_IN_CIRCLE:
        half = MOST_IN_CIRCLE // 2
        shown = [*turned[:half], f"… {len(turned) - MOST_IN_CIRCLE} more …", *turned[-half:]]
    message, hint = f"these depend on each other in a cycle: {' → '.join(shown)}", "remove one of these links"
    if is_last:
        message, hint = f"there are more than {MOST_CIRCLES} cycles; the rest is not listed", "remove those first"
    site = world.index.site(turned[0])
    return CrossFinding(site, reference.pointer, "dependency-cycle", Severity.ERROR, message, hint, turned[0])
