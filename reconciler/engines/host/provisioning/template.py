"""All that the replicas of one workload are made from, taken from the records at one moment and kept in memory."""

from __future__ import annotations

import msgspec

from reconciler.engines.host.provisioning.platform_env import PlatformEnvContext, namespace_of, provider_and_region
from reconciler.engines.host.provisioning.revision_hash import config_hash, secrets_used
from reconciler.engines.host.provisioning.spec_builder import AppliedWorkload, specification, workload_spec
from reconciler.engines.host.provisioning.tokens import Tokens
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.engines.names import make_alias
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.workload import Specification
from reconciler.records.store import Records

_gvc = msgspec.json.Decoder(Gvc)


class ReplicaTemplate(msgspec.Struct, frozen=True):
    """What shall run, at the least number of replicas, what it is started from, and what surrounds it."""

    desired: WorkloadSpec
    spec: Specification
    env_context: PlatformEnvContext
    applied: AppliedWorkload

    def at_scale(self, replicas: int) -> WorkloadSpec:
        """What shall run in so many replicas, unless it is suspended."""
        return workload_spec(self.applied, self.desired.stamp, replicas)

    def __repr__(self) -> str:
        return f"Supply({self.desired.key}, version={self.desired.version})"


class PlatformSettings(msgspec.Struct, frozen=True):
    """What does not change while the settings do not."""

    org: str
    location: str
    endpoint_domain: str
    scheme: str


class TemplateBuilder:
    """Makes supplies for one location. It reads the records, so it is used only while nobody else does."""

    def __init__(self, binding: VolumeClaims, records: Records, tokens: Tokens, fixed: PlatformSettings) -> None:
        self._binding = binding
        self._records = records
        self._tokens = tokens
        self._fixed = fixed

    def of(self, key: Key, body: bytes, version: int, digest: str) -> ReplicaTemplate:
        """What a workload is made from now. Raises EngineError and RecordsError."""
        fixed = self._fixed
        gvc = self._binding.record(Key(Kind.GVC, "", key.gvc), "")
        variables = _gvc.decode(gvc.body).spec.env if gvc is not None else ()
        spec = specification(body)
        digests = {secret: self._digest(secret) for secret in secrets_used(spec, variables)}
        stamp = config_hash(self._records.secret_key, spec, variables, digests, self._records.restarts.count(key))
        applied = AppliedWorkload(key, fixed.location, body, version, digest, gvc.version if gvc is not None else 1)
        place = self._binding.record(Key(Kind.LOCATION, "", fixed.location), "")
        provider, region = provider_and_region(fixed.location, place.body if place is not None else None)
        around = PlatformEnvContext(
            org=fixed.org,
            gvc=key.gvc,
            alias=(gvc.alias if gvc is not None else "") or make_alias(fixed.org, key.gvc),
            location=fixed.location,
            provider=provider,
            region=region,
            workload=key.name,
            version=version,
            namespace=namespace_of(fixed.org, key.gvc),
            token=self._tokens.of(key),
            endpoint_domain=fixed.endpoint_domain,
            gvc_env=variables,
            scheme=fixed.scheme,
        )
        return ReplicaTemplate(workload_spec(applied, stamp), spec, around, applied)

    def _digest(self, secret: Key) -> str:
        record = self._binding.record(secret, "")
        return record.digest if record is not None else ""
