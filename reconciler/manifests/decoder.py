"""Bytes of one manifest file in; Manifests in normal form and Faults out. Depends on nothing but the bytes."""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from reconciler.documents.places import Locator, Places
from reconciler.documents.reader import Document, read
from reconciler.documents.validation import checker
from reconciler.manifests import kinds
from reconciler.manifests.normal import Dialect, Former, depends_on, whole_numbers
from reconciler.manifests.secrets import masked, seal_of
from reconciler.manifests.shape import secret_shape, shape_of
from reconciler.model.finding import Fault, Severity
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.resource import OPEN_GVC, Manifest, Reference, pointer_parts

SUPPORTED = frozenset({Kind.GVC, Kind.WORKLOAD, Kind.VOLUMESET, Kind.IDENTITY, Kind.POLICY, Kind.SECRET, Kind.LOCATION})
"""Kinds with a schema."""

SERVER_OWNED = frozenset({"id", "version", "created", "lastModified", "links", "status", "alias", "origin", "keys"})
"""Fields that an exported manifest carries and nobody can ask for (4-fields.md, section 1)."""

BUILT_IN_TAGS = frozenset(
    {"platform/protected", "platform/relaxMemoryToCpuRatio", "platform/deployTimestamp", "platform/release"}
)
"""Built-in tags that a manifest may carry (4-fields.md, section 9)."""

MOST_FAULTS = 500
"""Faults of one file that are looked for and told one by one."""

RULES = {
    "too-many-faults": "A file with very many faults is not read to its end.",
    "not-a-mapping": "A manifest is a mapping of fields to values.",
    "unknown-kind": "The kind of a manifest is one of the platform's kinds.",
    "unsupported-kind": "The kind is known to the platform and not yet to this program.",
    "server-owned-field": "A field that the platform itself sets is ignored in a manifest.",
    "built-in-tag": "Tags beginning with platform/ belong to the platform, but for a few.",
    "bad-link": "A link names a kind and a resource in one of the link forms.",
}

_WHOLE_FLOAT = (b".0,", b".0}", b".0]")
"""How a number such as 80.0 ends in JSON; most bodies hold none, which is seen without walking them."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """What one file says: its manifests, its faults, and how many documents it holds.

    ``broken`` are the keys (as text, the GVC may be open) of documents that are no manifests for their faults.
    """

    manifests: tuple[Manifest, ...]
    faults: tuple[Fault, ...]
    documents: int
    broken: tuple[str, ...] = ()


def decode(raw: bytes, dialect: Dialect) -> Decoded:
    """Read, check and normalise one file; every fault in it is reported, and only sound documents become manifests."""
    reading = read(raw)
    manifests: list[Manifest] = []
    faults = list(reading.faults)
    owned: list[tuple[Document, str]] = []
    broken: list[str] = []
    site = _Site(raw)
    for document in reading.documents:
        one = _Decoding(site, document, dialect)
        manifest = one.manifest()
        if manifest is not None:
            manifests.append(manifest)
        elif one.named:
            broken.append(one.named)
        faults.extend(one.faults)
        owned.extend((document, name) for name in one.owned)
        if len(faults) > MOST_FAULTS:
            message = f"this file has more than {MOST_FAULTS} faults; what follows is not looked at"
            faults.append(Fault("too-many-faults", message, faults[-1].line, faults[-1].column))
            break
    if owned:
        faults.append(_owned_notice(site, owned))
    in_order = tuple(sorted(faults, key=lambda fault: (fault.line, fault.column)))
    return Decoded(tuple(manifests), in_order, len(reading.documents), tuple(broken))


def formed_again(kind: Kind, body: bytes) -> bytes:
    """``body``, in normal form but for the order of its links, in normal form."""
    return _encode(Former(Dialect("")).form(shape_of(str(kind)), msgspec.json.decode(body)))


class _Site:
    """The file, parsed again for places only when something is wrong."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._locator: Locator | None = None

    def places(self, document: Document) -> Places:
        if self._locator is None:
            self._locator = Locator(self._raw)
        return self._locator.of(document.index)


def _owned_notice(site: _Site, owned: list[tuple[Document, str]]) -> Fault:
    document, name = owned[0]
    names = ", ".join(sorted({name for _, name in owned}))
    line, column = site.places(document).key((name,))
    return Fault("server-owned-field", f"ignored, since the platform sets them: {names}", line, column,
                 "leave them out", Severity.NOTICE)  # fmt: skip


