"""A forge on this machine: it keeps what it is told, and finds each request that its published description forbids."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from jsonschema import Draft202012Validator

from tests.support.waiting import serving

DESCRIPTIONS = Path(__file__).parent / "descriptions"
PREFIXES = {
    "github": "/api/v3", "gitlab": "", "gitea": "/api/v1", "forgejo": "/api/v1", "bitbucket": "/2.0",
    "bitbucket-server": "/rest",
}  # fmt: skip
TOKEN = "planted-token-4711"
COMMIT = "4f" * 20
_REPOSITORY = ("owner", "repo", "workspace", "repo_slug", "id", "projectKey", "repositorySlug")
"""Parameters that name the repository."""
_DEPLOYMENT_FILTERS = {"sha": "ref", "environment": "environment", "task": "task"}
"""Parameters of a list of deployments, and the fields that have them."""


class Request(NamedTuple):
    """What the forge was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    raw: bytes
    at: float
    """Monotonic seconds."""


class Failure(NamedTuple):
    """What the forge does instead of an answer: it waits, answers ``status``, or (0) closes the connection."""

    status: int
    headers: dict[str, str] = {}
    body: bytes = b"{}"
    wait: float = 0.0
    part: int = -1
    """Bytes of the body that are sent, of as many as it has; -1: all."""


