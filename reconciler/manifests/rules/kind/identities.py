"""Network resources and cloud access of identities."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.references import read_linked_view, target_of
from reconciler.manifests.rules.registry import Advice, cross_rule, register_rule
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw, Lookup, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.cloudaccount import CloudAccount
from reconciler.model.kinds.identity import Identity
from reconciler.model.resource import LookupRequest


@register_rule("network-resource-duplicate", "docs/platform/fields.md#identity", Kind.IDENTITY)
def network_resource_names(identity: Identity) -> Iterator[Flaw]:
    """The network resources of an identity, native ones included, have different names.

    A workload finds a resource by its name; with one name for two, it would reach either.
    """
    lists = (
        ("networkResources", identity.network_resources),
        ("nativeNetworkResources", identity.native_network_resources),
    )
    first: dict[str, Pointer] = {}
    for field, resources in lists:
        for index, resource in enumerate(resources):
            at = (field, index, "name")
            former = first.setdefault(resource.name, at)
            if former is not at and resource.name:
                yield Flaw(
                    at,
                    f"there is a network resource {quote_text(resource.name)} already, in {former[0]}",
                    "give each a name of its own",
                    (former,),
                )


@register_rule("cloudaccount-provider", "docs/platform/fields.md#identity", Kind.IDENTITY)
def cloud_accounts(identity: Identity) -> Iterator[Lookup]:
    """The cloud access of an identity goes through a cloud account of the same provider.

    An account is registered with one provider and has no access to another.
    """
    for provider, access in identity.accesses():
        target = target_of(access.cloud_account_link)
        if target:
            yield Lookup((provider, "cloudAccountLink"), target, provider)


@cross_rule("cloudaccount-provider")
def same_provider(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the account has the provider, if the account is known."""
    account = read_linked_view(world, subject, question.target, CloudAccount)
    if account is not None and account.provider != question.detail:
        yield (
            f"{question.target} is an account of {account.provider}, not of {question.detail}",
            f"link to an account of {question.detail}, or move this below `{account.provider}:`",
        )
