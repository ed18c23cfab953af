"""A fake of kube-apiserver, in memory, on loopback: what a test of the Kubernetes engine connects to.

It behaves as the real one does at the HTTP level; `test_exchanges.py` compares both. A test changes it by the methods
of `FakeApiServer`: it installs custom resources, forbids, lets requests fail, ends watches, lets the controllers act.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
import yaml

from tests.kubernetes.fake.admission import Admission
from tests.kubernetes.fake.application import Protocol, make_application
from tests.kubernetes.fake.authorization import Authorizer
from tests.kubernetes.fake.controllers import Controllers
from tests.kubernetes.fake.errors import Object, Resource, expired
from tests.kubernetes.fake.faults import Fault
from tests.kubernetes.fake.pods import EndedRun, Pods
from tests.kubernetes.fake.resources import KNOWN_CUSTOM
from tests.kubernetes.fake.sessions import Sessions
from tests.kubernetes.fake.state import TOKEN, LoggedRequest, State

PATIENCE = 60.0
"""Seconds in which the server must listen, or end."""


class _Server(uvicorn.Server):
    """Ends at once, with all its connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Serve until the end."""
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._over.wait()

    def end(self) -> None:
        """End it, from another thread."""
        self.should_exit = True
        if self._loop:
            self._loop.call_soon_threadsafe(self._over.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections, whatever is under way."""
        for server in self.servers:
            server.close()
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
        tasks = [*self.server_state.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class FakeApiServer:
    """A server that runs in a thread. `start` and `stop` may be repeated; the port stays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = State()
        self.state.seed()
        self.controllers = Controllers(self.state)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The bearer token that the server accepts now."""
        return sorted(self.state.tokens)[0]

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with one context, ``fake``; it has a token file."""
        token = self.path / "token"
        token.write_text(TOKEN)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "default"}}],
        }
        file = self.path / "kubeconfig"
        file.write_text(yaml.safe_dump(content))
        return file

    def start(self) -> None:
        """Listen."""
        if self._socket.fileno() == -1:
            self._socket = socket.create_server(("127.0.0.1", self.port))
        config = uvicorn.Config(
            make_application(self.state),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=Protocol,
            ws="websockets-sansio",
        )
        self._server = _Server(config)
        run = self._server.serve
        sockets = [self._socket]
        self._thread = threading.Thread(target=lambda: asyncio.run(run(sockets=sockets)), daemon=True)
        self._thread.start()
        self._await_start()

    def _await_start(self) -> None:
        assert self._server
        waited = threading.Event()
        for _ in range(int(PATIENCE / 0.005)):
            if self._server.started:
                return
            waited.wait(0.005)
        raise AssertionError("the fake API server does not start")

    def stop(self) -> None:
        """Refuse connections; those that are open end. What is stored stays."""
        if self._server and self._thread:
            self._server.end()
            self._thread.join(PATIENCE)
        self._server = self._thread = None
        self._socket.close()

    def restart(self, *, lose: bool = False) -> None:
        """Stop and start; with ``lose`` all objects are gone, and old resourceVersions are expired."""
        self.stop()
        if lose:
            state = State()
            state.storage.revision = self.state.storage.revision + 1000
            state.storage.compact()
            state.requests, state.tokens, state.pods = self.state.requests, self.state.tokens, self.state.pods
            self.state = state
            self.state.seed()
            self.controllers = Controllers(self.state)
        self.start()

    @property
    def requests(self) -> list[LoggedRequest]:
        """The requests since the start, or since `clear_requests`."""
        return self.state.requests

    def clear_requests(self) -> None:
        """Forget the requests."""
        self.state.requests.clear()

    def requests_of(self, verb: str, resource: str = "*") -> list[LoggedRequest]:
        """The requests with a verb of Kubernetes, such as list or watch; ``resource`` is ``deployments.apps``."""
        return [entry for entry in self.requests if entry.verb == verb and resource in ("*", entry.resource)]

    @property
    def pods(self) -> Pods:
        """What becomes of pods, and their logs."""
        return self.state.pods

    @property
    def sessions(self) -> Sessions:
        """What programs do in sessions of `exec`, and the sessions that were."""
        return self.state.sessions

    @property
    def admission(self) -> Admission:
        """Webhooks."""
        return self.state.admission

    @property
    def authorizer(self) -> Authorizer:
        """What is forbidden."""
        return self.state.authorizer

    def install_crd(
        self, group: str, version: str, kind: str, plural: str, *, namespaced: bool = True, status: bool = True
    ) -> Resource:
        """Serve a custom resource, as with its definition."""
        resource = Resource(group, version, plural, kind, namespaced, status=status, custom=True)
        self.state.resources.add(resource)
        return resource

    def install(self, *kinds: str) -> None:
        """Serve well-known custom resources, by their names in ``KNOWN_CUSTOM``."""
        for kind in kinds:
            self.state.resources.add(KNOWN_CUSTOM[kind])

    def remove_crd(self, group: str, plural: str) -> None:
        """Remove a custom resource and its objects: its paths are not found any more."""
        self.state.remove_resource(group, plural)

    def measure(self, claim: str, used: int) -> None:
        """Let kubelets report the bytes in use of a claim, ``NAMESPACE/NAME``; before that they report nothing."""
        self.state.used_bytes[claim] = used

    def fail(self, match: str, status: int, times: int = 1, retry_after: int = 0, message: str = "") -> None:
        """Let the next requests that ``match`` fail; -1 times is always. See `Fault`."""
        self.state.faults.add(Fault(match, status, retry_after, message), times)

    def cut(self, match: str, part: float = 0.5, times: int = 1) -> None:
        """End the body of an answer too early."""
        self.state.faults.add(Fault(match, cut=part), times)

    def delay(self, match: str, seconds: float, times: int = 1) -> None:
        """Answer late."""
        self.state.faults.add(Fault(match, delay=seconds), times)

    def stall(self, match: str, times: int = 1) -> None:
        """Never answer, with the connection open."""
        self.state.faults.add(Fault(match, stall=True), times)

    def drop(self, match: str, times: int = 1) -> None:
        """End the connection without an answer."""
        self.state.faults.add(Fault(match, drop=True), times)

    def heal(self) -> None:
        """No faults any more: scripted, forbidden, half-open, webhooks, tokens."""
        self.state.faults.clear()
        self.state.authorizer.allow()
        self.state.admission.clear_webhooks()
        self.state.tokens = {TOKEN}
        self.resume_watches()

    def expire_token(self) -> None:
        """Refuse the token from now on, until `accept_token`; open watches end, as at the real server."""
        self.state.tokens = set()
        self.state.end_watches(None)

    def accept_token(self, token: str = TOKEN) -> None:
        """Accept ``token``, and no other."""
        self.state.tokens = {token}

    def freeze_watches(self) -> None:
        """Leave watches half-open: they stay connected and send nothing."""
        self.state.half_open = True

    def resume_watches(self) -> None:
        """Send again what watches have missed."""
        self.state.half_open = False
        self.state.wake_streams()

    def close_watches(self) -> None:
        """End open watches, as a server that restarts or a time-out does."""
        self.state.end_watches(None)

    def expire_watches(self) -> None:
        """End open watches with an event 410, and forget the history."""
        version = self.state.storage.revision
        self.state.storage.compact()
        self.state.end_watches(expired(f"too old resource version: {version} ({self.state.storage.revision})"))

    def send_bookmarks(self) -> None:
        """Send a bookmark on each watch that allows them."""
        self.state.bookmarks += 1
        self.state.wake_streams()

    def compact(self) -> None:
        """Forget the history: continue tokens and watches of older revisions get 410."""
        self.state.storage.compact()

    def skew_clock(self, seconds: float) -> None:
        """Let the server's clock be wrong."""
        self.state.operations.skew = seconds

    def objects(self, kind: str, namespace: str = "", group: str | None = None) -> list[Object]:
        """The objects of a kind, by name."""
        with self.state.storage.lock:
            return self.state.storage.all(self.state.resources.of_kind(kind, group), namespace)

    def object(self, kind: str, name: str, namespace: str = "", group: str | None = None) -> Object:
        """One object; KeyError where it does not exist."""
        for value in self.objects(kind, namespace, group):
            if value["metadata"]["name"] == name:
                return value
        raise KeyError(f"{kind} {namespace}/{name}")

    def create(self, value: Object, manager: str = "kubectl-create") -> Object:
        """Create an object, as another client would."""
        return self.controllers.create(value, manager)

    def update(self, value: Object, manager: str = "kubectl-edit") -> Object:
        """Write an object, as another client would."""
        return self.controllers.update(value, manager)

    def patch(self, kind: str, name: str, namespace: str, patch: Object, **options: Any) -> Object:
        """Merge ``patch`` into an object, as another client would; options are group, manager and subresource."""
        return self.controllers.patch(kind, name, namespace, patch, **options)

    def scale(self, kind: str, name: str, namespace: str, replicas: int) -> None:
        """Change the number of replicas, as the controller of an autoscaler does."""
        change = {"spec": {"replicas": replicas}}
        self.patch(kind, name, namespace, change, manager="kube-controller-manager", subresource="scale")

    def delete(self, kind: str, name: str, namespace: str = "", group: str | None = None) -> None:
        """Delete an object, as another client would."""
        self.controllers.delete(kind, name, namespace, group)

    def restart_containers(self, pod: Object, code: int, reason: str = "", message: str = "") -> None:
        """Let the containers of a pod end with ``code`` and start again, for the reason of an event if there is one."""
        with self.state.storage.lock:
            ends, uid = self.state.pods.ends, pod["metadata"]["uid"]
            [status, *_] = pod["status"]["containerStatuses"]
            ends[uid] = EndedRun(
                ends[uid].count + 1 if uid in ends else 1, code, status["state"]["running"]["startedAt"]
            )
            self.state.pods.begin_again(uid)
            self.controllers.restart_containers(pod, reason, message)

    def run_cron_job(self, namespace: str, name: str) -> str:
        """Let a CronJob be due now; the name of its Job, "" if its policy forbids one."""
        with self.state.storage.lock:
            return self.controllers.workloads.run_cron_job(namespace, name)

    def hold_namespace(self, name: str) -> None:
        """Let a namespace that is deleted stay Terminating."""
        self.controllers.stuck.add(name)

    def release_namespace(self, name: str) -> None:
        """Let it end."""
        self.controllers.stuck.discard(name)

    def miss_progress_deadline(self, namespace: str, name: str) -> None:
        """Let the rollout of a Deployment take too long, from the next `converge` on."""
        self.controllers.workloads.overdue.add(f"{namespace}/{name}")

    def write_log(self, namespace: str, pod: str, *lines: str, container: str = "", ended: bool = False) -> None:
        """Let a container write lines, and end."""
        source = self.state.pods.source(namespace, pod, container)
        source.lines += lines
        source.ended = ended
        self.state.wake_streams()

    def converge(self) -> None:
        """Let the controllers act until nothing changes any more."""
        self.controllers.converge()

    def run_controllers(self) -> None:
        """Let the controllers act after each write, from now on."""
        self.state.reaction = self.controllers.react
        self.converge()


@contextmanager
def fake_api_server(path: Path) -> Iterator[FakeApiServer]:
    """A running server with its kubeconfig in ``path``."""
    path.mkdir(parents=True, exist_ok=True)
    server = FakeApiServer(path)
    server.start()
    try:
        yield server
    finally:
        server.stop()
    assert [entry for entry in server.requests if entry.error] == [], "the fake has a bug"
