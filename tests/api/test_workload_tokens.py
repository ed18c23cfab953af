"""The tokens of workloads: used by running replicas, by others, and after the workload is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from tests.support.host_sandbox import GVC, HostSandbox, fetch, host_sandbox, served
from tests.support.processes import free_ports
from tests.support.sandbox import eventually

CLIENT = """
import http.server, os, urllib.error, urllib.parse, urllib.request
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.urlsplit(self.path)
        token = urllib.parse.parse_qs(query.query).get("token", [os.environ["PLATFORM_TOKEN"]])[0]
        status = 200
        if query.path != "/healthz":
            url, headers = os.environ["PLATFORM_ENDPOINT"] + query.path, {"Authorization": token}
            try:
                status = urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status
            except urllib.error.HTTPError as error:
                status = error.code
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(status).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Page).serve_forever()
"""
"""Asks the API for the path of each request, as its workload or with another token; answers with the status."""
POLICY = """kind: identity
name: reader
gvc: shop
---
kind: policy
name: reader-views
targetKind: workload
targetLinks: [//gvc/shop/workload/plain]
bindings: [{permissions: [view], principalLinks: [//gvc/shop/identity/reader]}]
"""
PLAIN, NAMED = "/org/acme/gvc/shop/workload/plain", "/org/acme/gvc/shop/workload/named"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostSandbox]:
    """Two workloads that ask the API: ``named`` has an identity, ``plain`` has none."""
    files = {
        "shop/gvc.yaml": GVC,
        "shop/access.yaml": POLICY,
        "shop/named.yaml": served("named", replicas=1, args=["-c", CLIENT], identityLink="//identity/reader"),
        "shop/plain.yaml": served("plain", replicas=1, args=["-c", CLIENT]),
    }
    api = {"address": f"127.0.0.1:{free_ports(1)[0]}"}
    with host_sandbox(tmp_path_factory.mktemp("tokens"), files, api=api) as running, running.daemon():
        eventually(lambda: running.ready("named") and running.ready("plain"))
        eventually(lambda: _answers(running))
        yield running


def _answers(sandbox: HostSandbox) -> bool:
    try:
        return httpx2.get(f"http://{sandbox.settings['api']['address']}/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def ask(sandbox: HostSandbox, workload: str, path: str, token: str = "") -> int:
    """The status that ``workload`` gets for ``path``."""
    [address] = sandbox.ready(workload)
    return int(fetch(address, f"{path}?token={quote(token)}" if token else path))


def token_of(sandbox: HostSandbox, workload: str) -> str:
    """The token of a workload."""
    path: Path = sandbox.state / "host" / "here" / "tokens" / "shop" / workload
    return path.read_text()


def test_a_workload_calls_as_its_identity(sandbox: HostSandbox) -> None:
    assert ask(sandbox, "named", PLAIN) == 200
    assert ask(sandbox, "named", NAMED) == 403
    assert ask(sandbox, "named", "/org/acme") == 200


def test_a_workload_without_an_identity_reads_its_org_alone(sandbox: HostSandbox) -> None:
    assert ask(sandbox, "plain", "/org/acme") == 200
    assert [ask(sandbox, "plain", path) for path in (PLAIN, "/org/acme/secret/x", "/org/other")] == [403, 403, 403]


def test_a_token_is_refused_outside_its_workload(sandbox: HostSandbox) -> None:
    token = token_of(sandbox, "named")
    assert ask(sandbox, "plain", PLAIN, token) == 403
    for credential in (token, f"Bearer {token}"):
        answer = httpx2.get(
            f"http://{sandbox.settings['api']['address']}{PLAIN}", headers={"Authorization": credential}
        )
        assert (answer.status_code, answer.json()["message"]) == (
            403,
            "this token is valid for workload/shop/named alone, and another program sent the request",
        )
    assert ask(sandbox, "named", PLAIN) == 200


def test_a_changed_token_and_one_of_a_deleted_workload_are_unknown(sandbox: HostSandbox) -> None:
    token = token_of(sandbox, "plain")
    name = token.partition(".")[0]
    assert [refusal(sandbox, wrong) for wrong in (token[:-1], f"{name}.", "rw_Li4vLi4vLi4.x")] == [401, 401, 401]
    assert ask(sandbox, "plain", "/org/acme") == 200
    sandbox.repo.commit(
        {"shop/plain.yaml": None, "shop/access.yaml": POLICY.replace("workload/plain", "workload/named")}
    )
    eventually(lambda: refusal(sandbox, token) == 401)
    assert not (sandbox.state / "host" / "here" / "tokens" / "shop" / "plain").exists()


def refusal(sandbox: HostSandbox, token: str) -> int:
    """The status of a request of this process with ``token``."""
    api = sandbox.settings["api"]
    url = f"http{'s' if 'tls' in api else ''}://localhost:{api['address'].rpartition(':')[2]}/org/acme"
    return httpx2.get(url, headers={"Authorization": token}, verify=False).status_code
