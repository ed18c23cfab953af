"""Who may reveal the secrets that a workload reads or inherits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.manifests.rules.container.env import asking
from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.cross.secrets import readings
from reconciler.manifests.rules.references import identity_of, place_of
from reconciler.manifests.rules.registry import Advice, cross_rule, rule
from reconciler.model.finding import Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.identity import Identity
from reconciler.model.kinds.policy import Policy
from reconciler.model.kinds.secret import Secret
from reconciler.model.kinds.table import expanded
from reconciler.model.kinds.workload import Workload
from reconciler.model.platform import SECRET_URI
from reconciler.model.query_match import matches
from reconciler.model.resource import LookupRequest


@rule("secret-reveal", "docs/platform/workload.md#permission-to-reveal-secrets", Kind.WORKLOAD)
def reveals(workload: Workload) -> Iterator[Lookup]:
    """The identity of a workload is permitted to reveal each secret that the workload reads or inherits.

    A policy about the secret gives its identity `reveal`, or a permission that brings it along. Without it the platform
    refuses the secret, and no replica starts. Where policies are kept elsewhere, list one under `external` in the
    settings: then nothing is said.
    """
    identity = identity_of(workload)
    asked: set[str] = set()
    for at, text in readings(workload) if identity else ():
        name = text.partition(".")[0]
        if name and name not in asked:
            asked.add(name)
            yield Lookup(at, identity, f"secret/{name}")
    if not identity and workload.spec.identity_link:
        return
    for number, container in enumerate(workload.spec.containers):
        if container.inherit_env:
            yield Lookup(("spec", "containers", number, "inheritEnv"), f"gvc/{place_of(workload.gvc)}", identity)


def _nothing_to_reveal(question: LookupRequest, world: RuleContext) -> bool:
    if question.target.startswith(f"{Kind.IDENTITY}/"):
        return _may(question.target, question.detail, world)
    return not _secret_variables(question.target, world)


@cross_rule("secret-reveal", _nothing_to_reveal)
def may_reveal(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether a policy lets the identity reveal the secret, where identity and secret are known."""
    if question.target.startswith(f"{Kind.IDENTITY}/"):
        if not _may(question.target, question.detail, world):
            yield (f"{question.target} may not reveal {question.detail}",
                   _advice(question.target, question.detail))  # fmt: skip
        return
    for variable, secret in _inherited(question, subject, world):
        message = f"{variable} of {question.target} reads {secret}, which "
        if not question.detail:
            yield f"{message}needs an identity, and this workload has none", "give it an identityLink"
        elif not _may(question.detail, secret, world):
            yield f"{message}{question.detail} may not reveal", _advice(question.detail, secret)


def _advice(identity: str, secret: str) -> str:
    _, gvc, name = identity.split("/")
    return f"add a policy with targetLinks: [//{secret}] that binds //gvc/{gvc}/identity/{name} to `reveal`"


def _inherited(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[tuple[str, str]]:
    """Variables of the GVC that read secrets and that the container does not set itself; each secret once."""
    read = _secret_variables(question.target, world)
    workload = world.typed(subject, Workload) if read else None
    if workload is None:
        return
    own = {variable.name for variable in asking(question, workload).env}
    seen: set[str] = set()
    for name, value in read:
        secret = f"secret/{value[len(SECRET_URI) :].partition('.')[0]}"
        if name not in own and secret not in seen:
            seen.add(secret)
            yield name, secret


def _secret_variables(gvc: str, world: RuleContext) -> list[tuple[str, str]]:
    """Name and value of the variables of ``gvc`` that read secrets, where it is known."""
    found = world.typed(gvc, Gvc)
    env = found.spec.env if found is not None else ()
    return [(variable.name, variable.value) for variable in env if variable.value.startswith(SECRET_URI)]


def _may(identity: str, secret: str, world: RuleContext) -> bool:
    """Whether ``identity`` may reveal ``secret`` by any policy, or this cannot be known."""
    return world.memoized(("reveal", identity, secret), lambda: _found(identity, secret, world))


def _found(identity: str, secret: str, world: RuleContext) -> bool:
    if (
        world.typed(identity, Identity) is None
        or world.typed(secret, Secret) is None
        or any(_may_grant(mentions, identity, secret) for mentions in world.unresolved(Kind.POLICY))
    ):
        return True
    return any(_grants(policy, identity, secret, world) for policy in world.users(identity, Kind.POLICY))


def _may_grant(mentions: tuple[str, ...] | None, identity: str, secret: str) -> bool:
    """Whether a policy of which only the links are known may let ``identity`` reveal ``secret``."""
    return mentions is None or (_may_name(mentions, identity) and _may_name(mentions, secret))


def _may_name(mentions: tuple[str, ...], key: str) -> bool:
    """Whether ``mentions`` have ``key``, or no key of its kind: then a query or an unreadable link may find it."""
    kind = f"{key.partition('/')[0]}/"
    return key in mentions or not any(each.startswith(kind) for each in mentions)


def _grants(key: str, identity: str, secret: str, world: RuleContext) -> bool:
    policy = world.typed(key, Policy)
    if policy is None:
        return True
    if policy.target_kind != Kind.SECRET or not _targets(policy, key, secret, world):
        return False
    _, gvc, name = identity.split("/")
    principal = f"/gvc/{gvc}/identity/{name}"
    return any(
        "reveal" in expanded(Kind.SECRET, binding.permissions)
        for binding in policy.bindings
        if any(link.endswith(principal) for link in binding.principal_links)
    )


def _targets(policy: Policy, key: str, secret: str, world: RuleContext) -> bool:
    if policy.target == "all" or any(link.endswith(f"/{secret}") for link in policy.target_links):
        return True
    if policy.target_query is None:
        return False
    if any(term.rel for term in policy.target_query.spec.terms):
        return True
    body: dict[str, Any] = world.typed(key, dict) or {}
    return matches(body.get("targetQuery", {}), world.typed(secret, dict) or {})
