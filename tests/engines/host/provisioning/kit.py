"""Workloads and secrets out of manifests, as the engine meets them: decoded and in normal form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from reconciler.engines.context import LocationRecords
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.signals import LocationSignals
from reconciler.engines.host.volumes.protocol import VolumeSpec
from reconciler.engines.host.volumes.store import VolumeStore
from reconciler.engines.host.volumesets.releases import Releases
from reconciler.engines.host.volumesets.volume_sets import VolumeSets
from reconciler.engines.protocol import SecretReader
from reconciler.engines.volume_claims import VolumeClaims
from reconciler.engines.volumes import VolumeId
from reconciler.engines.workload.environment import PlatformEnvContext
from reconciler.errors import EngineError
from reconciler.manifests.decoder import decode_manifests
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.secret import SecretValue
from reconciler.model.kinds.workload import Container, Specification, Variable, mounted_in, read_specification
from reconciler.model.resource import Manifest
from reconciler.reasons import Reason
from reconciler.records.store import Records
from tests.support.clock import FakeClock

LOCATIONS = ["//location/aws-us-west-2"]


def manifest(value: Mapping[str, Any], scheme: str = "platform") -> Manifest:
    """``value`` as a push of it is understood, which must fit its schema."""
    decoded = decode_manifests(msgspec.json.encode(value), ManifestContext("acme", scheme))
    assert decoded.manifests, decoded.faults
    return decoded.manifests[0]


def body(spec: Mapping[str, Any], scheme: str = "platform") -> bytes:
    """The body of the workload shop/web with ``spec``."""
    return manifest({"kind": "workload", "name": "web", "gvc": "shop", "spec": spec}, scheme).body


def spec_of(*containers: Mapping[str, Any], scheme: str = "platform", **fields: Any) -> Specification:
    """The spec of a stateful workload with ``containers``; their names and images may be left out."""
    filled = [{"name": f"c{index}", "image": "nginx:1", **each} for index, each in enumerate(containers)]
    return read_specification(body({"type": "stateful", "containers": filled, **fields}, scheme))


def container_of(fields: Mapping[str, Any], scheme: str = "platform") -> Container:
    """A container, alone in its workload."""
    return spec_of({"name": "main", **fields}, scheme=scheme).containers[0]


def variables(written: Mapping[str, str], scheme: str = "platform") -> tuple[Variable, ...]:
    """The variables of a GVC."""
    env = [{"name": name, "value": value} for name, value in written.items()]
    spec = {"staticPlacement": {"locationLinks": LOCATIONS}, "env": env}
    return msgspec.json.decode(manifest({"kind": "gvc", "name": "shop", "spec": spec}, scheme).body, type=Gvc).spec.env


def vault(secrets: Mapping[str, Mapping[str, Any]]) -> SecretReader:
    """Reveals ``secrets``, which maps names to type and data."""
    sealed = {name: manifest({"kind": "secret", "name": name, **each}) for name, each in secrets.items()}

    def reveal(key: Key) -> SecretValue:
        record = sealed.get(key.name)
        if record is None:
            raise EngineError(f"{key} is not applied", reason=Reason.SECRET_UNAVAILABLE)
        return SecretValue(secrets[key.name]["type"], msgspec.json.decode(record.secret_data))

    return reveal


def around(**changes: Any) -> PlatformEnvContext:
    """The surroundings of the workload shop/web at aws-us-west-2."""
    env_context = PlatformEnvContext(
        org="acme",
        gvc="shop",
        alias="a1b2c3d4e5f6g",
        location="aws-us-west-2",
        provider="aws",
        region="us-west-2",
        workload="web",
        version=3,
        namespace="n1b2c3d4e5f6g",
        token="the-token",
        endpoint_domain="example.com",
    )
    return msgspec.structs.replace(env_context, **changes)


def attach_volumes(root: Path, container: Container, index: int, owner: Owner) -> None:
    """Attach the volumes of volume sets that ``container`` mounts, as is done before its start."""
    store = VolumeStore(root, "directory", FakeClock())
    for name in mounted_in((container,)):
        store.attach(VolumeId(Key(Kind.VOLUMESET, "shop", name), index), VolumeSpec(10), f"replica {index}", owner)


def volumes_at(root: Path) -> VolumeSets:
    """The volume sets of a location without any."""
    return volume_sets(VolumeStore(root, "directory", FakeClock()), root, root / "records.sqlite")


def volume_sets(store: VolumeStore, root: Path, records: Path) -> VolumeSets:
    """The volume sets whose volumes ``store`` has below ``root``, with the file ``records``."""
    clock = FakeClock()
    claims = VolumeClaims(LocationRecords(Records.open(records, clock_now=clock.now), "here"), "acme")
    releases = Releases(root, store, clock)
    return VolumeSets(claims, releases, LocationSignals())
