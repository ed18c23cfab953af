"""References to secrets: whether the secrets have the right keys and types."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.references import MOST_COMPARED, read_linked_view, suggest_nearest_name, target_of
from reconciler.manifests.rules.registry import Advice, cross_rule, register_rule, shared_cross_rule
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Lookup, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.cloudaccount import CloudAccount
from reconciler.model.kinds.domain import Domain
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.org import Org
from reconciler.model.kinds.secret import TEXTS, Secret
from reconciler.model.kinds.workload import Variable, Workload
from reconciler.model.platform import SECRET_URI
from reconciler.model.resource import LookupRequest

Reading = tuple[Pointer, str]
"""A reference to a secret: its place, and NAME or NAME.KEY."""


def list_secret_readings(resource: Workload | Gvc) -> list[Reading]:
    """Every reference of ``resource`` to a secret in a variable or a mount."""
    if isinstance(resource, Gvc):
        return _list_variable_readings(("spec",), resource.spec.env)
    references: list[Reading] = []
    for number, container in enumerate(resource.spec.containers):
        if container.env:
            references += _list_variable_readings(("spec", "containers", number), container.env)
        for index, volume in enumerate(container.volumes):
            if volume.uri.startswith(SECRET_URI):
                references.append(
                    (("spec", "containers", number, "volumes", index, "uri"), volume.uri[len(SECRET_URI) :])
                )
    return references


def _list_variable_readings(at: Pointer, env: tuple[Variable, ...]) -> list[Reading]:
    return [
        ((*at, "env", index, "value"), variable.value[len(SECRET_URI) :])
        for index, variable in enumerate(env)
        if variable.value.startswith(SECRET_URI)
    ]


@register_rule("secret-key", "docs/platform/workload.md#secrets-as-variables", Kind.WORKLOAD, Kind.GVC)
def check_secret_keys(resource: Workload | Gvc) -> Iterator[Lookup]:
    """A reference platform://secret/NAME.KEY names a key that the secret has.

    A replica with an unknown key in a variable or mount does not start, and only the rollout shows a typing error.
    """
    for at, text in list_secret_readings(resource):
        name, dot, key = text.partition(".")
        if dot and name:
            yield Lookup(at, f"secret/{name}", key)


def _key_names(secret: str, world: RuleContext) -> dict[str, None] | None:
    """The names of the keys of ``secret``, in order; None if it is unknown."""
    resource = world.bodies.read_view(secret, Secret)
    if resource is None:
        return None
    return world.memoize(("keys", secret), lambda: dict.fromkeys(resource.key_names()))


def _may_have_key(question: LookupRequest, world: RuleContext) -> bool:
    # Apart from ``has_key``: thousands of resources ask this, and finding a similar name takes 0.2 ms.
    names = _key_names(question.target, world)
    return names is None or question.detail in names


@cross_rule("secret-key", _may_have_key)
def has_key(question: LookupRequest, _: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the secret has the key, if the secret is known."""
    secret, names = world.bodies.read_view(question.target, Secret), _key_names(question.target, world)
    if secret is None or names is None or question.detail in names:
        return
    if not isinstance(secret.data, dict):
        yield (f"{question.target} is of type {secret.type}, one text without keys", f"write {SECRET_URI}{secret.name}")
        return
    yield (
        f"{question.target} has no key {quote_text(question.detail)}",
        suggest_nearest_name(question.detail, list(islice(names, MOST_COMPARED)), "it has"),
    )


@register_rule("secret-mount-path", "docs/platform/workload.md#secrets-as-files", Kind.WORKLOAD)
def mounts_of_texts(workload: Workload) -> Iterator[Lookup]:
    """A secret of type docker, gcp or azure-sdk is mounted at a path of at least two segments.

    The last segment becomes a directory with the secret as one file. The platform creates no such directory directly
    below the root.
    """
    for number, container in enumerate(workload.spec.containers):
        for index, volume in enumerate(container.volumes):
            name = volume.uri[len(SECRET_URI) :] if volume.uri.startswith(SECRET_URI) else ""
            if name and "." not in name and len(list(filter(None, volume.path.split("/")))) == 1:
                at = ("spec", "containers", number, "volumes", index, "path")
                yield Lookup(at, f"secret/{name}", volume.path)


