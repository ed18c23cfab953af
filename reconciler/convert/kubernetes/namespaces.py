"""Which GVC a resource of a namespace belongs to."""

from __future__ import annotations

from reconciler.convert.kubernetes.bundle import Item
from reconciler.convert.kubernetes.names import fitting

_DEFAULT = "default"


class Namespaces:
    """A namespace becomes the GVC of its name, unless one GVC was asked for, which then takes them all."""

    def __init__(self, asked: str) -> None:
        self._asked = asked
        self._told: set[str] = set()

    def gvc(self, item: Item) -> str:
        """The GVC of what ``item`` becomes; told once where nobody said which."""
        if self._asked:
            return self._asked
        found = fitting(item.namespace or _DEFAULT)
        if found not in self._told:
            self._told.add(found)
            origin = "the namespace names it" if item.namespace else "there is neither a namespace nor --gvc"
            item.root.add_note("convert-gvc", f"this goes to the GVC {found}, since {origin}",
                          f"gvc/{found} has to exist; --gvc NAME chooses another")  # fmt: skip
        return found
