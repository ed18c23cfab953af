"""A planted secret: its value is in no answer but that of reveal, and in no log, audit entry or commit message."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.app import OPERATIONS
from reconciler.api.table import Operation
from reconciler.model.key import GVC_SCOPED, Kind
from tests.api.conftest import FILES
from tests.api.test_process import ask
from tests.support.api import ORG, READER_PEER, ROOT_PEER, ApiSandbox, api_sandbox
from tests.support.git import git
from tests.support.sandbox import DaemonSandbox, eventually

CANARY = "canary-8b1f0c5e7d"
ENCODED = base64.b64encode(f"xx{CANARY}".encode()).decode()
PLANTED = f"""kind: secret
name: planted
type: dictionary
data: {{password: {CANARY}}}
---
kind: secret
name: opaque
type: opaque
data: {{encoding: base64, payload: {ENCODED}}}
"""
KEY, USER = "?key=secret/planted", "?key=workload/shop/api"
REVEAL = "/org/{org}/secret/{name}/-reveal"
NAMES = {
    Kind.SECRET: "planted",
    Kind.WORKLOAD: "web",
    Kind.GVC: "shop",
    Kind.SERVICEACCOUNT: "ci",
    Kind.USER: "ann@example.com",
    Kind.POLICY: "web-edits",
    Kind.GROUP: "web",
}
QUERIES = ("", "?fields=data", "?fields=data.password,name", "?query=data.password&limit=1000&last=1000")

HOSTILE: dict[str, Any] = {
    "an unknown field": {"name": "planted", "type": "dictionary", "colour": 1, "data": {"password": CANARY}},
    "a text as data": {"name": "planted", "type": "dictionary", "data": CANARY},
    "a list as data": {"name": "planted", "type": "dictionary", "data": [CANARY]},
    "a list as a value": {"name": "planted", "type": "dictionary", "data": {"password": [CANARY]}},
    "an object as a value": {"name": "planted", "type": "dictionary", "data": {"password": {"x": CANARY}}},
    "a number beside it": {"name": "planted", "type": "dictionary", "data": {"password": CANARY, "pin": 12}},
    "another type": {"name": "planted", "type": "userpass", "data": {"password": CANARY}},
    "an unknown type": {"name": "planted", "type": "nothing", "data": {"password": CANARY}},
    "no type": {"name": "planted", "data": {"password": CANARY}},
    "a key that is none": {"name": "planted", "type": "tls", "data": {"key": CANARY, "cert": CANARY}},
    "no base64": {"name": "planted", "type": "opaque", "data": {"encoding": "base64", "payload": CANARY}},
    "a control character": {"name": "planted", "type": "dictionary", "data": {"password": f"{CANARY}\u0000\u001b"}},
    "another name": {"name": "another", "type": "dictionary", "data": {"password": CANARY}},
    "another kind": {"name": "planted", "kind": "gvc", "type": "dictionary", "data": {"password": CANARY}},
    "a link that is none": {"name": "planted", "type": "dictionary", "tags": {"a": []}, "data": {"password": CANARY}},
    "a valid one": {"name": "planted", "type": "dictionary", "data": {"password": f"{CANARY}-2"}},
}
CUT = (
    f'{{"name": "planted", "data": {{"password": "{CANARY}"',
    f'{{"data": {{"password": "{CANARY}\\x"}}}}',
    f'{{"data": {{"password": "{CANARY}" "{CANARY}"}}}}',
)
"""Bodies that are no JSON, with the secret beside or at the fault."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with secrets, one of which a workload uses."""
    files = {**FILES, "planted.yaml": PLANTED, "audit.yaml": "kind: auditctx\nname: main\n"}
    with api_sandbox(tmp_path_factory.mktemp("planted"), files) as made:
        yield made


def hides(text: str | bytes) -> bool:
    """Whether ``text`` has the value neither as it is nor encoded."""
    content = text.encode() if isinstance(text, str) else text
    return CANARY.encode() not in content and ENCODED.encode() not in content


def exposing(sandbox: DaemonSandbox) -> list[Path]:
    """The files of the state directory with the value, logs of databases included.

    The records have the data of secrets, from which replicas get them; only the user of the daemon may read those.
    """
    files = [path for path in sandbox.state.rglob("*") if path.is_file()]
    records = [path for path in files if path.name.startswith("records.sqlite")]
    assert {path.stat().st_mode & 0o077 for path in records} == {0}
    assert {"records.sqlite", "access.sqlite"} <= {path.name for path in files}
    return [path for path in files if path not in records and not hides(path.read_bytes())]


def reads() -> Iterator[str]:
    """The path of each GET operation but reveal, of each kind."""
    for operation in OPERATIONS:
        if operation.method != "GET" or operation.path == REVEAL:
            continue
        kinds = sorted(GVC_SCOPED if "{gvc}" in operation.path else Kind) if "{kind}" in operation.path else [""]
        for kind in kinds:
            in_path = next((each for each in NAMES if f"/{each}/{{name}}" in operation.path), kind)
            values = {
                "org": "acme",
                "gvc": "shop",
                "kind": kind,
                "name": NAMES.get(in_path, "main"),
                "id": "1",
                "location": "here",
                "digest": "0",
            }
            yield operation.path.format_map(values)


