"""Rules for GVCs."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_warning
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc


@register_warning("gvc-domain-deprecated", "docs/platform/fields.md#gvc", Kind.GVC)
def domain_inside_a_gvc(gvc: Gvc) -> Iterator[Flaw]:
    """A custom domain is a separate resource, of kind `domain`.

    The field `domain` of a GVC is deprecated: it has no routes, no TLS settings and no second name.
    """
    if gvc.spec.domain:
        hint = "write a resource of kind `domain` with a gvcLink to this GVC"
        yield Flaw(("spec", "domain"), "`domain` is deprecated", hint, on_key=True)
