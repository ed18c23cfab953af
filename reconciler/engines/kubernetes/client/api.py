"""The verbs of the Kubernetes API that the engine uses, on plain JSON objects."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from reconciler.clock import Clock
from reconciler.engines.kubernetes.client.credentials import explain_unusable, load_config, make_pool
from reconciler.engines.kubernetes.client.errors import ClusterError, explain_no_answer, explain_refusal, is_absent
from reconciler.engines.kubernetes.client.http import Answer, HttpPool
from reconciler.engines.kubernetes.client.objects import KubeObject, ManagedFields, ObjectId, ObjectKind
from reconciler.engines.kubernetes.rendering.names import TOOL
from reconciler.reasons import Reason
from reconciler.settings import ClusterSettings

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


PAGE = 500
"""Objects in an answer to a list."""
IN_FLIGHT = 16
"""Requests that wait for an answer at once, watches and streams left out."""
MOST_TRIES = 5
"""How often a request is sent that the server puts off with 429."""
LONGEST_WAIT = 30.0
"""Seconds that a request waits at most because the server asks for it."""
WATCH_SECONDS = 240
"""Seconds after which the server ends a watch, to which up to the same again is added."""
SILENCE_SECONDS = 75.0
"""Seconds without a line after which a watch counts as dead: bookmarks come about every minute."""
LONGEST_LINE = 16 << 20
"""Bytes of one line of a watch; the API server accepts no object near it."""

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_LIST_OF_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

T = TypeVar("T")

_encode = msgspec.json.Encoder(order="deterministic").encode


class ObjectPage(NamedTuple):
    """All objects of a kind, each as JSON, and the version of the collection from which a watch goes on."""

    items: list[bytes]
    version: str


class AppliedObject(NamedTuple):
    """An object after an apply, as JSON; ``managers`` own its fields; ``created``: it did not exist before."""

    content: bytes
    managers: Sequence[ManagedFields]
    created: bool


class WatchEvent(msgspec.Struct, frozen=True):
    """A line of a watch; ``type`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, ``object`` is JSON."""

    type: str
    object: msgspec.Raw


class _ListMetadata(msgspec.Struct, frozen=True, rename={"version": "resourceVersion", "more": "continue"}):
    version: str = ""
    more: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMetadata = _ListMetadata()
    items: list[msgspec.Raw] | None = None  # an empty list of metadata has null


class _ManagedMetadata(msgspec.Struct, frozen=True, rename={"managers": "managedFields"}):
    managers: list[ManagedFields] | None = None


class _Managed(msgspec.Struct, frozen=True):
    metadata: _ManagedMetadata


class _Name(msgspec.Struct, frozen=True):
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Name = _Name()


class _ServedKind(msgspec.Struct, frozen=True):
    name: str = ""


class _Served(msgspec.Struct, frozen=True):
    resources: list[_ServedKind] = []


class _Code(msgspec.Struct, frozen=True):
    code: int = 0


_decode_list = msgspec.json.Decoder(_List).decode
_decode_event = msgspec.json.Decoder(WatchEvent).decode
_decode_code = msgspec.json.Decoder(_Code).decode
_decode_managed = msgspec.json.Decoder(_Managed).decode
_decode_named = msgspec.json.Decoder(_Named).decode
_decode_served = msgspec.json.Decoder(_Served).decode
_decode_json = msgspec.json.Decoder(dict[str, Any]).decode


class RequestBudget:
    """Lets ``rate`` requests pass a second, and twice as many at once after a rest."""

    def __init__(self, rate: int, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = 2.0 * rate
        self._filled = clock.monotonic()

    async def take(self) -> None:
        """Wait until another request may be sent."""
        now = self._clock.monotonic()
        self._tokens = min(2.0 * self._rate, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        # A debt makes those wait who come later, in their order.
        self._tokens -= 1
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._rate)


class KubeApi:
    """A cluster. Every method raises ClusterError, with the words of the server.

    ``settings`` name the cluster; the credentials are read when the first request is sent, and again after a failure.
    """

    def __init__(self, settings: ClusterSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._budget = RequestBudget(settings.requests, clock)
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._pool: HttpPool | None = None
        self._config: SingleConfig | None = None
        self._users: Counter[HttpPool] = Counter()
        self.server = "the cluster"
        """The address of the API server, for people."""

    def _connect(self) -> HttpPool:
        if self._pool is None:
            self._config = load_config(self._settings)
            self.server = self._config.cluster.server
            self._pool = make_pool(self._config)
        return self._pool

    async def open_websocket(
        self, path: str, subject: str, params: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> ClientConnection:
        """A WebSocket with the credentials of requests, in the first of ``protocols`` that the server has.

        The caller closes it. A name in ``params`` may occur more than once.
        """
        from reconciler.engines.kubernetes.client.websocket import open_websocket

        auth = self._connect().auth
        assert self._config is not None
        try:
            return await open_websocket(self._config, auth, f"{path}?{urlencode(params)}", subject, protocols)
        except ConfigError as error:
            raise explain_unusable(error, self.server) from None

    async def close(self) -> None:
        """End all connections; may be repeated, and a later request makes new ones."""
        every = {*self._users, *((self._pool,) if self._pool is not None else ())}
        self._pool = None
        for pool in every:
            pool.close()

    @asynccontextmanager
    async def _use_pool(self) -> AsyncIterator[HttpPool]:
        """The connections for one request; those that others replaced meanwhile end with their last request."""
        pool = self._connect()
        self._users[pool] += 1
        try:
            yield pool
        finally:
            self._users[pool] -= 1
            if not self._users[pool]:
                del self._users[pool]
                if pool is not self._pool:
                    pool.close()

    def _replace(self, pool: HttpPool) -> None:
        """Read the credentials again for the next request: their file may be newer. Others go on as they are."""
        if self._pool is pool:
            self._pool = None

    async def get(self, target: ObjectId) -> KubeObject | None:
        """An object; None if there is none."""
        try:
            return _decode_object(await self._send("GET", target.path, f"get {target}"))
        except ClusterError as error:
            if is_absent(error):
                return None
            raise

    async def get_metadata(self, target: ObjectId) -> KubeObject | None:
        """The metadata of an object; None if there is none."""
        headers = {"Accept": _METADATA_ONLY}
        try:
            return _decode_object(await self._send("GET", target.path, f"get {target}", headers=headers))
        except ClusterError as error:
            if is_absent(error):
                return None
            raise

    async def list_names(self, kind: ObjectKind, namespace: str, selector: str) -> frozenset[str]:
        """The names of the objects that ``selector`` takes in a namespace."""
        page = await self.list(kind, selector, namespace, accept=_LIST_OF_METADATA)
        return frozenset(_decode_answer(item, _decode_named, f"list {kind}").metadata.name for item in page.items)

    async def list(
        self, kind: ObjectKind, selector: str = "", namespace: str = "", fields: str = "", accept: str = ""
    ) -> ObjectPage:
        """All objects that ``selector`` takes, of one moment. It begins anew if that moment is forgotten meanwhile."""
        items: list[bytes] = []
        headers = {"Accept": accept} if accept else None
        params = {"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields}
        while True:
            try:
                answer = await self._send("GET", kind.path(namespace), f"list {kind}", params=params, headers=headers)
            except ClusterError as error:
                if error.code != 410 or "continue" not in params:
                    raise
                # What was listed so far is of a moment that is gone: nothing may be concluded from a mixture.
                items.clear()
                params.pop("continue")
                params.pop("limit", None)
                continue
            page = _decode_answer(answer, _decode_list, f"list {kind}")
            items += (bytes(item) for item in page.items or ())
            if not page.metadata.more:
                return ObjectPage(items, page.metadata.version)
            params["continue"] = page.metadata.more

    async def watch(
        self, kind: ObjectKind, selector: str, version: str, accepted: Callable[[], None] | None = None
    ) -> AsyncIterator[WatchEvent]:
        """The changes since ``version``, until the server ends the watch. A forgotten version is an error with 410.

        ``accepted`` is called once the server has accepted the watch: the first change may be far away.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS + random.randrange(WATCH_SECONDS)),
        }
        async with self._stream(kind.path(), f"watch {kind}", params, SILENCE_SECONDS) as lines:
            if accepted is not None:
                accepted()
            async for line in lines:
                event = _decode_answer(line, _decode_event, f"watch {kind}")
                if event.type == "ERROR":
                    code = _decode_answer(bytes(event.object), _decode_code, f"watch {kind}").code
                    raise explain_refusal(code, bytes(event.object), f"watch {kind}")
                yield event

    async def apply(
        self,
        item: KubeObject,
        target: ObjectId,
        *,
        force: bool = False,
        dry_run: bool = False,
        validate: bool = True,
        owner: str = TOOL,
    ) -> AppliedObject:
        """Make the fields of ``item`` as they are there; returns the object as it is then, or would be.

        The fields belong to ``owner`` from then on. Without ``validate`` the server does not look for unknown fields,
        which takes it a third of its time: for an object whose fields it has accepted before.
        """
        params = {
            "fieldManager": owner,
            "fieldValidation": "Strict" if validate else "Ignore",
            "force": "true" if force else "false",
        }
        if dry_run:
            params["dryRun"] = "All"
        headers = {"Content-Type": _APPLY}
        response = await self._exchange(
            "PATCH", target.path, f"apply {target}", params=params, headers=headers, content=_encode(item)
        )
        applied = _decode_answer(response.content, _decode_managed, f"apply {target}")
        return AppliedObject(response.content, applied.metadata.managers or (), response.status == 201)

    async def patch(self, target: ObjectId, change: object, *, subresource: str = "") -> KubeObject:
        """Merge ``change`` into an object, or perform its operations if it is a list (RFC 6902)."""
        headers = {"Content-Type": _JSON_PATCH if isinstance(change, list) else _MERGE}
        params = {"fieldManager": TOOL}
        path = f"{target.path}/{subresource}" if subresource else target.path
        answer = await self._send(
            "PATCH", path, f"change {target}", params=params, headers=headers, content=_encode(change)
        )
        return _decode_object(answer)

    async def create(self, item: KubeObject, kind: ObjectKind, namespace: str = "") -> KubeObject:
        """Create an object."""
        headers = {"Content-Type": "application/json"}
        params = {"fieldManager": TOOL}
        name = item.get("metadata", {}).get("name", "")
        subject = f"create {kind.kind} {name}".rstrip()
        answer = await self._send(
            "POST", kind.path(namespace), subject, params=params, headers=headers, content=_encode(item)
        )
        return _decode_object(answer)

    async def delete(
        self, target: ObjectId, *, uid: str = "", grace_seconds: int | None = None, orphan: bool = False
    ) -> bool:
        """Delete an object, and in the background what belongs to it; False if there is none.

        With ``uid``, only this one is deleted, and none that was created in its place. With ``orphan``, what belongs to
        it stays, without an owner.
        """
        options: dict[str, Any] = {"propagationPolicy": "Orphan" if orphan else "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        headers = {"Content-Type": "application/json"}
        try:
            await self._send("DELETE", target.path, f"delete {target}", headers=headers, content=_encode(options))
        except ClusterError as error:
            if is_absent(error) or (uid and error.code == 409):
                return False
            raise
        return True

    async def read(self, path: str, subject: str) -> bytes:
        """What is at ``path``; ``subject`` says it in words, such as ``read the usage of volumes``."""
        return await self._send("GET", path, subject)

    async def read_served(self, group_version: str) -> frozenset[str]:
        """The plural names of the kinds that the cluster serves in ``group_version``; none if it does not know it."""
        try:
            answer = await self._send("GET", f"/apis/{group_version}", f"discover {group_version}")
        except ClusterError as error:
            if is_absent(error):
                return frozenset()
            raise
        served = _decode_answer(answer, _decode_served, f"discover {group_version}")
        return frozenset(resource.name for resource in served.resources)

    async def read_version(self) -> tuple[int, int]:
        """The version of the cluster, such as ``(1, 34)``."""
        answer = _decode_object(await self._send("GET", "/version", "read the version"))
        numbers = (str(answer.get(name, "0")).rstrip("+") for name in ("major", "minor"))
        major, minor = (int(text) if text.isdecimal() else 0 for text in numbers)
        return major, minor

    @asynccontextmanager
    async def read_lines(
        self, path: str, subject: str, params: Mapping[str, str], silence: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a long answer, such as a log; after ``silence`` seconds without one it is an error."""
        async with self._stream(path, subject, params, silence) as lines:
            yield lines

    async def _send(self, method: str, path: str, subject: str, **options: Any) -> bytes:
        response = await self._exchange(method, path, subject, **options)
        return response.content

    async def _exchange(
        self,
        method: str,
        path: str,
        subject: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        params = {name: value for name, value in (params or {}).items() if value}
        for attempt in range(1, MOST_TRIES + 1):
            await self._budget.take()
            async with self._slots:
                response = await self._ask(method, path, params=params, headers=headers, content=content)
            if response.status < 300:
                return response
            wait = _parse_retry_after(response.headers.get("retry-after", ""))
            error = explain_refusal(response.status, response.content, subject, retry_after=wait)
            if error.code != 429 or attempt == MOST_TRIES:
                break
            await self._clock.sleep(min(wait or 1.0, LONGEST_WAIT))
        raise error

    async def _ask(self, method: str, path: str, **options: Any) -> Answer:
        async with self._use_pool() as pool:
            try:
                answer = await pool.request(method, path, **options)
            except ConfigError as error:
                raise explain_unusable(error, self.server) from None
            except OSError as error:
                self._replace(pool)
                raise explain_no_answer(error, self.server) from None
            if answer.status == 401:
                self._replace(pool)
            return answer

    @asynccontextmanager
    async def _stream(
        self, path: str, subject: str, params: Mapping[str, str], silence: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        params = {name: value for name, value in params.items() if value}
        try:
            async with self._use_pool() as pool, pool.stream(path, params, silence) as answer:
                if answer.status == 401:
                    self._replace(pool)
                if answer.status >= 300:
                    raise explain_refusal(answer.status, b"".join([part async for part in answer.parts]), subject)
                yield _split_lines(answer.parts)
        except ConfigError as error:
            raise explain_unusable(error, self.server) from None
        except OSError as error:
            raise explain_no_answer(error, self.server) from None


async def _split_lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The complete lines of a body; the rest of one that broke off is dropped."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > LONGEST_LINE:
            message = f"a line of the answer is longer than {LONGEST_LINE >> 20} MiB"
            raise ClusterError(message, reason=Reason.CLUSTER_FAILED)


def _decode_object(content: bytes) -> KubeObject:
    return _decode_answer(content, _decode_json, "read an object")


def _decode_answer(content: bytes, decode: Callable[[bytes], T], subject: str) -> T:
    try:
        return decode(content)
    except msgspec.MsgspecError as error:
        message = f"{subject}: the answer is no complete JSON of the expected form: {error}"
        raise ClusterError(message, reason=Reason.CLUSTER_FAILED) from None


def _parse_retry_after(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0
