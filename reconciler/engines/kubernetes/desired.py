"""What the cluster must have of each resource of a location: the records, rendered as objects."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from reconciler.engines.context import EngineContext
from reconciler.engines.kubernetes.applying import RUNS
from reconciler.engines.kubernetes.client.objects import SECRET, STATEFUL_SET, KubeObject, ObjectId, id_of
from reconciler.engines.kubernetes.mirror import ClusterMirror, MirroredObject
from reconciler.engines.kubernetes.ownership import Owner
from reconciler.engines.kubernetes.rendering.containers import resolve_image
from reconciler.engines.kubernetes.rendering.inputs import (
    NO_ROUTES,
    ClusterFeatures,
    ClusterOptions,
    NamespaceInputs,
    ObjectOwner,
    WorkloadInputs,
    WorkloadRoutes,
    select_routes,
)
from reconciler.engines.kubernetes.rendering.limitations import list_limitations
from reconciler.engines.kubernetes.rendering.names import (
    DIGEST,
    OBJECTS,
    RESTARTS,
    SALT_SECRET,
    TOKEN,
    VERSION,
    build_metadata,
    token_secret_name,
)
from reconciler.engines.kubernetes.rendering.namespace import list_pull_secrets, render_namespace
from reconciler.engines.kubernetes.rendering.workload import render_workload
from reconciler.engines.kubernetes.trials import with_annotation
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.workload.image_reference import check_permission, parse_reference
from reconciler.engines.workload.routing.build import RoutingInput, build_table
from reconciler.engines.workload.routing.domains import KnownDomains
from reconciler.engines.workload.routing.router import read_gvc_routing, read_served
from reconciler.engines.workload.routing.table import RouteTable
from reconciler.engines.workload.template import PlatformSettings, ReplicaTemplate, TemplateBuilder
from reconciler.engines.workload.tokens import TOKEN_PREFIX, make_token
from reconciler.errors import EngineError
from reconciler.manifests.field_schema import recorded_sentences
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.domain import Domain
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.volumeset import Specification as VolumeSetSpecification
from reconciler.model.kinds.volumeset import read_specification as read_volumeset
from reconciler.model.kinds.workload import Specification, Workload, mounted_volumesets, read_specification
from reconciler.model.platform import ADOPT
from reconciler.model.record import Record
from reconciler.settings import ClusterSettings

RUNTIME = "kubernetes"
_SALT = "salt"


class AppliedResource(NamedTuple):
    """A resource of this location as a step or a record has it."""

    key: Key
    body: bytes
    digest: str
    version: int


class RenderedWorkload(msgspec.Struct, frozen=True):
    """The objects of a workload, and the template that they are made from.

    ``adopt``: its manifest takes over objects of others.
    """

    template: ReplicaTemplate
    objects: list[KubeObject]
    adopt: bool = False


class DesiredObjects:
    """Renders resources of the location of ``context`` from its records. It must not run beside other users of them."""

    def __init__(self, context: EngineContext, cluster: ClusterSettings, owner: Owner, mirror: ClusterMirror) -> None:
        self._context = context
        self._cluster = cluster
        self._owner = owner
        self._instance = cluster.instance or context.settings.org
        self._mirror = mirror
        self._claims = VolumeClaims(context.records, context.settings.org)
        self._new_tokens: dict[Key, str] = {}
        self._domains = KnownDomains(context.records)
        self._tables: dict[Key, RouteTable] = {}
        self._limitations: dict[Key, tuple[str, tuple[str, ...]]] = {}
        self.features = ClusterFeatures()
        """What the cluster serves, as far as that is known."""
        self._builder = TemplateBuilder(
            self._claims, context.records, self.token_of, _platform_settings(context), context.clock
        )

    def set_features(self, features: ClusterFeatures) -> None:
        """Render for what the cluster serves."""
        self.features = features

    @property
    def options(self) -> ClusterOptions:
        """What the settings choose for objects."""
        cluster = self._cluster
        namespace, _, gateway = cluster.gateway.partition("/")
        return ClusterOptions(
            gateway=gateway,
            gateway_namespace=namespace,
            ingress_class=cluster.ingress_class,
            issuer=cluster.issuer,
            registry=self._context.settings.images.registry,
            dns_namespaces=cluster.dns_namespaces,
            metrics_namespace=cluster.metrics_namespace,
            cluster_networks=cluster.networks,
            keda_namespace=cluster.keda_namespace,
        )

    @property
    def serves_hosts(self) -> bool:
        """Whether the settings name what takes requests by host name."""
        return bool(self._cluster.gateway or self._cluster.ingress_class)

    def read_domains(self) -> None:
        """Read the domains again. Raises RecordsError."""
        self._domains.refresh()

    def list_domains(self, workloads: Collection[Key]) -> Iterator[tuple[Domain, list[Key]]]:
        """The domains that lead to ``workloads``, with these."""
        return self._domains.leading_to(workloads)

    def table_of(self, key: Key) -> RouteTable:
        """The routes to a workload as it was rendered last; none before that."""
        return self._tables.get(key, RouteTable())

    def namespace_of(self, gvc: str) -> str:
        """The namespace of a GVC."""
        return self._owner.namespace_of(gvc)

    def adopts_namespace(self, gvc: str) -> bool:
        """Whether the manifest of a GVC takes over a namespace of others."""
        record = self._context.records.find_shared(Key(Kind.GVC, "", gvc))
        return record is not None and str(msgspec.json.decode(record.body, type=Gvc).tags.get(ADOPT, "")) == "true"

    def has_namespace(self, gvc: str) -> bool:
        """Whether a GVC exists, so that what its namespace has in common is needed."""
        return not self._context.decommissioning and (
            self._context.records.find_shared(Key(Kind.GVC, "", gvc)) is not None
        )

    def render_namespace(self, gvc: str) -> list[KubeObject]:
        """The objects of a GVC. Raises EngineError and RecordsError."""
        inputs = self._namespace_inputs(gvc)
        return [*render_namespace(inputs), *([_render_salt(inputs)] if inputs.pull_secrets else ())]

    def _namespace_inputs(self, gvc: str) -> NamespaceInputs:
        key = Key(Kind.GVC, "", gvc)
        record = self._context.records.find_shared(key)
        links = msgspec.json.decode(record.body, type=Gvc).spec.pull_secret_links if record is not None else ()
        digest, version = (record.digest, record.version) if record is not None else ("", 0)
        source = self._context.records.find_source(key)
        return NamespaceInputs(
            org=self._context.settings.org,
            gvc=gvc,
            namespace=self.namespace_of(gvc),
            owner=ObjectOwner(self._instance, key, self._context.location, source, digest, version),
            features=self.features,
            options=self.options,
            reveal=self._context.secrets,
            salt=self._salt_of(key),
            pull_secrets=tuple(Key(Kind.SECRET, "", link.rpartition("/")[2]) for link in links),
        )

    def _salt_of(self, gvc: Key) -> bytes:
        """What names of pull secrets depend on; the cluster keeps it, so that lost records restart no pod."""
        target = ObjectId(SECRET, self.namespace_of(gvc.name), SALT_SECRET)
        stored = self._mirror.get(target)
        if stored is not None and stored.key == gvc:
            return base64.b64decode((stored.decode().get("data") or {}).get(_SALT, ""))
        return blake2b(str(target).encode(), key=self._context.records.secret_key[:64]).digest()

    def render_workload(self, applied: AppliedResource) -> RenderedWorkload:
        """The objects of a workload. Raises EngineError and RecordsError."""
        key = applied.key
        workload = msgspec.json.decode(applied.body, type=Workload)
        self._check_images(workload.spec)
        running = self.find_running(key)
        restarts, mark = self._count_restarts(key, running)
        inputs = self._make_inputs(applied, running)
        inputs = msgspec.structs.replace(
            inputs, restarts=mark, pull_secrets=list_pull_secrets(self._namespace_inputs(key.gvc))
        )
        objects = [self._token_secret(inputs), *render_workload(inputs)]
        objects = [
            with_annotation(item, RESTARTS, f"{restarts}/{mark}") if id_of(item).kind in RUNS else item
            for item in objects
        ]
        self._limitations[key] = (applied.digest, list_limitations(inputs))
        return RenderedWorkload(inputs.template, objects, adopt=str(workload.tags.get(ADOPT, "")) == "true")

    def render_claims(self, record: Record) -> Sequence[KubeObject]:
        """The claims of each replica of a recorded workload, as templates. Raises EngineError and RecordsError."""
        rendered = self.render_workload(AppliedResource(record.key, record.body, record.digest, record.version))
        runs = next((item for item in rendered.objects if item["kind"] == STATEFUL_SET.kind), None)
        templates: Sequence[KubeObject] = runs["spec"].get("volumeClaimTemplates", ()) if runs is not None else ()
        return templates

    def describe_limitations(self, applied: AppliedResource) -> tuple[str, ...]:
        """What the cluster will not enforce of a workload. Raises EngineError and RecordsError."""
        return list_limitations(self._make_inputs(applied, None))

    def _make_inputs(self, applied: AppliedResource, running: MirroredObject | None) -> WorkloadInputs:
        key, spec = applied.key, read_specification(applied.body)
        version = self.version_of(applied, running)
        template = self._builder.of(key, spec, version, applied.digest)
        sentences = recorded_sentences(str(key.kind), applied.body)
        template = msgspec.structs.replace(template, unmodelled=sentences)
        return WorkloadInputs(
            template=template,
            namespace=self.namespace_of(key.gvc),
            owner=ObjectOwner(
                self._instance,
                key,
                self._context.location,
                self._context.records.find_source(key),
                applied.digest,
                version,
            ),
            features=self.features,
            options=self.options,
            reveal=self._context.secrets,
            token=self.token_of(key),
            scheme=self._context.settings.scheme,
            body=applied.body,
            volume_sets=self._volume_sets(key.gvc, mounted_volumesets(spec)),
            routes=self._find_routes(template),
        )

    def limitations(self, record: Record) -> tuple[str, ...]:
        """What the cluster does not enforce of a recorded workload; it is rendered once for each digest."""
        digest, sentences = self._limitations.get(record.key, ("", ()))
        if digest != record.digest:
            with suppress(EngineError):
                applied = AppliedResource(record.key, record.body, record.digest, record.version)
                self.render_workload(applied)
            _, sentences = self._limitations.get(record.key, ("", ()))
        return sentences

    def find_running(self, key: Key) -> MirroredObject | None:
        """The object that runs a workload; one that is suspended may have none, and then another lists the rest."""
        items = self._mirror.of_key(key)
        running = next((item for item in items if item.id.kind in RUNS), None)
        return running or next((item for item in items if OBJECTS in item.annotations), None)

    def version_of(self, applied: AppliedResource, running: MirroredObject | None) -> int:
        """The version to apply: a cluster that runs the very same already keeps its own, as after a loss of records."""
        if running is not None and running.annotations.get(DIGEST) == applied.digest:
            text = running.annotations.get(VERSION, "")
            return max(applied.version, int(text)) if text.isdecimal() else applied.version
        return applied.version

    def token_of(self, key: Key) -> str:
        """The token of a workload, which the cluster keeps; a new one if it has none."""
        stored = self._mirror.get(ObjectId(SECRET, self.namespace_of(key.gvc), token_secret_name(key.name)))
        if stored is not None and stored.key == key:
            content = (stored.decode().get("data") or {}).get(TOKEN, "")
            token = base64.b64decode(content).decode("ascii", "replace")
            if token.startswith(TOKEN_PREFIX):
                return token
        return self._new_tokens.setdefault(key, make_token(self._context.location, key))

    def forget(self, key: Key) -> None:
        """A workload is deleted: one of its name gets another token."""
        self._new_tokens.pop(key, None)
        self._limitations.pop(key, None)
        self._tables.pop(key, None)

    def _token_secret(self, inputs: WorkloadInputs) -> KubeObject:
        content = base64.b64encode(inputs.token.encode()).decode()
        metadata = build_metadata(
            inputs.owner, self._context.settings.org, inputs.namespace, token_secret_name(inputs.owner.key.name)
        )
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {TOKEN: content}, "immutable": True}

    def _check_images(self, spec: Specification) -> None:
        """Raise ImageError for an image that ``images.allowed`` does not permit."""
        images = self._context.settings.images
        for container in spec.containers:
            full = resolve_image(container.image, self._context.settings.org, images.registry)
            check_permission(parse_reference(full, "", ""), images.patterns)

    def _find_routes(self, template: ReplicaTemplate) -> WorkloadRoutes:
        """The routes to one workload. Those to others make no difference to them."""
        key, served = template.desired.key, read_served(template)
        if served is None or not self.serves_hosts:
            self._tables.pop(key, None)
            return NO_ROUTES
        domains = tuple(domain for domain, _ in self._domains.leading_to({key}))
        gvcs = {key.gvc: read_gvc_routing(self._context.records, key.gvc, template.env_context.alias)}
        endpoint_domain = self._context.settings.endpoint_domain
        table = build_table(RoutingInput(self._context.location, endpoint_domain, (served,), gvcs, domains))
        self._tables[key] = table
        return select_routes(table).get(key, NO_ROUTES)

    def _volume_sets(self, gvc: str, names: Sequence[str]) -> Mapping[str, VolumeSetSpecification]:
        records = {name: self._claims.record(Key(Kind.VOLUMESET, gvc, name)) for name in names}
        return {name: read_volumeset(record.body) for name, record in records.items() if record is not None}

    def _count_restarts(self, key: Key, running: MirroredObject | None) -> tuple[int, str]:
        """The requested restarts, and the mark of the pods for them, which changes with each further one.

        After a loss of the records fewer are counted than were done, and the mark stays.
        """
        count = self._context.records.count_restarts(key)
        done, _, mark = (running.annotations.get(RESTARTS, "") if running is not None else "").partition("/")
        if not done.isdecimal():
            return count, ""
        if count > int(done):
            mark = str(int(mark or 0) + 1) if not mark or mark.isdecimal() else "1"
        return count, mark


def _render_salt(inputs: NamespaceInputs) -> KubeObject:
    metadata = build_metadata(inputs.owner, inputs.org, inputs.namespace, SALT_SECRET)
    content = base64.b64encode(inputs.salt).decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {_SALT: content}, "immutable": True}


def _platform_settings(context: EngineContext) -> PlatformSettings:
    settings = context.settings
    return PlatformSettings(
        settings.org,
        context.location,
        settings.endpoint_domain,
        settings.scheme,
        RUNTIME,
        cloud_accounts=settings.cloud_accounts,
        uses_images=True,
        api=settings.api.endpoint if settings.api is not None else "",
    )
