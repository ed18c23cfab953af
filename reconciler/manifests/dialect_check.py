"""Checks of a document that depend on the settings: built-in tags, reserved variables, its org."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.manifests import defaults
from reconciler.manifests.field_schema import find_unmodelled
from reconciler.manifests.normalize import ManifestContext, NormalizeProblem
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Severity
from reconciler.model.image_names import full_name, is_allowed
from reconciler.model.key import KINDS, Kind
from reconciler.model.kinds.notify_tags import MOST_CHANNELS, NOTIFY, is_open, split_names
from reconciler.model.kinds.table import UNMODELLED_PERMISSIONS
from reconciler.model.platform import BUILT_IN_TAGS, MARK_TAGS, SPELLING, TAG_PREFIX, UNMODELLED_TAGS
from reconciler.model.resource import escape_pointer_step, pointer_text

MOST_PATTERNS = 5
"""Patterns that a finding lists."""


def dialect_problems(kind: Kind, value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """The problems of ``value``, a document of ``kind`` with tags in normal spelling, under ``context``."""
    yield from _check_tags(value, context)
    yield from _check_variables(kind, value, context)
    yield from _check_unmodelled_fields(kind, value, context)
    if kind is Kind.GVC and context.channels is not None:
        yield from _check_channels(value, context.channels)
    if kind is Kind.POLICY:
        yield from _check_permissions(value, context)
    if kind is Kind.ORG:
        yield from _check_org_name(value, context)
    if kind is Kind.WORKLOAD and context.images:
        yield from _check_images(value, context)


def _check_tags(value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    for tag, text in (value.get("tags") or {}).items():
        if tag in UNMODELLED_TAGS or tag.startswith(MARK_TAGS):
            yield _unmodelled_tag(tag, str(text).lower(), context)
        elif tag.startswith(TAG_PREFIX) and tag not in BUILT_IN_TAGS:
            written, *allowed = (
                context.scheme + value.removeprefix(SPELLING) for value in (tag, *sorted(BUILT_IN_TAGS))
            )
            yield NormalizeProblem(
                f"/tags/{escape_pointer_step(written)}",
                f"the tag {quote_text(written)} is the platform's own",
                f"allowed: {', '.join(allowed)}",
                "built-in-tag",
            )


def _unmodelled_tag(tag: str, text: str, context: ManifestContext) -> NormalizeProblem:
    name = context.scheme + tag.removeprefix(SPELLING)
    pointer, meaning = f"/tags/{escape_pointer_step(name)}", UNMODELLED_TAGS.get(tag, "")
    return _without_effect(name, pointer, "" if text == "false" else meaning, context)


def _without_effect(name: str, pointer: str, meaning: str, context: ManifestContext) -> NormalizeProblem:
    """``meaning`` is what the platform does; "" for nothing either."""
    if not meaning:
        message, hint = f"`{name}` changes nothing here, as on the platform with this value", "you may remove it"
        return NormalizeProblem(pointer, message, hint, "field-inert", Severity.NOTICE)
    message = f"`{name}` has no effect here; the platform {meaning}"
    hint = "remove it, or leave it for the platform"
    return NormalizeProblem(pointer, message, hint, "field-not-enforced", Severity(context.unknown_fields))


def _check_permissions(value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """The permissions of a policy that allow nothing here."""
    unmodelled = UNMODELLED_PERMISSIONS.get(KINDS.get(str(value.get("targetKind")), Kind.POLICY), frozenset())
    bindings = value.get("bindings")
    for number, binding in enumerate(bindings if isinstance(bindings, list) else ()):
        names = binding.get("permissions") if isinstance(binding, dict) else ()
        for index, name in enumerate(names if isinstance(names, list) else ()):
            if name in unmodelled:
                pointer = f"/bindings/{number}/permissions/{index}"
                yield _without_effect(name, pointer, "has the command that it allows", context)


def _check_unmodelled_fields(kind: Kind, value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """Fields of the platform that have no effect here: the first of each name, since lists repeat them."""
    seen: set[tuple[str, bool]] = set()
    for field in find_unmodelled(str(kind), value):
        name, pointer = field.name, pointer_text(field.path)
        if (name, field.inert) in seen:
            continue
        seen.add((name, field.inert))
        yield _without_effect(name, pointer, "" if field.inert else field.meaning, context)


def _check_variables(kind: Kind, value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """The schema reserves the prefix PLATFORM_; this check reserves that of another spelling."""
    prefix = f"{context.scheme.upper()}_"
    if context.scheme == SPELLING:
        return
    for at, name in defaults.list_variables(kind, value):
        if name.startswith(prefix):
            pointer = pointer_text(at)
            message = f"{quote_text(name)} is refused: the platform sets names beginning {prefix}"
            yield NormalizeProblem(pointer, message, rule="env-reserved")


def _check_org_name(value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    name = value.get("name")
    if context.org_known and isinstance(name, str) and name and name != context.org:
        yield NormalizeProblem(
            "/name",
            f"these are settings of the org {quote_text(name)}, and this repository is for the org `{context.org}`",
            f"write `name: {context.org}`, or move the manifest to the repository of that org",
            "org-name",
        )


def _check_channels(value: dict[str, Any], channels: dict[str, tuple[str, ...]]) -> Iterator[NormalizeProblem]:
    """The channels that a GVC names: a channel that is not open to it is refused, as each reference is an access."""
    gvc, pointer = str(value.get("name")), f"/tags/{escape_pointer_step(NOTIFY)}"
    usable = [name for name, gvcs in channels.items() if is_open(gvcs, gvc)]
    names = f"name one of: {', '.join(usable[:MOST_PATTERNS])}" if usable else "remove it"
    for name in split_names(str((value.get("tags") or {}).get(NOTIFY, "")))[:MOST_CHANNELS]:
        if name not in channels:
            message = f"there is no channel {quote_text(name)} here, so nothing is sent to it"
            yield NormalizeProblem(pointer, message, names, "notify-unknown", Severity.WARNING)
        elif name not in usable:
            message = f"the channel {quote_text(name)} is not open to the GVC {quote_text(gvc)}"
            hint = f"{names}; or the operator adds the GVC to `notifications.channels.{name}.gvcs` in the settings"
            yield NormalizeProblem(pointer, message, hint, "notify-channel")


def _check_images(value: dict[str, Any], context: ManifestContext) -> Iterator[NormalizeProblem]:
    """The schema has its own faults of names; what is no name at all is left to it."""
    for number, container in enumerate(value.get("spec", {}).get("containers") or ()):
        image = container.get("image")
        name = full_name(image) if isinstance(image, str) else ""
        if name and not is_allowed(name, context.images):
            yield NormalizeProblem(
                f"/spec/containers/{number}/image",
                f"the image {quote_text(image)} is not allowed: no pattern of `images.allowed` in the settings fits it",
                f"allowed: {', '.join(context.images[:MOST_PATTERNS])}, and images of the org (//image/NAME:TAG)",
                "image-allowed",
            )
