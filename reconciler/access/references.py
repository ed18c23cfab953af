"""The decision on references: what a caller needs to make a resource, or a command, refer to another resource.

A reference is an access: a workload acts as its identity, a domain serves with its certificate. So a new link needs a
permission on its target (docs/platform/fields.md#references). Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.access.rules import AccessRules, Body, Caller
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.table import TABLE
from reconciler.model.platform import SECRET_URI
from reconciler.model.resource import Reference, pointer_parts

USE = "use"
"""The permission to refer to a resource, of the kinds that have it."""
REVEAL = "reveal"
"""The permission that the identity of a workload needs on the secrets that its containers read."""
OTHERS = {Kind.CLOUDACCOUNT: "edit", Kind.VOLUMESET: "edit"}
"""Kinds without ``use`` whose links give more than a view: the roles of an account, the data of volumes."""
_OWN_GVC = "/gvc"

ReadBody = Callable[[Key], Body]
"""From a key to the manifest as applied; {} if it is not applied."""


class ManifestLinks(NamedTuple):
    """What a manifest, or a container with the overrides of a command, refers to.

    ``value`` is the document as it is written, in which each reference has its pointer. ``identity`` is the key of the
    identity that a workload acts as, "" for none. ``body`` is the normal form, {} for a document with faults. ``uses``
    are the targets whose links are used as the fields beside them say, each with these fields.
    """

    references: tuple[Reference, ...]
    value: Mapping[str, Any]
    identity: str = ""
    body: Mapping[str, Any] = {}
    uses: frozenset[tuple[str, str]] = frozenset()


class RefusedReference(NamedTuple):
    """A reference for which the caller lacks ``permission`` on ``target``, in words; ``pointer`` is its place."""

    permission: str
    target: str
    pointer: str


def permission_to_refer(kind: Kind) -> str:
    """The permission on a resource of ``kind`` that a new link to it needs."""
    return USE if USE in TABLE[kind].permissions else OTHERS.get(kind, "view")


def may_refer(
    access: AccessRules, caller: Caller, identity: str, target: Key, reads: bool, read_body: ReadBody
) -> bool:
    """Whether ``caller`` may make something that acts as ``identity`` ("" for nothing) refer to ``target``.

    The reference is a link, or it ``reads`` a secret: then the identity's permission to reveal the secret is enough.
    """

    def body() -> Body:
        return read_body(target)

    if access.may(caller, permission_to_refer(target.kind), target, body):
        return True
    return reads and bool(identity) and access.may(Caller(identity), REVEAL, target, body)


class ReferenceCheck:
    """Decides on the references of one request by ``caller``; ``read_body`` reads what queries of policies ask."""

    def __init__(self, access: AccessRules, caller: Caller, read_body: ReadBody) -> None:
        self._access = access
        self._caller = caller
        self._read_body = read_body

    def find_refused(
        self, key: Key, was: ManifestLinks, links: ManifestLinks, written: Collection[Key] = ()
    ) -> RefusedReference | None:
        """The first new reference of ``key`` that the caller may not make; None if there is none.

        What ``was`` refers to in the same way may stay. ``written`` are the resources that the same change creates:
        their author knows all of them, and every caller knows itself. Targets in other orgs are in the settings, and
        no policy is about them.
        """
        former = {(link.target, _reads_secret(was, link)) for link in _list_references(was)}
        redirected = {target for target, _ in links.uses - was.uses}
        for reference in _list_references(links):
            reads = _reads_secret(links, reference)
            is_former = (reference.target, reads) in former and reference.target not in redirected
            if is_former or reference.target.startswith("/"):
                continue
            target = Key.parse(reference.target)
            if target == key or target in written or reference.target == self._caller.principal:
                continue
            if not may_refer(self._access, self._caller, links.identity, target, reads, self._read_body):
                return RefusedReference(permission_to_refer(target.kind), str(target), reference.pointer)
        return self._refused_query(_location_query(was), _location_query(links))

    def _refused_query(self, was: Body, desired: Body) -> RefusedReference | None:
        """The new query of a GVC for locations, unless the caller may refer to all that it can ever select."""
        if not desired or desired == was:
            return None
        granted = self._access.granting(self._caller, USE, Kind.LOCATION)
        if any(grant.everything or grant.query == desired for grant in granted):
            return None
        return RefusedReference(USE, "every location, which a query needs", "/spec/staticPlacement/locationQuery")


def _list_references(links: ManifestLinks) -> Iterator[Reference]:
    """The references, without that to the GVC in which the resource is: its path names it."""
    return (reference for reference in links.references if reference.pointer != _OWN_GVC)


def _reads_secret(links: ManifestLinks, reference: Reference) -> bool:
    """Whether ``reference`` is the URI of a secret, whose value a container gets."""
    return is_secret_uri(value_at(links.value, pointer_parts(reference.pointer)))


def is_secret_uri(value: Any) -> bool:
    """Whether ``value`` is the URI of a secret."""
    return isinstance(value, str) and value.startswith(SECRET_URI)


def value_at(document: Any, steps: Iterable[str | int]) -> Any:
    """The value in ``document`` at the end of ``steps``, None if there is none."""
    value = document
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(str(step))
        else:
            value = value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else None
    return value


def _location_query(links: ManifestLinks) -> Body:
    """The query for locations in a GVC, {} for none."""
    section: Any = links.body
    for name in ("spec", "staticPlacement", "locationQuery"):
        section = section.get(name) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}
