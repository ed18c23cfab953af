"""A typed view of an org (docs/platform/fields.md#other-kinds), for rules."""

from __future__ import annotations

from reconciler.model.kinds.base import Envelope, View
from reconciler.model.kinds.gvc import Tracing


class Specification(View, frozen=True):
    """The body of an org."""

    tracing: Tracing = Tracing()


class Org(Envelope, frozen=True):
    """An org."""

    spec: Specification = Specification()
