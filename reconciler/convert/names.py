"""Valid and unique names for the platform."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from reconciler.model.key import Kind
from reconciler.model.platform import RESERVED_CONTAINER_PREFIXES, RESERVED_CONTAINERS

LONGEST = {Kind.WORKLOAD: 49, Kind.DOMAIN: 253}
_LONGEST = 64
_HEADLESS = "-headless"


def make_valid_name(name: str, longest: int = _LONGEST) -> str:
    """The closest valid name: lower-case letters, digits and hyphens, beginning with a letter.

    The same name always gives the same result; a long one is cut, and a few digits of its digest keep it unique.
    """
    fit = re.sub(r"[^a-z0-9]+", "-", name.lower()) if not re.fullmatch(r"[-a-z0-9]+", name) else name
    fit = fit.strip("-")
    if not fit or not fit[0].isalpha():
        fit = f"n-{fit}".rstrip("-")
    if len(fit) > longest:
        fit = f"{fit[: longest - 7].rstrip('-')}-{blake2b(name.encode(), digest_size=3).hexdigest()}"
    return fit


def workload_name(name: str) -> str:
    """``name`` as a valid workload name (docs/platform/fields.md#names)."""
    fit = make_valid_name(name, LONGEST[Kind.WORKLOAD])
    return make_valid_name(f"{fit}-w", LONGEST[Kind.WORKLOAD]) if fit.endswith(_HEADLESS) else fit


def container_name(name: str) -> str:
    """``name`` as a valid container name (docs/platform/workload.md#container-names)."""
    fit = make_valid_name(name)
    return (
        make_valid_name(f"c-{fit}")
        if fit in RESERVED_CONTAINERS or fit.startswith(RESERVED_CONTAINER_PREFIXES)
        else fit
    )


class UsedName(NamedTuple):
    """A used name, with its kind and GVC ("" for the org)."""

    kind: Kind
    gvc: str
    name: str


class Names:
    """The names in use."""

    def __init__(self) -> None:
        self._taken: set[UsedName] = set()
        self._numbers: dict[UsedName, int] = {}

    def take(self, kind: Kind, gvc: str, wishes: Iterable[str]) -> str:
        """Reserve the first free name of ``wishes`` for ``kind`` in ``gvc``, else the first with a number."""
        fit = workload_name if kind is Kind.WORKLOAD else make_valid_name
        names = [fit(wish) for wish in wishes]
        free = (name for name in names if UsedName(kind, gvc, name) not in self._taken)
        name = next(free, "")
        if not name:
            # Goes on where the last one of the name ended: many may have it.
            first = UsedName(kind, gvc, names[0])
            number = self._numbers.get(first, 2)
            while not name or UsedName(kind, gvc, name) in self._taken:
                name = fit(f"{names[0]}-{number}")
                number += 1
            self._numbers[first] = number
        self._taken.add(UsedName(kind, gvc, name))
        return name
