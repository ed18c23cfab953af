"""Whether a change may be made: what its body has to be, and what it needs beside the permission on the resource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.engines.domain_proof import find_proof
from reconciler.manifests.links import LinkError, parse_link
from reconciler.model.key import Key, Kind

_FILE_NAME = re.compile(r"[a-zA-Z0-9][-.:@_a-zA-Z0-9]{0,200}")
"""Names that are safe in a path; the rules for manifests are narrower."""
SERVER_OWNED = ("id", "version", "created", "lastModified", "links", "status", "alias", "origin", "keys", "change")
"""Fields of a document that the server sets; they are ignored in a request."""
_LISTED = ("spec", "firewallConfig", "internal", "inboundAllowWorkload")
_RETRY_AFTER = "60"


def new_name(body: Any) -> str:
    """The name of a new resource, in the manifest that the client sent. Raises Problem 400."""
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        raise Problem(400, "the body is a manifest with a name")
    name: str = body["name"]
    check_name(name)
    return name


def check_name(name: str) -> None:
    """Refuse a name that is not safe in a path. Raises Problem 400."""
    if _FILE_NAME.fullmatch(name) is None:
        wanted = "a letter or digit, and then letters, digits and -.:@_"
        raise Problem(400, f"the name {name[:60]!r} is wrong: a name has {wanted}")


def manifest_from(key: Key, body: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` as a manifest of ``key``: with its kind, name and GVC, without what the server sets."""
    expected = {"kind": str(key.kind), "name": key.name} | ({"gvc": key.gvc} if key.gvc else {})
    for name, value in expected.items():
        if body.get(name, value) != value:
            raise Problem(400, f"{name} is {value!r} in the path, and {body[name]!r} in the body")
    rest = {name: value for name, value in body.items() if name not in SERVER_OWNED and name not in expected}
    return {**expected, **rest}


async def admit_domain(call: Call, name: str) -> None:
    """Refuse the new domain ``name`` unless its TXT record shows that it is the org's. Raises Problem 400 and 503."""
    proof = await find_proof(name, call.org, call.api.settings.domains.resolver)
    if not proof.answered:
        raise Problem(503, f"{proof.problem}; nothing was changed, try again", headers={"Retry-After": _RETRY_AFTER})
    if proof.problem:
        raise Problem(400, f"domain/{name} is not proven: {proof.problem}; publish it first")


def admit_deletion(call: Call, key: Key) -> None:
    """Refuse the deletion of an audit context that has records."""
    if key.kind is Kind.AUDITCTX and call.api.store.audit_records.has_any(key.name):
        raise Problem(400, f"{key} has records, which are never deleted")


def admit_references(call: Call, key: Key, was: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse links to workloads that the caller may not view: a list must not show which hidden ones exist."""
    if key.kind is not Kind.WORKLOAD:
        return
    known = {str(key), *_listed(call, key, was)}
    for target, link in _listed(call, key, wanted).items():
        # What exists in other orgs is in the settings, and no policy of this org is about it.
        if target not in known and not target.startswith("/") and not call.may("view", Key.parse(target)):
            place = _LISTED[-1]
            raise Problem(403, f"{call.caller.principal} has no permission `view` on {link}, which {place} lists")


def _listed(call: Call, key: Key, manifest: Mapping[str, Any]) -> dict[str, str]:
    """The targets of the list in ``manifest``, each with its link as it is written; the schema refuses other texts."""
    found: Any = manifest
    for name in _LISTED:
        found = found.get(name) if isinstance(found, Mapping) else None
    targets = {}
    for link in found if isinstance(found, list) else ():
        try:
            targets[parse_link(link, call.org, key.gvc).target] = link
        except (LinkError, TypeError, AttributeError):
            continue
    return targets
