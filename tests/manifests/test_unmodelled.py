"""Fields of the platform without effect here: manifests as a catalogue of products has them are valid."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.decoder import decode
from reconciler.manifests.field_schema import find_unmodelled, recorded_sentences, unmodelled_paths
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Severity
from tests.engines.host.volumesets.kit import DB, VolumeHost, play

DIALECT = ManifestContext("acme", secret_key=b"k")
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
        place: Any = spec
        for step in path:
            place = place[step]
        place[last] = value
    return {"kind": "workload", "name": "product", "gvc": "shop", "spec": spec}


def findings(body: dict[str, Any], dialect: ManifestContext = DIALECT) -> list[tuple[str, Severity]]:
    """The rules that a document breaks, each with the severity."""
    found = decode(json.dumps(body).encode(), dialect)
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
    strict = ManifestContext("acme", secret_key=b"k", unknown_fields="error")
    assert ("field-not-enforced", Severity.ERROR) in findings(product(("KEDA",)), strict)
    assert ("field-inert", Severity.NOTICE) in findings(product(("zones",)), strict)


@pytest.mark.parametrize("shape", sorted(INERT))
def test_what_is_inert_makes_no_difference(shape: str) -> None:
    bodies = [decode(json.dumps(product(each)).encode(), DIALECT).manifests[0] for each in ((), (shape,))]
    assert bodies[0].body == bodies[1].body


def test_each_field_is_found_in_every_kind_that_has_it() -> None:
    kinds = {kind: len(unmodelled_paths(kind)) for kind in ("workload", "gvc", "volumeset", "domain", "secret")}
    assert kinds["secret"] == 0
    assert all(number for kind, number in kinds.items() if kind != "secret")
    mistyped = {"spec": {"containers": {"gpu": 1}, "defaultOptions": [], "loadBalancer": None}}
    assert not [*find_unmodelled("workload", mistyped)]


def test_a_workload_on_a_host_names_what_has_no_effect(tmp_path: Path) -> None:
    async def story(host: VolumeHost) -> None:
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


def test_a_body_without_such_fields_is_not_decoded() -> None:
    assert recorded_sentences("workload", b"no JSON") == ()
    assert recorded_sentences("secret", b"no JSON") == ()
