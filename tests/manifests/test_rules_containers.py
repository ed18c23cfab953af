"""Rules of containers: what case files cannot express, or only at length."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.rule_check import check_rules
from reconciler.manifests.rules.container.variables import list_embedded_names
from reconciler.model.key import Kind
from reconciler.model.resource import GVC_PLACEHOLDER
from tests.support.mutations import Pool, examples, mutated
from tests.support.pace import in_time
from tests.support.pipeline import BASE, PipelineHarness, shown

DIALECT = ManifestContext("acme")


def workload(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A workload with these containers, of type standard by default."""
    listed = [{"name": f"c{number}", "image": "web:1", **each} for number, each in enumerate(containers)]
    whole = {"type": "standard", "containers": listed, **spec}
    return {"kind": "workload", "name": "web", "gvc": "shop", "spec": whole}


def broken(document: dict[str, Any], kind: Kind = Kind.WORKLOAD) -> list[str]:
    """The rules that ``document`` breaks, by itself."""
    return [rule.id for rule, _ in check_rules(kind, document).flaws]


@pytest.mark.parametrize(
    ("image", "rules"),
    [
        ("nginx", ["image-dynamic-tag"]),
        ("registry.example.com:5000/web", ["image-dynamic-tag"]),
        ("//image/web:latest", ["image-dynamic-tag"]),
        ("web:latest@sha256:" + "0" * 64, []),
        ("web:latest-alpine", []),
        ("", []),
        ("web:1-aarch64", ["image-platform"]),
        ("arm32v7/web:1", ["image-platform"]),
        ("registry.example.com/arm64v8/web:1", ["image-platform"]),
        ("localhost:5000/s390x/web:1@sha256:" + "0" * 64, ["image-platform"]),
        ("web:1.2_windows-amd64", ["image-platform"]),
        ("mcr.microsoft.com/windows/nanoserver:ltsc2022", ["image-platform"]),
        ("team/windows:11", []),
        ("arm64v8-tools/web:1", []),
        ("team/arm64v8:1", []),
        ("web:1-amd64-arm64", []),
        ("charmed/winner:3-farm", []),
    ],
)
def test_an_image_is_judged_by_its_name(image: str, rules: list[str]) -> None:
    assert broken(workload({"image": image})) == rules


@pytest.mark.parametrize(
    ("uri", "host", "reached"),
    [
        ("s3://b", "s3.us-west-2.amazonaws.com", True),
        ("s3://b", "b.s3.amazonaws.com", True),
        ("s3://b", "*.amazonaws.com", True),
        ("s3://b", "*.US-WEST-2.amazonaws.com", True),
        ("s3://b", "sqs.us-west-2.amazonaws.com", False),
        ("s3://b", "notamazonaws.com", False),
        ("gs://b", "storage.googleapis.com", True),
        ("gs://b", "*.googleapis.com", True),
        ("gs://b", "pubsub.googleapis.com", False),
        ("azureblob://a/c", "a.blob.core.windows.net", True),
        ("azureblob://a/c", "*.core.windows.net", True),
        ("azureblob://a/c", "a.file.core.windows.net", False),
        ("azurefs://a/s", "a.file.core.windows.net", True),
        ("azurefs://a/s", "*.windows.net.example.com", False),
    ],
)
def test_a_store_is_reached_by_its_providers_hosts(uri: str, host: str, reached: bool) -> None:
    firewall = {"external": {"outboundAllowHostname": ["example.com", host]}}
    document = workload(
        {"volumes": [{"uri": uri, "path": "/store"}]}, identityLink="//identity/web", firewallConfig=firewall
    )
    assert broken(document) == ([] if reached else ["object-store-outbound"])


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("$(A)", ["A"]),
        ("a$(A)b$(B.c-d_e)$(A)", ["A", "B.c-d_e", "A"]),
        ("$$(A)", []),
        ("$$$(A)", ["A"]),
        ("$$$$(A)", []),
        ("$(A", []),
        ("$(A$(B)", []),
        ("$( A)$()$(1)$(date +%s)", []),
        ("$(PORT)$(PLATFORM_ORG)$(PLATFORM_ELSE)", ["PLATFORM_ELSE"]),
        ("$A ${A} $ (A) $", []),
    ],
)
def test_names_are_embedded_as_in_kubernetes(value: str, names: list[str]) -> None:
    assert list(list_embedded_names(value)) == names
    assert list(list_embedded_names(value + " " * 300)) == names


