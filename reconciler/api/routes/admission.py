"""Whether a change may be made: what its body has to be, and what it needs beside the permission on the resource."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.access.escalation import EscalationCheck
from reconciler.access.people import Person, person_fields
from reconciler.access.references import ManifestLinks, ReferenceCheck
from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.engines.domain_proof import find_proof
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.secret import TEXTS, may_name_host_places
from reconciler.model.kinds.table import MANAGE

if TYPE_CHECKING:
    from reconciler.changes.requests import Admit

_FILE_NAME = re.compile(r"[a-zA-Z0-9][-.:@_a-zA-Z0-9]{0,200}")
"""Names that are safe in a path; the rules for manifests are narrower."""
SERVER_OWNED = ("id", "version", "created", "lastModified", "links", "status", "alias", "origin", "keys", "change")
"""Fields of a document that the server sets; they are ignored in a request."""
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
        rule = "a letter or digit, and then letters, digits and -.:@_"
        raise Problem(400, f"the name {name[:60]!r} is wrong: a name has {rule}")


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


def admit_change(
    call: Call, key: Key, was: Mapping[str, Any], desired: Mapping[str, Any], written: Collection[Key] = ()
) -> None:
    """Refuse new references that the caller may not make, and permissions that the caller may not grant.

    ``was`` and ``desired`` are the manifests before and after, {} for none. ``written`` are the resources that the same
    change creates. The refusal is the same whether a target exists or not. Raises Problem 403.
    """
    from reconciler.access.manifest_links import read_links
    from reconciler.secrets.host_files import manifest_context

    context = manifest_context(call.api.settings, b"")
    _admit_host_values(call, key, was.get("type"), desired.get("type"), desired.get("data"))
    _admit_links(call, key, read_links(key, was, context), read_links(key, desired, context), written)


def admit_invitation(call: Call, key: Key) -> None:
    """Refuse to invite a person whom the query of a group selects, unless the caller has what its members get."""
    body = {"kind": str(key.kind), **person_fields(Person(key.name, 0.0))}
    _admit_grants(call, key, {}, body)


def admission_in_git(call: Call, key: Key, desired: Mapping[str, Any], *, creates: bool = False) -> Admit:
    """The same decision on what a commit changes in the newest one, once its text is known; ``desired`` has the data.

    Another change may be in Git, and not applied yet: two that each change nothing forbidden can do so together. A
    query that permits its author to create resources has to select the one that it ``creates`` in normal form. One that
    a newer commit has already is edited, and belongs to others.
    """

    def admit(before: ManifestLinks, after: ManifestLinks, created: Collection[Key]) -> None:
        def decide() -> None:
            if creates:
                call.require("create", key, lambda: after.body or desired)
            if creates and before.value:
                call.require("edit", key, lambda: before.body)
            _admit_host_values(call, key, before.value.get("type"), after.value.get("type"), desired.get("data"))
            _admit_links(call, key, before, after, created)

        call.with_reader(decide)

    return admit


def _admit_links(
    call: Call, key: Key, before: ManifestLinks, after: ManifestLinks, written: Collection[Key] = ()
) -> None:
    access = call.reader.access()
    refused = ReferenceCheck(access, call.caller, call.recorded_body).find_refused(key, before, after, written)
    if refused is not None:
        message = f"{call.caller.principal} has no permission `{refused.permission}` on {refused.target}"
        raise Problem(403, f"{message}, to which {key} refers at {refused.pointer}", [{"field": refused.pointer}])
    _admit_grants(call, key, before.body, after.body)


def _admit_grants(call: Call, key: Key, was: Mapping[str, Any], desired: Mapping[str, Any]) -> None:
    access = call.reader.access()
    missing = EscalationCheck(access, call.caller, call.org, call.recorded_body).missing(key, was, desired)
    if missing is not None:
        target = missing.target
        if key.kind in (Kind.GROUP, Kind.USER) and "/" in target and not call.may("view", Key.parse(target)):
            target = "a resource that you may not view"  # policies about the group name it, and the caller does not
        message = f"{call.caller.principal} has no permission `{missing.permission}` on {target}"
        raise Problem(403, f"{message}, so {key} cannot grant it: nobody grants more than they have")


def _admit_host_values(call: Call, key: Key, was: Any, new_type: Any, content: Any) -> None:
    """Refuse a secret with a value on the host, unless the caller manages all secrets. Raises Problem 403.

    ``was`` and ``new_type`` are its types, ``content`` is the data that the caller writes. The operator's directory has
    the values of all: who names one in a secret of their own could reveal it there.
    """
    if key.kind is not Kind.SECRET:
        return
    # What is a text under a key in one type can be a place on the host in another.
    is_retyped = was is not None and was not in TEXTS and new_type in TEXTS
    if not is_retyped and not may_name_host_places(new_type, content):
        return
    if not call.reader.access().visibility(call.caller, Kind.SECRET, MANAGE).everything:
        message = f"{call.caller.principal} has no permission `{MANAGE}` on every secret"
        raise Problem(403, f"{message}, so {key} cannot take a value from the host")
