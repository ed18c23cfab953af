"""The table of routes from what is applied, and host names as they are compared."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from reconciler.engines.host.dataplane.unserved_routes import unserved_ingress
from reconciler.engines.workload.routing.build import GvcRouting, RoutingInput, ServedWorkload, build_table
from reconciler.engines.workload.routing.table import HostEntry, RouteRule, RouteTarget, normalize_host
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain, read_domain
from reconciler.model.kinds.gvc import Specification
from tests.support.cases import cases


def inputs(case: dict[str, Any]) -> RoutingInput:
    """What is applied in a case."""
    served = tuple(ServedWorkload(_key(name), dict(map(_port, ports))) for name, ports in case["workloads"].items())
    gvc = msgspec.convert(case.get("gvc", {}), Specification)
    routing = GvcRouting("a1", gvc.domain, gvc.load_balancer.dedicated, gvc.load_balancer.trusted_proxies)
    domains = tuple(_domain(name, spec) for name, spec in case.get("domains", {}).items())
    return RoutingInput("here", "platform.test", served, {"shop": routing}, domains)


@pytest.mark.parametrize("case", cases("dataplane/routes.yaml"))
def test_the_table_is_made_of_what_is_applied(case: dict[str, Any]) -> None:
    table = build_table(inputs(case))
    hosts = {host: _shown(entry) for host, entry in table.hosts.items()}
    if "hosts" in case:
        assert hosts == case["hosts"]
    own = {host for host in hosts if ".platform.test" in host}
    assert {host: text for host, text in hosts.items() if host not in own} == case.get("domain_hosts", {})
    assert [_rule(each) for each in table.rules] == case.get("rules", [])
    assert sorted(table.mapped) == case.get("mapped", [])
    assert [f"{each.number} {each.target.key.name}" for each in table.streams] == case.get("streams", [])
    assert {key.name: list(texts) for key, texts in table.endpoints.items()} == case.get("endpoints", {})
    assert {name: list(texts) for name, texts in table.problems.items()} == case.get("problems", {})


def test_the_order_of_what_is_applied_does_not_matter() -> None:
    [case] = [each.values[0] for each in cases("dataplane/routes.yaml") if each.id.startswith("the deprecated")]
    routing_input = inputs(case)
    workloads, domains = (
        list(routing_input.workloads),
        [*routing_input.domains, _domain("a.example", {"gvcLink": "shop"})],
    )
    first = build_table(msgspec.structs.replace(routing_input, domains=tuple(domains)))
    for seed in range(5):
        random.Random(seed).shuffle(workloads)
        random.Random(seed).shuffle(domains)
        again = msgspec.structs.replace(routing_input, workloads=tuple(workloads), domains=tuple(domains))
        assert build_table(again) == first


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Shop.Example.", "shop.example"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("shop example", None),
        ("a..b", None),
        ("", None),
        (f"{'a' * 64}.example", None),
        (".".join(["a" * 60] * 5), None),
    ],
)
def test_host_names_are_compared_in_one_form(text: str, host: str | None) -> None:
    assert normalize_host(text) == host


def _key(name: str) -> Key:
    return Key(Kind.WORKLOAD, "shop", name)


def _port(text: object) -> tuple[int, str]:
    number, _, protocol = str(text).partition(" ")
    return int(number), protocol or "http"


def _domain(name: str, spec: dict[str, Any]) -> Domain:
    """A domain whose links are written as names."""
    linked = _linked(spec)
    return read_domain(msgspec.json.encode({"kind": "domain", "name": name, "spec": linked}))


def _linked(value: Any) -> Any:
    if isinstance(value, list):
        return [_linked(member) for member in value]
    if not isinstance(value, dict):
        return value
    links = {"workloadLink": "/org/acme/gvc/shop/workload/{}", "gvcLink": "/org/acme/gvc/{}"}
    return {name: links[name].format(member) if name in links else _linked(member) for name, member in value.items()}


def _name(target: RouteTarget) -> str:
    return f"{target.key.name}:{target.port}" if target.port else target.key.name


def _shown(entry: HostEntry) -> str:
    target = _name(entry.target) if entry.target is not None else "-"
    return f"{target} @{entry.site}" if entry.site else target


def _rule(rule: RouteRule) -> str:
    form, text = ("regex", rule.regex) if rule.regex is not None else ("prefix", rule.prefix)
    return f"{rule.id} {form} {text} → {_name(rule.target)}"


def test_an_ingress_without_haproxy_names_what_to_install() -> None:
    assert list(unserved_ingress("haproxy")) == []
    [sentence] = unserved_ingress("builtin")
    assert "install HAProxy" in sentence
