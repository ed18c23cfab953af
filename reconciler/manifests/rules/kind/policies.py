"""The permissions and targets of policies."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.references import suggest_nearest_name
from reconciler.manifests.rules.registry import register_rule
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw
from reconciler.model.key import KINDS, Kind
from reconciler.model.kinds.policy import Policy
from reconciler.model.kinds.table import TABLE, UNMODELLED_PERMISSIONS

MOST_GUESSES = 50
"""The number of unknown permissions of a policy that get a suggestion."""


@register_rule("policy-permission", "docs/platform/fields.md#permissions", Kind.POLICY)
def check_permissions(policy: Policy) -> Iterator[Flaw]:
    """A policy has only permissions of its target kind.

    Each kind has its own permissions. An unknown name permits nothing, and people who rely on it are refused while
    they work.
    """
    kind = KINDS.get(policy.target_kind)
    if kind is None:
        return
    grantable, unmodelled = TABLE[kind].permissions, UNMODELLED_PERMISSIONS.get(kind, ())
    reported = 0
    for number, binding in enumerate(policy.bindings):
        for index, name in enumerate(binding.permissions):
            if name not in grantable and name not in unmodelled:
                reported += 1
                hint = suggest_nearest_name(name, grantable, "it has") if reported <= MOST_GUESSES else ""
                yield Flaw(
                    ("bindings", number, "permissions", index),
                    f"kind {kind} has no permission {quote_text(name)}",
                    hint,
                    (("targetKind",),),
                )


@register_rule("policy-link-kind", "docs/platform/fields.md#policy", Kind.POLICY)
def link_kinds(policy: Policy) -> Iterator[Flaw]:
    """Every target link of a policy leads to a resource of its target kind.

    A policy is for one kind. Its permissions have no meaning for a target of another kind.
    """
    if policy.target_kind not in KINDS:
        return
    for index, link in enumerate(policy.target_links):
        kind = _kind_of(link)
        if kind and kind != policy.target_kind:
            yield Flaw(
                ("targetLinks", index),
                f"this is of kind {kind}, the policy is about kind {policy.target_kind}",
                f"put it into a policy with targetKind: {kind}",
                (("targetKind",),),
            )


def _kind_of(link: str) -> str:
    """The kind that ``link`` leads to, "" if it is no link."""
    parts = link.split("/")
    if len(parts) == 3 and parts[:2] == ["", "org"]:
        return str(Kind.ORG)
    return parts[-2] if len(parts) > 2 and parts[-2] in KINDS else ""