TORN = [
    ("readiness-missing", "ports: [{number: 8080}], readinessProbe: 8080"),
    ("probe-without-port", "ports: 8080, livenessProbe: {tcpSocket: {}}"),
    ("probe-without-port", 'livenessProbe: {tcpSocket: {port: "8080"}}'),
    ("env-unknown", "env: [{name: 5, value: five}, {name: A, value: $(B)}]"),
    ("env-unknown", "inheritEnv: 1, env: [{name: A, value: $(B)}]"),
    ("env-port", "ports: [{number: 80 }, {number: many}], env: [{name: PORT, value: '8080'}]"),
    ("memory-cpu-ratio", "cpu: 4, memory: 8Gi"),
]


@pytest.mark.parametrize(("rule", "fields"), TORN)
def test_an_unreadable_field_causes_no_other_finding(rule: str, fields: str) -> None:
    container = f"{{name: main, image: 'web:1', {fields}}}"
    text = f"kind: workload\nname: web\nspec:\n  type: standard\n  containers:\n    - {container}\n"
    broken = {fault.rule for fault in decode_manifests(text.encode(), DIALECT).faults}
    assert "wrong-type" in broken
    assert rule not in broken


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("volumeset-needs-stateful", "type: statefull"),
        ("volumeset-needs-stateful", "type: [stateful]"),
        ("secret-without-identity", "type: stateful\n  identityLink: [web]"),
        ("object-store-identity", "type: stateful\n  identityLink: [web]"),
        ("image-dynamic-tag", "type: stateful\n  supportDynamicTags: sometimes"),
    ],
)
def test_a_wrong_type_of_workload_is_the_only_finding(rule: str, wrong: str) -> None:
    text = f"""kind: workload
name: web
spec:
  {wrong}
  containers:
    - name: main
      image: web
      ports: [{{number: 8080}}]
      env: [{{name: A, value: "platform://secret/a.b"}}]
      volumes: [{{uri: "platform://volumeset/a", path: /a}}, {{uri: "s3://b", path: /b}}]
"""
    broken = {fault.rule for fault in decode_manifests(text.encode(), DIALECT).faults}
    assert broken
    assert rule not in broken


def test_manifests_in_another_spelling_obey_the_same_rules() -> None:
    container = """{name: main, image: 'web:1', env: [{name: A, value: "acme://secret/a.b"},
      {name: B, value: "$(ACME_GVC)$(ACME_TIME)"}], volumes: [{uri: "acme://volumeset/a", path: /a}]}"""
    text = f"kind: workload\nname: web\nspec:\n  type: standard\n  containers:\n    - {container}\n"
    broken = [fault.rule for fault in decode_manifests(text.encode(), ManifestContext("acme", "acme")).faults]
    assert sorted(broken) == ["env-unknown", "secret-without-identity", "volumeset-needs-stateful"]


def test_questions_that_one_document_leaves_open_go_to_the_gvc_of_its_directory() -> None:
    document = workload({"inheritEnv": True, "env": [{"name": "A", "value": "$(B)$(C)$(PORT)"}]})
    del document["gvc"]
    asked = [
        question for question in check_rules(Kind.WORKLOAD, document).questions if question.rule.startswith("env-")
    ]
    assert {request.target for request in asked} == {f"gvc/{GVC_PLACEHOLDER}"}
    assert {request.pointer for request in asked} == {"/spec/containers/0/env/0/value"}
    assert [(request.rule, request.detail) for request in asked] == [
        ("env-unknown", "B"),
        ("env-unknown", "C"),
        ("env-cycle", "A"),
    ]


INHERITS = """kind: workload
name: web
spec:
  type: standard
  containers:
    - name: main
      image: web:1
      inheritEnv: true
      ports: [{number: 8080}]
      readinessProbe: {httpGet: {}}
      env:
        - {name: HOST, value: web.$(DOMAIN)}
"""


