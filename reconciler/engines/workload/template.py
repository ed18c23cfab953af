"""The inputs of one workload's replicas, read from the records at one moment, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from reconciler.clock import Clock
from reconciler.engines.context import LocationRecords
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.workload.deployment import read_deployment
from reconciler.engines.workload.environment import PlatformEnvContext, namespace_of, provider_and_region
from reconciler.engines.workload.names import make_alias
from reconciler.engines.workload.object_stores import CloudAccess, cloud_access, store_secrets
from reconciler.engines.workload.revision_hash import HashInputs, base_hash, config_hash, secrets_used
from reconciler.engines.workload.spec import Restriction, WorkloadSpec
from reconciler.engines.workload.spec_builder import AppliedWorkload, at_scale, workload_spec
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.gvc import Specification as GvcSpecification
from reconciler.model.kinds.workload import Specification
from reconciler.settings import CloudAccountSettings, RestrictionSettings, UserNamespaceSettings
from reconciler.times import format_iso_time

TokenOf = Callable[[Key], str]
"""The token of a workload, made if it has none. Raises EngineError."""

_HOST_USERS = "host-users"


class ReplicaTemplate(msgspec.Struct, frozen=True):
    """The specification with the least number of replicas, its source, and the platform's variables.

    ``created`` is when this version of the workload was made, ISO 8601. ``pull_secrets`` are those of its GVC.
    ``access`` is that of its identity to object stores, by provider. It names secrets and never contains their values.
    """

    desired: WorkloadSpec
    spec: Specification
    env_context: PlatformEnvContext
    created: str = ""
    pull_secrets: tuple[Key, ...] = ()
    access: dict[str, CloudAccess] = {}
    unmodelled: tuple[str, ...] = ()
    """A sentence for each of its fields that only the platform knows."""

    def at_scale(self, replicas: int) -> WorkloadSpec:
        """The specification with ``replicas``, unless the workload is suspended."""
        return self.desired if replicas == self.desired.replicas else at_scale(self.desired, self.spec, replicas)

    def __repr__(self) -> str:
        return f"ReplicaTemplate({self.desired.key}, version={self.desired.version})"


class PlatformSettings(msgspec.Struct, frozen=True):
    """Values that change only with the settings.

    ``runtime`` is the name of the location's runtime; ``resizes`` is whether it can change the limits of replicas, and
    ``uses_images`` whether containers have the programs of their image. ``api`` is the base URL of the HTTP API, or "".
    ``restrictions`` are those of containers of images, ``user_namespaces`` is None where there are none.
    """

    org: str
    location: str
    endpoint_domain: str
    scheme: str
    runtime: str
    resizes: bool = False
    cloud_accounts: Mapping[str, CloudAccountSettings] = {}
    uses_images: bool = False
    api: str = ""
    restrictions: tuple[RestrictionSettings, ...] = ()
    user_namespaces: UserNamespaceSettings | None = None


class TemplateBuilder:
    """Builds templates for one location. It reads the records, so it must not run beside other users of them."""

    def __init__(
        self, binding: VolumeClaims, records: LocationRecords, token_of: TokenOf, fixed: PlatformSettings, clock: Clock
    ) -> None:
        self._binding = binding
        self._records = records
        self._token_of = token_of
        self._fixed = fixed
        self._clock = clock

    def of(
        self, key: Key, spec: Specification, version: int, digest: str, images: tuple[str, ...] = ()
    ) -> ReplicaTemplate:
        """The current template of a workload, whose tags mean ``images``. Raises EngineError and RecordsError."""
        fixed = self._fixed
        gvc = self._binding.find_shared(Key(Kind.GVC, "", key.gvc))
        shared = msgspec.json.decode(gvc.body, type=Gvc).spec if gvc is not None else GvcSpecification()
        variables = shared.env
        access = cloud_access(spec, key.gvc, self._body, fixed.cloud_accounts)
        used = (*secrets_used(spec, variables), *store_secrets(access))
        digests = {secret: self._digest(secret) for secret in used}
        restriction, users = restriction_of(key, fixed.restrictions), users_of(key, fixed.user_namespaces)
        runtime = " ".join((fixed.runtime, *("read-only",) * restriction.read_only, *restriction.dropped, *users))
        inputs = HashInputs(variables, digests, self._records.count_restarts(key), runtime, images)
        hashed = config_hash(self._records.secret_key, spec, inputs)
        applied = AppliedWorkload(key, fixed.location, spec, version, digest, gvc.version if gvc is not None else 1)
        record = self._binding.find_shared(Key(Kind.LOCATION, "", fixed.location))
        provider, region = provider_and_region(fixed.location, record.body if record is not None else None)
        context = PlatformEnvContext(
            org=fixed.org,
            gvc=key.gvc,
            alias=(gvc.alias if gvc is not None else "") or make_alias(fixed.org, key.gvc),
            location=fixed.location,
            provider=provider,
            region=region,
            workload=key.name,
            version=version,
            namespace=namespace_of(fixed.org, key.gvc),
            token=self._token_of(key),
            endpoint_domain=fixed.endpoint_domain,
            gvc_env=variables,
            scheme=fixed.scheme,
            api=fixed.api,
        )
        created = self._creation_time(key, version)
        logins = tuple(Key(Kind.SECRET, "", link.rpartition("/")[2]) for link in shared.pull_secret_links)
        desired = self._with_runtime(workload_spec(applied, hashed), spec)
        desired = replace(desired, restriction=restriction, host_users=_HOST_USERS in users)
        return ReplicaTemplate(desired, spec, context, created, logins, access)

    def _with_runtime(self, desired: WorkloadSpec, spec: Specification) -> WorkloadSpec:
        """``desired`` with what depends on the runtime of the location."""
        fixed = self._fixed
        base = base_hash(self._records.secret_key, spec, fixed.location) if fixed.resizes else ""
        containers = tuple(replace(container, own_sleep=fixed.uses_images) for container in desired.containers)
        return replace(desired, base_hash=base, containers=containers)

    def _creation_time(self, key: Key, version: int) -> str:
        """When ``version`` was made: as recorded in its deployment, else when it was applied, otherwise now."""
        record = self._binding.record(key)
        deployment = read_deployment(record.state) if record is not None else None
        versions = deployment.status.versions if deployment is not None else ()
        recorded = (entry.created for entry in versions if entry.workload == version and entry.created)
        # A daemon may end after a step, and before it has observed the deployment.
        applied = record.applied_at if record is not None and record.version == version else self._clock.now()
        return next(recorded, "") or format_iso_time(applied)

    def _body(self, key: Key) -> bytes | None:
        record = self._binding.find_shared(key)
        return record.body if record is not None else None

    def _digest(self, secret: Key) -> str:
        record = self._binding.find_shared(secret)
        return record.digest if record is not None else ""


def users_of(key: Key, settings: UserNamespaceSettings | None) -> tuple[str, ...]:
    """What the settings change about the users of a workload's containers, as words for its hash.

    By default nothing: who upgrades from a version without user namespaces gets no rollout for them.
    """
    if settings is None:
        return ()
    if settings.mode == "host" or _matches_pattern(key, settings.host_users):
        return (_HOST_USERS,)
    return (f"ids={settings.first_id}",) if settings.first_id is not None else ()


def _matches_pattern(key: Key, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(f"{key.gvc}/{key.name}", text) for text in patterns)


def restriction_of(key: Key, rules: Iterable[RestrictionSettings]) -> Restriction:
    """What the settings forbid to the containers of a workload."""
    restriction_settingses = [rule for rule in rules if _matches_pattern(key, rule.workloads)]
    dropped = {
        name for restriction_settings in restriction_settingses for name in restriction_settings.drop_capabilities
    }
    names = ("ALL",) if "ALL" in dropped else tuple(sorted(dropped))
    return Restriction(
        any(restriction_settings.read_only_root_filesystem for restriction_settings in restriction_settingses), names
    )
