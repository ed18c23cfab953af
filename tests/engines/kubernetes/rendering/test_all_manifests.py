"""Every workload in the cases and examples of this repository becomes valid objects, and always the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import msgspec
import pytest
import yaml

from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, ClusterOptions, WorkloadInputs
from reconciler.engines.kubernetes.rendering.limitations import list_limitations
from reconciler.engines.kubernetes.rendering.workload import render_workload
from reconciler.errors import EngineError
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.cron import CronError
from reconciler.model.key import Kind
from reconciler.model.kinds.volumeset import Specification as VolumeSetSpecification
from reconciler.model.kinds.workload import mounted_volumesets
from tests.engines.kubernetes.rendering.kit import ORG, Setup, workload_inputs
from tests.project.tree import ROOT
from tests.support.cases import CASES
from tests.support.kubernetes import VERSIONS, find_schema_faults

CONVERTED = ("compose", "convert", "kamal", "quadlet")
PLAIN = ("manifests", "rules", "schemas")
EVERYTHING = Setup(
    ClusterFeatures(True, True, True, True, True),
    ClusterOptions("public", "gateways", "public", "letsencrypt", "registry.example", keda_namespace="keda"),
)
"""A cluster that has all of it; the other has nothing."""
MOST_REFUSED = 0.4
"""The share of these workloads that cannot be rendered: their secrets are not there, or an image is of others."""


def texts() -> Iterator[str]:
    """Files of manifests: those that others wrote, those that are converted from files of other tools, and cases."""
    for folder in CONVERTED:
        for file in sorted((CASES / folder).glob("*.yaml")):
            yield str(yaml.load(file.read_bytes(), yaml.CSafeLoader).get("output", ""))
    for folder in PLAIN:
        for file in sorted((CASES / folder).rglob("*.yaml")):
            yield file.read_text(errors="replace")
    for file in sorted((ROOT / "examples/repo").rglob("*.yaml")):
        yield file.read_text()


@cache
def inputs_of(setup: Setup) -> list[WorkloadInputs]:
    """The inputs of each valid workload in these files."""
    rendered: list[WorkloadInputs] = []
    for text in texts():
        manifests = list(decode_manifests(text.encode(), ManifestContext(ORG)).manifests)
        manifests = [msgspec.structs.replace(each, gvc=each.gvc and "shop") for each in manifests]
        others = [manifest for manifest in manifests if manifest.kind is not Kind.WORKLOAD]
        workloads = (manifest for manifest in manifests if manifest.kind is Kind.WORKLOAD)
        rendered += (complete(workload_inputs([workload, *others], setup)) for workload in workloads)
    return rendered


def complete(inputs: WorkloadInputs) -> WorkloadInputs:
    """``inputs`` with the volume sets that its file leaves out."""
    plain = VolumeSetSpecification(10, "general-purpose-ssd")
    volume_sets = dict.fromkeys(mounted_volumesets(inputs.template.spec), plain) | dict(inputs.volume_sets)
    return msgspec.structs.replace(inputs, volume_sets=volume_sets)


@pytest.mark.parametrize("setup", [Setup(), EVERYTHING], ids=["a bare cluster", "a cluster with everything"])
def test_every_workload_becomes_valid_objects(setup: Setup) -> None:
    counts: Counter[str] = Counter()
    for inputs in inputs_of(setup):
        try:
            objects = render_workload(inputs)
        except (EngineError, CronError):
            counts["refused"] += 1
            continue
        counts["rendered"] += 1
        assert msgspec.json.encode(objects) == msgspec.json.encode(render_workload(inputs))
        assert all(sentence.endswith(".") for sentence in list_limitations(inputs))
        for kube_object in objects:
            assert find_schema_faults(kube_object, VERSIONS[0]) == []
    assert counts["rendered"] > 200
    assert counts["refused"] < MOST_REFUSED * counts.total()
