"""What a manifest asks for: first as one document says it, then as a resource of a revision."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reconciler.model.key import Key, Kind

GVC_PLACEHOLDER = "\x7f"
"""Stands for the GVC where a manifest leaves it to its directory; no document contains it, the reader refuses DEL.

A control character that JSON writes as it is: one byte is found in a body ten times as fast as an escape.
"""


class Dependency(StrEnum):
    """What a reference means for the order of work."""

    NONE = "none"
    ORDER = "order"
    HEALTHY = "healthy"


class Reference(msgspec.Struct, frozen=True, order=True, gc=False):
    """A link out of a resource: ``target`` is a key as text, or a full link (leading slash) into another org.

    ``pointer`` is the JSON pointer of the value that says it, for findings.
    """

    target: str
    pointer: str
    bond: Dependency = Dependency.ORDER


class LookupRequest(msgspec.Struct, frozen=True, order=True, gc=False):
    """What a rule has to know of another resource: ``target`` is its key as text, ``pointer`` where it is asked.

    The rule's answer is looked for once the whole desired state is known; ``detail`` is for it.
    """

    rule: str
    target: str
    pointer: str
    detail: str = ""


def pointer_parts(pointer: str) -> tuple[str | int, ...]:
    """A JSON pointer as the steps that it takes: ``/env/0/value`` → ("env", 0, "value")."""
    steps = (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
    return tuple(int(step) if step.isdigit() else step for step in steps)


class Manifest(msgspec.Struct, frozen=True, gc=False):
    """One document, whatever file it lies in: the same bytes always give the same Manifest, so it can be cached.

    ``body`` is the normal form as canonical JSON: defaults filled, links full, order-free lists sorted. ``gvc`` is
    ``GVC_PLACEHOLDER`` where the directory decides. ``seal`` holds the data of a secret, which ``body`` shows masked.
    ``unsorted`` says that filling in the GVC can change the order of links in ``body``, ``mixed`` that of references.
    ``transient`` says that ``seal`` was encrypted or stands on the host, so that it is never written down.
    """

    kind: Kind
    gvc: str
    name: str
    body: bytes
    references: tuple[Reference, ...]
    position: int
    line: int
    seal: bytes = b""
    unsorted: bool = False
    mixed: bool = False
    questions: tuple[LookupRequest, ...] = ()
    transient: bool = False


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A manifest with its place in a revision and its GVC known. ``digest`` covers ``body``.

    ``seal`` is not to be written down where it is ``transient``.
    """

    key: Key
    digest: str
    body: bytes
    references: tuple[Reference, ...]
    path: str
    line: int
    position: int
    blob: str
    seal: bytes = b""
    questions: tuple[LookupRequest, ...] = ()
    transient: bool = False
