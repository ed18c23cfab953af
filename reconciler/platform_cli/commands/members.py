"""Adds to lists of a resource, and removes from them: members of groups, locations of GVCs, bindings of policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from reconciler.errors import RefusedError, UsageError
from reconciler.platform_cli.commands.resources import delete_at, patch_with, read_resource
from reconciler.platform_cli.session import Session


def add_member(session: Session, kind: str, ref: str, email: str | None, serviceaccount: str | None) -> None:
    """Add a user or a service account to a group."""
    _change_members(session, kind, ref, _get_member_link(session, email, serviceaccount), added=True)


def remove_member(session: Session, kind: str, ref: str, email: str | None, serviceaccount: str | None) -> None:
    """Remove a user or a service account from a group."""
    _change_members(session, kind, ref, _get_member_link(session, email, serviceaccount), added=False)


def _get_member_link(session: Session, email: str | None, serviceaccount: str | None) -> str:
    if bool(email) == bool(serviceaccount):
        raise UsageError("name the member: --email EMAIL or --serviceaccount NAME")
    return _find_user_link(session, email) if email else f"/org/{session.org}/serviceaccount/{serviceaccount}"


def _find_user_link(session: Session, email: str) -> str:
    """The link to the user with an address."""
    query = {"kind": "user", "spec": {"match": "all", "terms": [{"property": "email", "op": "=", "value": email}]}}
    user = next(
        (value for page in session.client.items(f"/org/{session.org}/user/-query", 1, query) for value in page), None
    )
    if user is None:
        raise RefusedError(f"no user has the address {email}; first: platform user invite --email {email}")
    return f"/org/{session.org}/user/{user['name']}"


def _change_members(session: Session, kind: str, ref: str, link: str, *, added: bool) -> None:
    patch_with(session, kind, ref, {f"${'add' if added else 'remove'}/memberLinks": [link]})


def _expand_links(session: Session, links: Iterable[str]) -> list[str]:
    """Links in full form."""
    return [f"/org/{session.org}/{link[2:]}" if link.startswith("//") else link for link in links]


def add_location(session: Session, kind: str, ref: tuple[str, ...], location: tuple[str, ...]) -> None:
    """Add locations to GVCs."""
    _change_locations(session, kind, ref, location, added=True)


def remove_location(session: Session, kind: str, ref: tuple[str, ...], location: tuple[str, ...]) -> None:
    """Remove locations from GVCs."""
    _change_locations(session, kind, ref, location, added=False)


def _change_locations(
    session: Session, kind: str, ref: tuple[str, ...], location: tuple[str, ...], *, added: bool
) -> None:
    links = [text if "/" in text else f"/org/{session.org}/location/{text}" for text in location]
    change = {f"${'add' if added else 'remove'}/locationLinks": links}
    for gvc_ref in ref:
        patch_with(session, kind, gvc_ref, {"spec": {"staticPlacement": change}})


def delete_all_workloads(session: Session, kind: str, ref: str) -> None:
    """Delete every workload of a GVC; only a person at a terminal is told."""
    path = session.path(kind, ref)
    names = [value["name"] for page in session.client.items(f"{path}/workload") for value in page]
    for name in names:
        delete_at(session, f"{path}/workload/{name}")
    if not names:
        session.output.show_person("the GVC has no workload")


def add_binding(session: Session, kind: str, ref: str, permission: tuple[str, ...], **principals: Any) -> None:
    """Grant permissions to principals."""
    links = _list_principals(session, **principals)
    bindings = read_resource(session, kind, ref).get("bindings") or []
    binding = {"permissions": [*permission], "principalLinks": links}
    patch_with(session, kind, ref, {"bindings": [*bindings, *([] if binding in bindings else [binding])]})


def remove_binding(session: Session, kind: str, ref: str, permission: tuple[str, ...], **principals: Any) -> None:
    """Revoke permissions of principals; what else their bindings grant stays."""
    links = _list_principals(session, **principals)
    rest: list[dict[str, Any]] = []
    for binding in read_resource(session, kind, ref).get("bindings") or []:
        granted, holders = binding["permissions"], _expand_links(session, binding["principalLinks"])
        others = [holder for holder in holders if holder not in links]
        hit = [holder for holder in holders if holder in links]
        left = [value for value in granted if value not in permission]
        rest += [{"permissions": granted, "principalLinks": others}] if others else []
        rest += [{"permissions": left, "principalLinks": hit}] if hit and left else []
    patch_with(session, kind, ref, {"bindings": rest})


def _list_principals(
    session: Session,
    email: tuple[str, ...],
    group: tuple[str, ...],
    serviceaccount: tuple[str, ...],
    identity: tuple[str, ...],
) -> list[str]:
    texts = [_find_user_link(session, text) for text in email]
    for kind, refs in (("group", group), ("serviceaccount", serviceaccount), ("identity", identity)):
        texts += [unquote(session.path(kind, ref)) for ref in refs]
    if not texts:
        raise UsageError("name a principal: --email, --group, --serviceaccount or --identity")
    return texts
