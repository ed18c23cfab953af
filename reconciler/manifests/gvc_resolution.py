"""Assigns a manifest without a GVC to one GVC."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import msgspec

from reconciler.manifests.decoder import renormalize_body
from reconciler.model.key import Key
from reconciler.model.resource import GVC_PLACEHOLDER, LookupRequest, Manifest, Reference, Resource

_OPEN = msgspec.json.encode(GVC_PLACEHOLDER)[1:-1]


def resource_of(manifest: Manifest, gvc: str, path: str, blob: str) -> Resource:
    """``manifest`` as a resource of the file ``path``, its open GVC filled in."""
    body, references = manifest.body, manifest.references
    if manifest.gvc == GVC_PLACEHOLDER:
        # The name may be that of an invalid GVC, and have any character.
        body = body.replace(_OPEN, msgspec.json.encode(gvc)[1:-1])
        if manifest.unsorted:
            body = renormalize_body(manifest.kind, body)
        references = _all_in_gvc(references, gvc)
        if manifest.mixed:
            references = tuple(sorted(references))
    key = Key(manifest.kind, gvc, manifest.name)
    digest = blake2b(body, digest_size=16).hexdigest()
    questions = _all_asked_in_gvc(manifest.questions, gvc)
    return Resource(
        key,
        digest,
        body,
        references,
        path,
        manifest.line,
        manifest.position,
        blob,
        manifest.secret_data,
        questions,
        manifest.transient,
    )


@lru_cache(maxsize=256)
def _all_in_gvc(references: tuple[Reference, ...], gvc: str) -> tuple[Reference, ...]:
    """Cached, as each of them: resources of one directory mostly have the same references, and share them."""
    return tuple(
        [
            reference_in_gvc(reference, gvc) if GVC_PLACEHOLDER in reference.target else reference
            for reference in references
        ]
    )


@lru_cache(maxsize=256)
def _all_asked_in_gvc(questions: tuple[LookupRequest, ...], gvc: str) -> tuple[LookupRequest, ...]:
    return tuple([request_in_gvc(question, gvc) for question in questions])


@lru_cache(maxsize=1024)
def reference_in_gvc(reference: Reference, gvc: str) -> Reference:
    """``reference`` with its open GVC filled in."""
    return Reference(reference.target.replace(GVC_PLACEHOLDER, gvc), reference.pointer, reference.bond)


@lru_cache(maxsize=1024)
def request_in_gvc(question: LookupRequest, gvc: str) -> LookupRequest:
    """``question`` with its open GVC filled in."""
    if GVC_PLACEHOLDER not in question.target and GVC_PLACEHOLDER not in question.detail:
        return question
    target, detail = question.target.replace(GVC_PLACEHOLDER, gvc), question.detail.replace(GVC_PLACEHOLDER, gvc)
    return LookupRequest(question.rule, target, question.pointer, detail)
