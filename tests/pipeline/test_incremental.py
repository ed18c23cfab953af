"""A load from commit to commit gives the same result as a fresh load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.clock import SystemClock
from reconciler.decode import decode
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.decoder import decode_manifests as decode_file
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Finding, Severity, has_errors
from reconciler.pipeline import desired_bodies
from reconciler.pipeline.accept import index_revision
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.pipeline.source_pipeline import SourcePipeline
from reconciler.records.store import Records
from tests.pipeline.random_repositories import AFAR, DesiredState, desired_states, files_of
from tests.pipeline.test_convergence import few
from tests.support.examples import examples
from tests.support.git import File, GitRepo
from tests.support.pipeline import PipelineHarness

Files = dict[str | bytes, File]
PATHS = ("gvc.yaml", "a/gvc.yaml", "a/one.yaml", "a/b/gvc.yaml", "a/b/two.yaml", "c/three.yaml", "a/four.json")
PLACEMENT = "spec: {staticPlacement: {locationLinks: [//location/here]}}"
SPEC = "spec: {type: standard, containers: [{name: main, image: nginx:1}]}"
DOCUMENTS = {
    "gvc": [f"kind: gvc\nname: x\n{PLACEMENT}\n", f"kind: gvc\nname: y\n{PLACEMENT}\n"],
    "any": [
        "kind: identity\nname: i\n",
        "kind: identity\nname: i\ngvc: x\n",
        "kind: identity\nname: j\ndescription: other\n",
        f"kind: workload\nname: w\n{SPEC[:-1]}, identityLink: //identity/i}}\n",
        f"kind: workload\nname: w\ngvc: y\n{SPEC}\n",
        f"kind: workload\nname: v\ntags: {{reconciler/depends-on: workload/w}}\n{SPEC}\n",
        f"kind: workload\nname: w\ntags: {{reconciler/depends-on: workload/v}}\n{SPEC}\n",
        "kind: secret\nname: s\ntype: dictionary\ndata: {a: b}\n",
        "kind: identity\nnam: broken\n",
    ],
}


@st.composite
def edits(draw: st.DrawFn) -> Files:
    """A commit: some files get other contents, some go."""
    changed = draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3, unique=True))
    files: Files = {}
    for path in changed:
        pool = DOCUMENTS["gvc"] if path.endswith("gvc.yaml") else DOCUMENTS["any"]
        # Whether JSON that declares nothing is a fault depends on what it declared before.
        pool = [text for text in pool if "name: " in text] if path.endswith(".json") else pool
        documents = draw(st.lists(st.sampled_from(pool), max_size=2, unique=True))
        files[path] = "---\n".join(documents) if documents else None
        if documents and path.endswith(".json"):
            values = [yaml.safe_load(document) for document in documents]
            files[path] = json.dumps(values[0] if len(values) == 1 else values)
    return files


def from_nothing(harness: PipelineHarness) -> tuple[Records, PlannedRevision]:
    """The newest commit as a fresh load sees it."""
    records = Records.open(None)
    prepared = SourcePipeline(harness.settings, harness.settings.sources[0], records, SystemClock()).plan_revision(
        keep_cache=True
    )
    if not prepared.loaded.is_refused:
        index_revision(records, prepared.loaded, "main")
    return records, prepared


def index(records: Records) -> list[tuple[Any, ...]]:
    """Every row of the index of desired resources; digests of secrets are keyed and so are everybody's own."""
    rows = [records.desired.get(key) for key, _ in records.desired.scan()]
    return [
        (row.key, row.path, row.position, row.line, row.blob, row.references, row.key[:7] == "secret/" or row.digest)
        for row in rows
        if row is not None
    ]


def referrers(records: Records) -> dict[str, list[str]]:
    """Who refers to what, according to the index."""
    targets = {link.target for key, _ in records.desired.scan() for link in records.desired.references(key)}
    return {target: records.desired.referrers(target) for target in sorted(targets)}


def same(harness: PipelineHarness, prepared: PlannedRevision, fresh: PlannedRevision, records: Records) -> None:
    """Check that both have the same result."""
    assert pipeline_of(prepared.findings) == pipeline_of(fresh.findings)
    if not prepared.loaded.is_refused:
        index_revision(harness.records, prepared.loaded, "main")
        assert index(harness.records) == index(records)
        assert referrers(harness.records) == referrers(records)


def pipeline_of(findings: list[Finding]) -> list[tuple[str, int, int, str, str]]:
    """Errors with their places; warnings cover only what changed, so a fresh load has more of them."""
    errors = (one for one in findings if one.severity is Severity.ERROR)
    return [(one.path, one.line, one.column, one.rule, one.message) for one in errors]


