"""Reads of resources: single ones, pages of them, queries, and the tables of permissions."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call, read_as
from reconciler.api.documents import built_in_document, resource_document
from reconciler.api.problems import Problem
from reconciler.api.reading import Reader
from reconciler.api.table import Operation
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.model.kinds.table import TABLE
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.model.query import UNARY
from reconciler.model.query_match import selector
from reconciler.queries.secrets import read_secret_data

PAGE = 50
MOST_ITEMS = 500
"""Items of a page: those without a limit, and the most."""
_BATCH = 200
_OF_LISTS = ("cursor", "limit", "fields")
_MOST_VISITED = 5_000
"""Resources that one page visits at most; a page that finds fewer items than it may still has a link ``next``."""


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
    call.require("view", key)
    if call.reader.records.applied.exists(key):
        return call.respond({**_document(call, key), "links": links})
    return call.respond({"kind": "org", "name": org, "links": links})


async def read_resource(call: Call) -> Response:
    """One resource."""
    return call.respond(_document(call, call.shown()))


async def reveal_secret(call: Call) -> Response:
    """A secret with its data, for callers who may reveal it."""
    key = call.existing("reveal")
    settings, clock = call.api.settings, call.api.clock

    def read() -> Any:
        with closing(Reader(settings, clock.now)) as reader:
            return read_secret_data(settings, reader.records, key, clock)

    data = await asyncio.to_thread(read)
    return call.respond({**_document(call, key), "data": data})


async def list_resources(call: Call) -> Response:
    """A page of a collection, in order of keys; only what the caller may view."""
    return _page(call, call.kind(), lambda _: True, {})


async def query_resources(call: Call) -> Response:
    """A page of the resources of a kind that a query selects."""
    kind = call.kind()
    query = await call.body()
    if (found := read_as(query, QueryBody).kind) not in ("", kind):
        raise Problem(400, f"the query is for kind {found[:40]!r}, and this is the collection of {kind}")
    return _page(call, kind, selector(query), {"query": query})


async def list_permissions(call: Call) -> Response:
    """The permissions of a kind, and what each implies."""
    kind = call.kind()
    table = TABLE[kind].permissions
    items = [{"name": name, "description": f"{name} on a {kind}"} for name in sorted(table)]
    implied = {name: sorted(table[name]) for name in sorted(table) if table[name]}
    return call.respond({"targetKind": str(kind), "items": items, "implied": implied})


def _document(call: Call, key: Key) -> dict[str, Any]:
    created = call.reader.records.applied.created((key,))
    if not created:
        return built_in_document(key, call.org)
    return resource_document(call.reader.facts().facts(key), created[str(key)], call.org)


def _page(call: Call, kind: Kind, wanted: Callable[[Any], bool], extra: dict[str, Any]) -> Response:
    """The next items of ``kind`` that are ``wanted`` and that the caller may view, with a link to those after them."""
    gvc = call.request.path_params.get("gvc")
    prefix = f"{kind}/" if gvc is None else f"{kind}/{gvc}/"
    limit = call.count("limit", PAGE, MOST_ITEMS)
    items: list[dict[str, Any]] = []
    last = _decoded(call.query("cursor"))
    more = False
    for key, document in _visible(call, kind, prefix, last):
        if len(items) == limit:
            more = True
            break
        last = key
        if document is not None and wanted(document):
            items.append(document)
    links = [{"rel": "self", "href": str(call.request.url.path)}]
    if more:
        following = urlencode({**call.request.query_params, "cursor": _encoded(last)})
        links.append({"rel": "next", "href": f"{call.request.url.path}?{following}"})
    shape = "queryresult" if extra else "list"
    return call.respond({"kind": shape, "itemKind": str(kind), "items": items, "links": links, **extra})


def _visible(call: Call, kind: Kind, prefix: str, after: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Keys below ``prefix`` in order, with their documents; None for one that the caller may not view."""
    visible = call.visibility(kind)
    applied = call.reader.records.applied
    visited = 0
    while keys := _with_built_in(applied.keys_after(prefix, after, _BATCH), prefix, after):
        facts = call.reader.facts()
        parsed = [Key.parse(key) for key in keys]
        facts.expect_applied(keys, applied.get_many(keys))
        created = applied.created(parsed)
        for key in parsed:
            at = created.get(str(key))
            document = (
                built_in_document(key, call.org) if at is None else resource_document(facts.facts(key), at, call.org)
            )
            yield str(key), document if visible.includes(key, partial(dict, document)) else None
        visited += len(keys)
        after = keys[-1]
        if visited >= _MOST_VISITED:
            return


def _with_built_in(keys: list[str], prefix: str, after: str) -> list[str]:
    """``keys``, the next that are applied, and the built-in ones among them; after a full batch, none beyond it."""
    end = keys[-1] if len(keys) == _BATCH else chr(0x10FFFF)
    return sorted({*keys, *(key for key in BUILT_IN_RESOURCES if key.startswith(prefix) and after < key <= end)})


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise Problem(400, "the cursor is not one of a page; use the link `next`") from None


OPERATIONS = (
    Operation("GET", "/org/{org}", read_org, "Read the org."),
    Operation("GET", "/org/{org}/{kind}", list_resources, "List resources.", parameters=_OF_LISTS),
    Operation("GET", "/org/{org}/gvc/{gvc}/{kind}", list_resources, "List resources of a GVC.", parameters=_OF_LISTS),
    Operation("POST", "/org/{org}/{kind}/-query", query_resources, "Find resources by a query.", parameters=_OF_LISTS,
              body=QueryBody),
    Operation("POST", "/org/{org}/gvc/{gvc}/{kind}/-query", query_resources, "Find resources of a GVC by a query.",
              parameters=_OF_LISTS, body=QueryBody),
    Operation("GET", "/org/{org}/{kind}/-schema/permissions", list_permissions, "List the permissions of a kind."),
    Operation("GET", "/org/{org}/secret/{name}/-reveal", reveal_secret, "Read the data of a secret.", "reveal",
              changes=True),
    Operation("GET", "/org/{org}/{kind}/{name}", read_resource, "Read a resource.", "view", parameters=("fields",)),
    Operation("GET", "/org/{org}/gvc/{gvc}/{kind}/{name}", read_resource, "Read a resource of a GVC.", "view",
              parameters=("fields",)),
)  # fmt: skip
