"""A kubeconfig may name a program that prints credentials: it runs only where the settings allow it by its name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from reconciler.engines.protocol import Result
from reconciler.errors import EngineError
from reconciler.reasons import Reason
from reconciler.times import format_iso_time
from tests.engines.kubernetes.engine_kit import ClusterHarness
from tests.kubernetes.api_server import fake_api_server

PROGRAM = """#!/bin/sh
echo "$KUBERNETES_EXEC_INFO $1 $LOGIN" >> "{path}/runs"
cat "{path}/answer"
exit "$(cat "{path}/code")"
"""


class ExecHarness(ClusterHarness):
    """The engine with a kubeconfig that names the program ``login``."""

    def prepare(self, version: str = "client.authentication.k8s.io/v1") -> None:
        """Write the program, which works, and the kubeconfig."""
        self.program = self.path / "login"
        self.program.write_text(PROGRAM.format(path=self.path))
        self.program.chmod(0o755)
        self.answer(self.server.token)
        content = yaml.safe_load(self.server.kubeconfig.read_text())
        runs = {"apiVersion": version, "command": str(self.program), "args": ["cluster-a"]}
        runs["env"] = [{"name": "LOGIN", "value": "robot"}]
        content["users"][0]["user"] = {"exec": runs}
        file = self.path / "kubeconfig"
        file.write_text(yaml.safe_dump(content))
        self.bound = msgspec.structs.replace(self.bound, kubeconfig=file, allow_exec=(str(self.program),))

    def answer(self, token: str, code: int = 0, **status: Any) -> None:
        """Let the program print a token from now on."""
        (self.path / "answer").write_text(json.dumps({"kind": "ExecCredential", "status": {"token": token, **status}}))
        (self.path / "code").write_text(str(code))

    def list_runs(self) -> list[str]:
        """What each run of the program got."""
        file = self.path / "runs"
        return file.read_text().splitlines() if file.exists() else []

    def begin(self) -> None:
        """Let an engine log in as the kubeconfig says. Raises EngineError."""
        self.engine = self._make_engine()
        self.open()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ExecHarness]:
    with fake_api_server(tmp_path / "cluster") as server:
        server.run_controllers()
        harness = ExecHarness(tmp_path / "engine", server)
        harness.prepare()
        try:
            yield harness
        finally:
            harness.close()


def test_a_program_that_the_settings_do_not_name_never_runs(harness: ExecHarness) -> None:
    for allowed in ((), ("login",), (f"{harness.program}2",)):
        harness.bound = msgspec.structs.replace(harness.bound, allow_exec=allowed)
        with pytest.raises(EngineError, match=f"runs the program {harness.program}; allow it in `cluster.allowExec`"):
            harness.begin()
    assert harness.list_runs() == []


def test_a_named_program_runs_once_for_many_requests(harness: ExecHarness) -> None:
    harness.begin()
    assert harness.apply_web().result is Result.APPLIED
    harness.wait_for_health()
    [run] = harness.list_runs()
    info, _, rest = run.rpartition("} ")
    assert json.loads(f"{info}}}")["spec"] == {"interactive": False}
    assert rest == "cluster-a robot"


def test_a_refused_token_is_another_run(harness: ExecHarness) -> None:
    harness.begin()
    harness.server.expire_token()
    harness.server.accept_token("second")
    harness.answer("second")
    harness.until(lambda: harness.apply_web().result is Result.APPLIED, "it logs in again")
    assert len(harness.list_runs()) == 2


def test_a_token_is_renewed_before_it_ends(harness: ExecHarness) -> None:
    harness.answer(harness.server.token, expirationTimestamp=format_iso_time(harness.clock.now() + 30))
    harness.begin()
    assert len(harness.list_runs()) > 1
    harness.answer(harness.server.token, expirationTimestamp=format_iso_time(harness.clock.now() + 3600))
    harness.apply_web()
    before = len(harness.list_runs())
    harness.apply_web(2, image="nginx:2")
    assert len(harness.list_runs()) == before


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ('{"status": {"token": "very-secret"}}', 3, "ended with code 3; run it by hand to see why"),
        ("very-secret", 0, "printed no ExecCredential"),
        ('{"status": {"clientKeyData": "very-secret"}}', 0, "printed no token"),
    ],
)
def test_a_program_that_fails_is_named_without_its_output(
    harness: ExecHarness, answer: str, code: int, words: str
) -> None:
    (harness.path / "answer").write_text(answer)
    (harness.path / "code").write_text(str(code))
    with pytest.raises(EngineError) as caught:
        harness.begin()
    assert caught.value.reason is Reason.CREDENTIALS_REFUSED
    assert f"{harness.program} {words}" in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_a_program_that_is_not_there_and_an_older_form_are_named(harness: ExecHarness) -> None:
    harness.program.unlink()
    with pytest.raises(EngineError, match="login cannot be run: No such file or directory"):
        harness.begin()
    harness.prepare("client.authentication.k8s.io/v1alpha1")
    with pytest.raises(EngineError, match="v1alpha1 of exec is not supported"):
        harness.begin()