class StubForge:
    """The state of a forge, of which ``kind`` names the API."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.requests: list[Request] = []
        self.faults: list[str] = []
        """Requests that the description forbids."""
        self.failures: list[Failure] = []
        """What happens to the next requests, in order."""
        self.comments: dict[int, dict[int, str]] = {}
        self.versions: dict[int, int] = {}
        """How often a comment was changed."""
        self.statuses: dict[str, list[dict[str, Any]]] = {}
        self.check_runs: dict[int, dict[str, Any]] = {}
        self.deployments: dict[int, dict[str, Any]] = {}
        self.pulls: dict[int, dict[str, Any]] = {}
        """The open ones, which are listed."""
        self.closed: dict[int, dict[str, Any]] = {}
        self.refuse: Callable[[Request], Failure | None] = lambda _request: None
        """What happens to a request instead of an answer."""
        self.lost: set[int] = set()
        """Numbers of requests, from 1, that are carried out, and whose answers do not arrive."""
        self.issued_tokens = 0
        self.secrets = {TOKEN}
        self._next = 100
        file = "gitea" if kind == "forgejo" else kind
        self._operations = json.loads((DESCRIPTIONS / f"{file}.json").read_text())["operations"]
        self.url = ""

    def next_id(self) -> int:
        """An id that nothing has yet."""
        self._next += 1
        return self._next

    def knows(self, headers: dict[str, str]) -> bool:
        """Whether ``headers`` log in: with a token, a password, or the signed token of an App."""
        value = headers.get("private-token") or headers.get("authorization", "")
        token = value.rpartition(" ")[2]
        if value.startswith("Basic "):
            token = base64.b64decode(token).decode().partition(":")[2]
        return token in self.secrets or token.count(".") == 2

    def calls(self, method: str) -> list[Request]:
        """The requests with ``method``."""
        return [request for request in self.requests if request.method == method]

    def answer(self, request: Request) -> tuple[int, Any]:
        """Status and body, after a check of the request."""
        operation, names = self._find(request)
        if operation is None:
            self.faults.append(f"{request.method} {request.path} is no operation")
            return 404, {"message": "Not Found"}
        self.faults += [f"{request.method} {request.path}: {fault}" for fault in _check(operation, names, request)]
        status, body = self._perform(operation, names, request)
        if str(status) not in operation["answers"] and status != 404:
            self.faults.append(f"the stub answers {status} to {operation['path']}, which the forge does not")
        return status, body

    def _find(self, request: Request) -> tuple[dict[str, Any] | None, dict[str, str]]:
        path = request.path.removeprefix(PREFIXES[self.kind])
        for operation in self._operations:
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", operation["path"])
            found = re.fullmatch(pattern, path)
            if found and operation["method"] == request.method:
                return operation, {name: unquote(value) for name, value in found.groupdict().items()}
        return None, {}

    def _perform(self, operation: dict[str, Any], names: dict[str, str], request: Request) -> tuple[int, Any]:
        """What the forge does, by the last part of the path that has a name."""
        method, path, body = operation["method"], operation["path"], request.body
        if path.endswith("/access_tokens"):
            self.issued_tokens += 1
            token = f"installation-token-{self.issued_tokens}"
            self.secrets.add(token)
            return 201, {"token": token, "expires_at": "2100-01-01T00:00:00Z"}
        if path.endswith("/installation"):
            return 200, {"id": 42}
        if path.endswith("/builds") or ("/statuses" in path and "deployments" not in path):
            sha = names.get("sha") or names.get("commit") or names["commitId"]
            self.statuses.setdefault(sha, []).append(body)
            if path.endswith("/builds"):
                return 204, None
            return (200 if self.kind == "gitlab" else 201), {"id": self.next_id(), "key": "x"}
        if "check-runs" in path:
            return self._check_run(method, names, body)
        if "deployments" in path:
            return self._deployment(method, path, names, request)
        if "comments" in path or path.endswith(("/notes", "/notes/{note_id}")):
            return self._comment(method, names, request)
        if path.endswith("/activities"):
            return 200, self._page(request, self._list_activities(int(names["pullRequestId"])))
        if path.rpartition("/")[2] in ("pulls", "merge_requests", "pullrequests", "pull-requests"):
            return 200, self._page(request, list(self.pulls.values()))
        if "pull" in path or "merge_requests" in path:
            number = int(next(names[name] for name in names if name not in _REPOSITORY))
            pulls = self.closed | self.pulls
            return (200, pulls[number]) if number in pulls else (404, {"message": "Not Found"})
        return 200, {"id": 1, "full_name": "acme/shop"}

    def _check_run(self, method: str, names: dict[str, str], body: Any) -> tuple[int, Any]:
        if method == "GET":
            runs = [run for run in self.check_runs.values() if run["head_sha"] == names["ref"]]
            return 200, {"total_count": len(runs), "check_runs": runs}
        if method == "POST":
            made = {**body, "id": self.next_id()}
            self.check_runs[made["id"]] = made
            return 201, made
        run = self.check_runs[int(names["check_run_id"])]
        run.update(body)
        return 200, run

    def _deployment(self, method: str, path: str, names: dict[str, str], request: Request) -> tuple[int, Any]:
        body, query = request.body, request.query
        if method == "GET" and path.endswith("/statuses"):
            states = self.deployments[int(names["deployment_id"])]["states"]
            return 200, self._page(request, [{"id": 1, "state": state} for state in reversed(states) if state])
        if method == "GET":
            own_field = "sha" if self.kind == "gitlab" else "ref"
            listed = [{**one, "sha": one[own_field], "status": one["states"][-1]} for one in self.deployments.values()]
            filters = [(field, query[name]) for name, field in _DEPLOYMENT_FILTERS.items() if name in query]
            listed = [one for one in listed if all(one[field] == value for field, value in filters)]
            is_ascending = self.kind == "gitlab" and query.get("sort") != "desc"
            return 200, self._page(request, listed if is_ascending else listed[::-1])
        if method == "POST" and path.endswith("/deployments"):
            made = {**body, "id": self.next_id(), "states": [body.get("status")]}
            self.deployments[made["id"]] = made
            return 201, made
        deployment = self.deployments.get(int(names["deployment_id"]))
        if deployment is None:
            return 404, {"message": "Not Found"}
        state = body.get("state") or body.get("status")
        if state == "success" and body.get("auto_inactive", True) and self.kind == "github":
            self._end_former_deployments(deployment)
        deployment["states"].append(state)
        return (201 if method == "POST" else 200), {"id": self.next_id()}

    def _end_former_deployments(self, deployment: dict[str, Any]) -> None:
        """What GitHub does by itself when a deployment succeeds, unless the environment is that of production."""
        environment = deployment["environment"]
        for other in self.deployments.values():
            is_former = other["id"] < deployment["id"] and other["environment"] == environment
            if is_former and other["states"][-1] == "success" and environment != "production":
                other["states"].append("inactive")

    def _comment(self, method: str, names: dict[str, str], request: Request) -> tuple[int, Any]:
        body = request.body
        text = body["content"]["raw"] if body and "content" in body else (body or {}).get("body", "")
        if self.kind == "bitbucket-server":
            return self._comment_with_version(method, names, body)
        own = names.get("comment_id") or names.get("note_id") or (names.get("id") if method == "PATCH" else None)
        if own is not None and method != "GET":
            for comments in self.comments.values():
                if int(own) in comments:
                    comments[int(own)] = text
                    return 200, {"id": int(own)}
            return 404, {"message": "Not Found"}
        number = int(
            names.get("issue_number") or names.get("index") or names.get("noteable_id") or names["pull_request_id"]
        )
        comments = self.comments.setdefault(number, {})
        if method == "GET":
            listed = [{"id": id_, "body": text, "content": {"raw": text}} for id_, text in sorted(comments.items())]
            return 200, self._page(request, listed)
        comments[made := self.next_id()] = text
        return 201, {"id": made}

    def _comment_with_version(self, method: str, names: dict[str, str], body: Any) -> tuple[int, Any]:
        """A comment that is changed only by who knows its version."""
        comments = self.comments.setdefault(int(names["pullRequestId"]), {})
        if method == "POST":
            comments[made := self.next_id()] = body["text"]
            return 201, {"id": made, "version": 0, "text": body["text"]}
        own = int(names["commentId"])
        if own not in comments:
            return 404, {"errors": [{"message": f"Comment {own} does not exist."}]}
        version = self.versions.get(own, 0)
        if method == "PUT" and body["version"] != version:
            return 409, {
                "errors": [{"message": "You are attempting to modify a comment based on out-of-date information."}]
            }
        if method == "PUT":
            comments[own], self.versions[own] = body["text"], version + 1
        return 200, {"id": own, "version": self.versions.get(own, 0), "text": comments[own]}

    def _list_activities(self, number: int) -> list[Any]:
        """The comments of a pull request, the newest first, and what opened it."""
        comments = sorted(self.comments.get(number, {}).items(), reverse=True)
        made = [{"id": id_, "action": "COMMENTED", "comment": {"id": id_, "text": text}} for id_, text in comments]
        return [*made, {"id": 1, "action": "OPENED"}]

    def _page(self, request: Request, everything: list[Any]) -> Any:
        """The part of a list that a request asks for."""
        size = int(request.query.get("per_page") or request.query.get("limit") or request.query.get("pagelen") or 30)
        start = int(request.query.get("start") or (int(request.query.get("page", 1)) - 1) * size)
        part = everything[start : start + size]
        return {"values": part} if self.kind.startswith("bitbucket") else part


def _check(operation: dict[str, Any], names: dict[str, str], request: Request) -> Iterator[str]:
    """What the description of the operation forbids in a request; fields that it does not know, too."""
    by_name = {parameter["name"]: parameter for parameter in operation["parameters"] if parameter["in"] == "query"}
    for name, value in request.query.items():
        if name not in by_name:
            yield f"no parameter {name}"
        else:
            yield from _check_text(name, value, by_name[name]["schema"])
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            yield from _check_text(parameter["name"], names[parameter["name"]], parameter["schema"])
        elif parameter["required"] and parameter["name"] not in request.query:
            yield f"{parameter['name']} is missing"
    if operation["body"] is None:
        if request.raw:
            yield "it has a body"
        return
    yield from (fault.message for fault in Draft202012Validator(operation["body"]).iter_errors(request.body))
    yield from _find_unknown(operation["body"], request.body, "")


def _check_text(name: str, value: str, schema: dict[str, Any]) -> Iterator[str]:
    is_number = schema.get("type") in ("integer", "number")
    if is_number and not value.isdigit():
        yield f"{name} is no number: {value}"
        return
    yield from (
        f"{name}: {fault.message}"
        for fault in Draft202012Validator(schema).iter_errors(int(value) if is_number else value)
    )


def _find_unknown(schema: dict[str, Any], value: Any, prefix: str) -> Iterator[str]:
    """Fields of ``value`` that ``schema`` does not have."""
    if isinstance(value, list):
        for item in value:
            yield from _find_unknown(schema.get("items", {}), item, prefix)
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for name, item in value.items():
        if name not in schema["properties"]:
            yield f"no field {prefix}{name}"
        else:
            yield from _find_unknown(schema["properties"][name], item, f"{prefix}{name}.")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20

    def _serve(self) -> None:
        stub: StubForge = self.server.stub  # type: ignore[attr-defined]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(raw) if raw else None
        request = Request(self.command, parts.path, query, headers, body, raw, time.monotonic())
        stub.requests.append(request)
        failure = stub.failures.pop(0) if stub.failures else stub.refuse(request)
        if failure is not None:
            self._fail(failure)
            return
        if not stub.knows(headers):
            self._reply(401, {}, b'{"message": "Bad credentials"}')
            return
        status, answer = stub.answer(request)
        if len(stub.requests) in stub.lost:
            self.close_connection = True
            return
        self._reply(status, {}, b"" if answer is None else json.dumps(answer).encode())

    def _fail(self, failure: Failure) -> None:
        time.sleep(failure.wait)
        self.close_connection = True
        if failure.status:
            # A client that is not told may use the connection again before it sees the end.
            self._reply(failure.status, {"Connection": "close", **failure.headers}, failure.body, failure.part)

    def _reply(self, status: int, headers: dict[str, str], body: bytes, part: int = -1) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if part < 0 else body[:part])

    do_GET = do_POST = do_PATCH = do_PUT = _serve  # noqa: N815 - the names of the base class

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that go away are part of the tests."""


