"""Resources as the API shows them: the manifest in normal form, and the fields that the server owns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha1
from typing import Any
from uuid import UUID

import msgspec

from reconciler.access.people import Person, person_fields
from reconciler.access.rules import BUILT_IN_GRANTS
from reconciler.manifests.links import full_form
from reconciler.model.key import Key, Kind
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.model.record import Record
from reconciler.model.resource_links import resource_links
from reconciler.status.conditions import ResourceFacts, compute_conditions
from reconciler.times import format_iso_time

_NAMESPACE = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8").bytes
"""The namespace of UUIDs of URLs (RFC 9562, section 6.6)."""
_WITH_ORIGIN = frozenset({Kind.AUDITCTX, Kind.GROUP})
"""Kinds of which some resources are built in, and every document says which."""
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def resource_document(facts: ResourceFacts, created: float, org: str, *, encoded: bool = False) -> dict[str, Any]:
    """A resource with its status. Secret data is left out; only ``-reveal`` returns it.

    With ``encoded``, the fields of the manifest are JSON that an encoder copies, for a tenth of the cost.
    """
    key = facts.key
    newest = max(facts.records, key=lambda record: record.applied_at)
    body: dict[str, Any] = _FIELDS.decode(newest.body) if encoded else msgspec.json.decode(newest.body)
    if key.kind is Kind.SECRET:
        body.pop("data", None)
    link = full_form(key, org)
    document: dict[str, Any] = {"kind": str(key.kind), "id": resource_id(link, created), **body}
    if key.gvc:
        document["gvc"] = key.gvc
    document |= {
        "version": max(record.version for record in facts.records),
        "created": format_iso_time(created),
        "lastModified": format_iso_time(newest.applied_at),
        "links": _list_links(key, org),
        "status": _build_status(facts),
    }
    if newest.alias:
        document["alias"] = newest.alias
    if str(key) in BUILT_IN_RESOURCES:
        document["origin"] = "builtin"
    elif key.kind in _WITH_ORIGIN:
        document["origin"] = "default"
    return document


def removed_document(key: Key, body: Mapping[str, Any], org: str) -> dict[str, Any]:
    """The last manifest ``body`` of a resource that was deleted."""
    manifest = {name: value for name, value in body.items() if key.kind is not Kind.SECRET or name != "data"}
    gvc = {"gvc": key.gvc} if key.gvc else {}
    return {"kind": str(key.kind), **manifest, "name": key.name, **gvc, "links": _list_links(key, org)}


def built_in_document(key: Key, org: str) -> dict[str, Any]:
    """A resource that exists without a manifest."""
    link = full_form(key, org)
    document: dict[str, Any] = {"kind": str(key.kind), "id": resource_id(link, 0.0), "name": key.name}
    if key.kind is Kind.POLICY:
        group, _, kind = key.name.partition("-")
        permission = BUILT_IN_GRANTS[Key(Kind.GROUP, "", group)]
        binding = {"permissions": [permission], "principalLinks": [f"/org/{org}/group/{group}"]}
        document |= {"targetKind": kind, "target": "all", "bindings": [binding]}
    return {**document, "origin": "builtin", "links": _list_links(key, org)}


def person_document(person: Person, org: str) -> dict[str, Any]:
    """A user whom no manifest declares: a person who was invited, or who has logged in."""
    key = Key(Kind.USER, "", person.name)
    link = full_form(key, org)
    return {
        "kind": str(key.kind),
        "id": resource_id(link, person.created),
        **person_fields(person),
        "created": format_iso_time(person.created),
        "links": _list_links(key, org),
        "status": {
            "invitedBy": person.invited_by or None,
            "lastLogin": format_iso_time(person.last_login) if person.last_login is not None else None,
        },
    }


def resource_id(link: str, created: float) -> str:
    """The same for the life of a resource; another one with its name, after its deletion, has another id."""
    # A UUID of version 5, without the checks of the library, which take longer than the digest.
    content = bytearray(sha1(_NAMESPACE + f"{link}@{created!r}".encode(), usedforsecurity=False).digest()[:16])
    content[6], content[8] = content[6] & 0x0F | 0x50, content[8] & 0x3F | 0x80
    text = content.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def deployment_document(record: Record, org: str) -> dict[str, Any] | None:
    """The deployment of a workload at the location of ``record``; None if nothing was observed yet."""
    state: dict[str, Any] = msgspec.json.decode(record.state)
    if not isinstance(state.get("status"), dict):
        return None
    link = f"{full_form(record.key, org)}/deployment/{record.location}"
    links = [{"rel": "self", "href": link}, {"rel": "workload", "href": full_form(record.key, org)}]
    return {"kind": "deployment", "name": record.location, "links": links, "status": state["status"]}


def _list_links(key: Key, org: str) -> list[dict[str, str]]:
    return [{"rel": rel, "href": href} for rel, href in resource_links(key.kind, key.gvc, key.name, org)]


def _build_status(facts: ResourceFacts) -> dict[str, Any]:
    """The status of the kind, then health, conditions and origin, which every kind has."""
    own: dict[str, Any] = {}
    states = [(record, msgspec.json.decode(record.state)) for record in facts.records]
    if facts.key.kind is Kind.WORKLOAD:
        own = _workload_status([state["workload"] for _, state in states if isinstance(state.get("workload"), dict)])
    elif facts.key.kind is Kind.VOLUMESET:
        volumes = [state for record, state in states if record.location and "volumes" in state]
        used = next((state["usedByWorkload"] for state in volumes if state.get("usedByWorkload")), "")
        places = [{"name": volume["name"], "volumes": volume["volumes"]} for volume in volumes]
        own = {"usedByWorkload": used, "locations": places}
    elif facts.key.kind is Kind.DOMAIN:
        own = {name: value for _, state in states for name, value in state.items() if name == "locations"}
    return {
        **own,
        "health": str(facts.health),
        "conditions": [msgspec.structs.asdict(condition) for condition in compute_conditions(facts)],
        "source": facts.source,
        "path": facts.path,
        "revision": max(facts.records, key=lambda record: record.applied_at).revision,
    }


def _workload_status(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The status of a workload over its locations: the endpoints of the first, the replicas of all."""
    if not parts:
        return {}
    whole = dict(parts[0])
    whole["currentReplicaCount"] = sum(part.get("currentReplicaCount", 0) for part in parts)
    endpoints = [name for part in parts for name in part.get("domainEndpoints", ())]
    whole["domainEndpoints"] = list(dict.fromkeys(endpoints))
    return whole


def select_fields(document: Any, fields: str) -> Any:
    """Only ``fields`` (names or dotted paths, separated by commas) of a document, or of each item of a list."""
    if not fields:
        return document
    paths = [path.split(".") for path in fields.split(",")]
    if isinstance(document, dict) and "items" in document:
        return {**document, "items": [_pick_fields(item, paths) for item in document["items"]]}
    return _pick_fields(document, paths)


def _pick_fields(document: Any, paths: Iterable[list[str]]) -> Any:
    selection: dict[str, Any] = {}
    for path in paths:
        value, into = document, selection
        for name in path[:-1]:
            value = value.get(name) if isinstance(value, dict) else None
            if not isinstance(value, dict):
                break
            into = into.setdefault(name, {})
        if isinstance(value, dict) and path[-1] in value:
            into[path[-1]] = value[path[-1]]
    return selection


def decode_json(content: bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also for a field that stands twice in an object."""
    value = msgspec.json.decode(content)
    # Which of two fields counts differs between readers: one in front could have checked the other.
    json.loads(content, object_pairs_hook=_without_repetition, parse_int=str, parse_float=str)
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"the field {name[:60]!r} stands twice")
        seen.add(name)
