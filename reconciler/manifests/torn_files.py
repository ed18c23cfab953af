"""Guesses the key of a faulty document, so that links to it are not reported as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from reconciler.documents.json.recognition import named_in
from reconciler.manifests.links import LinkError, parse_link, uri_target
from reconciler.manifests.normalize import ManifestContext, translate_text
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.platform import PLATFORM_URI
from reconciler.model.resource import GVC_PLACEHOLDER
from reconciler.model.suggest import find_closest_word

_PART = rb"(?m)^---"
_PAIR = r"""["']?(kind|name|gvc)["']?[ \t]*:[ \t]*["']?([^\s"',#}]{1,256})"""
_FIELD = r"(?m)^[ \t]{0,2}(?:\{[ \t]*)?" + _PAIR
"""A field of the outermost mapping, in YAML or JSON, by its place on a line."""
_IN_FLOW = r"[{,][ \t]*" + _PAIR
_LINK = r"""(?:[a-z]{1,30}:)?//[a-z][^\s"',\[\]{}]{1,256}|/org/[^\s"',\[\]{}]{1,256}"""
_MOST_BYTES = 256 * 1024
_MOST_PARTS = 500
_MOST_PAIRS = 64
_MOST_LINKS = 200
_MOST_FIELDS = 64
_LONGEST_KIND = 64
"""Limits for reading hostile files; every ordinary manifest is within them."""


def named_key(kind: Kind, value: dict[str, Any]) -> str:
    """The key of a document, faulty or not; "" if it names none."""
    name, gvc = value.get("name"), value.get("gvc", GVC_PLACEHOLDER) if kind in GVC_SCOPED else ""
    return str(Key(kind, gvc, name)) if isinstance(name, str) and isinstance(gvc, str) else ""


def guessed_key(value: dict[str, Any]) -> str:
    """The key where the kind, or the field of kind or name, is misspelled; "" if no name is similar."""
    fields = list(islice(value, _MOST_FIELDS))
    written = {name: value[field] for name in ("kind", "name") if (field := find_closest_word(name, fields))}
    kind = kind_like(str(written.get("kind", "")))
    return named_key(KINDS[kind], {**value, **written}) if kind else ""


def kind_like(word: str) -> str:
    """The kind that ``word`` probably means, or ""."""
    return find_closest_word(word[:_LONGEST_KIND].lower(), KINDS, 0.7)


class Intended(NamedTuple):
    """The probable key of a torn document, its GVC open if it names none, and the keys that it links to."""

    key: str
    mentions: tuple[str, ...]


def guess_intended_keys(raw: bytes, context: ManifestContext) -> Iterator[Intended]:
    """The probable keys of the documents of ``raw``, within limits."""
    for part in re.split(_PART, raw[:_MOST_BYTES], maxsplit=_MOST_PARTS):
        text = part.decode("utf-8", "replace")
        fields: dict[str, list[str]] = {"kind": [], "name": [], "gvc": []}
        flow = text.lstrip()[:1] == "{"
        for name, value in re.findall(_IN_FLOW if flow else _FIELD, text):
            if len(fields[name]) < _MOST_PAIRS:
                fields[name].append(value)
        gvc = fields["gvc"][0] if len(set(fields["gvc"])) == 1 else GVC_PLACEHOLDER
        mentions = _collect_mentions(re.findall(_LINK, text), context, gvc)
        # After a forgotten `---` there are two kinds and two names.
        for kind, name in islice(product(dict.fromkeys(fields["kind"]), dict.fromkeys(fields["name"])), _MOST_PAIRS):
            modelled = KINDS.get(kind)
            if modelled is not None:
                yield Intended(str(Key(modelled, gvc if modelled in GVC_SCOPED else "", name)), mentions)


def intended_in_json(raw: bytes, context: ManifestContext) -> Iterator[Intended]:
    """The probable keys of the documents of ``raw``, JSON with faults, within limits."""
    links = re.findall(_LINK, raw[:_MOST_BYTES].decode("utf-8", "replace"))
    for kind, name, written in islice(named_in(raw), _MOST_PAIRS):
        modelled = KINDS.get(kind) or (Kind.SECRET if kind else None)
        if modelled is not None and name:
            gvc = written or GVC_PLACEHOLDER
            mentions = _collect_mentions(links, context, gvc)
            yield Intended(str(Key(modelled, gvc if modelled in GVC_SCOPED else "", name)), mentions)


def _collect_mentions(links: Sequence[str], context: ManifestContext, gvc: str) -> tuple[str, ...]:
    """The keys that ``links`` lead to, within limits."""
    return tuple(dict.fromkeys(islice(_list_targets(links, context, gvc), _MOST_LINKS)))


def _list_targets(links: Sequence[str], context: ManifestContext, gvc: str) -> Iterator[str]:
    for written in links:
        link = translate_text(written, context.scheme)
        try:
            yield uri_target(link, gvc) if link.startswith(PLATFORM_URI) else parse_link(link, context.org, gvc).target
        except LinkError:
            continue