def test_a_change_of_the_gvc_is_reported_at_the_unchanged_workload(tmp_path: Path) -> None:
    def gvc(*variables: tuple[str, str]) -> str:
        listed = ", ".join(f'{{name: {name}, value: "{value}"}}' for name, value in variables)
        return BASE.replace("spec: {", f"spec: {{env: [{listed}], ")

    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": gvc(("DOMAIN", "example.com")), "shop/web.yaml": INHERITS})
    harness.applied()
    assert harness.prepare().findings == []

    lines_of = {}
    for name, variables in {
        "gone": (("OTHER", "example.com"),),
        "circle": (("DOMAIN", "$(PLACE)"), ("PLACE", "$(HOST)")),
        "port": (("DOMAIN", "example.com"), ("PORT", "9000")),
        "same port": (("DOMAIN", "example.com"), ("PORT", "8080")),
    }.items():
        harness.commit({"shop/gvc.yaml": gvc(*variables)})
        lines = [line.split(" |")[0] for line in shown(harness.prepare().findings) if "shop/web" in line]
        lines_of[name] = lines
    assert lines_of == {
        "gone": ["shop/web.yaml:12:31 env-unknown"],
        "circle": ["shop/web.yaml:12:31 env-cycle"],
        "port": ["shop/web.yaml:8:19 env-port"],
        "same port": [],
    }


def test_no_rule_raises_for_any_document() -> None:
    documents = [each for each in examples() if each["kind"] in ("workload", "gvc")]
    chance, pool = random.Random(7), Pool(documents)
    for number in range(600):
        document = documents[number % len(documents)]
        changed = mutated(document, chance, pool)
        if isinstance(changed, dict):
            check_rules(Kind(document["kind"]), changed)


MANY = 20_000


def chain(*ends: str) -> list[dict[str, str]]:
    """Variables that each embed the next one; the last embeds ``ends``."""
    links = [[f"V{number + 1}"] for number in range(MANY - 1)] + [list(ends)]
    return [
        {"name": f"V{number}", "value": "".join(f"$({name})" for name in names)} for number, names in enumerate(links)
    ]


HUGE = {
    "open parentheses": {"env": [{"name": "A", "value": "$(" * 500_000}, {"name": "B", "value": "$(A)"}]},
    "closed parentheses": {"env": [{"name": "A", "value": "$(" * 500_000 + ")"}]},
    "dollars": {"env": [{"name": "A", "value": "$" * 1_000_000 + "(B)"}]},
    "a long name": {"env": [{"name": "A", "value": f"$({'B' * 1_000_000})"}]},
    "many unknown names": {"env": [{"name": f"V{number}", "value": f"$(W{number})"} for number in range(MANY)]},
    "unknown names in one value": {"env": [{"name": "A", "value": "".join(f"$(W{n})" for n in range(MANY))}]},
    "a long chain": {"env": chain()},
    "a long circle": {"env": chain("V0")},
    "many circles": {"env": [{**each, "value": each["value"] + "$(V0)"} for each in chain("V0")]},
    "many of one name": {"env": [{"name": "A", "value": "$(A)"}] * MANY},
    "many volumes": {"volumes": [{"uri": f"s3://b{n}", "path": f"/a/{n}"} for n in range(MANY)]},
    "one path many times": {"volumes": [{"uri": "s3://b", "path": "/a/" * 10}] * MANY},
    "a path within another": {"volumes": [{"uri": "scratch://b", "path": "/a" * n} for n in range(1, 1000)]},
    "a long path": {"volumes": [{"uri": "scratch://b", "path": "/a/.." * 200_000}] * 2},
    "many ports": {"ports": [{"number": number} for number in range(MANY)]},
    "one port many times": {"ports": [{"number": 8080}] * MANY},
    "a long hook": {"ports": [{"number": 80}], "lifecycle": {"preStop": {"exec": {"command": ["a" * 9] * 100_000}}}},
    "a long image": {"image": "arm" * 300_000},
    "a large amount": {"cpu": "9" * 1_000_000, "memory": "9" * 1_000_000 + "Gi"},
}


@pytest.mark.parametrize("fields", HUGE.values(), ids=HUGE)
@pytest.mark.parametrize("spec", [{}, {"type": "serverless"}], ids=["standard", "serverless"])
def test_rules_take_time_in_proportion_to_the_document(fields: dict[str, Any], spec: dict[str, Any]) -> None:
    hosts = [f"h{number}.example.com" for number in range(2_000)]
    document = workload(fields, firewallConfig={"external": {"outboundAllowHostname": hosts}}, **spec)
    in_time(lambda: check_rules(Kind.WORKLOAD, document), 0.7)


def test_many_containers_are_checked_in_time() -> None:
    each = {"ports": [{"number": 8080}], "env": [{"name": "A", "value": "$(B)"}], "livenessProbe": {"grpc": {}}}
    document = workload(*[each] * 5_000)
    assert "container-name-unique" not in in_time(lambda: broken(document), 0.7)[0]
