"""Parses links and URIs of any spelling to their full form and target (docs/platform/fields.md#links)."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from reconciler.errors import ParseError
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.kinds.table import TABLE
from reconciler.model.platform import PLATFORM_URI, SECRET_URI, VOLUMESET_URI

UNCHECKED_KINDS = frozenset(kind for kind, traits in TABLE.items() if not traits.listed)
"""Kinds whose existence cannot be checked (docs/platform/fields.md#what-a-link-may-lead-to)."""
_REFERENCE = re.compile(rf"{PLATFORM_URI}reference/[-._a-zA-Z0-9]{{1,100}}")


class Link(msgspec.Struct, frozen=True, gc=False):
    """A link in full form, the kind of its target, and the target: a key as text, or the full form for another org."""

    full: str
    kind: Kind
    target: str


class LinkError(ParseError):
    """The text is not a link; the message shows the form of a link."""


def full_form(key: Key, org: str) -> str:
    """``workload/shop/api`` → ``/org/acme/gvc/shop/workload/api``."""
    if key.gvc:
        return f"/org/{org}/gvc/{key.gvc}/{key.kind}/{key.name}"
    return f"/org/{org}/{key.kind}/{key.name}"


@lru_cache(maxsize=4096)  # most links of a repository occur many times: 4 µs less for a workload
def parse_link(text: str, org: str, gvc: str, bare: Kind | None = None) -> Link:
    """Parse a link in any spelling, in a resource of ``gvc`` ("" for the org); ``bare`` is the kind of a lone name.

    Raises LinkError.
    """
    if bare is not None and "/" not in text:
        return _make_link(org, org, "", bare, text)
    owner, parts = org, text.removeprefix("//").split("/")
    if not text.startswith("//"):
        parts = text.split("/")
        if len(parts) == 3 and parts[:2] == ["", "org"] and parts[2]:
            return Link(text, Kind.ORG, text)
        if len(parts) < 5 or parts[:2] != ["", "org"]:
            raise LinkError(f"{_quote_text(text)} is not a link; links look like //KIND/NAME or /org/{org}/KIND/NAME")
        owner, parts = parts[2], parts[3:]
    if not all(parts) or len(parts) not in (2, 4) or (len(parts) == 4 and parts[0] != "gvc"):
        raise LinkError(f"{_quote_text(text)} is not a link; links look like //KIND/NAME or //gvc/GVC/KIND/NAME")
    kind = KINDS.get(parts[-2])
    if kind is None:
        raise LinkError(f"{_quote_text(text)} links to a kind that does not exist: {_quote_text(parts[-2])}")
    gvc_name = parts[1] if len(parts) == 4 else gvc if kind in GVC_SCOPED else ""
    if kind in GVC_SCOPED and not gvc_name:
        raise LinkError(f"{_quote_text(text)} must name the GVC of the {kind}: //gvc/GVC/{kind}/{parts[-1]}")
    if len(parts) == 4 and kind not in GVC_SCOPED:
        raise LinkError(f"{_quote_text(text)}: a {kind} belongs to the org, not to a GVC; write //{kind}/{parts[-1]}")
    return _make_link(owner, org, gvc_name, kind, parts[-1])


def is_reference(text: str) -> bool:
    """Whether a normalised text is a fact of a replica on the platform, such as its address; a plain text here."""
    return _REFERENCE.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def uri_target(text: str, gvc: str) -> str:
    """The key that a normalised ``platform://secret/NAME[.KEY]`` or ``platform://volumeset/NAME`` names.

    Raises LinkError for any other ``platform://`` address.
    """
    kind, _, rest = text.removeprefix(PLATFORM_URI).partition("/")
    name = rest.partition(".")[0] if kind == Kind.SECRET else rest
    if kind == Kind.VOLUMESET and not gvc:
        raise LinkError(f"{_quote_text(text)}: only a resource of a GVC can use a volume set")
    if kind not in (Kind.SECRET, Kind.VOLUMESET) or not name or "/" in name:
        raise LinkError(
            f"{_quote_text(text)} has no target; write {SECRET_URI}NAME, {SECRET_URI}NAME.KEY or {VOLUMESET_URI}NAME"
        )
    return f"secret/{name}" if kind == Kind.SECRET else f"volumeset/{gvc}/{name}"


def _make_link(owner: str, org: str, gvc: str, kind: Kind, name: str) -> Link:
    key = Key(kind, gvc, name)
    full = full_form(key, owner)
    return Link(full, kind, str(key) if owner == org else full)


def _quote_text(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
