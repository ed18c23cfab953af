"""The targets of links in typed views."""

from __future__ import annotations

from collections.abc import Collection, Container
from heapq import nsmallest
from typing import TypeVar

from reconciler.manifests.links import LinkError, parse_link
from reconciler.manifests.rules.context import RuleContext
from reconciler.model.kinds.workload import Workload
from reconciler.model.resource import GVC_PLACEHOLDER
from reconciler.model.suggest import find_closest_word

View = TypeVar("View")

_IDENTITY = "//identity/"
MOST_COMPARED = 50
MOST_LISTED = 12
_FEW = 50


def target_of(link: str, gvc: str = "") -> str:
    """The key, as text, of the target of ``link`` in a resource of ``gvc`` ("" for the org); "" if it is no link.

    A link into another org gives the key there: ``read_linked_view`` distinguishes the two.
    """
    parts = link.split("/", 3)
    owner = parts[2] if len(parts) == 4 and parts[1] == "org" else ""
    try:
        target = parse_link(link, owner, gvc).target
    except LinkError:
        return ""
    return "" if target.startswith("/") else target


def identity_of(workload: Workload) -> str:
    """The key of the identity of ``workload``, "" if it has none."""
    link = workload.spec.identity_link
    if link.startswith(_IDENTITY) and link.count("/") == 3:
        return f"identity/{place_of(workload.gvc)}/{link[len(_IDENTITY) :]}"
    return target_of(link, place_of(workload.gvc)) if link else ""


def place_of(gvc: str) -> str:
    """``gvc`` of a view, for a key."""
    return gvc or GVC_PLACEHOLDER


def read_linked_view(world: RuleContext, subject: str, target: str, view: type[View]) -> View | None:
    """``target`` as ``subject`` refers to it; None if it is unknown or belongs to another org."""
    body = world.bodies.read_view(target, view)
    return body if body is not None and target in _list_targets(world, subject) else None


def _list_targets(world: RuleContext, subject: str) -> Container[str]:
    """The keys that ``subject`` refers to."""
    references = world.index.references(subject)
    if len(references) < _FEW:
        return [reference.target for reference in references]
    # A domain calls this for each of its routes.
    return world.memoize(("targets", subject), lambda: {reference.target for reference in references})


def suggest_nearest_name(word: str, candidates: Collection[str], otherwise: str) -> str:
    """A suggestion: the most similar name in ``candidates``, or ``otherwise`` and the first few names.

    It compares with few names only, since thousands of calls may have thousands of names.
    """
    names = nsmallest(MOST_COMPARED, candidates)
    near = find_closest_word(word[:100], names)
    if near:
        return f"did you mean {near}?"
    return (
        f"{otherwise} {', '.join(names[:MOST_LISTED])}{', …' if len(candidates) > MOST_LISTED else ''}" if names else ""
    )
