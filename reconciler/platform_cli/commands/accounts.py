"""Keys of service accounts, and invitations of people."""

from __future__ import annotations

import re

from reconciler.errors import UsageError
from reconciler.platform_cli.durations import future_time
from reconciler.platform_cli.output import make_field_getter
from reconciler.platform_cli.session import Session

_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")


def add_key(session: Session, kind: str, ref: str, description: str | None, expires: str | None) -> None:
    """Add a key to a service account, and print it: no other answer has its text."""
    ends = future_time(expires, "--expires") if expires else ""
    body = {name: value for name, value in (("description", description), ("expires", ends)) if value}
    # Repeating the request would add a second key.
    answer = session.client.request("POST", f"{session.path(kind, ref)}/-key", body=body).body
    if session.output.is_text:
        session.output.line(str(answer["key"]))
        session.output.note(f"the key {answer['name']} of {kind} {ref}: it is shown this once, so store it now")
    else:
        session.output.value(answer)


def get_keys(session: Session, kind: str, ref: str) -> None:
    """List the keys of a service account, without their texts."""
    answer = session.client.get(f"{session.path(kind, ref)}/-key")
    columns = {
        "ID": make_field_getter("name"),
        "DESCRIPTION": make_field_getter("description"),
        "CREATED": lambda item: session.output.time(str(item.get("created") or "")),
        "LAST USED": lambda item: session.output.time(str(item.get("lastUsed") or "")),
        "EXPIRES": lambda item: session.output.time(str(item.get("expires") or "")),
    }
    session.output.documents([answer["items"]], columns, "key")


def remove_key(session: Session, kind: str, ref: str, key: str) -> None:
    """Revoke a key at once; only a person at a terminal is told."""
    session.client.request("DELETE", f"{session.path(kind, ref)}/-key/{key}")
    session.output.show_person(f"key {key} revoked")


def invite(session: Session, kind: str, email: str) -> None:
    """Let the person with an address log in."""
    if not _ADDRESS.fullmatch(email):
        raise UsageError(f"--email {email}: write an address such as ann@example.com")
    session.client.request("POST", f"{session.path(kind, email)}/-invite", body={})
    session.output.line(f"{email} may log in: platform login")
