"""Cleans one exported body; the schema of its kind defines defaults, links and URIs."""

from __future__ import annotations

from typing import Any

from reconciler.convert.drafts import Body
from reconciler.documents.schema.validator import get_checker
from reconciler.manifests.field_schema import FieldSchema, is_inert, shape_of
from reconciler.manifests.links import LinkError, parse_link
from reconciler.manifests.normalize import ManifestContext, Normalizer, translate_text
from reconciler.model.finding import Pointer
from reconciler.model.key import GVC_SCOPED, Kind
from reconciler.model.resource import GVC_PLACEHOLDER

_COMMANDS = ("command", "args")
"""Fields of a container with variables, in addition to the URI fields of the schema."""


class ExportCleaner:
    """Cleans a resource of ``kind`` in ``gvc``; ``dialect`` is that of the export."""

    def __init__(self, kind: Kind, gvc: str, dialect: ManifestContext) -> None:
        self._kind = kind
        self._gvc = gvc
        self._dialect = dialect
        self._broken: set[Pointer] = set()
        self.unknown: list[Pointer] = []

    def manifest(self, value: Body) -> Body:
        """Return the fields of a manifest without defaults, in their own order.

        Invalid fields stay as they are. ``unknown`` are the fields that the schema does not know.
        """
        check = get_checker(str(self._kind))
        breaches = [] if check.valid(value) else check.breaches(value)
        self.unknown = [breach.path for breach in breaches if breach.keyword == "additionalProperties"]
        self._broken = {
            breach.path[:end]
            for breach in breaches
            if breach.keyword != "additionalProperties"
            for end in range(len(breach.path) + 1)
        }
        tidy: Body = self._tidy(shape_of(str(self._kind)), value, ())
        if self._kind is Kind.WORKLOAD:
            self._containers(tidy)
        return tidy

    def _tidy(self, shape: FieldSchema, value: Any, at: Pointer) -> Any:
        if isinstance(value, dict):
            return self._mapping(shape, value, at)
        if isinstance(value, list) and shape.items is not None:
            return [self._tidy(shape.items, item, (*at, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and shape.link:
            return self._link(value)
        if isinstance(value, str) and shape.uri:
            return self._ours(value)
        return value

    def _mapping(self, shape: FieldSchema, value: Body, at: Pointer) -> Body:
        cleaned: Body = {}
        for name, member in value.items():
            child = shape.member(name)
            if child is not None and child.inert and is_inert(child, member):
                continue
            there = (*at, name)
            tidy = member if child is None else self._tidy(child, member, there)
            if name not in shape.fill or self._is_broken(there) or not self._is_default(shape, name, tidy):
                cleaned[name] = tidy
        return cleaned

    def _is_broken(self, at: Pointer) -> bool:
        """Whether anything at or below ``at`` violates the schema, so that defaults are unknown."""
        return at in self._broken

    def _is_default(self, shape: FieldSchema, name: str, tidy: Any) -> bool:
        """Whether omitting the field ``name`` of ``shape`` means the same as its translated value ``tidy``."""
        default = shape.fill[name]
        # The value is translated already, so the scheme of the export does not matter.
        formed = Normalizer(ManifestContext(self._dialect.org), self._gvc or GVC_PLACEHOLDER).normalize(
            shape.properties[name], tidy
        )
        return bool(formed == default) and isinstance(formed, bool) == isinstance(default, bool)

    def _link(self, text: str) -> str:
        """Make the link relative if it leads into this org; relative to the GVC too if that is the resource's own."""
        org = self._dialect.org
        if not org:
            return text
        try:
            link = parse_link(text, org, self._gvc)
        except LinkError:
            return text
        own, inner = f"/org/{org}/", f"/org/{org}/gvc/{self._gvc}/"
        if self._gvc and link.kind in GVC_SCOPED and text.startswith(inner):
            return f"//{text[len(inner) :]}"
        return f"//{text[len(own) :]}" if text.startswith(own) and link.kind is not Kind.ORG else text

    def _ours(self, text: str) -> str:
        return text if self._dialect.scheme == "platform" else translate_text(text, self._dialect.scheme)

    def _containers(self, tidy: Body) -> None:
        """Images of the org become relative; commands and arguments use our variables."""
        spec = tidy.get("spec")
        containers = spec.get("containers") if isinstance(spec, dict) else None
        for container in containers if isinstance(containers, list) else ():
            if not isinstance(container, dict):
                continue
            own, image = f"/org/{self._dialect.org}/image/", container.get("image")
            if self._dialect.org and isinstance(image, str) and image.startswith(own):
                container["image"] = f"//image/{image[len(own) :]}"
            for field in _COMMANDS:
                if field in container:
                    container[field] = self._text(container[field])

    def _text(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._text(item) for item in value]
        return self._ours(value) if isinstance(value, str) else value
