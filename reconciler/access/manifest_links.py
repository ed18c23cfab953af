"""Reads what a manifest refers to, and its normal form: from what a client sent, or from the text of its file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from reconciler.access.references import ManifestLinks, is_secret_uri, value_at
from reconciler.documents.encoding import is_json_list
from reconciler.documents.reader import parse_documents
from reconciler.manifests.decoder import Decoded, decode_manifests
from reconciler.manifests.gvc_resolution import reference_in_gvc, resource_of
from reconciler.manifests.links import LinkError, parse_link
from reconciler.manifests.normalize import ManifestContext, translate_all_texts
from reconciler.model.key import Key, Kind
from reconciler.model.resource import GVC_PLACEHOLDER, Manifest, Reference, pointer_parts

EMPTY = ManifestLinks((), {})
"""The links of a resource that does not exist yet."""
PROGRAMS = frozenset({Kind.WORKLOAD, Kind.MK8S})
"""Kinds that do with their links whatever they run does: who changes one may use all that it refers to."""
DIRECTED = frozenset({Kind.AGENT, Kind.CLOUDACCOUNT, Kind.SECRET})
"""Kinds whose links are used as the fields beside the link say, such as the role of a cloud account."""


def read_links(key: Key, document: Mapping[str, Any], context: ManifestContext) -> ManifestLinks:
    """What ``document``, a manifest of ``key``, refers to; of a faulty one, what can be read.

    One that is too large to be read has no links here: those in the text of its file decide.
    """
    if not document:
        return EMPTY
    try:
        raw = json.dumps(document, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return EMPTY
    decoded = decode_manifests(raw, context)
    value = translate_all_texts(document, context.scheme)
    return _links_at(key, decoded, 0, value, context)


class FileLinks:
    """What the manifests in ``text``, a whole file (None: there is none), refer to; it is read once for all of them."""

    def __init__(self, text: str | None, context: ManifestContext) -> None:
        raw = (text or "").encode()
        self._context = context
        as_json = is_json_list(raw)
        self._documents = parse_documents(raw, is_json=as_json).documents
        self._decoded = decode_manifests(raw, context, is_json=as_json)

    def of(self, key: Key) -> ManifestLinks | None:
        """What the manifest of ``key`` refers to; None if it is not there.

        Of a faulty one, it is what can be read, without a ``body``.
        """
        documents = [document for document in self._documents if _matches_key(document.value, key)]
        if not documents:
            return None
        # One without a GVC can be of another one, whose directory it is in.
        document = next((document for document in documents if document.value.get("gvc") == key.gvc), documents[0])
        value = translate_all_texts(document.value, self._context.scheme)
        return _links_at(key, self._decoded, document.index, value, self._context)


def _matches_key(document: Any, key: Key) -> bool:
    if not isinstance(document, dict) or (document.get("kind"), document.get("name")) != (key.kind, key.name):
        return False
    return not key.gvc or document.get("gvc", key.gvc) == key.gvc


def _links_at(
    key: Key, decoded: Decoded, position: int, value: Mapping[str, Any], context: ManifestContext
) -> ManifestLinks:
    """What the document at ``position``, which is written as ``value``, refers to."""
    for manifest in decoded.manifests:
        if manifest.position == position:
            return _links_of(key, manifest, value, context)
    references: tuple[Reference, ...] = ()
    for broken in decoded.broken:
        if broken.position == position:
            references = tuple(
                reference_in_gvc(reference, key.gvc) if GVC_PLACEHOLDER in reference.target else reference
                for reference in broken.references
            )
    return ManifestLinks(references, value, _find_identity_key(key, value, context.org))


def _links_of(key: Key, manifest: Manifest, value: Mapping[str, Any], context: ManifestContext) -> ManifestLinks:
    """What ``manifest``, which is written as ``value``, refers to."""
    resource = resource_of(manifest, key.gvc, "", "")
    body = msgspec.json.decode(resource.body)
    uses = (
        frozenset(_list_used_links(key, body, context)) if any(map(_is_directed, resource.references)) else frozenset()
    )
    return ManifestLinks(resource.references, value, _find_identity_key(key, value, context.org), body, uses)


def _is_directed(reference: Reference) -> bool:
    return reference.target.partition("/")[0] in DIRECTED


def _list_used_links(key: Key, body: Mapping[str, Any], context: ManifestContext) -> Iterator[tuple[str, str]]:
    """The directed links of a manifest with the normal form ``body``, each with the fields beside it.

    In normal form, equal fields are written in the same way.
    """
    if key.kind in PROGRAMS:
        return
    document = {"kind": str(key.kind), **body}
    for manifest in decode_manifests(json.dumps(document, ensure_ascii=False).encode(), context).manifests:
        for reference in filter(_is_directed, resource_of(manifest, key.gvc, "", "").references):
            steps = pointer_parts(reference.pointer)
            holder = value_at(document, steps[:-1])
            is_whole = holder is document or holder is document.get("spec")
            if isinstance(holder, Mapping) and not is_whole and not is_secret_uri(value_at(document, steps)):
                yield reference.target, json.dumps(holder, sort_keys=True)


def _find_identity_key(key: Key, document: Mapping[str, Any], org: str) -> str:
    """The key of the identity of a workload; "" for none."""
    spec = document.get("spec")
    link = spec.get("identityLink") if key.kind is Kind.WORKLOAD and isinstance(spec, Mapping) else None
    if not isinstance(link, str) or not link:
        return ""
    try:
        return parse_link(link, org, key.gvc, Kind.IDENTITY).target
    except LinkError:
        return ""
