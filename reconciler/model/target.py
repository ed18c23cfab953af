"""Targets of commands: how people name a resource or a source, and what they leave out."""

from __future__ import annotations

import re
from typing import NamedTuple

from reconciler.model.key import GVC_SCOPED, KINDS, Key
from reconciler.model.kinds.names import list_kind_names
from reconciler.model.suggest import find_closest_word

SOURCE = "source"
"""The word for a source of manifests, which is no kind of resource."""

FORMS = "KIND/NAME, KIND/GVC/NAME, KIND NAME, or a link such as //gvc/GVC/workload/NAME"

_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._]*[A-Za-z0-9])?")
"""What can be a name without its kind: other texts are mistakes, such as a query without its braces."""
_KINDS = {word: kind for kind in (*KINDS, SOURCE) for word in list_kind_names(kind)}
"""Every word for a kind → the kind."""


class Target(NamedTuple):
    """A resource or source, as a command names it; what the name leaves out is "". ``text`` is as it was written."""

    text: str
    name: str
    kind: str = ""
    gvc: str = ""
    org: str = ""

    def __str__(self) -> str:
        """The same target in one word, with the GVC that an option named."""
        return self.text if self.org else "/".join(filter(None, (self.kind, self.gvc, self.name)))

    @property
    def key(self) -> Key | None:
        """The key; None where more than one resource may have this name, and for what names an org, or a source."""
        kind = KINDS.get(self.kind)
        if kind is None or self.org or (kind in GVC_SCOPED) is not bool(self.gvc):
            return None
        return Key(kind, self.gvc, self.name)

    @property
    def source(self) -> str:
        """``source/NAME``, "" for a resource."""
        return f"{SOURCE}/{self.name}" if self.kind == SOURCE else ""


def find_kind(word: str) -> str:
    """The kind, or ``source``, that ``word`` is the singular, plural or short name of; "" if there is none."""
    return _KINDS.get(word, "")


def list_kinds() -> tuple[str, ...]:
    """Every word for a kind."""
    return tuple(_KINDS)


def parse_target(text: str, gvc: str = "") -> Target:
    """The resource or source that ``text`` names, in ``gvc`` where it names none.

    ``text`` is a name, GVC/NAME, KIND/NAME, KIND/GVC/NAME, or a link. Raises ValueError that shows the forms.
    """
    org, words = _split_link(text)
    parts = words.split("/")
    if not all(parts):
        raise ValueError(f"{text!r} names nothing; write {FORMS}")
    kind, *rest = _kind_first(parts)
    if kind and len(rest) == 1:
        in_gvc = KINDS.get(kind) in GVC_SCOPED
        return Target(text, rest[0], kind, gvc if in_gvc else "", org)
    if kind and len(rest) == 2 and KINDS.get(kind) in GVC_SCOPED:
        return Target(text, rest[1], kind, rest[0], org)
    if not kind and len(rest) <= 2 and words == text and all(map(_WORD.fullmatch, rest)):
        return Target(text, rest[-1], "", rest[0] if rest[1:] else gvc)
    close = find_closest_word(parts[0], _KINDS) if not kind and rest[2:] else ""
    hint = f"there is no kind {parts[0]!r}; did you mean {close}?" if close else f"write {FORMS}"
    raise ValueError(f"{text!r} names no resource; {hint}")


def _split_link(text: str) -> tuple[str, str]:
    """The org of a link, and what follows it; ("", text) where it names none."""
    if text.startswith("/org/"):
        org, _, words = text.removeprefix("/org/").partition("/")
        return org, words or f"org/{org}"
    return "", text.removeprefix("//")


def _kind_first(parts: list[str]) -> list[str]:
    """``parts`` after the kind, "" where they begin with none; ``gvc/GVC/KIND/NAME`` as KIND, GVC, NAME."""
    kind = find_kind(parts[0])
    if kind == "gvc" and len(parts) == 4:
        return [find_kind(parts[2]), parts[1], parts[3]]
    return [kind, *parts[1:]] if kind and parts[1:] else ["", *parts]
