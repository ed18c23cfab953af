"""Generated requests against a running daemon: no server error, and every response as the OpenAPI document has it."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from reconciler.api.authentication import BOOTSTRAP_FILE
from tests.api.conftest import FILES
from tests.support.processes import free_ports
from tests.support.sandbox import DaemonSandbox, eventually

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
SECONDS = float(os.environ.get("CONFORMANCE_SECONDS", "900"))
"""How long the long form takes for each of two callers; 15 minutes."""
NAMES = {
    "workload": "web",
    "secret": "db",
    "user": "ann@example.com",
    "group": "web",
    "serviceaccount": "ci",
    "policy": "web-edits",
    "gvc": "shop",
    "source": "main",
    "webhook": "main",
}


class ServedApi:
    """A daemon with the API at ``base``, and a credential of a superuser."""

    def __init__(self, sandbox: DaemonSandbox) -> None:
        self.base = f"http://{sandbox.settings['api']['address']}"
        eventually(self.ready, "the API answers")
        token = (sandbox.state / BOOTSTRAP_FILE).read_text().strip()
        answer = httpx2.post(f"{self.base}/login/bootstrap", json={"token": token})
        self.headers = {"Authorization": answer.json()["token"]}

    def ready(self) -> bool:
        """Whether every source was read."""
        try:
            return httpx2.get(f"{self.base}/readyz").status_code == 200
        except httpx2.TransportError:
            return False


@contextlib.contextmanager
def serving(path: Path) -> Iterator[ServedApi]:
    """A daemon for generated requests of every kind."""
    sandbox = DaemonSandbox(path, FILES, api={"address": f"127.0.0.1:{free_ports(1)[0]}"})
    with sandbox.daemon():
        yield ServedApi(sandbox)


def requests(served: ServedApi, headers: Mapping[str, str], examples: int) -> Counter[int]:
    """Statuses of ``examples`` generated requests for each operation; three of four name resources that exist."""
    counter: Counter[int] = Counter()
    schema = schemathesis.openapi.from_url(f"{served.base}/openapi.json")

    def request(case: schemathesis.Case, existing: bool) -> None:
        case.headers.pop("Authorization", None)
        if existing:
            _name_existing(case)
        if case.path == "/login" and case.method == "DELETE":
            return  # it would end the session of all that follow
        if case.path.endswith("/-watch"):
            case.query = {**(case.query or {}), "timeoutSeconds": 0}  # else it would last
        if case.path.endswith(("/-events", "/-log")):
            case.query = {**(case.query or {}), "follow": False}  # else it would last
        response = case.call(headers={**headers})
        counter[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    for result in schema.get_all_operations():
        operation = result.ok()
        repeated = given(case=operation.as_strategy(), existing=st.sampled_from((True, True, True, False)))(request)
        settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(repeated)()
    return counter


def _name_existing(case: schemathesis.Case) -> None:
    parameters: dict[str, Any] = case.path_parameters
    if "gvc" in parameters:
        parameters["gvc"] = NAMES["gvc"]
    kind = parameters.get("kind") or next((each for each in NAMES if f"/{each}/{{name}}" in case.path), "")
    if "name" in parameters and kind in NAMES:
        parameters["name"] = NAMES[kind]


@pytest.mark.parametrize(
    ("seconds", "examples"),
    [
        pytest.param(0.0, 2, id="once"),
        pytest.param(30.0, 5, id="for half a minute", marks=pytest.mark.slow),
        pytest.param(SECONDS, 50, id="for long", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "superuser",
    [pytest.param(True, id="a superuser"), pytest.param(False, id="without a credential", marks=pytest.mark.slow)],
)
def test_generated_requests_get_documented_responses(
    tmp_path: Path, superuser: bool, seconds: float, examples: int
) -> None:
    counter: Counter[int] = Counter()
    end = time.monotonic() + seconds
    for number in count():
        # The requests delete much of what they find: each round begins anew.
        with serving(tmp_path / str(number)) as served:
            counter += requests(served, served.headers if superuser else {}, examples)
        if time.monotonic() > end:
            break
    assert sum(counter.values()) > 200
    assert set(counter) & {200} if superuser else set(counter) >= {200, 401}
