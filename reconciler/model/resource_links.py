"""The links of a resource in its document: to itself, and to what it belongs to."""

from __future__ import annotations

from typing import NamedTuple


class ResourceLink(NamedTuple):
    """A link with its relation, such as ``gvc`` and ``/org/acme/gvc/shop``."""

    rel: str
    href: str


def resource_links(kind: str, gvc: str, name: str, org: str) -> list[ResourceLink]:
    """The links of the resource ``name`` of ``kind``, in ``gvc`` ("": of the org)."""
    top = f"/org/{org}"
    if kind == "org":
        return [ResourceLink("self", top), ResourceLink("org", top)]
    path = f"{top}/gvc/{gvc}/{kind}/{name}" if gvc else f"{top}/{kind}/{name}"
    links = [ResourceLink("self", path), ResourceLink("org", top)]
    if gvc:
        links.append(ResourceLink("gvc", f"{top}/gvc/{gvc}"))
    if kind == "workload":
        links.append(ResourceLink("deployment", f"{path}/deployment"))
    return links
