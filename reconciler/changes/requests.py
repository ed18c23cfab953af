"""What is requested of a source: changes of manifests, as values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from reconciler.access.references import ManifestLinks
from reconciler.model.key import Key, Kind

Document = Mapping[str, Any]
Admit = Callable[[ManifestLinks, ManifestLinks, Collection[Key]], None]
"""Refuses, by an error, what a manifest may not refer to and grant: before, after, and what the same commit creates."""


class SeenManifest(NamedTuple):
    """What a client says that it saw of a resource, before it wanted something else.

    ``digest`` is that of the manifest in the entity tag of a read. ``commit`` is that of the revision in a document of
    the API. Without either, it saw what ``author`` (an address) wrote last.
    """

    digest: str = ""
    commit: str = ""
    author: str = ""


class DocumentText(NamedTuple):
    """The text of a document before and after its author changed it: comments, order and all."""

    before: str
    after: str


class ManifestPatch(NamedTuple):
    """The merge patch ``patch`` of the manifest of ``key``; ``form`` makes a manifest of the result, or refuses it."""

    key: Key
    patch: Document
    form: Callable[[Mapping[str, Any]], Document]

    @property
    def patches_data(self) -> bool:
        """Whether it is a merge patch of the data of a secret, which is in no manifest: it is applied to the file."""
        names = {"data", "$drop/data"}
        return self.key.kind is Kind.SECRET and "$replace/data" not in self.patch and not names.isdisjoint(self.patch)

    def apply(self, newest: Document) -> Document:
        """``newest``, a manifest of ``key`` without the data of a secret, with the patch. Raises what ``form`` does."""
        from reconciler.changes.text import merge_patch  # an API that only reads does without the editor of YAML

        desired = self.form(merge_patch(newest, self.patch))
        return {**desired, "data": self.patch.get("data")} if self.patches_data else desired


class ResourceEdit(NamedTuple):
    """A wanted change of the resource ``key`` in the file ``path``: from ``was`` to ``wanted``.

    ``was`` is None for a resource to create, ``wanted`` for one to delete. The data of a secret is never in ``was``;
    without it in ``wanted`` it stays as it is. With ``patches_data``, that in ``wanted`` is a merge patch. ``patch``
    makes ``wanted`` from what the newest commit means; without it, ``was`` is what the client saw. With ``if_present``,
    a document that is gone already is as wanted. With ``seen``, a change of what the client did not see is refused.
    ``admit`` decides on what the commit changes in the newest one. With ``text``, the text of the document is replaced
    as it is, and a change of it by others is a conflict.
    """

    key: Key
    path: str
    was: Document | None
    wanted: Document | None
    patches_data: bool = False
    patch: Callable[[Document], Document] | None = None
    if_present: bool = False
    seen: SeenManifest | None = None
    admit: Admit | None = None
    text: DocumentText | None = None

    def on(self, newest: Document | None) -> ResourceEdit:
        """The same change of ``newest``, what the newest commit means; None if that is not known."""
        if self.patch is None or newest is None:
            return self
        return self._replace(was=newest, wanted=self.patch(newest))


class ChangeRequest(NamedTuple):
    """One change of a source, in one commit, by ``principal``.

    ``id`` is that of the request, which the trailer of the commit has; ``is_repeated``: an earlier attempt may have
    made it. ``dry``: nothing is written. ``digest`` is that of the plan which is expected, "" for any.
    """

    id: str
    principal: str
    subject: str
    edits: tuple[ResourceEdit, ...]
    is_repeated: bool = False
    dry: bool = False
    digest: str = ""


class EarlierChange(NamedTuple):
    """The commit that an earlier attempt of the same request made, and its branch."""

    branch: str
    commit: str
