"""One request, as handlers see it: who calls, what they may, and what they ask about."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from reconciler.access.people import Person, person_fields
from reconciler.access.rules import Caller, Visibility
from reconciler.api.documents import decode_json, select_fields
from reconciler.api.problems import FORM, JSON, MOST_BODY, Problem
from reconciler.api.reading import body_of
from reconciler.api.service import Api
from reconciler.errors import NotFoundError
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.queries.existence import did_you_mean, is_present

_Form = TypeVar("_Form")
_Result = TypeVar("_Result")

LARGEST = (1 << 63) - 1
"""The largest number of a row in SQLite."""
_MOST_DIGITS = len(str(LARGEST))
MOST_FIELDS = 50
"""The most fields of a form."""


class NoBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request that needs no body; an empty object is one too."""


class Call:
    """A request of ``caller``. Methods raise Problem."""

    def __init__(self, request: Request, api: Api, caller: Caller) -> None:
        self.request = request
        self.api = api
        self.caller = caller
        self.reader = api.reader
        self.refusal: Problem | None = None
        """What the audit log has as the outcome, where the answer is a redirect or a page that says no."""
        self.done = ""
        """What the audit log has beside the path, which does not name what a change of many is about."""
        self.change_id: str = request.scope["request_id"]
        """The id in the commit of the change: that of the first attempt, however often the client repeats it."""
        self.is_repeated = False
        self.most_body = MOST_BODY
        self.done_status = 200
        """The status of the answer once the change is made."""
        self.shown_once: frozenset[str] = frozenset()
        """Fields of the answer that are secrets: they are not stored for a repetition of the request."""
        self._body: bytes | None = None
        self._is_form_of_page = False

    def act_as(self, caller: Caller) -> None:
        """Name the caller, once they are known."""
        self.caller = caller

    def allow_body(self, size: int) -> None:
        """Take a body of at most ``size`` bytes."""
        self.most_body = size

    def continue_change(self, change_id: str) -> None:
        """Continue the change of an earlier request that got no answer."""
        self.change_id = change_id
        self.is_repeated = True

    def show_once(self, field: str) -> None:
        """Show ``field`` in the answer to this request alone, and store it nowhere."""
        self.shown_once |= {field}

    def note_done(self, message: str) -> None:
        """Note for the audit log what the request has changed."""
        self.done = message

    def note_refusal(self, problem: Problem) -> None:
        """Note for the audit log that the answer, a redirect or a page, refuses the request by ``problem``."""
        self.refusal = problem

    def replace_body(self, value: Any) -> None:
        """Continue as if the client had sent ``value``, as JSON."""
        self._body, self._is_form_of_page = msgspec.json.encode(value), True

    async def in_git(self, work: Callable[[], _Result]) -> _Result:
        """Run ``work``, which may wait for a remote, in one of the threads for that."""
        return await asyncio.get_running_loop().run_in_executor(self.api.git_threads, work)

    async def apart(self, read: Callable[[], _Result], slots: asyncio.Semaphore | None = None) -> _Result:
        """Run ``read`` in a thread with a reader of its own, so that a long list delays no other request.

        It waits for a place among ``slots``, by default those of lists.
        """
        async with slots or self.api.list_slots:
            return await asyncio.to_thread(self.with_reader, read)

    def with_reader(self, read: Callable[[], _Result]) -> _Result:
        """Run ``read``, in another thread than that of the server, with a reader of its own."""
        own, self.reader = self.reader, self.api.borrow_reader()
        try:
            with self.reader.snapshot():
                return read()
        finally:
            self.api.return_reader(self.reader)
            self.reader = own

    @property
    def org(self) -> str:
        """The only org that is served here."""
        return self.api.settings.org

    def kind(self) -> Kind:
        """The kind in the path; the org, if it has neither a kind nor a name."""
        names = self.request.path_params
        if "kind" not in names and "name" not in names:
            return Kind.ORG
        text = names.get("kind") or self.request.url.path.split("/")[3]
        kind = KINDS.get(text)
        in_gvc = "gvc" in names
        if kind is None or kind is Kind.ORG or (in_gvc and kind not in GVC_SCOPED):
            choices = sorted(GVC_SCOPED) if in_gvc else sorted(KINDS)
            raise Problem(404, f"there is no kind {text!r} here{did_you_mean(text, choices)}")
        return kind

    def key(self) -> Key:
        """The key in the path."""
        kind = self.kind()
        if kind is Kind.ORG:
            return Key(kind, "", self.org)
        gvc = self.request.path_params.get("gvc", "")
        if kind in GVC_SCOPED and not gvc:
            raise Problem(404, f"a {kind} belongs to a GVC: /org/{self.org}/gvc/GVC/{kind}/NAME")
        return Key(kind, gvc, self.request.path_params["name"])

    def may(self, permission: str, key: Key, body: Callable[[], Any] | None = None) -> bool:
        """Whether the caller has ``permission`` on ``key``; ``body`` reads that of a resource that does not exist."""
        return self.reader.access().may(self.caller, permission, key, body or (lambda: self.recorded_body(key)))

    def require(self, permission: str, key: Key, body: Callable[[], Any] | None = None) -> None:
        """Refuse the request unless the caller has ``permission`` on ``key``."""
        if not self.may(permission, key, body):
            raise Problem(403, f"{self.caller.principal} has no permission `{permission}` on {key}")

    def visibility(self, kind: Kind) -> Visibility:
        """What the caller may view of ``kind``."""
        return self.reader.access().visibility(self.caller, kind)

    def existing(self, permission: str) -> Key:
        """The key in the path, of a resource that exists and that the caller has ``permission`` on.

        A caller without the permission is refused in the same way whether the resource exists or not.
        """
        key = self.key()
        self.require(permission, key)
        present = key.kind is Kind.ORG or is_present(self.reader.records, key) or self.person(key) is not None
        if not present:
            # No suggestion: it could name a resource that the caller may not see.
            raise NotFoundError(f"there is no {key}")
        return key

    def visible_key(self) -> Key:
        """The key in the path, of a resource that has a document: applied or built in, and the caller may view it."""
        key = self.key()
        self.require("view", key)
        if (
            str(key) not in BUILT_IN_RESOURCES
            and not self.reader.records.applied.exists(key)
            and self.person(key) is None
        ):
            self.existing("view")
            raise NotFoundError(f"{key} is in Git, and not applied yet; its -eventlog has the reason")
        return key

    def person(self, key: Key) -> Person | None:
        """The person of the user ``key``, who was invited or has logged in; None if there is none."""
        return self.api.store.people.find(key.name) if key.kind is Kind.USER else None

    def query(self, name: str, default: str = "") -> str:
        """The query parameter ``name``."""
        return self.request.query_params.get(name, default)

    def flag(self, name: str) -> bool | None:
        """The query parameter ``name``, which is ``true`` or ``false``; None without it."""
        values = self.request.query_params.getlist(name)
        if values and values not in (["true"], ["false"]):
            raise Problem(400, f"{name} is true or false, not {', '.join(values)[:20]!r}")
        return values == ["true"] if values else None

    def choose_media_type(self, *offered: str) -> str:
        """The media type among ``offered`` that the header ``Accept`` names first; else the first of them."""
        named = (text.partition(";")[0].strip() for text in self.request.headers.get("accept", "").split(","))
        return next((text for text in named if text in offered), offered[0])

    def count(self, name: str, default: int, most: int) -> int:
        """The query parameter ``name`` as a number from 1 (or the ``default``, if that is less) to ``most``."""
        text, least = self.query(name, str(default)), min(1, default)
        # More digits than any number has: int() refuses thousands of them with an error of its own.
        if not text.isdecimal() or len(text) > _MOST_DIGITS or not least <= int(text) <= most:
            raise Problem(400, f"{name} is a number from {least} to {most}, not {text[:20]!r}")
        return int(text)

    @property
    def request_id(self) -> str:
        """The id of the request, as in its answer."""
        return str(self.request.scope["request_id"])

    async def raw_body(self) -> bytes:
        """The bytes of the body, within the limit; the same at each call."""
        if self._body is None:
            parts, size = [], 0
            async for part in self.request.stream():
                size += len(part)
                if size > self.most_body:
                    raise Problem(413, f"the body has more than {self.most_body} bytes")
                parts.append(part)
            self._body = b"".join(parts)
        return self._body

    async def body(self, *, optional: bool = False) -> Any:
        """The body, as JSON within the limits of size and of media types; {} for none where it is ``optional``."""
        kind = self._media()
        if kind != JSON and not kind.endswith("+json"):
            raise Problem(415, f"the body has the type {kind[:60]!r}; send {JSON}")
        if self.request.headers.get("content-encoding", "identity") != "identity":
            raise Problem(415, "the body is compressed; send it as it is")
        content = await self.raw_body()
        if optional and not content:
            return {}
        try:
            return decode_json(content)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Problem(400, f"the body is not JSON: {error}") from None

    async def refuse_body(self) -> None:
        """Raise Problem 400 if the request has a body with anything in it."""
        if await self.raw_body():
            read_as(await self.body(), NoBody)

    async def form(self) -> Any:
        """The body, as a form in the way of OAuth 2.0, or as JSON."""
        if self._media() != FORM:
            return await self.body()
        try:
            pairs = parse_qsl((await self.raw_body()).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise Problem(400, f"the body is no form of at most {MOST_FIELDS} fields in UTF-8") from None
        if len(dict(pairs)) < len(pairs):
            raise Problem(400, "the form has a field twice")
        return dict(pairs)

    def _media(self) -> str:
        if self._is_form_of_page:
            return JSON
        return self.request.headers.get("content-type", JSON).partition(";")[0].strip().lower()

    def respond(
        self, document: Any, status: int = 200, headers: dict[str, str] | None = None, manifest: str = ""
    ) -> Response:
        """``document`` as JSON with its entity tag; 304 without a body if the client has it.

        ``manifest`` is the digest of the manifest in it: the tag begins with that, for a change of what was read.
        """
        content = msgspec.json.encode(select_fields(document, self.query("fields")))
        tag = f'"{manifest}{"-" if manifest else ""}{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers = {**(headers or {}), "ETag": tag}
        if status == 200 and self.request.method in ("GET", "HEAD") and tag in self._known_tags():
            return Response(None, 304, headers)
        return Response(content, status, headers, JSON)

    def _known_tags(self) -> set[str]:
        """The entity tags that the client has; proxies that compress make them weak."""
        named = self.request.headers.get("if-none-match", "").split(",")
        return {text.strip().removeprefix("W/") for text in named}

    def recorded_body(self, key: Key) -> dict[str, Any]:
        """The manifest of ``key`` as last applied, {} if it is not; it includes the masked data of a secret."""
        for record in self.reader.records.applied.get(key):
            return body_of(record)
        if (person := self.person(key)) is not None:
            return {"kind": str(key.kind), **person_fields(person)}
        return {"kind": str(key.kind), "name": key.name} if str(key) in BUILT_IN_RESOURCES else {}


def read_as(body: Any, form: type[_Form]) -> _Form:
    """``body`` as a value of ``form``. Raises Problem that names the place of the first fault."""
    try:
        return msgspec.convert(body, form)
    except msgspec.ValidationError as error:
        raise Problem(400, str(error)) from None