class _Decoding:
    """One document on its way to a manifest."""

    def __init__(self, site: _Site, document: Document, dialect: Dialect) -> None:
        self.site = site
        self.document = document
        self.dialect = dialect
        self.faults: list[Fault] = []
        self.owned: list[str] = []
        self.key = ""
        self.named = ""

    def manifest(self) -> Manifest | None:
        value = self.document.value
        if not isinstance(value, dict):
            self._fault("not-a-mapping", (), "a manifest is a mapping that begins with `kind:`")
            return None
        kind = self._kind(value)
        if kind is None:
            return None
        value = self._translated(self._without_owned(value))
        self.named = _named(kind, value)
        check = checker(str(kind))
        if not check.valid(value):
            self.faults.extend(msgspec.structs.replace(fault, key=self._key_text(kind, value))
                               for fault in check.faults(value, self.site.places(self.document)))  # fmt: skip
            return None
        return self._formed(kind, value)

    def _kind(self, value: dict[str, Any]) -> Kind | None:
        written = value.get("kind")
        kind = KINDS.get(written) if isinstance(written, str) else None
        if kind in SUPPORTED:
            return kind
        if "kind" not in value:
            self._fault("missing-field", (), "the field `kind` is missing", f"one of {_listed()}")
        elif kind is not None:
            self._fault("unsupported-kind", ("kind",), f"manifests of kind {kind} are not supported yet")
        else:
            text = written if isinstance(written, str) else ""
            near = difflib.get_close_matches(text.lower(), [str(kind) for kind in SUPPORTED], 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {_listed()}"
            message = f"unknown kind {text[:60]!r}" if text else "the kind of a manifest is one word"
            self._fault("unknown-kind", ("kind",), message, hint)
        return None

    def _without_owned(self, value: dict[str, Any]) -> dict[str, Any]:
        self.owned = [name for name in value if name in SERVER_OWNED]
        return {name: member for name, member in value.items() if name not in SERVER_OWNED} if self.owned else value

    def _translated(self, value: dict[str, Any]) -> dict[str, Any]:
        tags, scheme = value.get("tags"), self.dialect.scheme
        if scheme == "platform" or not isinstance(tags, dict):
            return value
        own = f"{scheme}/"
        renamed = {f"platform/{tag[len(own) :]}" if tag.startswith(own) else tag: text for tag, text in tags.items()}
        return {**value, "tags": renamed}

    def _formed(self, kind: Kind, value: dict[str, Any]) -> Manifest | None:
        gvc = value.get("gvc", OPEN_GVC) if kind in GVC_SCOPED else ""
        former = Former(self.dialect, gvc)
        seal = b""
        if kind is Kind.SECRET:
            content = former.form(secret_shape(value["type"]), value["data"])
            seal = seal_of(content)
            value = {**value, "data": masked(content, self.dialect.secret_key)}
        body = former.form(shape_of(str(kind)), kinds.prepare(kind, value))
        kinds.complete(kind, body, self.dialect)
        if gvc:
            body["gvc"] = gvc
            former.references.append(Reference(f"gvc/{gvc}", "/gvc"))
        self._tags(body, former, gvc)
        self._variables(kind, value)
        for trouble in former.troubles:
            self.key = self._key_text(kind, value)
            self._fault("bad-link", pointer_parts(trouble.pointer), trouble.message, trouble.suggestion)
        if self.faults:
            return None
        references = tuple(sorted(set(former.references)))
        written = _encode(body)
        if any(end in written for end in _WHOLE_FLOAT):
            written = _encode(whole_numbers(body))
        return Manifest(kind, gvc, value["name"], written, references, self.document.index,
                        self.document.line, seal, former.unsorted, gvc == OPEN_GVC and _mixed(references))  # fmt: skip

    def _tags(self, body: dict[str, Any], former: Former, gvc: str) -> None:
        for tag, text in (body.get("tags") or {}).items():
            if tag.startswith("platform/") and tag not in BUILT_IN_TAGS:
                self._built_in(tag)
            elif tag == "reconciler/depends-on":
                references, troubles = depends_on(text, self.dialect, gvc, "/tags/reconciler~1depends-on")
                former.references.extend(references)
                for trouble in troubles:
                    self._fault("bad-link", ("tags", tag), trouble.message)

    def _variables(self, kind: Kind, value: dict[str, Any]) -> None:
        """The schema reserves names beginning PLATFORM_; this is the same for another spelling of it."""
        prefix = f"{self.dialect.scheme.upper()}_"
        if prefix == "PLATFORM_":
            return
        for pointer, name in kinds.variables(kind, value):
            if name.startswith(prefix):
                self._fault("not-allowed", pointer, f"`{name}` is refused: the platform sets names beginning {prefix}")

    def _built_in(self, tag: str) -> None:
        scheme = self.dialect.scheme
        written, *allowed = (scheme + one.removeprefix("platform") for one in (tag, *sorted(BUILT_IN_TAGS)))
        self._fault(
            "built-in-tag",
            ("tags", written),
            f"the tag {written} is the platform's own",
            f"allowed: {', '.join(allowed)}",
        )

    def _key_text(self, kind: Kind, value: dict[str, Any]) -> str:
        name, gvc = value.get("name"), value.get("gvc", "")
        if not isinstance(name, str) or not isinstance(gvc, str) or (kind in GVC_SCOPED and not gvc):
            return ""
        return str(Key(kind, gvc, name))

    def _fault(self, rule: str, pointer: tuple[str | int, ...], message: str, suggestion: str = "") -> None:
        line, column = self.site.places(self.document).of(pointer)
        self.faults.append(Fault(rule, message, line, column, suggestion, key=self.key))


def _mixed(references: tuple[Reference, ...]) -> bool:
    """Whether some targets leave the GVC open while others of such kinds name it."""
    return any(each.target.count("/") > 1 and OPEN_GVC not in each.target for each in references)


def _named(kind: Kind, value: dict[str, Any]) -> str:
    """The key that a document means to have, faulty or not; "" where it does not say."""
    name, gvc = value.get("name"), value.get("gvc", OPEN_GVC) if kind in GVC_SCOPED else ""
    return str(Key(kind, gvc, name)) if isinstance(name, str) and isinstance(gvc, str) else ""


def _listed() -> str:
    return ", ".join(sorted(SUPPORTED))
