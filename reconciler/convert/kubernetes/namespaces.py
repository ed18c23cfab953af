"""The GVCs of namespaces."""

from __future__ import annotations

from reconciler.convert.kubernetes.bundle import Item
from reconciler.convert.names import fitting

_DEFAULT_NAMESPACE = "default"


class Namespaces:
    """Each namespace becomes the GVC of its name, unless a GVC for all was set."""

    def __init__(self, asked: str) -> None:
        self._asked = asked
        self._noted: set[str] = set()

    def gvc(self, item: Item) -> str:
        """The GVC for ``item``, with one note where it was not set."""
        if self._asked:
            return self._asked
        found = fitting(item.namespace or _DEFAULT_NAMESPACE)
        if found not in self._noted:
            self._noted.add(found)
            origin = "the namespace names it" if item.namespace else "there is neither a namespace nor --gvc"
            item.root.add_note(
                "convert-gvc",
                f"this goes to the GVC {found}, since {origin}",
                f"gvc/{found} must exist; --gvc NAME selects another",
            )
        return found
