"""Tags with a meaning: whether their keys and values are valid."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import Section, warning
from reconciler.manifests.rules.text import quoted
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.base import Envelope
from reconciler.model.platform import PROTECTED_TAG
from reconciler.model.suggest import closest

SECTION = Section.MANIFESTS

_OWN = "reconciler/"
_TRUTH = frozenset({"true", "false"})
_TAKEN = {
    PROTECTED_TAG: _TRUTH,
    "reconciler/allow-replace": _TRUTH,
    "reconciler/prune": frozenset({"disabled", "enabled"}),
}
"""Tag → its valid values; other tags accept every text."""
_KNOWN = ("reconciler/allow-replace", "reconciler/depends-on", "reconciler/ignore", "reconciler/prune")
MOST = 20
"""The maximum of reported tags of a document, which may have 50."""


@warning("tag-without-effect", "docs/manifests.md#tags", *Kind)
def unheard(resource: Envelope) -> Iterator[Flaw]:
    """A tag that the platform or the reconciler reads has a valid key and value.

    `platform/protected` and `reconciler/allow-replace` are true or false, `reconciler/prune` is disabled or enabled.
    Another value, or an unknown tag that begins with `reconciler/`, has no effect: the resource may be deleted or
    replaced all the same.
    """
    reported = 0
    for tag, text in resource.tags.items():
        if not tag.startswith((_OWN, PROTECTED_TAG)) or reported == MOST:
            continue
        taken = _TAKEN.get(tag)
        if taken is not None and str(text) not in taken:
            reported += 1
            yield Flaw(("tags", tag), f"{quoted(str(text))} has no effect here", f"write {_either(taken, str(text))}")
        elif taken is None and tag.startswith(_OWN) and tag not in _KNOWN:
            reported += 1
            near = closest(tag[:60], _KNOWN)
            hint = f"did you mean `{near}`?" if near else f"tags of this kind are {', '.join(_KNOWN)}"
            yield Flaw(("tags", tag), f"the tag {quoted(tag)} is unknown", hint, on_key=True)


def _either(taken: frozenset[str], text: str) -> str:
    """The value that was probably meant, or all values."""
    return next(
        (f'"{each}"' for each in taken if each == text.lower()), " or ".join(f'"{each}"' for each in sorted(taken))
    )
