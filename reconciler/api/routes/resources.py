"""Reads of resources: single ones, pages of them, queries, and the tables of permissions."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from reconciler.access.people import Person, person_fields
from reconciler.access.rules import Visibility
from reconciler.access.selections import select_keys_after
from reconciler.api.call import Call, read_as
from reconciler.api.documents import built_in_document, person_document, resource_document
from reconciler.api.problems import Problem
from reconciler.api.reading import body_of
from reconciler.api.table import Operation
from reconciler.errors import NotFoundError
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.model.kinds.table import ALLOWS, TABLE
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.model.query import UNARY
from reconciler.model.query_match import make_selector
from reconciler.model.record import Record
from reconciler.queries.existence import is_present
from reconciler.queries.secrets import read_secret_data

Others = Mapping[str, Person | None]
"""Keys of resources that the records do not have, each with its person, or None if it is built in."""

PAGE = 50
MOST_ITEMS = 500
"""Items of a page: those without a limit, and the most."""
_BATCH = 200
"""Keys that are read at once after the first, which are as many as the page has items."""
MOST_EXAMINED = 1_000
"""Resources that a page of a query compares: a query that selects few has more pages, some of them empty."""
VERSION_HEADER = "Resource-Version"
"""The header of a list with the number of the last change that it shows: a watch can continue from there."""
_OF_LISTS = ("cursor", "limit", "fields", "namePrefix")


class QueryTerm(msgspec.Struct, forbid_unknown_fields=True):
    """One condition of a query: exactly one of property, rel and tag."""

    property: str = ""
    rel: str = ""
    tag: str = ""
    op: Literal["=", "!=", ">", ">=", "<", "<=", "~", "exists", "!exists"] = "="
    value: str | float | bool | None = None

    def __post_init__(self) -> None:
        if sum(map(bool, (self.property, self.rel, self.tag))) != 1:
            raise ValueError("a term has exactly one of property, rel and tag")
        if (self.value is None) is not (self.op in UNARY):
            raise ValueError(f"the operator {self.op} has {'no' if self.op in UNARY else 'a'} value")


class QueryConditions(msgspec.Struct, forbid_unknown_fields=True):
    """The terms, and how many of them must hold."""

    match: Literal["all", "any", "none"] = "all"
    terms: list[QueryTerm] = []


class QueryBody(msgspec.Struct, forbid_unknown_fields=True):
    """A query (docs/platform/fields.md#queries)."""

    kind: str = ""
    fetch: Literal["items", "links"] = "items"
    spec: QueryConditions = msgspec.field(default_factory=QueryConditions)


async def read_org(call: Call) -> Response:
    """The org; a workload without an identity may read it too."""
    org = call.org
    links = [{"rel": "self", "href": f"/org/{org}"}] + [
        {"rel": str(kind), "href": f"/org/{org}/{kind}"} for kind in Kind if kind not in {Kind.ORG, *GVC_SCOPED}
    ]
    key = Key(Kind.ORG, "", org)
    if not call.caller.workload:
        call.require("view", key)
    document: dict[str, Any] = {"kind": "org", "name": org}
    if call.reader.records.applied.exists(key):
        document = _build_document(call, key)
    if registry := call.api.settings.images.registry:
        document["status"] = {**document.get("status", {}), "registry": registry}
    return call.respond({**document, "links": links}, manifest=_get_manifest_digest(call, key))


async def read_resource(call: Call) -> Response:
    """One resource."""
    with call.reader.snapshot():
        key = call.visible_key()
        return call.respond(_build_document(call, key), manifest=_get_manifest_digest(call, key))


def _get_manifest_digest(call: Call, key: Key) -> str:
    """The digest of the manifest as applied, "" for a resource without one."""
    records = call.reader.records.applied.get(key)
    return records[0].digest if records else ""


async def reveal_secret(call: Call) -> Response:
    """A secret with its data, for callers who may reveal it."""
    key = call.existing("reveal")
    data = await read_data(call, key)
    return call.respond({**_build_document(call, key), "data": data})


async def read_data(call: Call, key: Key) -> Any:
    """The value of the field ``data`` of the secret ``key``, which the caller may reveal."""
    settings, clock = call.api.settings, call.api.clock

    def read() -> Any:
        with closing(call.api.new_reader()) as reader:
            return read_secret_data(settings, reader.records, key, clock)

    return await asyncio.to_thread(read)


async def list_resources(call: Call) -> Response:
    """A page of a collection, in order of keys; only what the caller may view."""
    kind = call.kind()
    others = _list_unrecorded_resources(call, kind)
    return await call.apart(lambda: _build_page(call, kind, others, lambda _: True, {}))


async def query_resources(call: Call) -> Response:
    """A page of the resources of a kind that a query selects."""
    kind = call.kind()
    query = await call.body()
    if (text := read_as(query, QueryBody).kind) not in ("", kind):
        raise Problem(400, f"the query is for kind {text[:40]!r}, and this is the collection of {kind}")
    others = _list_unrecorded_resources(call, kind)
    return await call.apart(lambda: _build_page(call, kind, others, make_selector(query, call.org), {"query": query}))


async def list_permissions(call: Call) -> Response:
    """The permissions of a kind, and what each implies."""
    kind = call.kind()
    table = TABLE[kind].permissions
    items = [{"name": name, "description": ALLOWS[name]} for name in sorted(table)]
    implied = {name: sorted(table[name]) for name in sorted(table) if table[name]}
    return call.respond({"targetKind": str(kind), "items": items, "implied": implied})


def _build_document(call: Call, key: Key) -> dict[str, Any]:
    applied = call.reader.records.applied
    # The daemon may delete it between two reads.
    records, created = applied.get(key), applied.created_at(key)
    if created is None or not records:
        return _other_document(key, call.person(key), call.org)
    facts = call.reader.facts().facts(key, records=records)
    return resource_document(facts, created, call.org, encoded=not call.query("fields"))


def _list_unrecorded_resources(call: Call, kind: Kind) -> Others:
    """The resources of ``kind`` that the records do not have: those that are built in, and people."""
    others: dict[str, Person | None] = {key: None for key in BUILT_IN_RESOURCES if key.startswith(f"{kind}/")}
    if kind is Kind.USER:
        others |= {f"{kind}/{person.name}": person for person in call.api.store.people.every()}
    return others


def _other_document(key: Key, person: Person | None, org: str) -> dict[str, Any]:
    return built_in_document(key, org) if person is None else person_document(person, org)


def _build_page(
    call: Call, kind: Kind, others: Others, predicate: Callable[[Any], bool], extra: dict[str, Any]
) -> Response:
    """The next items of ``kind`` that are ``predicate`` and that the caller may view, with a link to those after them.

    The cursor is the key of a resource that was looked at, and there is a link only if another one follows. The caller
    may view both, so neither tells anything about others. The page of a query may end before it has all its items.
    """
    gvc = call.request.path_params.get("gvc")
    scope = f"{kind}/" if gvc is None else f"{kind}/{gvc}/"
    prefix = scope + call.query("namePrefix")
    limit = call.count("limit", PAGE, MOST_ITEMS)
    candidates = _list_visible_documents(call, kind, others, prefix, _decode_cursor(call.query("cursor")), limit + 1)
    documents, cursor = _select_documents(candidates, predicate, limit)
    if gvc is not None and not documents and not cursor:
        _require_gvc(call, gvc)
    links = [{"rel": "self", "href": str(call.request.url.path)}]
    if cursor:
        following = urlencode({**call.request.query_params, "cursor": _encode_cursor(cursor)})
        links.append({"rel": "next", "href": f"{call.request.url.path}?{following}"})
    shape = "queryresult" if extra else "list"
    document = {"kind": shape, "itemKind": str(kind), "items": documents, "links": links, **extra}
    return call.respond(document, headers={VERSION_HEADER: str(call.reader.records.changes.newest())})


def _select_documents(
    candidates: Iterable[tuple[str, dict[str, Any]]], predicate: Callable[[Any], bool], limit: int
) -> tuple[list[dict[str, Any]], str]:
    """At most ``limit`` documents of ``candidates`` that fit ``predicate``, and the key after which to go on.

    The key is "" at the end.
    """
    documents: list[dict[str, Any]] = []
    last = ""
    for examined, (key, document) in enumerate(candidates):
        is_wanted = predicate(document)
        if examined == MOST_EXAMINED or (is_wanted and len(documents) == limit):
            return documents, last
        if is_wanted:
            documents.append(document)
        last = key
    return documents, ""


def _require_gvc(call: Call, name: str) -> None:
    """Raise NotFoundError if no GVC has the ``name``, and the caller may know that."""
    key, records = Key(Kind.GVC, "", name), call.reader.records
    # A GVC that other tools keep has no record, but its workloads have.
    if not is_present(records, key) and not records.applied.keys_of_gvc(name) and call.may("view", key):
        raise NotFoundError(f"there is no {key}")


def _list_visible_documents(
    call: Call, kind: Kind, others: Others, prefix: str, after: str, size: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Keys below ``prefix`` that the caller may view, in order, with their documents; ``size`` of them are wanted."""
    visible = call.visibility(kind)
    applied = call.reader.records.applied
    # A query compares the values of fields, and `fields` selects from them.
    encoded = call.request.method == "GET" and not call.query("fields")
    for keys in _list_key_batches(call, visible, others, prefix, after, size):
        records = applied.get_many(keys)
        present = [key for key in keys if key in records or key in others]
        shown = [
            key for key in map(Key.parse, present) if visible.includes(key, partial(_get_body, records, others, key))
        ]
        facts = call.reader.facts()
        facts.expect_applied([str(key) for key in shown], records)
        created = applied.creation_times(shown)
        for key in shown:
            at = created.get(str(key))
            if at is None:
                yield str(key), _other_document(key, others.get(str(key)), call.org)
            else:
                yield str(key), resource_document(facts.facts(key), at, call.org, encoded=encoded)


def _list_key_batches(
    call: Call, visible: Visibility, others: Others, prefix: str, after: str, size: int
) -> Iterator[list[str]]:
    """Keys that may be visible, in order: of all resources, or of those that grants name and select."""
    reader = call.reader
    named = sorted(visible.keys)
    while True:
        if visible.everything:
            texts = reader.records.applied.keys_after(prefix, after, size)
        else:
            parts = [select_keys_after(named, prefix, after, size)]
            parts += [
                reader.selections.keys_after(reader.records, grant, prefix, after, size) for grant in visible.grants
            ]
            texts = sorted(set(chain.from_iterable(parts)))[:size]
        if not (keys := _with_others(texts, others, prefix, after, size)):
            return
        yield keys
        after, size = keys[-1], _BATCH


def _get_body(records: Mapping[str, tuple[Record, ...]], others: Others, key: Key) -> dict[str, Any]:
    if own_records := records.get(str(key)):
        return body_of(own_records[0])
    person = others.get(str(key))
    return {"kind": str(key.kind), **(person_fields(person) if person is not None else {"name": key.name})}


def _with_others(keys: list[str], others: Others, prefix: str, after: str, size: int) -> list[str]:
    """The next ``size`` applied ``keys`` and ``others`` among them; after a full batch, none beyond it."""
    end = keys[-1] if len(keys) == size else chr(0x10FFFF)
    return sorted({*keys, *(key for key in others if key.startswith(prefix) and after < key <= end)})


def _encode_cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise Problem(400, "the cursor is not one of a page; use the link `next`") from None


OPERATIONS = (
    Operation("GET", "/org/{org}", read_org, "Read the org."),
    Operation("GET", "/org/{org}/{kind}", list_resources, "List resources.", parameters=_OF_LISTS),
    Operation("GET", "/org/{org}/gvc/{gvc}/{kind}", list_resources, "List resources of a GVC.", parameters=_OF_LISTS),
    Operation(
        "POST",
        "/org/{org}/{kind}/-query",
        query_resources,
        "Find resources by a query.",
        parameters=_OF_LISTS,
        body=QueryBody,
    ),
    Operation(
        "POST",
        "/org/{org}/gvc/{gvc}/{kind}/-query",
        query_resources,
        "Find resources of a GVC by a query.",
        parameters=_OF_LISTS,
        body=QueryBody,
    ),
    Operation("GET", "/org/{org}/-schema/permissions", list_permissions, "List the permissions of the org."),
    Operation("GET", "/org/{org}/{kind}/-schema/permissions", list_permissions, "List the permissions of a kind."),
    Operation(
        "GET", "/org/{org}/secret/{name}/-reveal", reveal_secret, "Read the data of a secret.", "reveal", changes=True
    ),
    Operation("GET", "/org/{org}/{kind}/{name}", read_resource, "Read a resource.", "view", parameters=("fields",)),
    Operation(
        "GET",
        "/org/{org}/gvc/{gvc}/{kind}/{name}",
        read_resource,
        "Read a resource of a GVC.",
        "view",
        parameters=("fields",),
    ),
)
