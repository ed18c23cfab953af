"""Decodes one document: its kind, its schema, its rules, its normal form."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from reconciler.documents.locator import Locator
from reconciler.documents.positions import Position, Positions
from reconciler.documents.recognition import suggest_command
from reconciler.documents.schema.validator import MOST, get_checker
from reconciler.documents.types import Document, unreadable_paths
from reconciler.manifests import defaults
from reconciler.manifests.dialect_check import dialect_problems
from reconciler.manifests.encrypted import (
    encryption_findings,
    hidden_in,
    is_on_key,
    is_readable,
    known_name,
    select_visible_errors,
)
from reconciler.manifests.field_schema import secret_shape, shape_of
from reconciler.manifests.normalize import (
    ManifestContext,
    Normalizer,
    depends_on,
    translate_all_texts,
    whole_numbers,
)
from reconciler.manifests.rule_check import (
    InvalidValue,
    check_rules,
    invalid_of,
    is_within_places,
    list_missing_parts,
    without_invalid,
)
from reconciler.manifests.secret_values import encode_secret_data, mask_values
from reconciler.manifests.torn_files import guessed_key, kind_like, named_key
from reconciler.model.finding import Fault, Pointer, Severity
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.platform import SPELLING, TAG_PREFIX
from reconciler.model.resource import (
    GVC_PLACEHOLDER,
    LookupRequest,
    Manifest,
    Reference,
    escape_pointer_step,
    pointer_parts,
)
from reconciler.model.suggest import find_closest_word
from reconciler.printable import printable_finding
from reconciler.sops.metadata import FIELD
from reconciler.sops.result import LOCKED, DecryptedDocument, SopsProblem

if TYPE_CHECKING:
    from reconciler.documents.schema.dialect import SchemaError

SERVER_OWNED = frozenset({"id", "version", "created", "lastModified", "links", "status", "alias", "origin", "keys"})
"""Fields of exported manifests that users cannot set (docs/platform/fields.md#server-owned-fields)."""

DEPENDS_ON = "reconciler/depends-on"

_WHOLE_FLOAT = re.compile(rb"\.0[,}\]]").search
"""The end of a number such as 80.0 in JSON: one search spares most bodies a walk."""

_encode = msgspec.json.Encoder(order="deterministic").encode


_MOST_FIELDS = 64
"""The fields of a document among which a misspelled `kind` is looked for."""


class DocumentDecoder:
    """Decodes one document to a manifest."""

    def __init__(
        self, locator: Locator, document: Document, dialect: ManifestContext, opened: DecryptedDocument | None = None
    ) -> None:
        self.locator = locator
        self.document = document
        self.dialect = dialect
        self.opened = opened
        self.faults: list[Fault] = []
        self.server_owned: list[str] = []
        self.key = ""
        self.intended_key = self.guessed_key = ""
        self.partial_references: tuple[Reference, ...] = ()
        self.questions: tuple[LookupRequest, ...] = ()
        self.links_known = False

    def manifest(self) -> Manifest | None:
        """The manifest of the document, even if it breaks rules; None if it does not match its schema."""
        value = self.document.value if self.opened is None else self.opened.value
        if not isinstance(value, dict):
            self._fault("not-a-mapping", (), "a manifest is a mapping that begins with `kind:`")
            return None
        if self.opened is not None and not self._check_disclosed(self.opened):
            return None
        kind = self._kind(value)
        if kind is None:
            self.guessed_key = guessed_key(value)
            return None
        value = self._translate_tags(self._without_owned(value))
        self.intended_key = named_key(kind, value)
        self.guessed_key = "" if self.intended_key else guessed_key(value)
        for trouble, severity in encryption_findings(kind, value, self.opened, self.dialect.secrets):
            self.key = self._key_text(kind, value)
            self._report_sops_problem(trouble, severity)
            if kind is not Kind.SECRET:
                return None
        hidden = hidden_in(self.opened)
        check = get_checker(str(kind))
        breaches = [] if check.valid(value) else select_visible_errors(check.breaches(value), hidden)
        if not breaches:
            return self._make_manifest(kind, value, self._check_rules(kind, value, [InvalidValue(at) for at in hidden]))
        self._report_breaches(kind, value, breaches, [InvalidValue(at) for at in hidden])
        return None

    def collect_partial(self) -> None:
        """Check the rest of a document with unreadable values."""
        value = self.document.value
        places = frozenset(unreadable_paths(value))
        missed = list_missing_parts(places)
        if not isinstance(value, dict) or any(
            invalid_value.at in ((), ("kind",), (FIELD,)) for invalid_value in missed
        ):
            return
        kind = self._kind(value) if FIELD not in value else None
        if kind is None:
            return
        value = self._translate_tags(self._without_owned(value))
        self.intended_key = (
            "" if InvalidValue(("gvc",), ("string",)) in missed else named_key(kind, without_invalid(value, missed))
        )
        breaches = get_checker(str(kind)).breaches(value, lambda at: is_within_places(at, places))
        self._report_breaches(kind, value, breaches, missed)

    def _report_breaches(
        self, kind: Kind, value: dict[str, Any], breaches: list[SchemaError], missed: Sequence[InvalidValue] = ()
    ) -> None:
        """Report where ``value`` does not match its schema, and check its valid rest.

        The reader has reported the values in ``missed``.
        """
        torn = [*missed, *(invalid_of(breach) for breach in breaches)]
        rest = without_invalid(value, torn)
        self.key = self._key_text(kind, rest)
        phrased = get_checker(str(kind)).phrase_errors(breaches, self._positions) if breaches else []
        for fault in phrased:
            position = fault.line, fault.column
            self._add_fault(fault.rule, position, fault.message, fault.suggestion, fault.severity, self.key)
        if len(breaches) >= MOST:
            # There may be more faults, so the valid part is unknown.
            return
        self.questions = self._check_rules(kind, rest, torn)
        former = Normalizer(self.dialect, self._gvc(kind, rest))
        if kind is not Kind.SECRET:
            former.normalize(shape_of(str(kind)), rest)
        reported = {invalid_value.at for invalid_value in torn}
        self._report(former, kind, rest, reported)
        self.partial_references = tuple(
            sorted({reference for reference in former.references if pointer_parts(reference.pointer) not in reported})
        )
        self.links_known = not any(map(_may_hide_links, reported))

    def _check_disclosed(self, opened: DecryptedDocument) -> bool:
        """Whether enough of an encrypted document is readable to check it; reports faults of its encryption."""
        for trouble in opened.troubles:
            self._report_sops_problem(trouble, Severity.NOTICE if trouble.rule == LOCKED else Severity.ERROR)
        if not opened.locked:
            return True
        self.intended_key = known_name(opened)
        return is_readable(opened) and all(trouble.rule == LOCKED for trouble in opened.troubles)

    def _report_sops_problem(self, trouble: SopsProblem, severity: Severity) -> None:
        position = self._position(trouble.at, on_key=is_on_key(trouble))
        self._add_fault(trouble.rule, position, trouble.message, trouble.suggestion, severity, self.key)

    def _check_rules(
        self, kind: Kind, value: dict[str, Any], torn: Sequence[InvalidValue] = ()
    ) -> tuple[LookupRequest, ...]:
        """Check ``value`` by the rules of its kind; returns their questions about other resources."""
        scheme = self.dialect.scheme
        judgement = check_rules(kind, value if scheme == SPELLING else translate_all_texts(value, scheme), torn)
        for rule, flaw in judgement.flaws:
            position = self._position(_as_written(flaw.at, scheme), on_key=flaw.on_key)
            self._add_fault(
                rule.id, position, flaw.message, flaw.suggestion, rule.severity, self._key_text(kind, value)
            )
        return tuple(judgement.questions)

    @staticmethod
    def _gvc(kind: Kind, value: dict[str, Any]) -> str:
        gvc = value.get("gvc", GVC_PLACEHOLDER) if kind in GVC_SCOPED else ""
        return gvc if isinstance(gvc, str) else GVC_PLACEHOLDER

    def _kind(self, value: dict[str, Any]) -> Kind | None:
        written = value.get("kind")
        kind = KINDS.get(written) if isinstance(written, str) else None
        if kind is not None:
            return kind
        if "kind" not in value:
            # A file of another tool may lie beside manifests.
            near = _find_mistyped_kind(value)
            meant = f"did you mean `kind` instead of `{near}`?" if near else f"one of {_format_kinds()}"
            position = self._position((near,) if near else (), on_key=bool(near))
            hint = suggest_command(value) or meant
            self._add_fault("missing-field", position, "the field `kind` is missing", hint, Severity.ERROR, self.key)
        else:
            # If there are several words, the others may be part of a secret.
            text = written if isinstance(written, str) and len(written.split()) == 1 else ""
            near = kind_like(text)
            hint = f"did you mean {near}?" if near else f"one of {_format_kinds()}"
            if "apiVersion" in value:
                hint = "this is a manifest of Kubernetes: `reconciler convert FILE` converts it"
            message = f"unknown kind {text[:60]!r}" if text else "the kind of a manifest is one word"
            self._fault("unknown-kind", ("kind",), message, hint)
        return None

    def _without_owned(self, value: dict[str, Any]) -> dict[str, Any]:
        self.server_owned = [name for name in value if name in SERVER_OWNED]
        return (
            {name: member for name, member in value.items() if name not in SERVER_OWNED} if self.server_owned else value
        )

    def _translate_tags(self, value: dict[str, Any]) -> dict[str, Any]:
        tags, scheme = value.get("tags"), self.dialect.scheme
        if scheme == SPELLING or not isinstance(tags, dict):
            return value
        own = f"{scheme}/"
        renamed = {TAG_PREFIX + tag[len(own) :] if tag.startswith(own) else tag: text for tag, text in tags.items()}
        return {**value, "tags": renamed}

    def _make_manifest(self, kind: Kind, value: dict[str, Any], questions: tuple[LookupRequest, ...]) -> Manifest:
        gvc = self._gvc(kind, value)
        former = Normalizer(self.dialect, gvc)
        secret_data = b""
        if kind is Kind.SECRET:
            content = former.normalize(secret_shape(value["type"]), value["data"])
            secret_data = encode_secret_data(content) if self.opened is None or not self.opened.locked else b""
            value = {**value, "data": mask_values(content, self.dialect.secret_key)}
        body = former.normalize(shape_of(str(kind)), defaults.upgrade_deprecated(kind, value))
        defaults.apply_defaults(kind, body, self.dialect)
        if gvc:
            body["gvc"] = gvc
            former.references.append(Reference(f"gvc/{gvc}", "/gvc"))
        self._report(former, kind, value)
        references = tuple(sorted(set(former.references)))
        written = _encode(body)
        if _WHOLE_FLOAT(written):
            written = _encode(whole_numbers(body))
        mixed = gvc == GVC_PLACEHOLDER and _has_mixed_targets(references)
        return Manifest(
            kind,
            gvc,
            value["name"],
            written,
            references,
            self.document.index,
            self.document.line,
            secret_data,
            former.unsorted,
            mixed,
            questions,
            self.opened is not None,
        )

    def _report(self, former: Normalizer, kind: Kind, value: dict[str, Any], reported: Container[Pointer] = ()) -> None:
        """Report faults by the normal form and the settings in ``value``, except at the places ``reported``."""
        self._dependencies(value, former)
        for trouble in (*dialect_problems(kind, value, self.dialect), *former.troubles):
            pointer = pointer_parts(trouble.pointer)
            if pointer not in reported:
                self.key = self._key_text(kind, value)
                self._fault(trouble.rule, pointer, trouble.message, trouble.suggestion, trouble.severity)

    def _dependencies(self, value: dict[str, Any], former: Normalizer) -> None:
        text = (value.get("tags") or {}).get(DEPENDS_ON)
        if text is not None:
            references, troubles = depends_on(
                text, self.dialect, former.gvc, f"/tags/{escape_pointer_step(DEPENDS_ON)}"
            )
            former.references.extend(references)
            former.troubles.extend(troubles)

    @property
    def _positions(self) -> Positions:
        """The positions of the values of the document, by a second parse."""
        return self.locator.of(self.document.index)

    def _position(self, at: Pointer, *, on_key: bool = False) -> Position:
        """Where the value at ``at``, or the key that leads to it, begins."""
        return self._positions.key(at) if on_key else self._positions.value(at)

    def _key_text(self, kind: Kind, value: dict[str, Any]) -> str:
        name, gvc = value.get("name"), value.get("gvc", "")
        if not isinstance(name, str) or not isinstance(gvc, str) or (kind in GVC_SCOPED and not gvc):
            return ""
        return str(Key(kind, gvc, name))

    def _fault(
        self, rule: str, pointer: Pointer, message: str, suggestion: str = "", severity: Severity = Severity.ERROR
    ) -> None:
        self._add_fault(rule, self._position(pointer), message, suggestion, severity, self.key)

    def _add_fault(
        self, rule: str, position: Position, message: str, suggestion: str, severity: Severity, key: str
    ) -> None:
        line, column = position
        # A rule may quote text of the document as it is, however long it is.
        self.faults.append(
            Fault(rule, printable_finding(message), line, column, printable_finding(suggestion), severity, key)
        )


def _may_hide_links(at: Pointer) -> bool:
    """Whether a faulty value at ``at`` of a policy may be or contain an unreadable link."""
    return at[:1] in (("bindings",), ("targetLinks",)) and "permissions" not in at


def _as_written(at: Pointer, scheme: str) -> Pointer:
    """``at`` with tags as written: cpln/protected for platform/protected."""
    tag = str(at[1]) if len(at) == 2 and at[0] == "tags" else ""
    return ("tags", scheme + tag.removeprefix(SPELLING)) if tag.startswith(TAG_PREFIX) else at


def _has_mixed_targets(references: tuple[Reference, ...]) -> bool:
    """Whether some targets leave the GVC open and others of such kinds name it."""
    return any(reference.target.count("/") > 1 and GVC_PLACEHOLDER not in reference.target for reference in references)


def _find_mistyped_kind(value: dict[str, Any]) -> str:
    """The field with the name of a kind whose own name is spelled much like `kind`; "" without one."""
    fields = [name for name, text in islice(value.items(), _MOST_FIELDS) if isinstance(text, str) and text in KINDS]
    return find_closest_word("kind", fields)


def _format_kinds() -> str:
    return ", ".join(sorted(KINDS))