@shared_cross_rule("secret-mount-path")
def has_a_directory(question: LookupRequest, _: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the secret is one text, if the secret is known."""
    secret = world.bodies.read_view(question.target, Secret)
    if secret is not None and secret.type in TEXTS:
        name = question.detail.strip("/")
        yield (
            f"{question.target} is of type {secret.type}, which needs a path of at least two segments",
            f"write /{name}/{secret.name}",
        )


_PULL, _TLS, _AZURE, _NGS, _TRACES = "pull", "tls", "azure", "ngs", "lightstep"
_FITTING = {
    _PULL: ("images are pulled with", ("docker", "ecr", "gcp")),
    _TLS: ("a domain takes its certificates from", ("tls",)),
    _AZURE: ("an azure account uses", ("azure-connector", "azure-sdk")),
    _NGS: ("an ngs account uses", ("nats-account",)),
    _TRACES: ("the access token of Lightstep is in", ("opaque",)),
}
"""Use of a secret → its description, and the types that fit."""


class _Use(NamedTuple):
    """A link to a secret, its place, and the use of the secret."""

    at: Pointer
    link: str
    purpose: str


@register_rule("secret-type-fit", "docs/platform/fields.md#secret", Kind.GVC, Kind.DOMAIN, Kind.CLOUDACCOUNT, Kind.ORG)
def check_secret_types(resource: Gvc | Domain | CloudAccount | Org) -> Iterator[Lookup]:
    """A linked secret has a type that fits its use.

    Images are pulled with docker, ecr or gcp secrets, domains use tls secrets, cloud accounts those of their provider.
    A secret of another type does not have the necessary fields.
    """
    for at, link, use in _list_secret_uses(resource):
        target = target_of(link)
        if target:
            yield Lookup(at, target, use)


@cross_rule("secret-type-fit")
def answer_secret_type(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether the type fits, if the secret is known."""
    secret = read_linked_view(world, subject, question.target, Secret)
    purpose, types = _FITTING[question.detail]
    if secret is not None and secret.type not in types:
        yield (
            f"{question.target} is of type {secret.type}, but {purpose} a secret of type {_join_alternatives(types)}",
            f"link to a secret of type {_join_alternatives(types)}",
        )


def _list_secret_uses(resource: Gvc | Domain | CloudAccount | Org) -> Iterator[_Use]:
    if isinstance(resource, Gvc):
        for index, link in enumerate(resource.spec.pull_secret_links):
            yield _Use(("spec", "pullSecretLinks", index), link, _PULL)
    elif isinstance(resource, Domain):
        yield from _list_certificate_uses(resource)
    elif isinstance(resource, CloudAccount) and resource.provider in (_AZURE, _NGS):
        yield _Use(("data", "secretLink"), resource.data.secret_link, resource.provider)
    if isinstance(resource, Gvc | Org) and resource.spec.tracing.provider.lightstep is not None:
        link = resource.spec.tracing.provider.lightstep.credentials
        yield _Use(("spec", "tracing", "provider", "lightstep", "credentials"), link, _TRACES)


def _list_certificate_uses(domain: Domain) -> Iterator[_Use]:
    for number, port in enumerate(domain.spec.ports):
        at: Pointer = ("spec", "ports", number, "tls")
        if port.tls.client_certificate is not None:
            yield _Use((*at, "clientCertificate", "secretLink"), port.tls.client_certificate.secret_link, _TLS)
        if port.tls.server_certificate is not None:
            yield _Use((*at, "serverCertificate", "secretLink"), port.tls.server_certificate.secret_link, _TLS)


def _join_alternatives(types: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(types[:-1]), types[-1])))
