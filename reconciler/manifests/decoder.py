"""From the bytes of one manifest file to Manifests in normal form and Faults, without other input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from reconciler.documents.ignore_comments import IgnoreComments, UnusedComment
from reconciler.documents.json.recognition import is_json_manifest
from reconciler.documents.locator import Locator
from reconciler.documents.reader import parse_documents
from reconciler.documents.recognition import describe_form, form_of
from reconciler.documents.schema.validator import get_checker
from reconciler.documents.types import Document, Reading
from reconciler.manifests.comment_check import check_comments
from reconciler.manifests.document import DocumentDecoder
from reconciler.manifests.field_schema import shape_of
from reconciler.manifests.normalize import ManifestContext, Normalizer
from reconciler.manifests.rule_check import MOST_FAULTS
from reconciler.model.finding import Fault, Severity
from reconciler.model.key import KINDS, Kind
from reconciler.model.platform import PLATFORM_URI
from reconciler.model.resource import LookupRequest, Manifest, Reference
from reconciler.model.rule import Rule, error_rule
from reconciler.sops.result import MARK as ENCRYPTED
from reconciler.sops.result import DecryptedDocument

MOST_PARTIAL = 10
"""The maximum of documents in a file that are checked although some of their values are unreadable."""


FOREIGN_FILE = "foreign-file"
"""The rule of a file that is something else than manifests."""

RULES = (
    error_rule(
        "too-many-faults",
        f"A file has at most {MOST_FAULTS} faults.",
        "More faults probably have one cause. Correct the first ones, and the rest is checked.",
        "docs/manifests.md#limits",
    ),
    error_rule(
        "not-a-mapping",
        "A manifest is a mapping of fields to values.",
        "A text or a list has no fields, so its kind is unknown. List files that are no manifests in "
        ".reconcilerignore.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        FOREIGN_FILE,
        "A file that is read for manifests has manifests, and is not one of another tool.",
        "It would be refused field by field. `reconciler convert` makes manifests of some files; list those that stay "
        "in .reconcilerignore.",
        "docs/convert.md#converting-and-importing",
    ),
    error_rule(
        "unknown-kind",
        "The kind of a manifest is one of the platform's kinds, in lower case.",
        "The kind decides what all other fields mean.",
        "docs/platform/fields.md#kinds",
    ),
    Rule(
        "server-owned-field",
        Severity.NOTICE,
        "Manifests have no fields that the platform itself sets.",
        "Exported resources have them. They are ignored and never compared; a change of them has no effect.",
        "docs/platform/fields.md#server-owned-fields",
    ),
    Rule(
        "field-not-enforced",
        Severity.WARNING,
        "A manifest has no field of the platform that has no effect here.",
        "The field is known and stays in the manifest; what it asks for does not happen. It is an error with "
        "`unknownFields: error` in the settings.",
        "docs/platform/fields.md#fields-without-effect",
    ),
    Rule(
        "field-inert",
        Severity.NOTICE,
        "A field that has no effect here may be left out if its value has none on the platform either.",
        "Exports and templates have such fields. They are dropped before manifests are compared.",
        "docs/platform/fields.md#fields-without-effect",
    ),
    error_rule(
        "built-in-tag",
        "Of the tags that begin with platform/, a manifest has only those that are for manifests.",
        "The platform writes the others itself; their values in a manifest would be lost.",
        "docs/platform/fields.md#tags",
    ),
    error_rule(
        "image-allowed",
        "An image fits a pattern of `images.allowed`, if the settings have any.",
        "The operator decides from where programs come to the hosts; other images are never pulled.",
        "docs/containers.md#images",
    ),
    error_rule(
        "notify-channel",
        "A GVC names channels of notifications that are open to it.",
        "Who may change a manifest cannot send to the receivers of others: the operator opens a channel by `gvcs`.",
        "docs/notifications.md#rules-of-a-team",
    ),
    Rule(
        "notify-unknown",
        Severity.WARNING,
        "A GVC names channels of notifications that there are.",
        "To others nothing is sent. Another host that applies the same manifests may have them.",
        "docs/notifications.md#rules-of-a-team",
    ),
    error_rule(
        "bad-link",
        "A link has one of the forms of links: //KIND/NAME, //gvc/GVC/KIND/NAME, or the long one beginning with /org/.",
        "Other forms cannot be followed, so it is unknown whether the target exists.",
        "docs/platform/fields.md#links",
    ),
    error_rule(
        "org-name",
        "A manifest of kind org is for the org that the settings name.",
        "A repository is for one org. Manifests of another org would be applied to this one.",
        "docs/platform/fields.md#manifests",
    ),
    Rule(
        "duplicate-entry",
        Severity.WARNING,
        "An entry occurs once in a list whose order has no meaning, such as the locations of a GVC.",
        "The second one has no effect. Mostly another one was meant.",
        "docs/manifests.md#normal-form",
    ),
    Rule(
        "ignore-comment",
        Severity.WARNING,
        "A comment that silences a warning names the rule, gives a reason, and is where the rule warns: "
        "# reconciler: ignore RULE reason.",
        "A comment without them silences nothing, and errors cannot be silenced. A comment without a warning would "
        "hide the next one.",
        "docs/rules.md#rules",
    ),
)
"""Rules of manifests of every kind."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Broken(msgspec.Struct, frozen=True, gc=False):
    """A document whose faults keep it from being a manifest.

    ``key`` is its probable key, as text, its GVC open if the directory decides it; ``references`` are its readable
    links, ``questions`` those of the rules about its valid part. ``mentions`` are the keys that it links to, None if a
    link may be missing. ``guessed``: the document does not name the key, since it is unreadable, or its kind or name is
    misspelled.
    """

    key: str
    position: int
    references: tuple[Reference, ...] = ()
    questions: tuple[LookupRequest, ...] = ()
    line: int = 1
    mentions: tuple[str, ...] | None = None
    guessed: bool = False


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """A decoded file: its manifests, its faults, and its number of documents.

    A manifest that breaks a rule is included, so that its links are checked; the faults of its file refuse it.
    """

    manifests: tuple[Manifest, ...]
    faults: tuple[Fault, ...]
    documents: int
    broken: tuple[Broken, ...] = ()
    unused_comments: tuple[UnusedComment, ...] = ()


