"""The identities that may reveal the secrets that a workload reads or inherits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from reconciler.manifests.rules.container.env import find_asking_container
from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.cross.secrets import list_secret_readings
from reconciler.manifests.rules.references import identity_of, place_of
from reconciler.manifests.rules.registry import Advice, cross_rule, register_rule
from reconciler.model.finding import Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.identity import Identity
from reconciler.model.kinds.policy import Policy
from reconciler.model.kinds.secret import Secret
from reconciler.model.kinds.table import expand_permissions
from reconciler.model.kinds.workload import Workload
from reconciler.model.platform import SECRET_URI
from reconciler.model.query_match import Selector, make_selector, term_count
from reconciler.model.resource import LookupRequest


@register_rule("secret-reveal", "docs/platform/workload.md#permission-to-reveal-secrets", Kind.WORKLOAD)
def check_reveal_permission(workload: Workload) -> Iterator[Lookup]:
    """The identity of a workload is permitted to reveal each secret that the workload reads or inherits.

    A policy for the secret grants its identity `reveal`, or a permission that implies it. Without it the platform
    refuses the secret, and no replica starts. If policies are managed outside of Git, list one under `external` in the
    settings: then this rule reports nothing.
    """
    identity = identity_of(workload)
    asked: set[str] = set()
    for at, text in list_secret_readings(workload) if identity else ():
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
        return _can_reveal_secret(question.target, question.detail, world)
    return not _list_refused_variables(question.target, question.detail, world)


@cross_rule("secret-reveal", _nothing_to_reveal)
def may_reveal(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether a policy lets the identity reveal the secret, if identity and secret are known."""
    if question.target.startswith(f"{Kind.IDENTITY}/"):
        if not _can_reveal_secret(question.target, question.detail, world):
            yield (
                f"{question.target} may not reveal {question.detail}",
                _suggest_policy(question.target, question.detail),
            )
        return
    for variable, secret in _list_inherited_secrets(question, subject, world):
        message = f"{variable} of {question.target} reads {secret}, which "
        if not question.detail:
            yield f"{message}needs an identity, and this workload has none", "give it an identityLink"
        else:
            yield f"{message}{question.detail} may not reveal", _suggest_policy(question.detail, secret)


def _suggest_policy(identity: str, secret: str) -> str:
    _, gvc, name = identity.split("/")
    return f"add a policy with targetLinks: [//{secret}] that binds //gvc/{gvc}/identity/{name} to `reveal`"


