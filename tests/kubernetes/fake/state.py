"""All that the server has: storage, resources, faults, the log of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from tests.kubernetes.fake.admission import Admission
from tests.kubernetes.fake.authorization import Authorizer
from tests.kubernetes.fake.errors import ApiError, Object, Resource
from tests.kubernetes.fake.faults import Faults
from tests.kubernetes.fake.operations import Operations, make_call
from tests.kubernetes.fake.pods import Pods
from tests.kubernetes.fake.resources import Resources
from tests.kubernetes.fake.sessions import Sessions
from tests.kubernetes.fake.storage import Storage

USER = "system:serviceaccount:reconciler:reconciler"
TOKEN = "fake-token"


class LoggedRequest:
    """A request that the server got; its status is 0 until it has answered."""

    def __init__(self, request: Request, verb: str, resource: Resource | None, body: bytes) -> None:
        self.method = request.method
        self.path = request.url.path
        self.query = dict(request.query_params)
        self.media_type = request.headers.get("content-type", "")
        self.user_agent = request.headers.get("user-agent", "")
        self.verb = verb
        self.resource = resource.full_name if resource else ""
        self.body = body
        self.status = 0
        self.error = ""

    def __repr__(self) -> str:
        return f"{self.verb} {self.method} {self.path} {self.query} {self.status} {self.error}".rstrip()


class Notifier:
    """Wakes a stream in the event loop, whichever thread writes."""

    def __init__(self, listeners: set[Callable[[], None]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._listeners = listeners
        listeners.add(self.wake)

    def wake(self) -> None:
        """Let `wait` return."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Return at the next change, or after so many seconds."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()
        except TimeoutError:
            return
        self._event.clear()

    def close(self) -> None:
        """Be woken no more."""
        self._listeners.discard(self.wake)


class State:
    """The state of a server; it outlives a restart."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.resources = Resources()
        self.admission = Admission(self.storage, self.resources)
        self.operations = Operations(self.storage, self.admission)
        self.authorizer = Authorizer(USER)
        self.faults = Faults()
        self.pods = Pods()
        self.sessions = Sessions()
        self.tokens = {TOKEN}
        self.requests: list[LoggedRequest] = []
        self.used_bytes: dict[str, int] = {}
        self.half_open = False
        self.bookmarks = 0
        self.watch_generation = 0
        self.watch_error: ApiError | None = None
        self.reaction: Callable[[Resource, Object], None] | None = None

    def log_request(self, request: Request, verb: str, resource: Resource | None, body: bytes) -> LoggedRequest:
        """The entry of a request in the log."""
        entry = LoggedRequest(request, verb, resource, body)
        self.requests.append(entry)
        return entry

    def react(self, resource: Resource, value: Object) -> None:
        """Let the controllers see a write, where they run by themselves."""
        if resource.kind == "CustomResourceDefinition":
            self._react_to_definition(resource, value)
        if self.reaction:
            self.reaction(resource, value)

    def _react_to_definition(self, resource: Resource, value: Object) -> None:
        """Serve what a definition names while it exists."""
        name = (value.get("details") or value["metadata"])["name"]
        definition = self.storage.find(resource, "", name)
        if definition:
            self.resources.define(definition)
            return
        plural, _, group = name.partition(".")
        self.remove_resource(group, plural)

    def remove_resource(self, group: str, plural: str) -> None:
        """Serve a custom resource no more, and drop its objects."""
        for served in self.resources:
            if (served.group, served.plural) == (group, plural):
                self.storage.drop(served)
                self.resources.remove(served)
                self.end_watches(None)

    def notifier(self) -> Notifier:
        """For a stream that begins."""
        return Notifier(self.storage.listeners)

    def wake_streams(self) -> None:
        """Let each open stream look at the state again."""
        with self.storage.lock:
            for listener in [*self.storage.listeners]:
                listener()

    def end_watches(self, error: ApiError | None) -> None:
        """End all open watches, with an event or without one."""
        self.watch_error = error
        self.watch_generation += 1
        self.wake_streams()

    def seed(self) -> None:
        """The namespaces of a new cluster."""
        spaces = self.resources.of_kind("Namespace")
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.write_object(spaces, {"metadata": {"name": name}})
        self.storage.compact()

    def write_object(self, resource: Resource, value: Object) -> Object:
        """Store an object as if another client created it."""
        return self.operations.create(make_call(resource, value)).body
