"""Objects of commands on volumes: snapshots, and claims with their data."""

from __future__ import annotations

import msgspec

from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures
from reconciler.engines.kubernetes.rendering.names import VOLUMESET, WORKLOAD
from reconciler.engines.kubernetes.rendering.volume_sets import (
    EXPIRES,
    SNAPSHOT,
    TAGS,
    SnapshotRequest,
    claim_of,
    list_volume_limitations,
    render_claim,
    render_snapshot,
)
from reconciler.engines.kubernetes.rendering.workload import render_workload
from tests.engines.kubernetes.rendering.kit import ORG, Setup, decode, volume_set_inputs, workload_inputs
from tests.support.cases import CASES
from tests.support.kubernetes import VERSIONS, find_schema_faults

MANIFESTS = decode((CASES / "kubernetes/a-stateful-workload-has-claims/manifest.yaml").read_text())
INPUTS = msgspec.structs.replace(volume_set_inputs(MANIFESTS, Setup()), workload="db")
GB = 10**9


def test_a_claim_has_the_name_that_its_stateful_set_gives_it() -> None:
    (stateful_set,) = (
        one for one in render_workload(workload_inputs(MANIFESTS, Setup())) if one["kind"] == "StatefulSet"
    )
    templates = [template["metadata"]["name"] for template in stateful_set["spec"]["volumeClaimTemplates"]]
    assert claim_of(INPUTS, 2) in [f"{template}-{stateful_set['metadata']['name']}-2" for template in templates]
    assert claim_of(msgspec.structs.replace(INPUTS, workload=""), 0) == ""


def test_a_snapshot_is_one_of_the_claim_of_its_volume() -> None:
    request = SnapshotRequest(1, "before the / move", "2026-12-01T00:00:00Z", {"why": "move", "by": "me"})
    snapshot = render_snapshot(INPUTS, ORG, request)
    assert snapshot["spec"] == {"source": {"persistentVolumeClaimName": "data-db-1"}}
    annotations = snapshot["metadata"]["annotations"]
    assert annotations[SNAPSHOT] == "before the / move"
    assert annotations[EXPIRES] == "2026-12-01T00:00:00Z"
    assert annotations[TAGS] == '{"by":"me","why":"move"}'
    labels = snapshot["metadata"]["labels"]
    assert (labels[VOLUMESET], labels[WORKLOAD]) == ("data", "db")
    other = render_snapshot(INPUTS, ORG, SnapshotRequest(1, "before the - move"))
    assert other["metadata"]["name"] != snapshot["metadata"]["name"]
    assert EXPIRES not in other["metadata"]["annotations"]


def test_a_restored_claim_has_the_data_of_its_snapshot() -> None:
    claim = render_claim(INPUTS, ORG, 1, 40 * GB, "nightly")
    assert claim["metadata"]["name"] == claim_of(INPUTS, 1)
    assert claim["spec"]["resources"] == {"requests": {"storage": "40G"}}
    assert claim["spec"]["dataSource"] == {
        "apiGroup": "snapshot.storage.k8s.io",
        "kind": "VolumeSnapshot",
        "name": render_snapshot(INPUTS, ORG, SnapshotRequest(1, "nightly"))["metadata"]["name"],
    }
    assert "dataSource" not in render_claim(INPUTS, ORG, 1, 40 * GB)["spec"]
    assert find_schema_faults(claim, VERSIONS[0]) == []


def test_what_a_cluster_does_not_do_for_volumes_is_named() -> None:
    growing = """
kind: volumeset
name: data
gvc: shop
spec: {initialCapacity: 20, performanceClass: general-purpose-ssd, autoscaling: {maxCapacity: 200}}
"""
    spec = volume_set_inputs(decode(growing), Setup()).spec
    sentences = list(list_volume_limitations(spec, ClusterFeatures()))
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "Snapshots are not taken",
        "Volumes do not grow by themselves as they fill",
    ]
    assert list(list_volume_limitations(INPUTS.spec, ClusterFeatures(snapshots=True))) == []
