"""A Podman service in memory: what the runtime asks of it, behind the real client; containers run nothing.

A sandbox listens on its ports of this host, so that probes of them succeed. ``lose`` breaks a request: its connection
breaks before or after it is carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote

import httpx2

from tests.support.threads import StepBudget

API = "/v4.0.0/libpod/"
INFO = {
    "host": {
        "arch": "amd64",
        "cgroupManager": "cgroupfs",
        "cgroupVersion": "v2",
        "cgroupControllers": ["cpu", "memory", "pids"],
        "ociRuntime": {"name": "none", "path": "/nonexistent"},
        "security": {"rootless": False, "seccompEnabled": True},
    },
    "version": {"Version": "4.3.1"},
}


class FakeContainer:
    """A container of the service."""

    def __init__(self, number: int, body: dict[str, Any]) -> None:
        self.id = f"{number:064x}"
        self.body = body
        self.state = "created"
        self.code = 0
        self.lost = False
        self.listeners: list[socket.socket] = []
        self.servers: list[asyncio.Server] = []
        self.updates: list[dict[str, Any]] = []
        self.started = 1_767_323_045.678901

    def listed(self) -> dict[str, Any]:
        """As in a list."""
        return {
            "Id": self.id,
            "Names": [self.body["name"]],
            "State": self.state,
            "Pid": 1 if self.state == "running" else 0,
            "ExitCode": self.code,
            "StartedAt": int(self.started) if self.lost or self.state in ("running", "exited") else -62135596800,
            "Labels": self.body.get("labels"),
        }

    def inspected(self) -> dict[str, Any]:
        """In detail."""
        started = datetime.fromtimestamp(self.started, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f234Z")
        state = {"Status": self.state, "Pid": 0, "ExitCode": self.code, "StartedAt": started}
        address = {"IPAddress": f"10.89.0.{int(self.id, 16) + 1}", "Gateway": "10.89.0.1"}
        networks = dict.fromkeys(self.body.get("networks", ()), address)
        return {"Id": self.id, "Image": "i" * 64, "State": state, "NetworkSettings": {"Networks": networks}}


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, cause: str, message: str = "") -> None:
        super().__init__(cause)
        self.answer = httpx2.Response(status, json={"cause": cause, "message": message or cause, "response": status})


class Libpod:
    """The service; ``requests`` are those that arrived, as METHOD path.

    ``answers``: who connects to a port gets the answer of an HTTP server whose path always exists.
    """

    def __init__(self, info: dict[str, Any] | None = None, *, answers: bool = False) -> None:
        self.info = info or INFO
        self.answers = answers
        self.boxes: dict[str, FakeContainer] = {}
        self.networks: dict[str, dict[str, Any]] = {}
        self.images: dict[str, str] = {}
        self.archive: Callable[[], AsyncIterator[bytes]] | None = None
        self.requests: list[str] = []
        self.refuse: Callable[[str, dict[str, Any]], None] = lambda request, body: None
        self._lost: list[tuple[str, str]] = []
        self._watchers: set[asyncio.Queue[bytes]] = set()
        self._count = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def transport(self) -> httpx2.MockTransport:
        """What a client uses in place of the socket."""
        return httpx2.MockTransport(self.handle)

    def dying(self, life: StepBudget) -> httpx2.MockTransport:
        """The same for a daemon that dies."""

        async def handle(request: httpx2.Request) -> httpx2.Response:
            answer = await self.handle(request) if life.take() else None
            if answer is None or life.ended:
                await asyncio.Event().wait()
            assert answer is not None
            return answer

        return httpx2.MockTransport(handle)

    def lose(self, request: str, *, when: str) -> None:
        """Break the next request that matches: ``before`` it is sent, ``after`` its work or ``instead`` of that."""
        self._lost.append((request, when))

    def answer_again(self) -> None:
        """Break no further request."""
        self._lost.clear()

    def reboot(self) -> None:
        """The machine starts again: what ran is as if it were new, but for the time of its start."""
        for box in self.boxes.values():
            self._close(box)
            box.state, box.lost = "created", box.state == "running"

    def end(self, box: FakeContainer, code: int) -> None:
        """The program of a container ends; the service reports it."""
        if box.state == "running":
            box.state, box.code = "exited", code
            self._close(box)
            self._report("died", box)

    def named(self, part: str) -> FakeContainer:
        """The newest container with ``part`` in its name."""
        return [box for box in self.boxes.values() if part in box.body["name"]][-1]

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        """The answer to a request. Raises httpx2.TransportError for one that is lost."""
        path = request.url.raw_path.decode().partition("?")[0].removeprefix(API)
        name = f"{request.method} {path}"
        self.requests.append(name)
        lost = next((each for each in self._lost if re.fullmatch(each[0], name)), None)
        if lost is not None:
            self._lost.remove(lost)
            if lost[1] == "before":
                raise httpx2.ConnectError("connection refused")
            if lost[1] == "instead":
                raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
        query = {key: values[0] for key, values in parse_qs(request.url.query.decode()).items()}
        content = await request.aread()
        plain = request.headers.get("content-type") == "application/json"
        try:
            answer = self._answer(name, query, json.loads(content) if plain else {})
        except Refusal as refusal:
            answer = refusal.answer
        if lost is not None:
            raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
        return answer

    def _answer(self, name: str, query: dict[str, str], body: dict[str, Any]) -> httpx2.Response:
        self.refuse(name, body)
        for pattern, method in ROUTES:
            if match := re.fullmatch(pattern, name):
                parts = [unquote(each) for each in match.groups()]
                found = getattr(self, method.__name__)(query, body, *parts)
                return found if isinstance(found, httpx2.Response) else httpx2.Response(200, json=found)
        raise AssertionError(f"no such request: {name}")

    def _box(self, name: str) -> FakeContainer:
        for box in self.boxes.values():
            if name in (box.id, box.body["name"]):
                return box
        raise Refusal(404, "no such container", f'no container with name or ID "{name}" found')

    def _get_info(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        return self.info

    def _image_exists(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        if name not in self.images:
            raise Refusal(404, "no such image")
        return httpx2.Response(204)

    def _load(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        from reconciler.engines.host.runtimes.podman.network.pause import pause_image
        from reconciler.model.platform import BLOCKED_PORTS

        image = pause_image("amd64", BLOCKED_PORTS)
        assert image is not None
        self.images[image.reference] = ""
        return {"Names": [image.reference]}

    def _inspect_image(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        return {"Id": name, "Config": {"User": self.images.get(name, "")}}

    def _list_images(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        return [{"Id": name, "RepoTags": [name]} for name in self.images]

    def _pull(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        self.images[query["reference"]] = ""
        return httpx2.Response(200, content=json.dumps({"id": query["reference"]}) + "\n")

    def _untag(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        self.images.pop(name, None)
        return {"Deleted": [], "Untagged": [name]}

    def _tag(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        self.images[f"{query['repo']}:{query['tag']}"] = self.images.get(name, "")
        return httpx2.Response(201)

    def _network_exists(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        if name not in self.networks:
            raise Refusal(404, "network not found")
        return httpx2.Response(204)

    def _create_network(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        self.networks[body["name"]] = body
        return body

    def _list_networks(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        return [each for each in self.networks.values() if _matches(query, each["labels"])]

    def _delete_network(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        del self.networks[name]
        return []

    def _create(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        for network in body.get("networks", ()):
            self._network_exists({}, {}, network)
        if any(box.body["name"] == body["name"] for box in self.boxes.values()):
            raise Refusal(500, "that name is already in use")
        box = FakeContainer(next(self._count), body)
        self.boxes[box.id] = box
        return httpx2.Response(201, json={"Id": box.id, "Warnings": []})

    def _start(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        box = self._box(name)
        if box.state == "running":
            return httpx2.Response(304)
        self.listen(box)
        box.state = "running"
        try:
            self.begin(box)
        except Refusal:
            box.state = "created"
            self._close(box)
            raise
        return httpx2.Response(204)

    def _init(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        box = self._box(name)
        if box.state != "created":
            return httpx2.Response(304)
        box.state = "initialized"
        return httpx2.Response(204)

    def begin(self, box: FakeContainer) -> None:
        """Start the program of a container: here there is none."""

    def listen(self, box: FakeContainer) -> None:
        """Listen on the ports of a container. Raises Refusal if one is taken."""
        for port in box.body.get("portmappings", ()):
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            box.listeners.append(listener)
            try:
                listener.bind((port["host_ip"], port["host_port"]))
            except OSError as error:
                self._close(box)
                raise Refusal(500, "address already in use", str(error)) from None
            listener.listen()
            if self.answers:
                task = asyncio.create_task(self._answer_at(box, listener))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def signal(self, box: FakeContainer, number: int) -> None:
        """Every signal ends a container."""
        self.end(box, 128 + number)

    def _kill(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        box = self._box(name)
        if box.state != "running":
            raise Refusal(500, "container state improper")
        self.signal(box, int(query["signal"]))
        return httpx2.Response(204)

    def _update(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        self._box(name).updates.append(body)
        return httpx2.Response(201, content=name)

    def _inspect(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        return self._box(name).inspected()

    def _archive(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        if self.archive is None:
            raise Refusal(404, "could not find the file")
        return httpx2.Response(200, content=self.archive())

    def _list(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        found = [box.listed() for box in self.boxes.values()]
        return [each for each in found if _matches(query, each["Labels"] or {})]

    def _delete(self, query: dict[str, str], body: dict[str, Any], name: str) -> Any:
        box = self._box(name)
        members = [container for container in self.boxes.values() if container.body["netns"].get("value") == box.id]
        if members and "depend" not in query:
            names = ", ".join(member.id for member in members)
            raise Refusal(
                500,
                "container already exists",
                f"container {box.id} has dependent containers which must be removed before it: {names}",
            )
        for fake_container in (*members, box):
            self._close(fake_container)
            del self.boxes[fake_container.id]
            self._report("remove", fake_container)
        return [{"Id": box.id}]

    def _stats(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        running = [box for box in self.boxes.values() if box.state == "running"]
        return {
            "Error": None,
            "Stats": [{"ContainerID": box.id, "CPUNano": 2 * 10**9, "MemUsage": 4096} for box in running],
        }

    def _events(self, query: dict[str, str], body: dict[str, Any]) -> Any:
        return httpx2.Response(200, content=self._lines())

    async def _lines(self) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)

    def _report(self, action: str, box: FakeContainer) -> None:
        line = json.dumps({"Action": action, "Type": "container", "Actor": {"ID": box.id}}).encode() + b"\n"
        for queue in self._watchers:
            queue.put_nowait(line)

    async def _answer_at(self, box: FakeContainer, listener: socket.socket) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                await writer.drain()
            writer.close()

        if listener in box.listeners:
            box.servers.append(await asyncio.start_server(answer, sock=listener))

    def _close(self, box: FakeContainer) -> None:
        for server in box.servers:
            server.close()
        for listener in box.listeners:
            listener.close()
        box.servers.clear()
        box.listeners.clear()


def _matches(query: dict[str, str], labels: dict[str, str]) -> bool:
    wanted = json.loads(query.get("filters", "{}")).get("label", [])
    return all(labels.get(each.partition("=")[0]) == each.partition("=")[2] for each in wanted)


ONE = "([^/]+)"
ROUTES: list[tuple[str, Callable[..., Any]]] = [
    ("GET /_ping", Libpod._get_info),
    ("GET info", Libpod._get_info),
    ("GET images/json", Libpod._list_images),
    ("POST images/pull", Libpod._pull),
    (f"POST images/{ONE}/tag", Libpod._tag),
    (f"DELETE images/{ONE}", Libpod._untag),
    (f"POST containers/{ONE}/init", Libpod._init),
    (f"GET images/{ONE}/exists", Libpod._image_exists),
    (f"GET images/{ONE}/json", Libpod._inspect_image),
    ("POST images/load", Libpod._load),
    (f"GET networks/{ONE}/exists", Libpod._network_exists),
    ("GET networks/json", Libpod._list_networks),
    ("POST networks/create", Libpod._create_network),
    (f"DELETE networks/{ONE}", Libpod._delete_network),
    ("POST containers/create", Libpod._create),
    (f"POST containers/{ONE}/start", Libpod._start),
    (f"POST containers/{ONE}/kill", Libpod._kill),
    (f"POST containers/{ONE}/update", Libpod._update),
    ("GET containers/json", Libpod._list),
    ("GET containers/stats", Libpod._stats),
    (f"GET containers/{ONE}/json", Libpod._inspect),
    (f"GET containers/{ONE}/archive", Libpod._archive),
    (f"DELETE containers/{ONE}", Libpod._delete),
    ("GET events", Libpod._events),
]
