"""Manifests (decoded documents) and resources (manifests placed in a revision), with their references."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec

from reconciler.model.finding import Pointer
from reconciler.model.key import Key, Kind

GVC_PLACEHOLDER = "\x7f"
"""Stands for the GVC if the directory of a manifest decides it; no document contains it, the reader refuses DEL.

JSON writes this control character unescaped: one byte is found in a body ten times as fast as an escape.
"""


class Dependency(StrEnum):
    """The effect of a reference on the order of steps."""

    NONE = "none"
    ORDER = "order"
    HEALTHY = "healthy"


class Reference(msgspec.Struct, frozen=True, order=True, gc=False):
    """A link from a resource: ``target`` is a key as text, or a full link (leading slash) into another org.

    ``pointer`` is the JSON pointer of its value, for findings.
    """

    target: str
    pointer: str
    bond: Dependency = Dependency.ORDER


class LookupRequest(msgspec.Struct, frozen=True, order=True, gc=False):
    """A rule's lookup of another resource: ``target`` is its key as text, ``pointer`` the value that refers to it.

    It is resolved when the whole desired state is known; ``detail`` is passed on to the check of the result.
    """

    rule: str
    target: str
    pointer: str
    detail: str = ""


_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
"""An index of a list; other digits, such as ² and 007, are keys."""


def pointer_parts(pointer: str) -> tuple[str | int, ...]:
    """The steps of a JSON pointer: ``/env/0/value`` → ("env", 0, "value").

    A key that is written as an index is one too; ``Positions`` finds both.
    """
    steps = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    return tuple(int(step) if _INDEX.fullmatch(step) else step for step in steps)


def escape_pointer_step(name: str) -> str:
    """``name`` as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


@lru_cache(maxsize=4096)
def pointer_text(at: Pointer) -> str:
    """The steps ``at`` as a JSON pointer, cached: most manifests refer to others at the same few places."""
    return "".join([f"/{escape_pointer_step(step) if isinstance(step, str) else step}" for step in at])


class Manifest(msgspec.Struct, frozen=True, gc=False):
    """One decoded document: the same bytes always give the same Manifest, so it can be cached.

    ``body`` is the normal form as canonical JSON: defaults filled, links full, order-free lists sorted. ``gvc`` is
    ``GVC_PLACEHOLDER`` if the directory decides it. ``secret_data`` is what ``body`` shows masked. ``unsorted``:
    filling in the GVC can change the order of links in ``body``; ``mixed``: that of references. ``transient``:
    ``secret_data`` was encrypted or is a file of the host, so it is never recorded.
    """

    kind: Kind
    gvc: str
    name: str
    body: bytes
    references: tuple[Reference, ...]
    position: int
    line: int
    secret_data: bytes = b""
    unsorted: bool = False
    mixed: bool = False
    questions: tuple[LookupRequest, ...] = ()
    transient: bool = False


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A manifest with its GVC and its place in a revision. ``digest`` covers ``body``.

    ``secret_data`` is never recorded if it is ``transient``.
    """

    key: Key
    digest: str
    body: bytes
    references: tuple[Reference, ...]
    path: str
    line: int
    position: int
    blob: str
    secret_data: bytes = b""
    questions: tuple[LookupRequest, ...] = ()
    transient: bool = False
