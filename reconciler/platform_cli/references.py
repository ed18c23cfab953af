"""References to resources: names, links such as ``//gvc/shop``, and keys such as ``workload/shop/api``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from reconciler.errors import UsageError
from reconciler.platform_cli.table.kinds import KINDS

SOURCE = "source"
"""The word for a source of manifests, which is no kind."""
WORD = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""A plain name, such as that of a workload."""
_ALIASES = {alias: kind for kind, view in KINDS.items() for alias in view.aliases}


def name_kind(word: str) -> str:
    """The kind that ``word`` is the name, plural or short name of; ``word`` itself if it is none."""
    from reconciler.model.target import find_kind

    return _ALIASES.get(word) or (word if word in KINDS else find_kind(word) or word)


Default = Callable[[], str]
"""Gives the org, or the GVC, of the call. Raises UsageError if there is none."""


class ResourceReference(NamedTuple):
    """A resource; ``gvc`` is "" outside of GVCs."""

    org: str
    kind: str
    gvc: str
    name: str

    @property
    def key(self) -> str:
        """``KIND/GVC/NAME``, or ``KIND/NAME``."""
        return "/".join(filter(None, (self.kind, self.gvc, self.name)))

    @property
    def link(self) -> str:
        """The full link, such as ``/org/acme/gvc/shop/workload/api``."""
        gvc = f"/gvc/{self.gvc}" if self.gvc else ""
        return f"/org/{self.org}" + (f"{gvc}/{self.kind}/{self.name}" if self.kind != "org" else "")

    @property
    def path(self) -> str:
        """The path in the API."""
        names = {name: quote(getattr(self, name), safe="") for name in ("org", "gvc", "name")}
        return self._replace(**names).link


def parse_reference(text: str, org: Default, gvc: Default, kind: str = "") -> ResourceReference:
    """The resource that ``text`` names: a link, a key, or with ``kind`` a name alone. Raises UsageError.

    What is in a GVC, and names none, is in that of the call.
    """
    if text.startswith("/org/"):
        of, _, rest = text.removeprefix("/org/").partition("/")
        return _parse_words(text, rest or f"org/{of}", lambda: of, gvc)
    if text.startswith("//"):
        return _parse_words(text, text[2:], org, gvc)
    if "/" not in text and kind:
        return ResourceReference(org(), kind, gvc() if KINDS[kind].in_gvc else "", text)
    return _parse_words(text, text, org, gvc)


def _parse_words(text: str, words: str, org: Default, gvc: Default) -> ResourceReference:
    """The resource ``gvc/GVC/KIND/NAME``, ``KIND/GVC/NAME`` or ``KIND/NAME``. Raises UsageError."""
    first, *rest = words.split("/")
    kind = name_kind(first)
    if kind == "gvc" and len(rest) == 3:
        return ResourceReference(org(), name_kind(rest[1]), rest[0], rest[2])
    if kind in KINDS and all(rest):
        if KINDS[kind].in_gvc and len(rest) in (1, 2):
            return ResourceReference(org(), kind, rest[0] if rest[1:] else gvc(), rest[-1])
        if not KINDS[kind].in_gvc and rest:
            return ResourceReference(org(), kind, "", "/".join(rest))
    from reconciler.model.suggest import find_closest_word

    near = "" if kind in KINDS or not rest else find_closest_word(first, KINDS)
    hint = f"there is no kind {first!r}; did you mean {near}? " if near else ""
    raise UsageError(f"{text!r} names no resource; {hint}write KIND/NAME, KIND/GVC/NAME, or a link such as //gvc/NAME")