@contextmanager
def run_stub(kind: str, certificate: Path | None = None) -> Iterator[StubForge]:
    """A forge of ``kind`` at its ``url``; with ``certificate`` (chain and key) over TLS."""
    stub = StubForge(kind)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.stub = stub  # type: ignore[attr-defined]
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if certificate is not None else "http"
    stub.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield stub


def make_pull(
    kind: str, number: int, head: str, *, base: str = "main", fork: bool = False, merged: str = "", is_open: bool = True
) -> dict[str, Any]:
    """A pull request as the API of ``kind`` has it."""
    if kind == "gitlab":
        state = "merged" if merged else "opened" if is_open else "closed"
        return {
            "iid": number, "state": state, "sha": head, "target_branch": base, "source_branch": "change",
            "source_project_id": 9 if fork else 1, "target_project_id": 1, "title": "A change", "web_url": "",
            "author": {"username": "ann"}, "merge_commit_sha": merged or None, "squash_commit_sha": None,
        }  # fmt: skip
    if kind == "bitbucket-server":
        target = {"id": f"refs/heads/{base}", "latestCommit": "0" * 40, "repository": {"id": 1, "slug": "shop"}}
        source = {"id": "refs/heads/change", "latestCommit": head, "repository": {"id": 9 if fork else 1}}
        return {
            "id": number, "version": 3, "state": "MERGED" if merged else "OPEN" if is_open else "DECLINED",
            "title": "A change", "fromRef": source, "toRef": target,
            "properties": {"mergeCommit": {"id": merged, "displayId": merged[:11]}} if merged else {},
        }  # fmt: skip
    if kind == "bitbucket":
        state = "MERGED" if merged else "OPEN" if is_open else "DECLINED"
        own = {"full_name": "acme/shop"}
        source = {"branch": {"name": "change"}, "commit": {"hash": head[:12]}}
        return {
            "id": number, "state": state, "title": "A change", "author": {"display_name": "Ann"},
            "source": {**source, "repository": {"full_name": "eve/shop"} if fork else own},
            "destination": {"branch": {"name": base}, "repository": own},
            "merge_commit": {"hash": merged[:12]} if merged else None, "links": {"html": {"href": ""}},
        }  # fmt: skip
    return {
        "number": number, "state": "open" if is_open and not merged else "closed", "title": "A change",
        "html_url": "", "user": {"login": "ann"}, "merged": bool(merged), "merged_at": "2026-01-01" if merged else None,
        "merge_commit_sha": merged or None,
        "head": {"ref": "change", "sha": head, "repo_id": 9 if fork else 1,
                 "repo": {"id": 9 if fork else 1, "full_name": "eve/shop" if fork else "acme/shop"}},
        "base": {"ref": base, "sha": "0" * 40, "repo_id": 1, "repo": {"id": 1, "full_name": "acme/shop"}},
    }  # fmt: skip
