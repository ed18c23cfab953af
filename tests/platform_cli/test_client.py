"""The client of the platform command against servers of all kinds: busy, restarting, slow, foreign, and gone."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

import pytest

from reconciler.platform_cli import client as module
from reconciler.platform_cli import retries
from reconciler.platform_cli.client import HIDDEN, ApiEndpoint, Client
from reconciler.platform_cli.refusals import ApiError

Response = tuple[int, dict[str, str], bytes]


class ScriptedServer(http.server.ThreadingHTTPServer):
    """Answers with the ``script``, the last part again and again; ``asked`` are the requests, with their headers."""

    daemon_threads = True

    def __init__(self, *script: Response, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.script = list(script)
        self.connections = 0
        self.asked: list[tuple[str, dict[str, str]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the connection, and serve it."""
        self.connections += 1
        super().process_request(request, client_address)

    @property
    def client(self) -> Client:
        return Client(ApiEndpoint(f"http://127.0.0.1:{self.server_port}", "rk_secret", profile="work"))


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.server.asked.append((f"{self.command} {self.path}", {k.lower(): v for k, v in self.headers.items()}))
        status, headers, body = self.server.script[0]
        if len(self.server.script) > 1:
            self.server.script.pop(0)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - names of the library

    def log_message(self, *_: object) -> None:
        """Nothing: the test shows what was asked."""


def answer(status: int = 200, body: Any = None, **headers: str) -> Response:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(body).encode()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(retries, "RETRY_SECONDS", 1.5)
    monkeypatch.setattr(module, "START_SECONDS", 0.2)


def test_a_read_is_repeated_while_the_server_begins() -> None:
    server = ScriptedServer(answer(503), answer(503), answer(body={"name": "shop", "new": 1}))
    assert server.client.get("/org/acme/gvc/shop") == {"name": "shop", "new": 1}
    assert len(server.asked) == 3


def test_a_change_is_repeated_only_with_its_key() -> None:
    server = ScriptedServer(answer(503), answer(503), answer(201, {}))
    with pytest.raises(ApiError, match="is not ready"):
        server.client.request("POST", "/org/acme/gvc", body={})
    assert len(server.asked) == 1
    assert server.client.request("POST", "/org/acme/gvc", body={}, key="k1").status == 201
    assert [headers["idempotency-key"] for _, headers in server.asked[1:]] == ["k1", "k1"]


def test_a_change_whose_answer_is_lost_is_repeated_only_with_its_key() -> None:
    """It may have been made."""
    lost = answer(201, {}, Content_Length="99", Connection="close")
    server = ScriptedServer(lost, lost, answer(201, {}))
    with pytest.raises(ApiError, match="no server answers"):
        server.client.request("POST", "/org/acme/gvc", body={})
    assert len(server.asked) == 1
    assert server.client.request("POST", "/org/acme/gvc", body={}, key="k1").status == 201
    assert len(server.asked) == 3


def test_a_busy_server_is_asked_again_when_it_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 60.0)
    server = ScriptedServer(answer(429, Retry_After="1"), answer(body=[]))
    assert server.client.request("PUT", "/x", body={}).body == []
    late = ScriptedServer(answer(429, {"message": "too many requests"}, Retry_After="900"))
    with pytest.raises(ApiError, match="too many requests"):
        late.client.get("/x")
    assert len(late.asked) == 1


@pytest.mark.parametrize(
    ("status", "message", "shown"),
    [
        (401, "it is expired", "the profile 'work' is not valid: it is expired. Log in again: platform login work$"),
        (403, "ann has no permission `view` on gvc/x", r"gvc/x\. To see who may: platform KIND access-report REF$"),
        (403, "this server has the org acme alone", "you may not do this: this server has the org acme alone$"),
    ],
)
def test_a_refusal_names_the_command_that_helps(status: int, message: str, shown: str) -> None:
    server = ScriptedServer(answer(status, {"message": message, "status": status}))
    with pytest.raises(ApiError, match=shown):
        server.client.get("/x")


@pytest.mark.parametrize(
    ("origin", "advice"), [("--endpoint", "--endpoint URL$"), ("PLATFORM_ENDPOINT", "PLATFORM_ENDPOINT=URL$")]
)
def test_advice_is_about_what_has_the_value(origin: str, advice: str) -> None:
    """A login would change nothing for a credential in an environment variable, which wins over the profile."""
    server = ScriptedServer(answer(401, {"message": "it is expired", "status": 401}))
    url = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(
        ApiError, match=r"of PLATFORM_TOKEN is not valid: it is expired\. Replace it, or leave it out and"
    ):
        Client(ApiEndpoint(url, "rk_secret", token_origin="PLATFORM_TOKEN")).get("/x")
    server.shutdown()
    server.server_close()
    with pytest.raises(ApiError, match=advice):
        Client(ApiEndpoint(url, url_origin=origin)).get("/x")


def test_another_server_is_not_taken_for_the_api() -> None:
    server = ScriptedServer((404, {}, b"<html>not here</html>"))
    with pytest.raises(ApiError, match=r"is not the API: .* platform profile update work --endpoint"):
        server.client.get("/x")


def test_a_server_that_is_gone_is_named_once_a_restart_would_be_over() -> None:
    server = ScriptedServer(answer())
    server.shutdown()
    server.server_close()
    with pytest.raises(ApiError, match=r"no server answers at http://127\.0\.0\.1:"):
        server.client.get("/x")


def test_pages_follow_their_links_up_to_the_limit() -> None:
    first = {"items": [1, 2], "links": [{"rel": "next", "href": "/x?cursor=a"}]}
    server = ScriptedServer(answer(body=first), answer(body={"items": [3, 4], "links": []}))
    assert [*server.client.items("/x", 3)] == [[1, 2], [3]]
    assert [each for each, _ in server.asked] == ["GET /x?limit=3", "GET /x?cursor=a"]


def test_the_debug_output_has_no_credential_and_no_secret(capfd: pytest.CaptureFixture[str]) -> None:
    server = ScriptedServer(answer(201, {"key": "rk_made", "name": "k"}), answer(body={"data": {"payload": "hunter2"}}))
    client = Client(ApiEndpoint(f"http://127.0.0.1:{server.server_port}", "rk_secret"), debug=True)
    client.request("POST", "/org/acme/serviceaccount/ci/-key", body={"token": "hunter3"})
    client.get("/org/acme/secret/db/-reveal")
    shown = capfd.readouterr().err
    assert "> POST /org/acme/serviceaccount/ci/-key" in shown
    assert HIDDEN in shown
    assert not [each for each in ("rk_secret", "rk_made", "hunter2", "hunter3") if each in shown]


def test_a_stream_waits_for_a_server_that_begins() -> None:
    server = ScriptedServer(answer(503), answer(body={"line": "a"}))
    assert [each["line"] for each in server.client.lines("/org/acme/-log", {})] == ["a"]


def test_a_stream_comes_as_objects_and_its_errors_as_any_other() -> None:
    server = ScriptedServer(
        (200, {}, b'{"line": "a"}\n{"line": "b"}\n'), answer(403, {"message": "x has no permission", "status": 403})
    )
    assert [each["line"] for each in server.client.lines("/org/acme/-log", {"query": "gvc/shop"})] == ["a", "b"]
    with pytest.raises(ApiError, match="access-report"):
        [*server.client.lines("/org/acme/-log", {"query": "gvc/shop"})]
