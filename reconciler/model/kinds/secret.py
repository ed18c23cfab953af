"""A typed view of a secret (docs/platform/fields.md#secret), for rules; its data may be masked."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.model.finding import Pointer
from reconciler.model.kinds.base import Envelope

TEXTS = frozenset({"docker", "gcp", "azure-sdk"})
"""Types whose data is one JSON text."""

ENCODED = {"opaque": "payload", "userpass": "password"}
"""Type → the key that ``encoding`` applies to."""

FILE, CREDENTIAL = "file", "credential"
"""Fields of a reference to a text on the host: ``{file: PATH}`` or ``{credential: NAME}``."""

_NO_KEYS = frozenset({"encoding", "repos"})


class HostPlace(msgspec.Struct, frozen=True):
    """The place of a value on the host: ``sort`` is ``file`` or ``credential``."""

    sort: str
    name: str


class Secret(Envelope, frozen=True):
    """A secret; ``data`` maps keys to values, or is one text."""

    type: str = ""
    data: dict[str, Any] | str | None = None

    def key_names(self) -> list[str]:
        """The names that a reference may have after the dot, sorted; none if the secret is one text."""
        if not isinstance(self.data, dict) or self.type in TEXTS:
            return []
        return sorted(self.data if self.type == "dictionary" else self.data.keys() - _NO_KEYS)


class SecretValue(msgspec.Struct, frozen=True):
    """The data of a secret of type ``type``, in plain text; its ``repr`` hides it."""

    type: str
    content: dict[str, Any] | str

    def __repr__(self) -> str:
        return f"SecretValue(type={self.type!r}, content='***')"


def host_places(form: str, content: Any) -> dict[Pointer, HostPlace]:
    """The places of a secret's values on the host, by their pointers; ``form`` is its type."""
    if not isinstance(content, dict):
        return {}
    members = {(): content} if form in TEXTS else {(name,): value for name, value in content.items()}
    candidates = {("data", *at): _host_place(value) for at, value in members.items()}
    return {at: host_place for at, host_place in candidates.items() if host_place is not None}


def may_name_host_places(form: Any, patch: Any) -> bool:
    """Whether data of the type ``form``, or a merge patch of them, may contain a value on the host.

    All other values are texts or lists, so any mapping in a place for one counts.
    """
    if not isinstance(patch, dict):
        return False
    return form in TEXTS or any(isinstance(value, dict) for value in patch.values())


def _host_place(value: Any) -> HostPlace | None:
    if not isinstance(value, dict) or len(value) != 1:
        return None
    sort, name = next(iter(value.items()))
    return HostPlace(sort, name) if sort in (FILE, CREDENTIAL) and isinstance(name, str) else None
