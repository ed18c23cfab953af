"""Adds to lists of a resource, and removes from them: members of groups, locations of GVCs, bindings of policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from reconciler.errors import RefusedError, UsageError
from reconciler.platform_cli.commands.resources import patch_with, read
from reconciler.platform_cli.session import Session


def add_member(session: Session, kind: str, ref: str, email: str | None, serviceaccount: str | None) -> None:
    """Add a user or a service account to a group."""
    _change_members(session, kind, ref, _member(session, email, serviceaccount), added=True)


def remove_member(session: Session, kind: str, ref: str, email: str | None, serviceaccount: str | None) -> None:
    """Remove a user or a service account from a group."""
    _change_members(session, kind, ref, _member(session, email, serviceaccount), added=False)


def _member(session: Session, email: str | None, serviceaccount: str | None) -> str:
    if bool(email) == bool(serviceaccount):
        raise UsageError("name the member: --email EMAIL or --serviceaccount NAME")
    return _user(session, email) if email else f"/org/{session.org}/serviceaccount/{serviceaccount}"


def _user(session: Session, email: str) -> str:
    """The link to the user with an address."""
    query = {"kind": "user", "spec": {"match": "all", "terms": [{"property": "email", "op": "=", "value": email}]}}
    found = next(
        (each for page in session.client.items(f"/org/{session.org}/user/-query", 1, query) for each in page), None
    )
    if found is None:
        raise RefusedError(f"no user has the address {email}; first: platform user invite --email {email}")
    return f"/org/{session.org}/user/{found['name']}"


def _change_members(session: Session, kind: str, ref: str, link: str, *, added: bool) -> None:
    patch_with(session, kind, ref, {f"${'add' if added else 'remove'}/memberLinks": [link]})


def _full(session: Session, links: Iterable[str]) -> list[str]:
    """Links in full form."""
    return [f"/org/{session.org}/{each[2:]}" if each.startswith("//") else each for each in links]


def add_location(session: Session, kind: str, ref: tuple[str, ...], location: tuple[str, ...]) -> None:
    """Add locations to GVCs."""
    _change_locations(session, kind, ref, location, added=True)


def remove_location(session: Session, kind: str, ref: tuple[str, ...], location: tuple[str, ...]) -> None:
    """Remove locations from GVCs."""
    _change_locations(session, kind, ref, location, added=False)


def _change_locations(
    session: Session, kind: str, ref: tuple[str, ...], location: tuple[str, ...], *, added: bool
) -> None:
    links = [each if "/" in each else f"/org/{session.org}/location/{each}" for each in location]
    change = {f"${'add' if added else 'remove'}/locationLinks": links}
    for each in ref:
        patch_with(session, kind, each, {"spec": {"staticPlacement": change}})


def delete_all_workloads(session: Session, kind: str, ref: str) -> None:
    """Delete every workload of a GVC; silent on success."""
    place = session.path(kind, ref)
    names = [each["name"] for page in session.client.items(f"{place}/workload") for each in page]
    for name in names:
        session.change("DELETE", f"{place}/workload/{name}")


def add_binding(session: Session, kind: str, ref: str, permission: tuple[str, ...], **principals: Any) -> None:
    """Grant permissions to principals."""
    links = _principals(session, **principals)
    bindings = read(session, kind, ref).get("bindings") or []
    wanted = {"permissions": [*permission], "principalLinks": links}
    patch_with(session, kind, ref, {"bindings": [*bindings, *([] if wanted in bindings else [wanted])]})


def remove_binding(session: Session, kind: str, ref: str, permission: tuple[str, ...], **principals: Any) -> None:
    """Revoke permissions of principals; what else their bindings grant stays."""
    links = _principals(session, **principals)
    rest: list[dict[str, Any]] = []
    for binding in read(session, kind, ref).get("bindings") or []:
        granted, holders = binding["permissions"], _full(session, binding["principalLinks"])
        others = [each for each in holders if each not in links]
        hit = [each for each in holders if each in links]
        left = [each for each in granted if each not in permission]
        rest += [{"permissions": granted, "principalLinks": others}] if others else []
        rest += [{"permissions": left, "principalLinks": hit}] if hit and left else []
    patch_with(session, kind, ref, {"bindings": rest})


def _principals(
    session: Session,
    email: tuple[str, ...],
    group: tuple[str, ...],
    serviceaccount: tuple[str, ...],
    identity: tuple[str, ...],
) -> list[str]:
    found = [_user(session, each) for each in email]
    for kind, refs in (("group", group), ("serviceaccount", serviceaccount), ("identity", identity)):
        found += [unquote(session.path(kind, each)) for each in refs]
    if not found:
        raise UsageError("name a principal: --email, --group, --serviceaccount or --identity")
    return found
