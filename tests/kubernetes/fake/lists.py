"""Lists and watches: pages, resourceVersions, bookmarks."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.fake.errors import ApiError, Object, Resource, bad_request, expired, too_large_version
from tests.kubernetes.fake.operations import Answer, Call
from tests.kubernetes.fake.selectors import Selector, field_selector, label_selector
from tests.kubernetes.fake.storage import Change, Name, Storage

EXPIRED_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def selector_of(call: Call) -> Selector:
    """What a list or a watch selects: namespace, labels, fields."""
    by_label = label_selector(call.query.get("labelSelector", ""))
    by_field = field_selector(call.resource, call.query.get("fieldSelector", ""))
    namespace, name = call.namespace, call.name

    def selects(value: Object) -> bool:
        metadata = value["metadata"]
        if (namespace and metadata.get("namespace") != namespace) or (name and metadata["name"] != name):
            return False
        return by_label(value) and by_field(value)

    return selects


def list_objects(storage: Storage, call: Call) -> Answer:
    """The objects of a resource, or a page of them."""
    limit = int(call.query.get("limit") or 0)
    token = call.query.get("continue", "")
    with storage.lock:
        revision, start = _position(storage, call, token)
        objects = storage.all_at(call.resource, revision)
    selects = selector_of(call)
    names = sorted(name for name, value in objects.items() if selects(value) and (not start or name > start))
    page = names[:limit] if limit else names
    metadata: Object = {"resourceVersion": str(revision)}
    metadata |= {"continue": ""} if call.resource.custom else {}
    if len(names) > len(page):
        metadata["continue"] = _encode_token(call, revision, page[-1])
        if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(names) - len(page)
    items = [objects[name] for name in page]
    return Answer(200, list_body(call.resource, items, metadata, metadata_only=call.metadata_only))


def metadata_of(value: Object) -> Object:
    """An object of which the client wants only the metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]}


def list_body(resource: Resource, items: list[Object], metadata: Object, *, metadata_only: bool = False) -> Object:
    """A list; items of built-in kinds do not repeat their kind."""
    if metadata_only:
        body = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return body | {"items": [metadata_of(item) for item in items]}
    if not resource.custom:
        items = [{key: entry for key, entry in item.items() if key not in ("kind", "apiVersion")} for item in items]
    body = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    return body | {"items": items}


def _position(storage: Storage, call: Call, token: str) -> tuple[int, Name | None]:
    """The revision of a list, and the name after which it begins."""
    asked = call.query.get("resourceVersion", "")
    if token:
        if asked not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return _decode_token(storage, call, token)
    if asked in ("", "0"):
        return storage.revision, None
    revision = parse_version(asked)
    if revision > storage.revision:
        raise too_large_version(revision, storage.revision)
    exact = call.query.get("resourceVersionMatch") == "Exact"
    exact = exact or (bool(call.query.get("limit")) and not call.query.get("resourceVersionMatch"))
    return (revision if exact else storage.revision), None


def parse_version(text: str) -> int:
    """A resourceVersion as a number."""
    if not text.isdigit():
        why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {why}")
    return int(text)


def _encode_token(call: Call, revision: int, name: Name) -> str:
    start = (name[1] if call.namespace else "/".join(filter(None, name))) + "\0"
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode_token(storage: Storage, call: Call, token: str) -> tuple[int, Name]:
    try:
        decoded = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("latin-1")
        if not decoded.startswith("{"):
            raise bad_request(_refuse_token(decoded[:1]))
        content = json.loads(decoded)
        namespace, _, name = content["start"].rstrip("\0").rpartition("/")
        revision, namespace = content["rv"], call.namespace or namespace
    except (ValueError, KeyError, TypeError):
        raise bad_request("continue key is not valid: illegal base64 data at input byte 0") from None
    if revision == -1:
        return storage.revision, (namespace, name)
    if revision < storage.compacted:
        raise expired(EXPIRED_TOKEN, _encode_token(call, -1, (namespace, name)))
    return revision, (namespace, name)


def _refuse_token(first: str) -> str:
    shown = first if first.isascii() and first.isprintable() else f"\\u{ord(first):04x}"
    why = f"invalid character '{shown}' looking for beginning of value"
    return f"invalid continue token: continue key is not valid: {why}"


class WatchPosition:
    """A watch: what of the history it has sent. `read` gives what is new, each with its type and object."""

    def __init__(self, storage: Storage, call: Call) -> None:
        self._storage = storage
        self._call = call
        self._selects = selector_of(call)
        self.bookmarks = call.query.get("allowWatchBookmarks") == "true"
        self.revision = 0
        self._next = 0
        self._initial: list[Object] = []
        with storage.lock:
            self._begin()

    def _begin(self) -> None:
        asked = self._call.query.get("resourceVersion", "")
        history = self._storage.history(self._call.resource)
        initial = self._call.query.get("sendInitialEvents")
        if asked in ("", "0") or initial == "true":
            objects = self._storage.all(self._call.resource)
            if initial != "false":
                self._initial = [_event("ADDED", value) for value in objects if self._selects(value)]
            if initial == "true":
                self._initial.append(self._bookmark(self._storage.revision, initial=True))
            self._next, self.revision = len(history), self._storage.revision
            return
        revision = parse_version(asked)
        if revision < self._storage.compacted:
            raise expired(f"too old resource version: {revision} ({self._storage.compacted})")
        if revision > self._storage.revision:
            raise too_large_version(revision, self._storage.revision)
        self._next = len(history)
        while self._next and history[self._next - 1].revision > revision:
            self._next -= 1
        self.revision = revision

    def read(self) -> Iterator[Object]:
        """The events since the last call."""
        with self._storage.lock:
            history = self._storage.history(self._call.resource)
            changes = history[self._next :]
            self._next = len(history)
            self.revision = self._storage.revision
        events, self._initial = self._initial, []
        events += filter(None, map(self._event_of, changes))
        for event in events:
            yield event | {"object": metadata_of(event["object"])} if self._call.metadata_only else event

    def bookmark(self) -> Object:
        """An event that has only the resourceVersion up to which the watch is complete."""
        return self._bookmark(self.revision, initial=False)

    def _bookmark(self, revision: int, *, initial: bool) -> Object:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        resource = self._call.resource
        return _event("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})

    def _event_of(self, change: Change) -> Object | None:
        """The change as this watch sees it: objects come and go with their labels."""
        before = change.old is not None and self._selects(change.old)
        after = change.type != "DELETED" and self._selects(change.value)
        if not before and not after:
            return None
        if after:
            return _event("MODIFIED" if before else "ADDED", change.value)
        value = change.old or change.value
        version = {"resourceVersion": str(change.revision)}
        return _event("DELETED", value | {"metadata": value["metadata"] | version})


def _event(kind: str, value: Object) -> Object:
    return {"type": kind, "object": value}


def error_event(error: ApiError) -> Object:
    """A failure in the middle of a watch."""
    return _event("ERROR", error.status())
