"""Claims of volume sets, their snapshots, and what a cluster does not do for them."""

from __future__ import annotations

from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures
from reconciler.engines.kubernetes.rendering.limitations import list_volume_limitations
from reconciler.engines.kubernetes.rendering.names import claim_name, snapshot_name
from reconciler.engines.kubernetes.rendering.workload import render_workload
from reconciler.model.kinds.volumeset import Growth, Snapshots, Specification
from tests.engines.kubernetes.rendering.kit import Setup, decode, workload_inputs
from tests.support.cases import CASES

MANIFESTS = decode((CASES / "kubernetes/a-stateful-workload-has-claims/manifest.yaml").read_text())


def test_a_claim_has_the_name_that_its_stateful_set_gives_it() -> None:
    objects = render_workload(workload_inputs(MANIFESTS, Setup()))
    [stateful_set] = [item for item in objects if item["kind"] == "StatefulSet"]
    templates = [template["metadata"]["name"] for template in stateful_set["spec"]["volumeClaimTemplates"]]
    names = [f"{template}-{stateful_set['metadata']['name']}-2" for template in templates]
    assert claim_name("data", "db", 2) in names


def test_a_gigabyte_is_that_of_a_host() -> None:
    objects = render_workload(workload_inputs(MANIFESTS, Setup()))
    [stateful_set] = [item for item in objects if item["kind"] == "StatefulSet"]
    sizes = [
        claim["spec"]["resources"]["requests"]["storage"] for claim in stateful_set["spec"]["volumeClaimTemplates"]
    ]
    assert "20Gi" in sizes


def test_two_snapshots_never_have_the_same_object() -> None:
    assert snapshot_name("data-db-0", "1-x") != snapshot_name("data-db-0-1", "x")


def test_what_a_cluster_does_not_do_for_volumes_is_named() -> None:
    spec = Specification(snapshots=Snapshots(True, "7d", "0 4 * * *"), autoscaling=Growth(min_free_percentage=20))
    assert len(list_volume_limitations(spec, ClusterFeatures(), measured=False)) == 3
    assert list_volume_limitations(spec, ClusterFeatures(snapshots=True), measured=True) == ()
    plain = Specification(snapshots=Snapshots(create_final_snapshot=False))
    assert list_volume_limitations(plain, ClusterFeatures(), measured=False) == ()