def _list_inherited_secrets(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[tuple[str, str]]:
    """Variables of the GVC with secrets that the identity may not reveal, each secret once.

    Variables that the container itself sets are omitted.
    """
    refused = _list_refused_variables(question.target, question.detail, world)
    workload = world.bodies.read_view(subject, Workload) if refused else None
    if workload is None:
        return
    own = {variable.name for variable in find_asking_container(question, workload).env}
    seen: set[str] = set()
    for name, secret in refused:
        if name not in own and secret not in seen:
            seen.add(secret)
            yield name, secret


def _list_refused_variables(gvc: str, identity: str, world: RuleContext) -> list[tuple[str, str]]:
    """Name and secret of each variable of ``gvc`` whose secret ``identity`` ("" for none) may not reveal."""
    read = _secret_variables(gvc, world)
    if not identity or not read:
        return read
    left = world.memoize(("refused", gvc, identity), lambda: _not_granted(gvc, identity, world))
    return [pair for pair in read if pair[1] in left] if left else []


def _not_granted(gvc: str, identity: str, world: RuleContext) -> frozenset[str]:
    """The secrets in variables of ``gvc`` that no policy lets ``identity`` reveal, if that is known."""
    if world.bodies.read_view(identity, Identity) is None:
        return frozenset()
    read = {secret for _, secret in _secret_variables(gvc, world)}
    secrets = world.memoize(
        ("known", gvc), lambda: frozenset(text for text in read if world.bodies.read_view(text, Secret) is not None)
    )
    grants = world.memoize(("grants", identity), lambda: _collect_grants(identity, world))
    left = frozenset() if grants.everything else secrets.difference(*grants.named)
    if not left or not all(world.query_budget.take(query.terms, len(left)) for query in grants.queries):
        return frozenset()
    bodies = {text: _without_data(text, world) for text in left if grants.queries}
    return frozenset(text for text in left if not any(query.selects(bodies[text]) for query in grants.queries))


def _secret_variables(gvc: str, world: RuleContext) -> list[tuple[str, str]]:
    """Name and secret of the variables of ``gvc`` that read one, if it is known."""
    gvc_resource = world.bodies.read_view(gvc, Gvc)
    if gvc_resource is None:
        return []
    return world.memoize(
        ("secrets", gvc),
        lambda: [
            (variable.name, f"{Kind.SECRET}/{variable.value[len(SECRET_URI) :].partition('.')[0]}")
            for variable in gvc_resource.spec.env
            if variable.value.startswith(SECRET_URI)
        ],
    )


def _can_reveal_secret(identity: str, secret: str, world: RuleContext) -> bool:
    """Whether any policy lets ``identity`` reveal ``secret``, or may do so."""
    return world.memoize(("reveal", identity, secret), lambda: _has_reveal_grant(identity, secret, world))


class _Query(NamedTuple):
    """A query for secrets; ``terms`` is the number of its terms."""

    terms: int
    selects: Selector


class _Grants(NamedTuple):
    """The secrets that policies which name an identity let it reveal: ``named`` has sets of their keys."""

    everything: bool
    named: tuple[frozenset[str], ...]
    queries: tuple[_Query, ...]


def _has_reveal_grant(identity: str, secret: str, world: RuleContext) -> bool:
    if world.bodies.read_view(identity, Identity) is None or world.bodies.read_view(secret, Secret) is None:
        return True
    grants = world.memoize(("grants", identity), lambda: _collect_grants(identity, world))
    if grants.everything or any(secret in keys for keys in grants.named):
        return True
    body = _without_data(secret, world)
    return any(not world.query_budget.take(query.terms, 1) or query.selects(body) for query in grants.queries)


def _collect_grants(identity: str, world: RuleContext) -> _Grants:
    """Certain and possible grants: for a faulty policy only its links are known, or nothing."""
    candidates = [_build_policy_grant(key, identity, world) for key in world.index.users(identity, Kind.POLICY)]
    unknown = world.memoize(("unresolved", Kind.POLICY), lambda: _Unresolved(world.index.list_unresolved(Kind.POLICY)))
    grants = [candidate for candidate in candidates if candidate is not None]
    named = (*(keys for grant in grants for keys in grant.named if keys), *unknown.secrets_beside(identity))
    queries = tuple(query for grant in grants for query in grant.queries)
    return _Grants(unknown.may_open_all(identity) or any(grant.everything for grant in grants), named, queries)


def _build_policy_grant(key: str, identity: str, world: RuleContext) -> _Grants | None:
    """The secrets that the policy ``key`` lets ``identity`` reveal, None for none."""
    policy = world.bodies.read_view(key, Policy)
    if policy is None:
        return _Grants(True, (), ())
    if policy.target_kind != Kind.SECRET or _name_of(identity) not in _list_revealing_principals(key, policy, world):
        return None
    query = policy.target_query
    everything = policy.target == "all" or (query is not None and any(term.rel for term in query.spec.terms))
    return _Grants(
        everything,
        (_list_target_secrets(key, policy, world),),
        (_get_policy_query(key, world),) if query is not None else (),
    )


def _name_of(identity: str) -> str:
    """The end of every link to ``identity``: ``gvc/GVC/identity/NAME``."""
    _, gvc, name = identity.split("/")
    return f"gvc/{gvc}/identity/{name}"


def _list_revealing_principals(key: str, policy: Policy, world: RuleContext) -> frozenset[str]:
    """The ends of the links to principals that ``policy`` with the key ``key`` lets reveal its targets."""
    return world.memoize(
        ("revealing", key),
        lambda: frozenset(
            "/".join(link.rsplit("/", 4)[-4:])
            for binding in policy.bindings
            if "reveal" in expand_permissions(Kind.SECRET, binding.permissions)
            for link in binding.principal_links
        ),
    )


def _list_target_secrets(key: str, policy: Policy, world: RuleContext) -> frozenset[str]:
    """Keys of the secrets that ``policy`` with the key ``key`` links to."""
    links = policy.target_links
    return world.memoize(("policy", key), lambda: frozenset("/".join(link.rsplit("/", 2)[-2:]) for link in links))


def _without_data(secret: str, world: RuleContext) -> dict[str, Any]:
    """The body of ``secret`` as queries see it: they cannot ask for the values of secrets."""
    body: dict[str, Any] = world.bodies.read_view(secret, dict) or {}
    return {name: value for name, value in body.items() if name != "data"}


def _get_policy_query(key: str, world: RuleContext) -> _Query:
    """The query of the policy ``key``, which all identities that it binds share."""

    def read() -> _Query:
        body: dict[str, Any] = world.bodies.read_view(key, dict) or {}
        query: dict[str, Any] = body.get("targetQuery", {})
        return _Query(term_count(query), make_selector(query, world.bodies.org))

    return world.memoize(("policy query", key), read)


class _Unresolved:
    """Policies of which at most the links are known, by the identities in their links.

    A policy without a link to an identity may match any by a query or an unreadable link; the same for secrets.
    """

    def __init__(self, policies: Sequence[tuple[str, ...] | None]) -> None:
        self._by_identity: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
        self._of_all: list[frozenset[str]] = []
        self._open: set[str] = set()
        self._all_open = False
        for mentions in policies:
            self._add(mentions or ())

    def _add(self, mentions: tuple[str, ...]) -> None:
        identities = [mention for mention in mentions if mention.startswith(f"{Kind.IDENTITY}/")]
        secrets = frozenset(mention for mention in mentions if mention.startswith(f"{Kind.SECRET}/"))
        if secrets and not identities:
            self._of_all.append(secrets)
        elif secrets:
            for identity in identities:
                self._by_identity[identity].append(secrets)
        elif identities:
            self._open.update(identities)
        else:
            self._all_open = True

    def may_open_all(self, identity: str) -> bool:
        """Whether one of them may let ``identity`` reveal any secret."""
        return self._all_open or identity in self._open

    def secrets_beside(self, identity: str) -> list[frozenset[str]]:
        """For each of them that may concern ``identity``, the secrets that it links to."""
        return [*self._of_all, *self._by_identity.get(identity, ())]