NO_MANIFEST = Decoded((), (), 0)
"""A file in JSON that is something else."""


class ManifestFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The content of a file, and whether it is read as JSON, which may be no manifest at all."""

    raw: bytes
    is_json: bool = False

    def read(self) -> Reading | None:
        """Its documents; None if it is no manifest."""
        if self.is_json and not is_json_manifest(self.raw):
            return None
        return parse_documents(self.raw, is_json=self.is_json)


def decode_manifests(raw: bytes, dialect: ManifestContext, *, is_json: bool = False) -> Decoded:
    """Read, check and normalise one file; reports every fault, and only valid documents become manifests.

    With ``is_json``, it is read as JSON, if it is a manifest.
    """
    [decoded] = decode_many([ManifestFile(raw, is_json)], dialect)
    return decoded


def decode_many(files: Sequence[ManifestFile], dialect: ManifestContext) -> list[Decoded]:
    """``decode_manifests`` for each of ``files``, which take 10 % less time together.

    The processor keeps the reader in its caches if it first reads all.
    """
    readings = [file.read() for file in files]
    return [
        NO_MANIFEST if reading is None else _decode_documents(file.raw, reading, dialect)
        for file, reading in zip(files, readings, strict=True)
    ]


def _decode_documents(raw: bytes, reading: Reading, dialect: ManifestContext) -> Decoded:
    manifests: list[Manifest] = []
    faults = list(reading.faults)
    broken: list[Broken] = []
    owned: list[tuple[Document, str]] = []
    locator = Locator(raw, is_json=reading.is_json)
    opened = _decrypt_documents(raw, reading, dialect) if ENCRYPTED in raw else {}
    for document in reading.documents:
        one = DocumentDecoder(locator, document, dialect, opened.get(document.index))
        manifest = one.manifest()
        if manifest is not None:
            manifests.append(manifest)
        elif one.intended_key or one.guessed_key:
            broken.append(_make_broken_document(one))
        faults.extend(one.faults)
        owned += ((document, name) for name in one.server_owned)
        if len(faults) > MOST_FAULTS:
            message = f"this file has more than {MOST_FAULTS} faults; the rest is not checked"
            faults.append(Fault("too-many-faults", message, faults[-1].line, faults[-1].column))
            break
    faults = _update_advice(faults, reading, locator)
    for document in reading.partial[:MOST_PARTIAL]:
        one = DocumentDecoder(locator, document, dialect)
        one.collect_partial()
        broken += [_make_broken_document(one)] if one.intended_key else []
        faults += one.faults
    if reading.faults:
        keys = {f"{manifest.kind}/{manifest.name}" for manifest in manifests}
        keys |= {_without_gvc(entry.key) for entry in broken}
        broken.extend(_guess_broken_documents(raw, reading, dialect, keys))
    faults = _name_foreign_file(raw, reading, faults) if faults and not manifests else faults
    faults += [_owned_notice(locator, owned)] if owned else []
    unused: tuple[UnusedComment, ...] = ()
    # JSON has no comments; what looks like one is a part of a text.
    if not reading.is_json and (ignored := IgnoreComments(raw)).found:
        faults, unused = check_comments(ignored, faults, RULES, dialect.secrets)
    if dialect.scheme != "platform":
        faults = [_with_platform_scheme(fault, dialect.prefix) for fault in faults]
    faults.sort(key=lambda fault: (fault.line, fault.column))
    return Decoded(tuple(manifests), tuple(faults), len(reading.documents), tuple(broken), unused)


def _name_foreign_file(raw: bytes, reading: Reading, faults: list[Fault]) -> list[Fault]:
    """One fault that names what the file is; ``faults`` if it may be meant as manifests."""
    words = describe_form(form_of("", raw, reading.documents))
    if words is None:
        return faults
    first = min(faults, key=lambda fault: (fault.line, fault.column))
    return [Fault(FOREIGN_FILE, words.message, first.line, first.column, words.suggestion)]


def _update_advice(faults: list[Fault], reading: Reading, locator: Locator) -> list[Fault]:
    """``faults`` with advice on ambiguous scalars that fits their fields, as far as kinds are known."""
    for document in reading.partial:
        kind = document.value.get("kind") if isinstance(document.value, dict) else None
        # Without a kind, the fields of all kinds count.
        check = get_checker(kind if isinstance(kind, str) and kind in KINDS else str(Kind.WORKLOAD))
        faults = check.renew_advice(faults, document.value, locator.of(document.index))
    return faults


def _make_broken_document(one: DocumentDecoder) -> Broken:
    mentions = (
        tuple(partial_reference.target for partial_reference in one.partial_references) if one.links_known else None
    )
    at = one.document
    key = one.intended_key or one.guessed_key
    guessed = not one.intended_key
    return Broken(key, at.index, one.partial_references, one.questions, at.line, mentions, guessed)


def _guess_broken_documents(raw: bytes, reading: Reading, dialect: ManifestContext, keys: set[str]) -> Iterator[Broken]:
    """The probable keys of documents that cannot be parsed, from their text."""
    from reconciler.manifests.torn_files import guess_intended_keys, intended_in_json

    for key, mentions in (intended_in_json if reading.is_json else guess_intended_keys)(raw, dialect):
        if _without_gvc(key) not in keys:
            yield Broken(key, -1, mentions=mentions, guessed=True)


def _without_gvc(key: str) -> str:
    """Kind and name of a key."""
    return f"{key.partition('/')[0]}/{key.rpartition('/')[2]}"


def _decrypt_documents(raw: bytes, reading: Reading, dialect: ManifestContext) -> dict[int, DecryptedDocument]:
    from reconciler.sops.decrypt import open_all

    return open_all(raw, reading, dialect.keyring)


def _with_platform_scheme(fault: Fault, prefix: str) -> Fault:
    """``fault`` in the spelling of manifests that write ``prefix`` for platform://."""
    message, hint = (text.replace(PLATFORM_URI, prefix) for text in (fault.message, fault.suggestion))
    return msgspec.structs.replace(fault, message=message, suggestion=hint)


def renormalize_body(kind: Kind, body: bytes) -> bytes:
    """``body`` in normal form, if only the order of its links is not."""
    return _encode(Normalizer(ManifestContext("")).normalize(shape_of(str(kind)), msgspec.json.decode(body)))


def _owned_notice(locator: Locator, owned: list[tuple[Document, str]]) -> Fault:
    document, name = owned[0]
    names = ", ".join(sorted({name for _, name in owned}))
    line, column = locator.of(document.index).key((name,))
    them = "it" if ", " not in names else "them"
    return Fault(
        "server-owned-field",
        f"ignored, since the platform sets {them}: {names}",
        line,
        column,
        f"leave {them} out",
        Severity.NOTICE,
    )
