"""The HTTP side: paths, tokens, formats, streams."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.kubernetes.fake import errors, lists
from tests.kubernetes.fake.errors import ApiError, Object, Resource
from tests.kubernetes.fake.faults import Fault, error_of
from tests.kubernetes.fake.operations import Answer, Call, accepted_patches, read_json
from tests.kubernetes.fake.state import State

VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}
COMPRESSED_BYTES = 128 * 1024
"""Answers that are longer are compressed, as by the real server."""
HEALTH = frozenset({"/healthz", "/livez", "/readyz"})


class Target(NamedTuple):
    """What a path names."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


class CutResponse(Response):
    """A body that ends too early: the connection is closed after a part of it."""

    def __init__(self, whole: Response, part: float) -> None:
        super().__init__(whole.body, headers=dict(whole.headers))
        self._sent = whole.body[: int(len(whole.body) * part)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers of the whole and a part of the body."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._sent, "more_body": True})
        scope["state"]["transport"].close()
        while (await receive())["type"] != "http.disconnect":
            pass


class Protocol(HttpToolsProtocol):
    """HTTP whose applications can end the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let requests have the transport."""
        self.app_state = {**self.app_state, "transport": transport}
        # asyncio sets this only where a socket names its protocol; without it, each answer waits 40 ms for an ACK.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


def make_application(state: State) -> Starlette:
    """The application that serves ``state``."""
    endpoint = Endpoint(state)
    methods = [*VERBS, "HEAD", "OPTIONS"]
    routes = [
        Route("/{path:path}", endpoint.answer, methods=methods),
        WebSocketRoute("/{path:path}", endpoint.open_session),
    ]
    return Starlette(routes=routes)


class Endpoint:
    """Answers requests."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def answer(self, request: Request) -> Response:
        """The response to any request; it is logged with its status."""
        body = await request.body()
        target, verb = self._read_target(request)
        entry = self._state.log_request(request, verb, target.resource if target else None, body)
        names = [f"{request.method} {request.url.path}"]
        if target:
            names.append(f"{verb} {target.resource.full_name}")
        fault = self._state.faults.take(*names)
        try:
            response = await self._respond(request, verb, target, body, fault)
        except ApiError as error:
            response = error_response(error)
        except Exception as error:
            entry.error = repr(error)
            raise
        response.headers["date"] = formatdate(time.time() + self._state.operations.skew, usegmt=True)
        entry.status = response.status_code
        return response

    async def open_session(self, socket: WebSocket) -> None:
        """Run a session in a pod, or refuse the handshake."""
        target = find_target(self._state, socket.url.path)
        try:
            self._check_token(socket)
            if target is None or target.subresource != "exec":
                raise errors.page_not_found(text=True)
            place = (target.resource, target.namespace, target.name)
            self._state.authorizer.check("create", *place, target.subresource)
            if self._state.storage.find(*place) is None:
                raise errors.not_found(target.resource, target.name)
        except ApiError as error:
            await socket.send_denial_response(error_response(error))
            return
        await self._state.sessions.run(socket, f"{target.namespace}/{target.name}")

    async def _respond(
        self, request: Request, verb: str, target: Target | None, body: bytes, fault: Fault | None
    ) -> Response:
        if fault:
            await self._suffer(request, fault)
        self._check_token(request)
        if fault and fault.status:
            raise error_of(fault)
        if request.url.path.endswith("/proxy/stats/summary") and self._state.used_bytes:
            return json_response(Answer(200, describe_usage(self._state.used_bytes)))
        if target is None:
            return self._discover(request)
        if verb not in self._verbs_of(target):
            raise errors.method_not_allowed()
        self._state.authorizer.check(verb, target.resource, target.namespace, target.name, target.subresource)
        call = self._call(request, verb, target, body)
        if verb == "watch":
            stream = WatchStream(self._state, call)
            return StreamingResponse(stream.lines(), media_type="application/json")
        if target.subresource == "log":
            return self._log(call, fault.cut if fault else None)
        with self._state.storage.lock:
            answer = self._perform(call)
        if call.metadata_only and call.verb in ("get", "create", "update", "patch") and not call.subresource:
            answer = answer._replace(body=lists.metadata_of(answer.body))
        response = json_response(answer, request.headers.get("accept-encoding", ""))
        return CutResponse(response, fault.cut) if fault and fault.cut is not None else response

    async def _suffer(self, request: Request, fault: Fault) -> None:
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.stall:
            await asyncio.sleep(3600)
        if fault.drop:
            request.scope["state"]["transport"].abort()

    def _check_token(self, request: HTTPConnection) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if request.url.path in HEALTH:
            return
        if scheme.lower() != "bearer" or token not in self._state.tokens:
            raise errors.unauthorized()

    def _read_target(self, request: Request) -> tuple[Target | None, str]:
        verb = VERBS.get(request.method, "get")
        target = find_target(self._state, request.url.path)
        if target is None:
            return None, verb
        watching = request.query_params.get("watch") in ("true", "1")
        if verb == "get" and watching and not target.subresource:
            return target, "watch"
        if verb == "get" and not target.name:
            return target, "list"
        if verb == "delete" and not target.name:
            return target, "deletecollection"
        return target, verb

    def _verbs_of(self, target: Target) -> tuple[str, ...]:
        if target.subresource in ("status", "scale", "finalize"):
            return ("get", "patch", "update")
        if target.subresource in ("log", "exec"):
            return ("get", "create")
        verbs = target.resource.verbs
        if target.name:
            return tuple(verb for verb in verbs if verb not in ("create", "list", "deletecollection"))
        return tuple(verb for verb in verbs if verb in ("create", "list", "watch", "deletecollection"))

    def _call(self, request: Request, verb: str, target: Target, body: bytes) -> Call:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if verb == "patch" and media_type not in accepted_patches(target.resource):
            raise errors.unsupported_media_type(target.resource)
        query = dict(request.query_params)
        agent, accept = request.headers.get("user-agent", ""), request.headers.get("accept", "")
        place = (target.resource, target.namespace, target.name, target.subresource)
        return Call(verb, *place, query, body, media_type, agent, accept)

    def _discover(self, request: Request) -> Response:
        path = request.url.path
        if path in HEALTH:
            return PlainTextResponse("ok")
        body = VERSION if path == "/version" else self._state.resources.discover(path)
        if body is None or request.method not in ("GET", "HEAD"):
            raise errors.page_not_found(text=not self._state.resources.has_group(path))
        return json_response(Answer(200, body))

    def _perform(self, call: Call) -> Answer:
        operations = self._state.operations
        if call.resource.kind == "SelfSubjectAccessReview":
            return Answer(201, self._state.authorizer.review(read_json(call.body)))
        if call.verb == "list":
            return lists.list_objects(self._state.storage, call)
        if call.verb == "deletecollection":
            return self._delete_collection(call)
        if call.verb == "get":
            return operations.get(call)
        if call.verb == "create":
            answer = operations.create(call)
        elif call.verb == "update":
            answer = operations.update(call)
        else:
            answer = operations.patch(call) if call.verb == "patch" else operations.delete(call)
        if not call.dry_run:
            self._state.react(call.resource, answer.body)
        return answer

    def _delete_collection(self, call: Call) -> Answer:
        selects = lists.selector_of(call)
        values = [value for value in self._state.storage.all(call.resource, call.namespace) if selects(value)]
        query = {key: entry for key, entry in call.query.items() if not key.endswith("Selector")}
        for value in values:
            namespace, name = value["metadata"].get("namespace", ""), value["metadata"]["name"]
            one = call._replace(verb="delete", namespace=namespace, name=name, query=query)
            answer = self._state.operations.delete(one)
            self._state.react(call.resource, answer.body)
        version = {"resourceVersion": str(self._state.storage.revision)}
        return Answer(200, lists.list_body(call.resource, values, version))

    def _log(self, call: Call, cut: float | None) -> Response:
        self._state.operations.get(call._replace(subresource=""))
        source = self._state.pods.log_of(call.namespace, call.name, call.query)
        if call.query.get("follow") != "true":
            response = PlainTextResponse(source.text())
            return response if cut is None else CutResponse(response, cut)
        return StreamingResponse(source.follow(self._state.notifier()), media_type="text/plain")


def describe_usage(used_bytes: dict[str, int]) -> Object:
    """What a kubelet measures of claims, by ``NAMESPACE/NAME``."""
    volumes: list[Object] = [{"name": "token"}]
    for place, used in used_bytes.items():
        namespace, _, name = place.partition("/")
        volumes.append({"name": "data", "usedBytes": used, "pvcRef": {"namespace": namespace, "name": name}})
    return {"node": {"nodeName": "node-a"}, "pods": [{"podRef": {"name": "any"}, "volume": volumes}, {}]}


class WatchStream:
    """One watch that is open."""

    def __init__(self, state: State, call: Call) -> None:
        self._state = state
        self._seconds = float(call.query.get("timeoutSeconds") or 3600)
        self._generation = state.watch_generation
        self._bookmarks = state.bookmarks
        self._notifier = state.notifier()
        self._position: lists.WatchPosition | None = None
        self._refusal: ApiError | None = None
        try:
            self._position = lists.WatchPosition(state.storage, call)
        except ApiError as error:
            self._refusal = error

    async def lines(self) -> AsyncIterator[bytes]:
        """Events until the client has gone, the time is over, or the test ends it; one a line."""
        try:
            async for event in self._events():
                yield msgspec.json.encode(event) + b"\n"
        finally:
            self._notifier.close()

    async def _events(self) -> AsyncIterator[Object]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        if self._refusal:
            yield lists.error_event(self._refusal)
        position = self._position
        if position is None:
            return
        while loop.time() < deadline:
            if error := self._ending():
                if error.code != 200:
                    yield lists.error_event(error)
                return
            if not self._state.half_open:
                for event in position.read():
                    yield event
                if position.bookmarks and self._bookmarks != self._state.bookmarks:
                    self._bookmarks = self._state.bookmarks
                    yield position.bookmark()
            await self._notifier.wait(deadline - loop.time())
        if position.bookmarks and not self._state.half_open:
            yield position.bookmark()

    def _ending(self) -> ApiError | None:
        if self._state.watch_generation == self._generation:
            return None
        return self._state.watch_error or ApiError(200, "", "")


def find_target(state: State, path: str) -> Target | None:
    """The resource that ``path`` names, with namespace, name and subresource."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        group, version, rest = "", parts[1:2], parts[2:]
    elif parts[:1] == ["apis"]:
        group, version, rest = (parts[1] if len(parts) > 1 else ""), parts[2:3], parts[3:]
    else:
        return None
    if not version or not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = state.resources.find(group, version[0], rest[0])
    if resource is None or (namespace and not resource.namespaced) or len(rest) > 3:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and not _has_subresource(resource, subresource):
        return None
    return Target(resource, namespace, name, subresource)


def _has_subresource(resource: Resource, subresource: str) -> bool:
    allowed = {"status": resource.status, "scale": resource.scale}
    if resource.kind == "Pod":
        allowed |= {"log": True, "exec": True}
    if resource.kind == "Namespace":
        allowed |= {"finalize": True}
    return allowed.get(subresource, False)


def json_response(answer: Answer, encodings: str = "") -> Response:
    """A body with its status and warnings; a large one is compressed."""
    content = msgspec.json.encode(answer.body)
    response = Response(content, answer.code, media_type="application/json")
    if len(content) > COMPRESSED_BYTES and "gzip" in encodings:
        response = Response(gzip.compress(content, 1), answer.code, {"content-encoding": "gzip"}, "application/json")
    for warning in answer.warnings:
        response.headers.append("warning", f"299 - {json.dumps(warning)}")
    return response


def error_response(error: ApiError) -> Response:
    """A failure."""
    headers = {"retry-after": str(error.retry_after)} if error.retry_after else {}
    if error.text:
        return PlainTextResponse(error.text, error.code, headers)
    return Response(msgspec.json.encode(error.status()), error.code, headers, "application/json")