def test_no_read_shows_the_value(sandbox: ApiSandbox, capfd: pytest.CaptureFixture[str]) -> None:
    revealed = sandbox.client().get(f"{ORG}/secret/planted/-reveal")
    assert CANARY in str(revealed), "the value is there"
    answered = 0
    for path, query, peer in product(reads(), QUERIES, (ROOT_PEER, READER_PEER)):
        more = ("&" if query else "?") + "timeoutSeconds=0" if path.endswith("/-watch") else ""
        answer = sandbox.client(peer).request("GET", f"{path}{query}{more}")
        assert hides(answer.content + str(answer.headers).encode()), (path, query, answer.text)
        answered += answer.is_success
    assert answered > 200
    for wanted in ({"terms": [{"property": "data.password", "value": CANARY}]}, {"terms": [{"property": "data.x"}]}):
        answer = sandbox.client().request("POST", f"{ORG}/secret/-query", json={"kind": "secret", "spec": wanted})
        # Else the value could be guessed; the answer repeats the query, and that is all.
        assert not answer.is_success or answer.json()["items"] == [], answer.text
    assert hides("".join(capfd.readouterr()))


REVISIONS = ("?from=HEAD&to=HEAD", "?from=HEAD~1&to=HEAD")


@pytest.mark.parametrize(
    "operation", [operation for operation in OPERATIONS if operation.forms], ids=lambda each: str(each.path)
)
def test_no_overview_shows_the_value_in_any_form(operation: Operation, sandbox: ApiSandbox) -> None:
    path = operation.path.format_map({"org": "acme", "name": "main", "digest": "0"})
    for form in operation.forms:
        keys = ("", KEY, USER, *REVISIONS)
        answers = [sandbox.client().request("GET", f"{path}{key}", headers={"Accept": form}) for key in keys]
        assert all(hides(answer.content) for answer in answers)
        assert any(answer.is_success for answer in answers) or "{digest}" in operation.path


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_no_answer_to_a_change_repeats_the_value(case: str, method: str, sandbox: ApiSandbox) -> None:
    path, body = f"{ORG}/secret/planted", HOSTILE[case]
    if method == "POST":
        path, body = f"{ORG}/secret", {**body, "name": f"new-{[*HOSTILE].index(case)}"}
    for query in ("?dryRun=true", ""):
        answer = sandbox.client().request(method, f"{path}{query}", json=body, headers={"If-Match": "*"})
        assert hides(answer.content), answer.text
        assert answer.status_code in (200, 201, 400), answer.text


@pytest.mark.parametrize("case", HOSTILE)
def test_no_answer_to_a_change_of_many_repeats_the_value(case: str, sandbox: ApiSandbox) -> None:
    item = {"kind": "secret", **HOSTILE[case]}
    others = [{"kind": "group", "name": "beside", "description": case}]
    for items, query in product(([item], [*others, item]), ("?dryRun=true", "")):
        answer = sandbox.client().request("POST", f"{ORG}/-apply{query}", json={"items": items})
        assert hides(answer.content), answer.text
        assert answer.status_code in (200, 400), answer.text


@pytest.mark.parametrize("content", CUT)
def test_no_error_of_a_body_repeats_it(content: str, sandbox: ApiSandbox) -> None:
    for method, path in (("POST", "/secret"), ("PUT", "/secret/planted"), ("PATCH", "/secret/planted")):
        answer = sandbox.client().request(method, f"{ORG}{path}", content=content)
        assert (answer.status_code, hides(answer.content)) == (400, True), answer.text


def test_nothing_written_beside_the_manifest_has_the_value(
    sandbox: ApiSandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    client = sandbox.client()
    body = {"name": "fresh", "type": "dictionary", "data": {"password": CANARY}}
    header = {"Idempotency-Key": "planted"}
    for _ in range(2):
        answer = client.request("POST", f"{ORG}/secret", json=body, headers=header)
        assert (answer.status_code, hides(answer.content)) == (201, True), answer.text
    assert client.request("DELETE", f"{ORG}/secret/{CANARY[:3]}").status_code == 404
    assert CANARY in git(sandbox.repo.path, "log", "-p", "-1"), "the manifest has it, where no rule wants it encrypted"
    assert hides(git(sandbox.repo.path, "log", "--format=%an %ae %B"))
    assert hides("".join(str(each) for each in client.get(f"{ORG}/-audit?last=1000")["items"]))
    assert exposing(sandbox) == []
    assert hides("".join(capfd.readouterr()))


def test_neither_metrics_nor_the_log_of_the_daemon_have_the_value(tmp_path: Path) -> None:
    """A daemon applies the secret at the level debug, then refuses a manifest with the value at its fault."""
    sandbox = DaemonSandbox(tmp_path, {**FILES, "planted.yaml": PLANTED}, api={}, log={"level": "debug"})
    with sandbox.daemon() as running:
        eventually(lambda: (answer := ask(sandbox, "/readyz")) is not None and answer.status_code == 200)
        faulty = PLANTED.replace(f"{{password: {CANARY}}}", f"{{password: [{CANARY}]}}")
        sandbox.repo.commit({"planted.yaml": faulty})
        eventually(lambda: running.logged("reconciled", outcome="refused"))
        eventually(lambda: (read := ask(sandbox, "/metrics")) is not None and "_engine_calls_total{" in read.text)
        page = ask(sandbox, "/metrics")
        assert page is not None
        assert page.status_code == 200
        assert "reconciler_resources{" in page.text
        assert hides(page.content)
        log = str(running.log())
        assert exposing(sandbox) == []
    assert "planted" in log, "the log reports the refused manifest"
    assert hides(log)
    assert exposing(sandbox) == [], "nor has any file at the end"
