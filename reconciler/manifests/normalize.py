"""The normal form: defaults filled, links full, order-free lists sorted. Collects the references."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.manifests.field_schema import FieldSchema, is_inert
from reconciler.manifests.links import UNCHECKED_KINDS, LinkError, is_reference, parse_link, uri_target
from reconciler.model.finding import Severity
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.platform import MOUNT_SCHEMES, PLATFORM_URI, SPELLING, VARIABLE_PREFIX
from reconciler.model.resource import GVC_PLACEHOLDER, Dependency, Reference, escape_pointer_step
from reconciler.sops.keys import Keyring


class ManifestContext(msgspec.Struct, frozen=True):
    """The settings for manifests: the org, and the spelling of ``platform``.

    ``org_known`` is False if the org is unknown, and ``org`` only a placeholder.
    ``keyring`` decrypts secrets. ``secrets`` is the policy for secrets in plain text: ``any`` for a warning,
    ``encrypted-only`` for an error, empty for no finding. ``images`` are patterns of the images that manifests may
    name; (): any. ``unknown_fields`` is the severity of fields of the platform that have no effect here. ``channels``
    has the GVCs that may name each channel of notifications; None: the settings are unknown.
    """

    org: str
    scheme: str = "platform"
    secret_key: bytes = b""
    keyring: Keyring = Keyring()
    secrets: str = ""
    org_known: bool = True
    images: tuple[str, ...] = ()
    unknown_fields: str = "warning"
    channels: dict[str, tuple[str, ...]] | None = None

    @property
    def prefix(self) -> str:
        """The prefix of URIs in manifests of this spelling."""
        return f"{self.scheme}://"


class NormalizeProblem(msgspec.Struct, frozen=True):
    """A value without a normal form; ``pointer`` is its JSON pointer."""

    pointer: str
    message: str
    suggestion: str = ""
    rule: str = "bad-link"
    severity: Severity = Severity.ERROR


class Normalizer:
    """Brings one document into normal form; ``references`` and ``troubles`` are its findings.

    ``unsorted``: a sorted list has links whose GVC is still open, so that their order may change with it.
    """

    __slots__ = ("dialect", "gvc", "references", "troubles", "unsorted")

    def __init__(self, dialect: ManifestContext, gvc: str = "") -> None:
        self.dialect = dialect
        self.gvc = gvc
        self.references: list[Reference] = []
        self.troubles: list[NormalizeProblem] = []
        self.unsorted = False

    def normalize(self, shape: FieldSchema, value: Any, pointer: str = "") -> Any:
        """``value`` in the normal form of ``shape``."""
        kind = type(value)
        if kind is dict:
            return self._mapping(shape, value, pointer)
        if kind is list:
            return self._sequence(shape, value, pointer)
        if kind is str:
            if shape.link:
                return self._link(shape, value, pointer)
            if shape.mount:
                return self._mount(value, pointer)
            if shape.uri and (self.dialect.scheme != SPELLING or value.startswith(PLATFORM_URI)):
                return self._uri(value, pointer)
        return value

    def _mapping(self, shape: FieldSchema, value: dict[str, Any], pointer: str) -> dict[str, Any]:
        # A first load spends its time here: plain values are copied at once, and only other fields are visited.
        formed = shape.fill | value
        for name in shape.fill_open:
            if name not in value:
                formed[name] = formed[name].copy()
        for name, child in shape.active:
            if name not in value:
                continue
            if child.inert and is_inert(child, value[name]):
                del formed[name]  # as if it were not there
            else:
                formed[name] = self.normalize(child, value[name], f"{pointer}/{name}")
        extra = shape.extra
        if extra is not None and not extra.plain:
            others = value.keys() - shape.properties.keys()
            formed |= {
                name: self.normalize(extra, value[name], f"{pointer}/{escape_pointer_step(name)}") for name in others
            }
        return formed

    def _sequence(self, shape: FieldSchema, value: list[Any], pointer: str) -> list[Any]:
        items = shape.items
        formed = value
        if items is not None and not items.plain:
            formed = [self.normalize(items, item, f"{pointer}/{index}") for index, item in enumerate(value)]
        if shape.is_set:
            self.unsorted |= self.gvc == GVC_PLACEHOLDER and any(
                GVC_PLACEHOLDER in item for item in formed if type(item) is str
            )
            single = sorted(set(formed))
            if len(single) < len(formed):
                self._duplicates(formed, pointer)
            return single
        if shape.is_sorted:
            return sorted(formed, key=_written if not shape.named else lambda item: str(item.get(shape.named, "")))
        return formed

    def _duplicates(self, formed: list[Any], pointer: str) -> None:
        first: dict[Any, int] = {}
        for index, item in enumerate(formed):
            if first.setdefault(item, index) != index:
                message = f"entry {first[item] + 1} of this list is the same"
                hint = "remove one of the two"
                at = f"{pointer}/{index}"
                self.troubles.append(NormalizeProblem(at, message, hint, "duplicate-entry", Severity.WARNING))

    def _link(self, shape: FieldSchema, value: str, pointer: str) -> str:
        bare = KINDS.get(shape.link[0]) if len(shape.link) == 1 else None
        try:
            link = parse_link(value, self.dialect.org, self.gvc, bare)
        except LinkError as error:
            self.troubles.append(NormalizeProblem(pointer, str(error)))
            return value
        if shape.link != ("*",) and link.kind not in shape.link:
            expected = " or ".join(shape.link)
            self.troubles.append(NormalizeProblem(pointer, f"links to a {link.kind}, expected a link to a {expected}"))
        if link.kind not in UNCHECKED_KINDS:
            depends = shape.depends and link.kind not in shape.peers
            self.references.append(Reference(link.target, pointer, Dependency.ORDER if depends else Dependency.NONE))
        return link.full

    def _uri(self, value: str, pointer: str) -> str:
        if self.dialect.scheme != SPELLING:
            value = translate_text(value, self.dialect.scheme)
        if value.startswith(PLATFORM_URI) and not is_reference(value):
            try:
                self.references.append(Reference(uri_target(value, self.gvc), pointer))
            except LinkError as error:
                self.troubles.append(NormalizeProblem(pointer, str(error)))
        return value

    def _mount(self, value: str, pointer: str) -> str:
        """The URI of a volume, whose scheme must exist: no schema checks it, since its spelling is a setting."""
        formed = self._uri(value, pointer)
        scheme, _, rest = formed.partition("://")
        if scheme not in MOUNT_SCHEMES:
            self.troubles.append(
                NormalizeProblem(
                    pointer,
                    f"there is no volume with the scheme {scheme}://",
                    f"did you mean {self.dialect.prefix}{rest}?",
                    "volume-provider",
                )
            )
        return formed


_written = msgspec.json.Encoder(order="deterministic").encode
"""The sort key of entries without a name."""


def translate_text(value: str, scheme: str) -> str:
    """A text of another spelling in normal spelling: its URI and its embedded built-in variables."""
    if value.startswith(f"{scheme}://"):
        return SPELLING + value[len(scheme) :]
    return value.replace(f"$({scheme.upper()}_", f"$({VARIABLE_PREFIX}")


def translate_all_texts(value: Any, scheme: str) -> Any:
    """``value`` with every text in normal spelling, for rules."""
    if isinstance(value, dict):
        return {name: translate_all_texts(member, scheme) for name, member in value.items()}
    if isinstance(value, list):
        return [translate_all_texts(item, scheme) for item in value]
    return translate_text(value, scheme) if isinstance(value, str) else value


def whole_numbers(value: Any) -> Any:
    """``value`` with 80.0 as 80, which are equal to validators."""
    if isinstance(value, dict):
        return {name: whole_numbers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def depends_on(
    text: str, dialect: ManifestContext, gvc: str, pointer: str
) -> tuple[list[Reference], list[NormalizeProblem]]:
    """The tag ``reconciler/depends-on``: keys or links, separated by commas or spaces, that must be Healthy first."""
    references, troubles = [], []
    for word in text.replace(",", " ").split():
        try:
            references.append(Reference(_parse_dependency(word, dialect, gvc), pointer, Dependency.HEALTHY))
        except (LinkError, ValueError) as error:
            troubles.append(NormalizeProblem(pointer, f"reconciler/depends-on: {error}"))
    return references, troubles


def _parse_dependency(word: str, dialect: ManifestContext, gvc: str) -> str:
    if word.startswith("/"):
        return parse_link(word, dialect.org, gvc).target
    kind, _, name = word.partition("/")
    if gvc and kind in GVC_SCOPED and "/" not in name:
        return str(Key(Kind(kind), gvc, name))
    return str(Key.parse(word))
