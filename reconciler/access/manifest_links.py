"""Reads what a manifest refers to, and its normal form, from the document that a client sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from reconciler.access.references import ManifestLinks
from reconciler.manifests.decoder import decode
from reconciler.manifests.gvc_resolution import reference_in_gvc, resource_of
from reconciler.manifests.links import LinkError, parse_link
from reconciler.manifests.normalize import ManifestContext, respelled
from reconciler.model.key import Key, Kind
from reconciler.model.resource import GVC_PLACEHOLDER, Reference

EMPTY = ManifestLinks((), {})
"""The links of a resource that does not exist yet."""


def read_links(key: Key, document: Mapping[str, Any], context: ManifestContext) -> ManifestLinks:
    """What ``document``, a manifest of ``key``, refers to; of a faulty one, what can be read.

    A text that is no document has no links: the check of its commit refuses it.
    """
    if not document:
        return EMPTY
    try:
        raw = json.dumps(document).encode()
    except (TypeError, ValueError, RecursionError):
        return EMPTY
    decoded = decode(raw, context)
    value = respelled(document, context.scheme)
    references: tuple[Reference, ...] = ()
    body: Mapping[str, Any] = {}
    for manifest in decoded.manifests:
        resource = resource_of(manifest, key.gvc, "", "")
        references, body = resource.references, msgspec.json.decode(resource.body)
    for broken in decoded.broken:
        references = tuple(
            reference_in_gvc(each, key.gvc) if GVC_PLACEHOLDER in each.target else each for each in broken.references
        )
    return ManifestLinks(references, value, _identity(key, value, context.org), body)


def _identity(key: Key, document: Mapping[str, Any], org: str) -> str:
    """The key of the identity of a workload; "" for none."""
    spec = document.get("spec")
    link = spec.get("identityLink") if key.kind is Kind.WORKLOAD and isinstance(spec, Mapping) else None
    if not isinstance(link, str) or not link:
        return ""
    try:
        return parse_link(link, org, key.gvc, Kind.IDENTITY).target
    except LinkError:
        return ""
