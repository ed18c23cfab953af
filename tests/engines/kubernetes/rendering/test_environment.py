"""The environment in a pod is that of a host: the same cases, as the kubelet makes it of the rendered objects."""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.writer import render_document
from reconciler.engines.kubernetes.rendering.environment import build_pod_environment
from reconciler.engines.kubernetes.rendering.workload import render_workload
from reconciler.engines.workload.environment import ContainerView, build_environment
from reconciler.errors import EngineError
from tests.engines.kubernetes.rendering.kit import TOKEN, Setup, decode, workload_inputs
from tests.support.cases import cases

CANARY = "correct-horse"
CASES = [case for case in cases("environment/variables.yaml") if "error" not in case.values[0]]


def manifests_of(case: dict[str, Any]) -> str:
    """The manifests of a case about variables."""
    container = {"name": "main", "image": "registry.example/web:7", **case["container"]}
    spec = {"type": "stateful", "identityLink": "//identity/web", "containers": [container]}
    env = [{"name": name, "value": value} for name, value in case.get("gvc", {}).items()]
    placement = {"locationLinks": ["//location/aws-us-west-2"]}
    documents: list[Any] = [
        {"kind": "gvc", "name": "shop", "spec": {"staticPlacement": placement, "env": env}},
        {"kind": "workload", "name": "web", "gvc": "shop", "spec": spec},
    ]
    documents += [{"kind": "secret", "name": name, **secret} for name, secret in case.get("secrets", {}).items()]
    return "---\n".join(map(render_document, documents))


def read_environment(entries: list[dict[str, Any]], secret: dict[str, str]) -> dict[str, str]:
    """The environment as the kubelet makes it: values are expanded once, and ``$$`` is a dollar sign."""
    env: dict[str, str] = {}
    for entry in entries:
        if "valueFrom" in entry:
            env[entry["name"]] = base64.b64decode(secret[entry["valueFrom"]["secretKeyRef"]["key"]]).decode()
        else:
            env[entry["name"]] = expand(entry.get("value", ""), env)
    return env


def expand(text: str, env: dict[str, str]) -> str:
    return re.sub(
        r"\$\$|\$\(([^)]*)\)", lambda at: "$" if at[1] is None else env.get(at[1], at[0]), text, flags=re.DOTALL
    )


@pytest.mark.parametrize("case", CASES)
def test_a_pod_has_the_environment_of_a_host(case: dict[str, Any]) -> None:
    setup = Setup(scheme=case.get("scheme", "platform"), api=case.get("api", ""))
    inputs = workload_inputs(decode(manifests_of(case), setup.scheme, valid=False), setup)
    environment = build_pod_environment(inputs)
    inside = read_environment(environment.entries["main"], environment.secret["data"] if environment.secret else {})
    ports = {port: port for port in inputs.template.desired.containers[0].assigned_ports}
    container = inputs.template.spec.containers[0]
    expected = build_environment(
        container, inputs.template.env_context, ContainerView("", "", ports, ""), inputs.reveal
    )
    del expected["RECONCILER_ENDPOINTS"], expected["RECONCILER_VOLUMES"]
    assert inside == expected


NAMES = ("A", "B", "C", "PASSWORD", "PLATFORM_TOKEN")
PARTS = st.sampled_from(["x", "$", "$$", "(", ")", *(f"$({name})" for name in NAMES)])


@given(st.lists(PARTS, max_size=4).map("".join), st.lists(PARTS, max_size=4).map("".join), st.sampled_from(NAMES))
def test_no_secret_and_no_token_is_in_a_pod_template(first: str, second: str, third: str) -> None:
    variables = {"A": first, "B": second, "C": f"$({third})", "PASSWORD": "platform://secret/db"}
    case = {
        "container": {"env": [{"name": name, "value": value} for name, value in variables.items()]},
        "secrets": {"db": {"type": "opaque", "data": {"payload": CANARY}}},
    }
    inputs = workload_inputs(decode(manifests_of(case), valid=False), Setup())
    for kube_object in render_workload(inputs):
        if kube_object["kind"] != "Secret":
            text = yaml.safe_dump(kube_object)
            assert CANARY not in text
            assert TOKEN not in text


def test_a_secret_that_is_missing_is_an_error_without_its_content() -> None:
    case = {
        "container": {"env": [{"name": "A", "value": "platform://secret/db"}]},
        "secrets": {"db": {"type": "opaque", "data": {"payload": CANARY}}},
    }
    inputs = workload_inputs(decode(manifests_of(case)), Setup())
    assert CANARY not in f"{inputs!r} {build_pod_environment(inputs)!r}"
    missing = workload_inputs([each for each in decode(manifests_of(case)) if each.name != "db"], Setup())
    with pytest.raises(EngineError, match="secret/db is not applied"):
        render_workload(missing)


def test_another_value_is_another_secret_and_another_template() -> None:
    def rendered(payload: str, token: str = TOKEN) -> tuple[str, str]:
        case = {
            "container": {"env": [{"name": "A", "value": "platform://secret/db"}]},
            "secrets": {"db": {"type": "opaque", "data": {"payload": payload}}},
        }
        inputs = msgspec.structs.replace(workload_inputs(decode(manifests_of(case)), Setup()), token=token)
        objects = {one["kind"]: one for one in render_workload(inputs)}
        return objects["Secret"]["metadata"]["name"], str(objects["StatefulSet"]["spec"]["template"])

    assert rendered("one") == rendered("one")
    first, second = rendered("one"), rendered("two")
    assert first[0] != second[0]
    assert first[1] != second[1]
    # Who knows what may be in a Secret cannot compute its name: that needs the token.
    assert rendered("one", "rw_other.token")[0] != first[0]
