"""Fields of the platform without effect here: manifests as a catalogue of products has them are valid."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.field_schema import find_unmodelled, recorded_sentences, unmodelled_paths
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Severity
from reconciler.model.kinds import volumeset, workload
from tests.engines.host.volumesets.kit import DB, VolumeHarness, play
from tests.support.host_sandbox import HostSandbox, host_sandbox, served
from tests.support.sandbox import eventually

DIALECT = ManifestContext("acme", secret_key=b"k")
STRICT = ManifestContext("acme", secret_key=b"k", unknown_fields="error")
VOLUMES: dict[str, Any] = {
    "kind": "volumeset",
    "name": "data",
    "gvc": "shop",
    "spec": {"initialCapacity": 10, "performanceClass": "general-purpose-ssd", "fileSystemType": "xfs"},
}
SPEC: dict[str, Any] = {
    "type": "standard",
    "containers": [
        {
            "name": "main",
            "image": "//image/product:1.4",
            "cpu": "500m",
            "memory": "512Mi",
            "ports": [{"number": 8080, "protocol": "http"}],
            "readinessProbe": {"httpGet": {"path": "/"}},
            "metrics": {"port": 9090, "path": "/metrics"},
        }
    ],
    "defaultOptions": {"autoscaling": {"metric": "cpu", "target": 80}, "capacityAI": False},
    "firewallConfig": {"external": {"inboundAllowCIDR": ["0.0.0.0/0"]}},
    "rolloutOptions": {},
    "loadBalancer": {},
}
FIRST = ("containers", 0)
Change = tuple[tuple[str | int, ...], Any]
SHAPES: dict[str, tuple[Change, ...]] = {
    "least amounts": (((*FIRST, "minCpu"), "25m"), ((*FIRST, "minMemory"), "32Mi")),
    "blocked addresses": (
        (("firewallConfig", "external", "inboundBlockedCIDR"), []),
        (("firewallConfig", "external", "outboundBlockedCIDR"), []),
    ),
    "an own load balancer": ((("loadBalancer", "direct"), {"enabled": False, "ports": []}),),
    "places of clients": ((("loadBalancer", "geoLocation"), {"enabled": False, "headers": {}}),),
    "zones": ((("defaultOptions", "multiZone"), {"enabled": False}),),
    "seconds to end": ((("rolloutOptions", "terminationGracePeriodSeconds"), 120),),
    "KEDA": ((("defaultOptions", "autoscaling", "keda"), {"triggers": [{"type": "cron"}]}),),
    "left out metrics": (((*FIRST, "metrics", "dropMetrics"), ["go_.*"]),),
    "a processor for graphics": (((*FIRST, "gpu"), {"nvidia": {"model": "t4", "quantity": 1}}),),
    "a long start": (((*FIRST, "readinessProbe", "initialDelaySeconds"), 600),),
    "no extra replica": ((("rolloutOptions", "maxSurgeReplicas"), "0%"),),
    "cheap machines": ((("defaultOptions", "spot"), False),),
    "headers": ((("firewallConfig", "external", "http"), {"inboundHeaderFilter": []}),),
}
"""What products of the catalogue have in their workloads."""
INERT = {"an own load balancer", "places of clients", "zones", "cheap machines", "headers"}
WITHOUT_EFFECT = {"KEDA", "left out metrics", "a processor for graphics"}
PRODUCTS = [*((each,) for each in SHAPES), *combinations(SHAPES, 2)]


def product(shapes: tuple[str, ...]) -> dict[str, Any]:
    """A workload with these shapes."""
    spec = deepcopy(SPEC)
    for (*path, last), value in (change for each in shapes for change in SHAPES[each]):
        parent: Any = spec
        for step in path:
            parent = parent[step]
        parent[last] = value
    return {"kind": "workload", "name": "product", "gvc": "shop", "spec": spec}


def findings(body: dict[str, Any], dialect: ManifestContext = DIALECT) -> list[tuple[str, Severity]]:
    """The rules that a document breaks, each with the severity."""
    found = decode_manifests(json.dumps(body).encode(), dialect)
    return [(each.rule, each.severity) for each in found.faults]


def test_there_are_as_many_as_in_the_catalogue() -> None:
    assert len(PRODUCTS) >= 85


@pytest.mark.parametrize("shapes", PRODUCTS, ids=" and ".join)
def test_a_product_of_the_catalogue_is_valid_and_each_remark_is_true(shapes: tuple[str, ...]) -> None:
    found = findings(product(shapes))
    assert [rule for rule, severity in found if severity is Severity.ERROR] == []
    rules = [rule for rule, _ in found]
    assert ("field-inert" in rules) is bool(INERT & {*shapes})
    assert ("field-not-enforced" in rules) is bool(WITHOUT_EFFECT & {*shapes})
    assert ("rollout-unavailable" in rules) is ("no extra replica" in shapes)


def test_the_settings_make_them_errors() -> None:
    assert ("field-not-enforced", Severity.ERROR) in findings(product(("KEDA",)), STRICT)
    assert ("field-inert", Severity.NOTICE) in findings(product(("zones",)), STRICT)


@pytest.mark.parametrize("shape", sorted(INERT))
def test_what_is_inert_makes_no_difference(shape: str) -> None:
    bodies = [decode_manifests(json.dumps(product(each)).encode(), DIALECT).manifests[0] for each in ((), (shape,))]
    assert bodies[0].body == bodies[1].body


def test_each_field_is_found_in_every_kind_that_has_it() -> None:
    kinds = {kind: len(unmodelled_paths(kind)) for kind in ("workload", "gvc", "volumeset", "domain", "secret")}
    assert kinds["secret"] == 0
    assert all(number for kind, number in kinds.items() if kind != "secret")
    mistyped = {"spec": {"containers": {"gpu": 1}, "defaultOptions": [], "loadBalancer": None}}
    assert not [*find_unmodelled("workload", mistyped)]


def test_a_workload_on_a_host_names_what_has_no_effect(tmp_path: Path) -> None:
    async def story(host: VolumeHarness) -> None:
        await host.volumeset()
        await host.database(spot=True)
        await host.running("db-0")
        seen = await host.seen(DB)
        assert seen is not None
        [lacking] = [
            each["message"] for each in json.loads(seen.state)["status"]["conditions"] if each["type"] == "NotEnforced"
        ]
        sentence = (
            "spec.defaultOptions.spot has no effect here; the platform uses cheaper machines that may be taken away."
        )
        assert sentence in lacking

    play(tmp_path, story)


VALUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "spec.type: vm": (product(()), {"type": "vm"}),
    "spec.containers.env.value: platform://reference/status.podIP": (
        product(()),
        {
            "containers": [
                {**SPEC["containers"][0], "env": [{"name": "A", "value": "platform://reference/status.podIP"}]}
            ]
        },
    ),
    "spec.performanceClass: shared": (VOLUMES, {"performanceClass": "shared"}),
    "spec.fileSystemType: shared": (VOLUMES, {"fileSystemType": "shared"}),
}
"""Values of fields that have an effect with others: a sentence begins with each."""


@pytest.mark.parametrize("name", VALUES)
def test_a_value_without_effect_is_named_with_its_field(name: str) -> None:
    body, change = VALUES[name]
    changed = {**body, "spec": {**body["spec"], **change}}
    assert ("field-not-enforced", Severity.WARNING) in findings(changed)
    assert ("field-not-enforced", Severity.ERROR) in findings(changed, STRICT)
    assert "field-not-enforced" not in [rule for rule, _ in findings(body)]
    kind = str(body["kind"])
    [manifest] = decode_manifests(json.dumps(changed).encode(), DIALECT).manifests
    [sentence] = recorded_sentences(kind, manifest.body)
    assert sentence.startswith(f"{name} has no effect here; the platform ")
    [plain] = decode_manifests(json.dumps(body).encode(), DIALECT).manifests
    assert recorded_sentences(kind, plain.body) == ()


def with_variable(value: str) -> bytes:
    """A workload with a variable."""
    env = [{"name": "A", "value": value}]
    return json.dumps({**product(()), "spec": {**SPEC, "containers": [{**SPEC["containers"][0], "env": env}]}}).encode()


def test_another_spelling_of_the_platform_has_references_too() -> None:
    other = ManifestContext("acme", secret_key=b"k", scheme="other")
    decoded = decode_manifests(with_variable("other://reference/a.b"), other)
    assert [each.rule for each in decoded.faults if each.rule in ("field-not-enforced", "bad-link")] == [
        "field-not-enforced"
    ]
    assert b'"platform://reference/a.b"' in decoded.manifests[0].body


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a" * 101])
def test_an_odd_reference_is_an_error_as_any_address_without_a_target(name: str) -> None:
    found = decode_manifests(with_variable(f"platform://reference/{name}"), DIALECT)
    assert [each.rule for each in found.faults if each.severity is Severity.ERROR] == ["bad-link"]


def test_a_virtual_machine_is_a_standard_workload_here_and_a_shared_volume_ext4() -> None:
    machine = decode_manifests(
        json.dumps(VALUES["spec.type: vm"][0] | {"spec": {**SPEC, "type": "vm"}}).encode(), DIALECT
    )
    assert b'"type":"vm"' in machine.manifests[0].body
    assert workload.read_specification(machine.manifests[0].body).type == "standard"
    shared = {**VOLUMES, "spec": {**VOLUMES["spec"], "fileSystemType": "shared"}}
    volumes = decode_manifests(json.dumps(shared).encode(), DIALECT).manifests[0]
    assert volumeset.read_specification(volumes.body).file_system_type == "ext4"


def test_volume_sets_gvcs_and_domains_name_what_has_no_effect_too(tmp_path: Path) -> None:
    placement = {"locationLinks": ["//location/here"]}
    gvc = {"kind": "gvc", "name": "shop", "spec": {"staticPlacement": placement, "endpointNamingFormat": "org"}}
    route = {
        "prefix": "/",
        "workloadLink": "//gvc/shop/workload/web",
        "mirror": [{"workloadLink": "//gvc/shop/workload/web"}],
    }
    domain = {"kind": "domain", "name": "a.example.com", "spec": {"ports": [{"number": 80, "routes": [route]}]}}
    shared = {**VOLUMES, "spec": {**VOLUMES["spec"], "mountOptions": {"resources": {"maxCpu": "1"}}}}
    files = {"shop/gvc.yaml": json.dumps(gvc), "shop/web.yaml": served(), "shop/data.yaml": json.dumps(shared)}
    names = {
        "_org/gvc/shop.yaml": "spec.endpointNamingFormat",
        "shop/volumeset/data.yaml": "at here: spec.mountOptions",
        "_org/domain/a.example.com.yaml": "spec.ports.routes.mirror",
    }
    with host_sandbox(tmp_path, {**files, "domain.yaml": json.dumps(domain)}) as sandbox, sandbox.daemon():
        for path, name in names.items():
            shown = eventually(partial(lacking_of, sandbox, path), path)
            assert f"{name} has no effect here; the platform " in shown


def lacking_of(sandbox: HostSandbox, path: str) -> str:
    """The message of NotEnforced in a status file."""
    found = yaml.safe_load(sandbox.status(path)) or {}
    return next((each["message"] for each in found.get("conditions", ()) if each["type"] == "NotEnforced"), "")


def test_a_body_without_such_fields_is_not_decoded() -> None:
    assert recorded_sentences("workload", b"no JSON") == ()
    assert recorded_sentences("secret", b"no JSON") == ()