def decoded_files(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The files that are decoded for their bodies from now on."""
    decoded: list[bytes] = []

    def counted(raw: bytes, dialect: ManifestContext, *, is_json: bool = False) -> Decoded:
        decoded.append(raw)
        return decode_file(raw, dialect, is_json=is_json)

    monkeypatch.setattr(desired_bodies, "decode_manifests", counted)
    return decoded


@given(commits=st.lists(edits(), min_size=2, max_size=5))
@settings(few, max_examples=examples(50))
def test_commit_by_commit_reaches_the_state_of_a_fresh_load(
    repo: GitRepo, tmp_path: Path, commits: list[Files]
) -> None:
    start = "kind: secret\nname: always\ntype: dictionary\ndata: {}\n"
    harness = PipelineHarness(tmp_path, {"_org/s.yaml": start, **commits[0]}, repo=repo, external=(AFAR,))
    for number, files in enumerate(commits):
        if number:
            harness.commit(files)
        records, fresh = from_nothing(harness)
        same(harness, harness.prepare(), fresh, records)
        records.close()
    harness.records.close()


@given(states=st.lists(st.tuples(desired_states(), st.integers(0, 5)), min_size=2, max_size=4))
@settings(few, max_examples=examples(20))
def test_sound_states_come_to_the_same_too(
    repo: GitRepo, tmp_path: Path, states: list[tuple[DesiredState, int]]
) -> None:
    harness = PipelineHarness(tmp_path, files_of(*states[0]), repo=repo, external=(AFAR,))
    for number, (resources, layout) in enumerate(states):
        if number:
            harness.commit(files_of(resources, layout), whole=True)
        records, fresh = from_nothing(harness)
        prepared = harness.prepare()
        assert not has_errors(prepared.findings)
        same(harness, prepared, fresh, records)
        assert {key for key, _ in records.desired.scan()} == resources.keys()
        records.close()
    harness.records.close()


def test_many_files_read_side_by_side_come_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MANY", 400)
    gvc = f"kind: gvc\nname: x\n{PLACEMENT}\n"
    identities: Files = {f"x/{number:03d}.yaml": f"kind: identity\nname: i{number}\n" for number in range(500)}
    first = dict(list(identities.items())[:300])
    harness = PipelineHarness(tmp_path, first | {"x/gvc.yaml": gvc})
    index_revision(harness.records, harness.prepare().loaded, "main")
    harness.commit({**identities, "x/bad.yaml": "kind: identity\nnam: x\n"})
    records, fresh = from_nothing(harness)
    assert fresh.loaded.change_set.documents > decode.MANY
    same(harness, harness.prepare(), fresh, records)
    harness.commit({"x/bad.yaml": None})
    records, fresh = from_nothing(harness)
    same(harness, harness.prepare(), fresh, records)
    assert len(index(harness.records)) == 501


def test_a_changed_file_is_all_that_is_decoded(tmp_path: Path) -> None:
    files: Files = {f"x/{number}.yaml": f"kind: identity\nname: i{number}\n" for number in range(20)}
    harness = PipelineHarness(tmp_path, files | {"x/gvc.yaml": f"kind: gvc\nname: x\n{PLACEMENT}\n"})
    harness.applied()
    harness.commit({"x/7.yaml": "kind: identity\nname: i7\ndescription: seven\n"})
    prepared = harness.prepare()
    assert prepared.loaded.change_set.documents == 1
    assert prepared.plan is not None
    assert [str(step.key) for step in prepared.plan.steps] == ["identity/x/i7"]


def test_members_in_one_file_with_a_secret_are_decoded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gvc = f"kind: gvc\nname: shop\n{PLACEMENT[:-1]}, env: [{{name: PORT, value: '%d'}}]}}\n"
    members = [f"kind: workload\nname: w{number}\ngvc: shop\n{SPEC}\n" for number in range(5)]
    secret = "kind: secret\nname: s\ntype: dictionary\ndata: {a: b}\n"  # such a file is never cached
    harness = PipelineHarness(tmp_path, {"gvc.yaml": gvc % 80, "members.yaml": "---\n".join([*members, secret])})
    harness.applied()
    decoded = decoded_files(monkeypatch)
    harness.commit({"gvc.yaml": gvc % 81})
    harness.applied()
    assert len(decoded) == 1


def test_an_applied_secret_is_not_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gvc = f"kind: gvc\nname: shop\n{PLACEMENT}\n"
    identity = "kind: identity\nname: i\ngvc: shop\n"
    policy = (
        "kind: policy\nname: p\ntargetKind: secret\ntargetLinks: [//secret/s]\n"
        "bindings: [{principalLinks: [//gvc/shop/identity/i], permissions: [reveal]}]\n"
    )
    secret = "kind: secret\nname: s\ntype: dictionary\ndata: {a: b}\n"  # such a file is never cached
    workload = (
        "kind: workload\nname: w\ngvc: shop\nspec: {type: standard, identityLink: //gvc/shop/identity/i, containers: "
        "[{name: main, image: nginx:%d, env: [{name: A, value: 'platform://secret/s.%s'}]}]}\n"
    )
    harness = PipelineHarness(
        tmp_path,
        {"gvc.yaml": gvc, "i.yaml": identity, "p.yaml": policy, "s.yaml": secret, "w.yaml": workload % (1, "a")},
    )
    harness.applied()
    decoded = decoded_files(monkeypatch)
    harness.commit({"w.yaml": workload % (2, "a")})
    harness.applied()
    assert decoded == []
    harness.commit({"w.yaml": workload % (2, "missing")})
    assert [finding.rule for finding in harness.prepare().findings] == ["secret-key"]
    assert decoded == []


def test_a_commit_without_manifests_does_nothing(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"x/gvc.yaml": f"kind: gvc\nname: x\n{PLACEMENT}\n"})
    harness.applied()
    harness.commit({"README.md": "hello"})
    prepared = harness.prepare()
    assert prepared.loaded.change_set.documents == 0
    assert prepared.plan is not None
    assert prepared.plan.steps == ()
