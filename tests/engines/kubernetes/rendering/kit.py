"""Inputs of rendering out of manifests, as an engine has them: decoded and in normal form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from reconciler.engines.kubernetes.rendering.inputs import (
    NO_ROUTES,
    ClusterFeatures,
    ClusterOptions,
    NamespaceInputs,
    ObjectOwner,
    WorkloadInputs,
    select_routes,
)
from reconciler.engines.kubernetes.rendering.namespace import list_pull_secrets
from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.environment import PlatformEnvContext, namespace_of, provider_and_region
from reconciler.engines.workload.routing.build import GvcRouting, RoutingInput, ServedWorkload, build_table
from reconciler.engines.workload.spec import Restriction
from reconciler.engines.workload.spec_builder import AppliedWorkload, workload_spec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Severity
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import read_domain
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.kinds.volumeset import read_specification as read_volume_set
from reconciler.model.kinds.workload import declared_ports, read_specification
from reconciler.model.resource import Manifest
from reconciler.reasons import Reason

ORG, ENDPOINT_DOMAIN, ALIAS = "acme", "example.com", "a1b2c3d4e5f6g"
TOKEN = "rw_YXdzLXVzLXdlc3QtMi9zaG9wL3dlYg.the-token-of-the-workload"


class Setup(msgspec.Struct, frozen=True):
    """What a case has besides its manifests: the cluster, the settings, and what an engine adds.

    ``kinds`` are those of its objects that are compared, all without any. ``metadata``: their labels and annotations
    are compared too, and not only checked.
    """

    features: ClusterFeatures = ClusterFeatures()
    options: ClusterOptions = ClusterOptions()
    restriction: Restriction = Restriction()
    location: str = "aws-us-west-2"
    scheme: str = "platform"
    restarts: str = ""
    version: int = 3
    api: str = ""
    shows: str = "workload"
    kinds: tuple[str, ...] = ()
    metadata: bool = False


def decode(text: str, scheme: str = "platform", *, valid: bool = True) -> list[Manifest]:
    """The manifests of a file; all must be ``valid``, or only those that are not count for nothing."""
    decoded = decode_manifests(text.encode(), ManifestContext(ORG, scheme))
    assert not valid or [fault for fault in decoded.faults if fault.severity is Severity.ERROR] == []
    return list(decoded.manifests)


def vault(manifests: list[Manifest]) -> SecretReader:
    """Reveals the secrets among ``manifests``."""
    secrets = {manifest.name: manifest for manifest in manifests if manifest.kind is Kind.SECRET}

    def reveal(key: Key) -> SecretValue:
        if key.name not in secrets:
            raise EngineError(f"{key} is not applied", reason=Reason.SECRET_UNAVAILABLE)
        secret = secrets[key.name]
        return SecretValue(msgspec.json.decode(secret.body)["type"], msgspec.json.decode(secret.secret_data))

    return reveal


def one(manifests: list[Manifest], kind: Kind) -> Manifest:
    """The first of ``manifests`` that is a ``kind``."""
    return next(manifest for manifest in manifests if manifest.kind is kind)


def gvc_of(manifests: list[Manifest]) -> Gvc:
    """The GVC among ``manifests``, or one without variables."""
    bodies = [manifest.body for manifest in manifests if manifest.kind is Kind.GVC]
    return msgspec.json.decode(bodies[0], type=Gvc) if bodies else Gvc(name="shop")


def owner_of(key: Key, setup: Setup) -> ObjectOwner:
    return ObjectOwner("1f0c2b9a7e5d", key, setup.location, "main", "4be1d2c3a4f5", setup.version)


def namespace_inputs(manifests: list[Manifest], setup: Setup) -> NamespaceInputs:
    """The inputs of the namespace of the GVC among ``manifests``."""
    gvc = gvc_of(manifests)
    links = tuple(Key(Kind.SECRET, "", link.rpartition("/")[2]) for link in gvc.spec.pull_secret_links)
    return NamespaceInputs(
        ORG,
        gvc.name,
        namespace_of(ORG, gvc.name),
        owner_of(Key(Kind.GVC, "", gvc.name), setup),
        setup.features,
        setup.options,
        vault(manifests),
        b"the-salt-of-the-daemon",
        links,
    )


def template_of(workload: Manifest, manifests: list[Manifest], setup: Setup) -> ReplicaTemplate:
    """The template of a workload."""
    key, spec = Key(Kind.WORKLOAD, workload.gvc, workload.name), read_specification(workload.body)
    desired = workload_spec(AppliedWorkload(key, setup.location, spec, setup.version, "4be1d2c3a4f5"), "hash")
    provider, region = provider_and_region(setup.location, None)
    context = PlatformEnvContext(
        org=ORG,
        gvc=key.gvc,
        alias=ALIAS,
        location=setup.location,
        provider=provider,
        region=region,
        workload=key.name,
        version=setup.version,
        namespace=namespace_of(ORG, key.gvc),
        token=TOKEN,
        endpoint_domain=ENDPOINT_DOMAIN,
        gvc_env=gvc_of(manifests).spec.env,
        scheme=setup.scheme,
        api=setup.api,
    )
    logins = namespace_inputs(manifests, setup).pull_secrets
    desired = msgspec.structs.replace(desired, restriction=setup.restriction)
    return ReplicaTemplate(desired, spec, context, pull_secrets=logins)


def workload_inputs(manifests: list[Manifest], setup: Setup) -> WorkloadInputs:
    """The inputs of the first workload among ``manifests``."""
    workload = one(manifests, Kind.WORKLOAD)
    template = template_of(workload, manifests, setup)
    names = list_pull_secrets(namespace_inputs(manifests, setup))
    routes = routes_of(manifests, setup).get(template.desired.key, NO_ROUTES)
    return WorkloadInputs(
        template=template,
        namespace=namespace_of(ORG, workload.gvc),
        owner=owner_of(template.desired.key, setup),
        features=setup.features,
        options=setup.options,
        reveal=vault(manifests),
        token=TOKEN,
        scheme=setup.scheme,
        restarts=setup.restarts,
        body=workload.body,
        volume_sets={
            manifest.name: read_volume_set(manifest.body) for manifest in manifests if manifest.kind is Kind.VOLUMESET
        },
        pull_secrets=names,
        routes=routes,
    )


def routes_of(manifests: list[Manifest], setup: Setup) -> Mapping[Key, Any]:
    """The routes of each workload among ``manifests``."""
    served = []
    for manifest in manifests:
        if manifest.kind is Kind.WORKLOAD:
            spec = read_specification(manifest.body)
            protocols = {port.number: port.protocol for container in spec.containers for port in container.ports}
            ports = {number: protocols.get(number, "http2") for c in spec.containers for number in declared_ports(c)}
            if ports and spec.type != "cron":
                served.append(ServedWorkload(Key(Kind.WORKLOAD, manifest.gvc, manifest.name), ports))
    domains = tuple(read_domain(manifest.body) for manifest in manifests if manifest.kind is Kind.DOMAIN)
    dedicated = gvc_of(manifests).spec.load_balancer.dedicated
    gvcs = {
        manifest.gvc: GvcRouting(ALIAS, dedicated=dedicated) for manifest in manifests if manifest.kind is Kind.WORKLOAD
    }
    return select_routes(build_table(RoutingInput(setup.location, ENDPOINT_DOMAIN, tuple(served), gvcs, domains)))
