"""Bytes of one manifest file in; Manifests in normal form and Faults out. Depends on nothing but the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from reconciler.documents.ignoring import Ignored
from reconciler.documents.reader import Document, read
from reconciler.manifests.document import Decoding, Site
from reconciler.manifests.normal import Dialect, Former
from reconciler.manifests.shape import shape_of
from reconciler.model.finding import Fault, Severity
from reconciler.model.key import Kind
from reconciler.model.resource import Manifest, Reference

if TYPE_CHECKING:
    pass

MOST_FAULTS = 500
"""Faults of one file that are looked for and told one by one."""

RULES = {
    "too-many-faults": "A file with very many faults is not read to its end.",
    "not-a-mapping": "A manifest is a mapping of fields to values.",
    "unknown-kind": "The kind of a manifest is one of the platform's kinds.",
    "server-owned-field": "A field that the platform itself sets is ignored in a manifest.",
    "built-in-tag": "Tags beginning with platform/ belong to the platform, but for a few.",
    "bad-link": "A link names a kind and a resource in one of the link forms.",
}

_encode = msgspec.json.Encoder(order="deterministic").encode


class Broken(msgspec.Struct, frozen=True, gc=False):
    """A document that is no manifest for its faults.

    ``key`` is the one that it means to have, as text, its GVC open where the directory decides; ``references`` are the
    links in it that could be read.
    """

    key: str
    position: int
    references: tuple[Reference, ...] = ()


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """What one file says: its manifests, its faults, and how many documents it holds.

    A manifest that breaks a rule is among them too, so that its links are looked at; its file's faults refuse it.
    """

    manifests: tuple[Manifest, ...]
    faults: tuple[Fault, ...]
    documents: int
    broken: tuple[Broken, ...] = ()


def decode(raw: bytes, dialect: Dialect) -> Decoded:
    """Read, check and normalise one file; every fault in it is reported, and only sound documents become manifests."""
    reading = read(raw)
    manifests: list[Manifest] = []
    faults = list(reading.faults)
    owned: list[tuple[Document, str]] = []
    broken: list[Broken] = []
    site = Site(raw)
    for document in reading.documents:
        one = Decoding(site, document, dialect)
        manifest = one.manifest()
        if manifest is not None:
            manifests.append(manifest)
        elif one.named:
            broken.append(Broken(one.named, document.index, one.loose))
        faults.extend(one.faults)
        owned.extend((document, name) for name in one.owned)
        if len(faults) > MOST_FAULTS:
            message = f"this file has more than {MOST_FAULTS} faults; what follows is not looked at"
            faults.append(Fault("too-many-faults", message, faults[-1].line, faults[-1].column))
            break
    if owned:
        faults.append(_owned_notice(site, owned))
    told = tuple(sorted(_told(faults, raw), key=lambda fault: (fault.line, fault.column))) if faults else ()
    return Decoded(tuple(manifests), told, len(reading.documents), tuple(broken))


def _told(faults: list[Fault], raw: bytes) -> Iterator[Fault]:
    """Those of ``faults`` that no comment silences."""
    ignored = Ignored(raw)
    return (each for each in faults if each.severity is Severity.ERROR or (each.line, each.rule) not in ignored)


def formed_again(kind: Kind, body: bytes) -> bytes:
    """``body``, in normal form but for the order of its links, in normal form."""
    return _encode(Former(Dialect("")).form(shape_of(str(kind)), msgspec.json.decode(body)))


def _owned_notice(site: Site, owned: list[tuple[Document, str]]) -> Fault:
    document, name = owned[0]
    names = ", ".join(sorted({name for _, name in owned}))
    line, column = site.places(document).key((name,))
    return Fault("server-owned-field", f"ignored, since the platform sets them: {names}", line, column,
                 "leave them out", Severity.NOTICE)  # fmt: skip
