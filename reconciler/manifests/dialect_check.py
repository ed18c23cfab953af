"""Checks of a document that depend on the settings: built-in tags, reserved variables, its org."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.manifests import defaults
from reconciler.manifests.normalize import ManifestContext, NormalizeProblem
from reconciler.manifests.rules.text import quoted
from reconciler.model.image_names import full_name, is_allowed
from reconciler.model.key import Kind
from reconciler.model.platform import BUILT_IN_TAGS, SPELLING, TAG_PREFIX
from reconciler.model.resource import escaped, pointer_text

MOST_PATTERNS = 5
"""Patterns that a finding lists."""


def dialect_problems(kind: Kind, value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """The problems of ``value``, a document of ``kind`` with tags in normal spelling, under ``context``."""
    yield from _tags(value, context)
    yield from _variables(kind, value, context)
    if kind is Kind.ORG:
        yield from _org(value, context)
    if kind is Kind.WORKLOAD and context.images:
        yield from _images(value, context)


def _tags(value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    for tag in value.get("tags") or {}:
        if tag.startswith(TAG_PREFIX) and tag not in BUILT_IN_TAGS:
            written, *allowed = (context.scheme + each.removeprefix(SPELLING) for each in (tag, *sorted(BUILT_IN_TAGS)))
            yield NormalizeProblem(
                f"/tags/{escaped(written)}",
                f"the tag {quoted(written)} is the platform's own",
                f"allowed: {', '.join(allowed)}",
                "built-in-tag",
            )


def _variables(kind: Kind, value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """The schema reserves the prefix PLATFORM_; this check reserves that of another spelling."""
    prefix = f"{context.scheme.upper()}_"
    if context.scheme == SPELLING:
        return
    for at, name in defaults.variables(kind, value):
        if name.startswith(prefix):
            pointer = pointer_text(at)
            message = f"{quoted(name)} is refused: the platform sets names beginning {prefix}"
            yield NormalizeProblem(pointer, message, rule="env-reserved")


def _org(value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    name = value.get("name")
    if context.org_known and isinstance(name, str) and name and name != context.org:
        yield NormalizeProblem(
            "/name",
            f"these are settings of the org {quoted(name)}, and this repository is for the org `{context.org}`",
            f"write `name: {context.org}`, or move the manifest to the repository of that org",
            "org-name",
        )


def _images(value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """The schema has its own faults of names; what is no name at all is left to it."""
    for number, container in enumerate(value.get("spec", {}).get("containers") or ()):
        image = container.get("image")
        name = full_name(image) if isinstance(image, str) else ""
        if name and not is_allowed(name, context.images):
            yield NormalizeProblem(
                f"/spec/containers/{number}/image",
                f"the image {quoted(image)} is not allowed: no pattern of `images.allowed` in the settings fits it",
                f"allowed: {', '.join(context.images[:MOST_PATTERNS])}, and images of the org (//image/NAME:TAG)",
                "image-allowed",
            )
