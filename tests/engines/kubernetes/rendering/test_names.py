"""Names of objects: valid, and never those of another resource, whatever manifests are called."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconciler.engines.kubernetes.client.objects import KubeObject
from reconciler.engines.kubernetes.rendering.inputs import ClusterFeatures, ClusterOptions, WorkloadInputs
from reconciler.engines.kubernetes.rendering.names import (
    LABEL_LENGTH,
    SHORT_LENGTH,
    applyset_id,
    claim_name,
    claim_template_name,
    digest_content,
    endpoint_route_name,
    format_label,
    format_label_value,
    hash_text,
    namespace_name,
    secret_name,
    stream_service_name,
    token_secret_name,
    workload_name,
)
from reconciler.engines.kubernetes.rendering.workload import render_workload
from tests.engines.kubernetes.rendering.kit import Setup, decode, workload_inputs
from tests.support.examples import examples

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
PARTS = st.sampled_from(["a", "b", "env", "file", "tls", "endpoint", "domain", "0", "x1", hash_text("a"), "workload"])
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("-".join).filter(lambda name: name[0].isalpha())
TEXTS = st.one_of(NAMES, st.text(min_size=1, max_size=80))
MANIFEST = """
kind: workload
name: web
gvc: shop
spec:
  type: {kind}
  identityLink: //identity/web
  containers:
    - name: main
      image: registry.example/web:7
      ports: [{{number: 8080}}]
      env: [{{name: PASSWORD, value: platform://secret/text}}]
      volumes: [{{uri: platform://secret/text, path: /etc/text/file}}]
  defaultOptions: {{autoscaling: {{metric: cpu, minScale: 2, maxScale: 9}}, capacityAI: false}}
  firewallConfig: {{external: {{inboundAllowCIDR: [0.0.0.0/0]}}}}
---
kind: secret
name: text
type: opaque
data: {{payload: correct-horse}}
---
kind: domain
name: shop.example.org
spec: {{workloadLink: //gvc/shop/workload/web}}
"""
SETUP = Setup(ClusterFeatures(gateway_api=True, metrics=True), ClusterOptions(gateway="public"))
INPUTS = {
    kind: workload_inputs(decode(MANIFEST.format(kind=kind)), SETUP) for kind in ("standard", "stateful", "serverless")
}


def called(inputs: WorkloadInputs, name: str) -> WorkloadInputs:
    """The inputs of a workload that is the same, but called ``name``."""
    replace = msgspec.structs.replace
    key = replace(inputs.owner.key, name=name)
    template = replace(
        inputs.template,
        desired=replace(inputs.template.desired, key=key),
        env_context=replace(inputs.template.env_context, workload=name),
    )
    return replace(inputs, template=template, owner=replace(inputs.owner, key=key))


def places(objects: list[KubeObject]) -> set[tuple[Any, ...]]:
    return {(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in objects}


@pytest.mark.examples
@settings(max_examples=examples(100))
@given(NAMES, NAMES, st.sampled_from(sorted(INPUTS)), st.sampled_from(sorted(INPUTS)))
def test_objects_of_two_workloads_never_have_the_same_name(one: str, other: str, kind: str, second: str) -> None:
    assume(one != other)
    first = render_workload(called(INPUTS[kind], one))
    assert places(first) & places(render_workload(called(INPUTS[second], other))) == set()
    for kube_object in first:
        assert SUBDOMAIN.fullmatch(kube_object["metadata"]["name"])
        assert len(kube_object["metadata"]["name"]) <= 253


@pytest.mark.examples
@settings(max_examples=examples(1000))
@given(NAMES, NAMES, NAMES, NAMES, st.integers(0, 12), st.integers(0, 12))
def test_claims_of_two_volumes_never_have_the_same_name(
    volumeset: str, workload: str, volumeset_2: str, workload_2: str, index: int, index_2: int
) -> None:
    assume((volumeset, workload, index) != (volumeset_2, workload_2, index_2))
    assert claim_name(volumeset, workload, index) != claim_name(volumeset_2, workload_2, index_2)
    assert LABEL.fullmatch(claim_template_name(volumeset))


def test_the_volume_set_a_of_b_c_and_a_b_of_c_have_claims_of_their_own() -> None:
    assert claim_name("a", "b-c", 0) == "a-b-c-0"
    assert claim_name("a-b", "c", 0) == f"0{hash_text('a-b')}-a-b-c-0"


@given(TEXTS, TEXTS, st.sampled_from([LABEL_LENGTH, SHORT_LENGTH, 45]))
def test_two_texts_never_become_the_same_label(one: str, other: str, limit: int) -> None:
    label = format_label(one, limit)
    assert LABEL.fullmatch(label)
    assert len(label) <= limit
    assert (label == format_label(other, limit)) is (one == other)
    value = format_label_value(one)
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value)
    assert (value == format_label_value(other)) is (one == other)


@given(NAMES)
def test_a_name_that_fits_stays(name: str) -> None:
    hashed = re.search(r"-[0-9a-f]{16}$", name) is not None
    assert (format_label(name, 80) == name) is not hashed
    # A label that was made of another text is never made of itself.
    assert format_label(format_label(f"{name}_"), 80) != format_label(f"{name}_")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-x"])
def test_no_gvc_is_a_namespace_of_kubernetes(name: str) -> None:
    assert namespace_name(name, "") == f"{name}-{hash_text(f'{name}/')}"
    assert namespace_name(name, "acme-") == f"acme-{name}"
    assert namespace_name(name.partition("-")[2] or name, name.partition("-")[0]) != name


@given(NAMES)
def test_the_services_and_the_token_of_a_workload_have_names_of_their_own(name: str) -> None:
    for other in (name, f"{name}-tcp", f"{name}-token", stream_service_name(name)):
        assert stream_service_name(name) != workload_name(other)
        assert token_secret_name(name) not in (secret_name(other, "env", "0" * 24), f"{endpoint_route_name(other)}-tls")


def test_a_digest_covers_the_borders_of_its_parts_and_the_whole_salt() -> None:
    assert digest_content(b"salt", b"ab", b"c") != digest_content(b"salt", b"a", b"bc")
    # Tokens begin alike: what makes them secret is at their end.
    beginning = b"rw_" + b"x" * 70
    assert digest_content(beginning + b"1", b"a") != digest_content(beginning + b"2", b"a")


def test_the_id_of_an_applyset_is_that_of_its_specification() -> None:
    # base64url(sha256("reconciler.shop.ConfigMap.")), as `kubectl apply --applyset=configmap/reconciler` has it.
    assert applyset_id("shop") == "applyset-DA2AYqoGmubWRdZCBGoC9Ds6qVGaIuSmHnDuqlIUr9o-v1"
