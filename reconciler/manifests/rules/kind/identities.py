"""Network resources and cloud access of identities."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.references import linked, target_of
from reconciler.manifests.rules.registry import Advice, cross_rule, rule
from reconciler.manifests.rules.text import quoted
from reconciler.model.finding import Flaw, Lookup, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.cloudaccount import CloudAccount
from reconciler.model.kinds.identity import Identity
from reconciler.model.resource import LookupRequest


@rule("network-resource-duplicate", "docs/platform/fields.md#identity", Kind.IDENTITY)
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
            known = first.setdefault(resource.name, at)
            if known is not at and resource.name:
                yield Flaw(
                    at,
                    f"there is a network resource {quoted(resource.name)} already, in {known[0]}",
                    "give each a name of its own",
                    (known,),
                )


@rule("cloudaccount-provider", "docs/platform/fields.md#identity", Kind.IDENTITY)
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
    account = linked(world, subject, question.target, CloudAccount)
    if account is not None and account.provider != question.detail:
        yield (
            f"{question.target} is an account of {account.provider}, not of {question.detail}",
            f"link to an account of {question.detail}, or move this below `{account.provider}:`",
        )
