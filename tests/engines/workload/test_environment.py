"""The environment of containers: the cases, what never leaks into it, and variables within variables at random."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.host.runtimes.process.executable import DEFAULT_PATH
from reconciler.engines.workload.environment import ContainerView, build_environment, namespace_of, provider_and_region
from reconciler.engines.workload.variable_expansion import expand_arguments, expand_variables
from reconciler.errors import EngineError
from reconciler.model.key import Key
from tests.engines.host.provisioning.kit import around, container_of, manifest, variables, vault
from tests.support.cases import cases

CANARY = "correct-horse"


def view(ports: dict[int, int] | None = None) -> ContainerView:
    """What a container of the replica web-0 sees, in a runtime of its own paths."""
    defaults = {"HOME": "/replica/home", "HOSTNAME": "web-0", "LANG": "C.UTF-8", "PATH": DEFAULT_PATH}
    return ContainerView(
        "/replica/volumes", "/replica/endpoints", ports or {}, "", {**defaults, "TMPDIR": "/replica/scratch"}
    )


def found(case: dict[str, Any]) -> dict[str, str]:
    """The environment of a case."""
    scheme = case.get("scheme", "platform")
    surroundings = around(gvc_env=variables(case.get("gvc", {}), scheme), scheme=scheme, api=case.get("api", ""))
    container = container_of(case["container"], scheme)
    return build_environment(container, surroundings, view(case.get("ports")), vault(case.get("secrets", {})))


@pytest.mark.parametrize("case", cases("environment/variables.yaml"))
def test_the_environment_is_as_its_case_expects(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(EngineError) as caught:
            found(case)
        assert f"{caught.value.reason} {caught.value}" == case["error"]
        assert CANARY not in repr(caught.value)
        return
    env = found(case)
    if "whole" in case:
        assert env == case["whole"]
    assert {name: env.get(name) for name in case.get("shows", {})} == case.get("shows", {})
    assert list(env) == sorted(env)


def test_nothing_of_the_daemons_own_environment_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CANARY", "HOME", "TMPDIR", "PATH", "CREDENTIALS_DIRECTORY", "GIT_SSH_COMMAND"):
        monkeypatch.setenv(name, CANARY)
    env = found({"container": {"env": [{"name": "A", "value": "$(CANARY)"}]}})
    shown = subprocess.run(["/usr/bin/env"], env=env, capture_output=True, text=True, check=True).stdout
    assert set(shown.splitlines()) == {f"{name}={value}" for name, value in env.items()}
    assert CANARY not in shown


def test_a_variable_that_is_too_long_for_programs_is_named() -> None:
    secrets = {"s": {"type": "opaque", "data": {"payload": "x" * (1 << 17)}}}
    with pytest.raises(EngineError, match=r"^the variable LONG is longer than 128 KiB"):
        found({"container": {"env": [{"name": "LONG", "value": "platform://secret/s"}]}, "secrets": secrets})


def test_reprs_of_values_with_secrets_reveal_none() -> None:
    revealed = vault({"s": {"type": "opaque", "data": {"payload": CANARY}}})(Key.parse("secret/s"))
    assert CANARY not in f"{revealed} {revealed!r}"
    assert "the-token" not in repr(around())


@pytest.mark.parametrize(
    ("location", "fields", "expected"),
    [
        ("aws-us-west-2", None, ("aws", "us-west-2")),
        ("azure-eastus2", None, ("azure", "eastus2")),
        ("local", None, ("byok", "local")),
        ("my-cellar", None, ("byok", "my-cellar")),
        ("byok-cellar", None, ("byok", "cellar")),
        ("aws-", None, ("byok", "aws-")),
        ("aws-us-west-2", {"provider": "aws", "region": "us-west-2"}, ("aws", "us-west-2")),
        ("local", {"provider": "byok"}, ("byok", "local")),
        ("local", {"provider": "byok", "region": "cellar"}, ("byok", "cellar")),
        ("aws-cellar", {"provider": "byok"}, ("byok", "aws-cellar")),
        ("edge", {"provider": "gcp", "region": "us-east1"}, ("gcp", "us-east1")),
    ],
)
def test_provider_and_region_come_from_the_location(
    location: str, fields: dict[str, str] | None, expected: tuple[str, str]
) -> None:
    body = None if fields is None else manifest({"kind": "location", "name": location, **fields}).body
    assert provider_and_region(location, body) == expected


def test_a_namespace_appears_random_and_is_stable() -> None:
    assert namespace_of("acme", "shop") == namespace_of("acme", "shop")
    found = {namespace_of("acme", gvc) for gvc in ("shop", "ops", "a", "b")}
    assert len(found) == 4
    assert all(len(each) == 13 and each.isalnum() and each == each.lower() for each in found)


NAMES = "ABCDEF"
PARTS = st.sampled_from(["x", "$", "$$", "(", ")", "$(", "$(X)", "$(FIXED)", *(f"$({name})" for name in NAMES)])
VALUES = st.dictionaries(st.sampled_from(NAMES), st.lists(PARTS, max_size=4).map("".join), max_size=6)


def naive(name: str, written: dict[str, str], fixed: dict[str, str], within: frozenset[str] = frozenset()) -> str:
    """The value of ``name`` by the plain words of the rule. Raises RecursionError where it leads back to itself."""
    if name in within:
        raise RecursionError(name)
    text, value = "", written[name]
    while value:
        if value.startswith("$$"):
            text, value = text + "$", value[2:]
        elif value.startswith("$(") and ")" in value:
            inner, value = value[2:].split(")", 1)
            known = naive(inner, written, fixed, within | {name}) if inner in written else fixed.get(inner)
            text += f"$({inner})" if known is None else known
        else:
            text, value = text + value[0], value[1:]
    return text


@given(VALUES)
def test_variables_within_variables_follow_the_rule(written: dict[str, str]) -> None:
    fixed = {"FIXED": "$(A)$$"}
    result = expand_variables(written, fixed)
    assert list(result) == list(written)
    for name, value in result.items():
        try:
            assert value == naive(name, written, fixed)
        except RecursionError:
            assert "$(" in value


@given(st.lists(PARTS, max_size=6).map("".join))
def test_arguments_are_expanded_as_values_are(text: str) -> None:
    env = {"FIXED": "$(A)$$", "A": "a b"}
    assert expand_arguments((text, "$(A)"), env) == (expand_variables({"-": text}, env)["-"], "a b")


def test_an_argument_longer_than_programs_can_have_is_refused() -> None:
    with pytest.raises(EngineError) as caught:
        expand_arguments(("$(A)" * 3,), {"A": CANARY * 9000})
    assert caught.value.reason == "ArgumentTooLong"
    assert CANARY not in str(caught.value)


def test_long_chains_and_odd_values_take_no_time() -> None:
    chain = {f"V{number}": f"$(V{number + 1})" for number in range(20_000)} | {"V20000": "end"}
    assert set(expand_variables(chain, {}).values()) == {"end"}
    assert expand_variables({"A": "$(" * 2000, "B": "$(A)" + "$$" * 1000}, {})["B"] == "$(" * 2000 + "$" * 1000
