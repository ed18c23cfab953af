"""Workload specs from bodies; and the config_hash, which stands for all else that replicas start with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.engines.workload.revision_hash import HashInputs, config_hash, secrets_used
from reconciler.engines.workload.spec import ContainerSpec
from reconciler.engines.workload.spec_builder import AppliedWorkload, at_scale, workload_spec
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Probe, read_specification
from tests.engines.host.provisioning.kit import body, spec_of, variables
from tests.support.cases import cases

WEB = Key.parse("workload/shop/web")
DB, OTHER = Key.parse("secret/db"), Key.parse("secret/other")
SECRET_KEY = b"k" * 32


def probe(spec: Probe | None) -> dict[str, Any] | None:
    """A probe as cases write it."""
    if spec is None:
        return None
    [(form, target)] = [(name, each) for name in ("http_get", "tcp_socket", "grpc") if (each := getattr(spec, name))]
    return {"form": form, "port": target.port, "period": spec.period_seconds}


def container(container_spec: ContainerSpec) -> dict[str, Any]:
    """A container as cases write it."""
    plain = {"readiness": probe(container_spec.readiness), "liveness": probe(container_spec.liveness)}
    for name in ("post_start", "pre_stop"):
        command = getattr(container_spec, name)
        plain[name] = command and list(command.command)
    fixed = {name: getattr(container_spec, name) for name in ("name", "image", "cpu", "memory")}
    return {**fixed, "ports": list(container_spec.ports), **plain}


@pytest.mark.parametrize("case", cases("environment/wanted.yaml"))
def test_the_workload_spec_is_as_its_case_expects(case: dict[str, Any]) -> None:
    spec = read_specification(body(case["spec"]))
    workload = workload_spec(AppliedWorkload(WEB, case.get("at", "here"), spec, 4, "digest", 2), "hash")
    workload = at_scale(workload, spec, case["replicas"]) if "replicas" in case else workload
    assert (workload.key, workload.version, workload.digest, workload.config_hash, workload.gvc_version) == (
        WEB,
        4,
        "digest",
        "hash",
        2,
    )
    built = {
        **{name: getattr(workload, name) for name in ("type", "replicas", "suspended")},
        "rollout": msgspec.to_builtins(workload.rollout),
        "container": container(workload.containers[0]),
        "timeout": workload.options.timeout_seconds,
    }
    for name, expected in case["wanted"].items():
        values = {each: built[name][each] for each in expected} if isinstance(expected, dict) else built[name]
        assert values == expected


def test_scaling_replaces_numbers_and_makes_nothing_else_anew() -> None:
    spec = spec_of({"cpu": "100m", "ports": [{"number": 8080, "protocol": "http"}]}, type="standard")
    least = workload_spec(AppliedWorkload(WEB, "here", spec, 4, "digest"), "hash")
    more = at_scale(least, spec, 8)
    assert (least.replicas, least.rollout.surge, more.replicas, more.rollout.surge) == (1, 1, 8, 2)
    assert msgspec.structs.replace(more, replicas=1, rollout=least.rollout) == least
    assert more.containers is least.containers


GVC = variables({"LEVEL": "info", "PASSWORD": "platform://secret/other"})


def test_secrets_are_found_wherever_they_are_used() -> None:
    reading = {"env": [{"name": "A", "value": "platform://secret/db.user"}]}
    mounting = {"volumes": [{"uri": "platform://secret/db", "path": "/db"}, {"uri": "scratch://db", "path": "/s"}]}
    assert secrets_used(spec_of({}), GVC) == ()
    assert secrets_used(spec_of(reading, mounting), GVC) == (DB,)
    assert secrets_used(spec_of(reading, {"inheritEnv": True}), GVC) == (DB, OTHER)
    own = {"inheritEnv": True, "env": [{"name": "PASSWORD", "value": "mine"}]}
    assert secrets_used(spec_of(own), GVC) == ()


def test_a_stamp_changes_with_what_replicas_were_started_with_and_nothing_else() -> None:
    plain, heir = spec_of({}), spec_of({}, {"inheritEnv": True})
    hashes = {
        "as it is": config_hash(SECRET_KEY, heir, HashInputs(GVC, {DB: "1", OTHER: "2"}, 0, "process")),
        "another variable": config_hash(
            SECRET_KEY, heir, HashInputs(variables({"LEVEL": "debug"}), {DB: "1", OTHER: "2"}, 0, "process")
        ),
        "another value of a secret": config_hash(
            SECRET_KEY, heir, HashInputs(GVC, {DB: "1", OTHER: "3"}, 0, "process")
        ),
        "a restart": config_hash(SECRET_KEY, heir, HashInputs(GVC, {DB: "1", OTHER: "2"}, 1, "process")),
        "nothing inherited": config_hash(SECRET_KEY, plain, HashInputs(GVC, {DB: "1", OTHER: "2"}, 0, "process")),
        "another key": config_hash(b"l" * 32, heir, HashInputs(GVC, {DB: "1", OTHER: "2"}, 0, "process")),
    }
    hashes["another runtime"] = config_hash(SECRET_KEY, heir, HashInputs(GVC, {DB: "1", OTHER: "2"}, 0, "images"))
    assert len(set(hashes.values())) == len(hashes)
    assert config_hash(SECRET_KEY, heir, HashInputs(GVC, {OTHER: "2", DB: "1"}, 0, "process")) == hashes["as it is"]
    assert (
        config_hash(SECRET_KEY, heir, HashInputs(tuple(reversed(GVC)), {DB: "1", OTHER: "2"}, 0, "process"))
        == hashes["as it is"]
    )
    scaled = spec_of({"cpu": "500m"}, {"inheritEnv": True}, defaultOptions={"autoscaling": {"minScale": 3}})
    assert config_hash(SECRET_KEY, scaled, HashInputs(GVC, {DB: "1", OTHER: "2"}, 0, "process")) == hashes["as it is"]
    assert (
        config_hash(SECRET_KEY, plain, HashInputs((), {DB: "1", OTHER: "2"}, 0, "process"))
        == hashes["nothing inherited"]
    )


def test_a_stamp_is_the_same_in_another_life() -> None:
    assert (
        config_hash(SECRET_KEY, spec_of({"inheritEnv": True}), HashInputs(GVC, {DB: "1"}, 2, "process"))
        == "5f9b0d94fa2501bc"
    )
