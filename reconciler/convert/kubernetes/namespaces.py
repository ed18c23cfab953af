"""The GVCs of namespaces."""

from __future__ import annotations

from reconciler.convert.kubernetes.bundle import Item
from reconciler.convert.names import make_valid_name

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
        text = make_valid_name(item.namespace or _DEFAULT_NAMESPACE)
        if text not in self._noted:
            self._noted.add(text)
            origin = "the namespace names it" if item.namespace else "there is neither a namespace nor --gvc"
            item.root.add_note(
                "convert-gvc",
                f"this goes to the GVC {text}, since {origin}",
                f"gvc/{text} must exist; --gvc NAME selects another",
            )
        return text
