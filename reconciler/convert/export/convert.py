"""Converts exports of the platform: removes server-owned fields and defaults, shortens links, translates terms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from reconciler.convert.drafts import Body, Draft, DraftPlace, in_order
from reconciler.convert.export.cleaner import ExportCleaner
from reconciler.convert.kubernetes.bundle import SourceDocument
from reconciler.convert.notes import ConversionNote
from reconciler.manifests.document import SERVER_OWNED
from reconciler.manifests.normalize import ManifestContext
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Pointer
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.platform import BUILT_IN_RESOURCES, BUILT_IN_TAGS, TAG_PREFIX
from reconciler.model.suggest import find_closest_word

_HEAD = ("kind", "name", "description", "gvc", "tags")
_LISTS = frozenset({"list", "queryresult"})
_SELF = re.compile(r"/org/([^/]+)(?:/gvc/([^/]+))?(?:/.*)?")


class Imported(msgspec.Struct, frozen=True):
    """The manifests in apply order, and notes about them."""

    drafts: list[Draft]
    remarks: list[ConversionNote]


class _Exported(NamedTuple):
    """One exported resource, and its place."""

    source: SourceDocument
    at: Pointer
    value: Any


class _Homes:
    """The GVC of resources that do not name theirs: exports hold a GVC and its members in one file."""

    def __init__(self, exported: Iterable[_Exported], otherwise: str) -> None:
        self._in_file: dict[str, set[str]] = {}
        for document in exported:
            if isinstance(document.value, dict) and document.value.get("kind") == Kind.GVC:
                self._in_file.setdefault(document.source.path, set()).add(str(document.value.get("name", "")))
        self._all = set().union(*self._in_file.values())
        self._otherwise = otherwise

    def of(self, path: str) -> str:
        """The GVC of the file at ``path``, "" where it is unknown."""
        for names in (self._in_file.get(path, set()), self._all):
            if len(names) == 1:
                return next(iter(names))
        return self._otherwise


def normalise_resources(
    sources: Iterable[SourceDocument], org: str = "", scheme: str = "platform", gvc: str = ""
) -> Imported:
    """Manifests for the exported resources in ``sources`` (docs/platform/fields.md#manifests).

    Links into ``org`` become relative; without ``org``, a resource's link to itself provides it. ``scheme`` is the
    name of the platform in links. With the same settings, the result has the normal form of the original.

    A resource without a GVC belongs to the only GVC of its file, else to the only one of all files, else to ``gvc``.
    """
    exported = [_Exported(source, at, value) for source in sources for at, value in _list_resources(source.value, ())]
    importing = _Importing(org, scheme, _Homes(exported, gvc))
    for document in exported:
        importing.add(document)
    return Imported(in_order(importing.drafts.values()), importing.remarks)


class _Importing:
    """The manifests so far, by key, and the notes."""

    def __init__(self, org: str, scheme: str, homes: _Homes) -> None:
        self._homes = homes
        self.drafts: dict[Key, Draft] = {}
        self.remarks: list[ConversionNote] = []
        self._org = org
        self._scheme = scheme

    def add(self, exported: _Exported) -> None:
        """Add one document, or an item of a list."""
        source, at, value = exported
        if not isinstance(value, dict):
            self._add_note("import-not-a-manifest", source, at, "a manifest is a mapping that begins with `kind:`")
            return
        kind = self._kind(exported)
        if kind is None or self._is_left_out(exported, kind):
            return
        name = value.get("name")
        if not isinstance(name, str) or not name:
            self._add_note("import-not-a-manifest", source, (*at, "name"), "the manifest has no name")
            return
        draft = self._draft(exported, kind, name)
        if kind in GVC_SCOPED and not draft.gvc:
            message = f"the GVC of {kind}/{name} is not known"
            self._add_note("import-gvc", source, (*at, "name"), message, "name it with --gvc, or write `gvc: NAME`")
        key = Key(kind, draft.gvc, name)
        if key in self.drafts and self.drafts[key].body != draft.body:
            self._add_note("import-duplicate", source, (*at, "name"), f"{key} is declared twice", "keep one of the two")
        self.drafts.setdefault(key, draft)

    def _kind(self, exported: _Exported) -> Kind | None:
        written = exported.value.get("kind")
        kind = KINDS.get(written) if isinstance(written, str) else None
        pointer = (*exported.at, "kind")
        if written == "deployment":
            self._add_note(
                "import-built-in", exported.source, pointer, "deployments are part of their workload; it is left out"
            )
        elif "apiVersion" in exported.value:
            message = "this is a Kubernetes resource, not a manifest"
            self._add_note("import-not-a-manifest", exported.source, pointer, message, "use `reconciler convert`")
        elif kind is None:
            near = find_closest_word(str(written).lower(), KINDS)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(KINDS)}"
            self._add_note("import-not-a-manifest", exported.source, pointer, "the platform has no such kind", hint)
        else:
            return kind
        return None

    def _is_left_out(self, exported: _Exported, kind: Kind) -> bool:
        """Whether the resource is the platform's own, or a secret exported without data."""
        value, named = exported.value, f"{kind}/{exported.value.get('name')}"
        if value.get("origin") == "builtin" or named in BUILT_IN_RESOURCES:
            self._add_note(
                "import-built-in", exported.source, (*exported.at, "name"), f"{named} is built in and is left out"
            )
            return True
        if kind is Kind.SECRET and not value.get("data"):
            message = f"{named} has no data and is left out: reading a secret returns none"
            self._add_note(
                "import-no-data",
                exported.source,
                (*exported.at, "name"),
                message,
                "add what `reveal` returns, and import it again",
            )
            return True
        return False

    def _draft(self, exported: _Exported, kind: Kind, name: str) -> Draft:
        org, gvc = _parse_self_link(exported.value)
        written = exported.value.get("gvc")
        home = gvc or self._homes.of(exported.source.path)
        gvc = (written if isinstance(written, str) else home) if kind in GVC_SCOPED else ""
        tidying = ExportCleaner(kind, gvc, ManifestContext(self._org or org, self._scheme))
        tidy = tidying.manifest({field: part for field, part in exported.value.items() if field not in SERVER_OWNED})
        for path in tidying.unknown:
            shown = f"the field `{path[-1]}`" if kind is not Kind.SECRET or len(path) == 1 else "a field here"
            message = f"{shown} is not known and is left as it is"
            self._add_note(
                "import-unknown",
                exported.source,
                (*exported.at, *path),
                message,
                "`reconciler validate` refuses it: remove it if it has no effect",
            )
        head: Body = {"gvc": gvc} if gvc else {}
        if tags := self._tags(exported):
            head["tags"] = tags
        whole = {**tidy, **head}
        if whole.get("description") == name:
            del whole["description"]
        if not tags:
            whole.pop("tags", None)
        body = {field: whole[field] for field in (*_HEAD, *tidy) if field in whole}
        return Draft(kind, gvc, name, body, DraftPlace(exported.source.path, exported.source.position, exported.at))

    def _tags(self, exported: _Exported) -> Body:
        tags = exported.value.get("tags")
        if not isinstance(tags, dict):
            return {}
        own, converted = f"{self._scheme}/", {}
        for tag, text in tags.items():
            ours = TAG_PREFIX + tag[len(own) :] if tag.startswith(own) else tag
            if ours.startswith(TAG_PREFIX) and ours not in BUILT_IN_TAGS:
                message = f"the tag {quote_text(tag)} is the platform's own and is left out"
                self._add_note("import-built-in", exported.source, (*exported.at, "tags", tag), message)
            else:
                converted[ours] = text
        return converted

    def _add_note(self, rule: str, source: SourceDocument, at: Pointer, message: str, suggestion: str = "") -> None:
        self.remarks.append(ConversionNote(rule, source.path, source.position, at, message, suggestion, on_key=True))


def _list_resources(value: Any, at: Pointer) -> Iterator[tuple[Pointer, Any]]:
    """``value``, or its items if it is a list as the API or a query returns it."""
    if isinstance(value, list):
        yield from (((index,), item) for index, item in enumerate(value))
        return
    fields = value if isinstance(value, dict) else {}
    kind, items = fields.get("kind"), fields.get("items")
    if isinstance(kind, str) and kind in _LISTS and isinstance(items, list):
        yield from (((*at, "items", index), item) for index, item in enumerate(items))
    else:
        yield at, value


def _parse_self_link(value: Body) -> tuple[str, str]:
    """Org and GVC in the resource's link to itself, "" where it has none."""
    links = value.get("links")
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("rel") == "self" and isinstance(link.get("href"), str):
            match = _SELF.fullmatch(link["href"])
            return (match[1], match[2] or "") if match else ("", "")
    return "", ""
