"""The pods at a location: those in a namespace of this daemon that have the labels of a workload there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import NAMESPACE, POD, ObjectId
from reconciler.engines.kubernetes.rendering.names import (
    GVC,
    INSTANCE,
    KEY,
    LOCATION,
    MANAGED_BY,
    TOOL,
    WORKLOAD,
    format_label_value,
    namespace_name,
)
from reconciler.engines.kubernetes.status.fields import (
    ObjectPart,
    name_of,
    read_items,
    read_mapping,
    read_number,
    read_text,
)
from reconciler.model.key import Key, Kind
from reconciler.settings import ClusterSettings, Settings

_decode = msgspec.json.Decoder(dict[str, object]).decode


class ClusterLocation(NamedTuple):
    """A location on a cluster; objects of the owner ``instance`` are its own."""

    name: str
    instance: str
    cluster: ClusterSettings

    @property
    def selector(self) -> str:
        """What all objects at the location have."""
        return f"{MANAGED_BY}={TOOL},{LOCATION}={format_label_value(self.name)}"

    def namespace_of(self, gvc: str) -> str:
        """The namespace of a GVC."""
        return namespace_name(gvc, self.cluster.namespace_prefix)

    def owns(self, part: ObjectPart) -> bool:
        """Whether an object belongs to this daemon and location."""
        labels = read_mapping(part, "metadata", "labels")
        owner = {INSTANCE: format_label_value(self.instance), LOCATION: format_label_value(self.name)}
        return all(labels.get(name) == value for name, value in owner.items())


class WorkloadPod(NamedTuple):
    """A pod of a workload, as the API server sends it."""

    key: Key
    part: ObjectPart

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return read_text(self.part, "metadata", "namespace")

    @property
    def name(self) -> str:
        """The name of the pod, and of the replica."""
        return name_of(self.part)


def find_location(settings: Settings, name: str) -> ClusterLocation:
    """The location ``name``, whether or not the settings bind it to a cluster now."""
    bound = settings.locations.get(name)
    cluster = bound.cluster if bound is not None else ClusterSettings()
    return ClusterLocation(name, cluster.instance or settings.org, cluster)


async def list_pods(api: KubeApi, location: ClusterLocation) -> list[WorkloadPod]:
    """All pods of workloads at ``location``, ordered by workload and name."""
    owned = f"{location.selector},{INSTANCE}={format_label_value(location.instance)},{GVC}"
    spaces, pods = await asyncio.gather(
        api.list(NAMESPACE, owned), api.list(POD, f"{location.selector},{GVC},{WORKLOAD}")
    )
    gvcs = dict(_list_gvcs(map(_decode, spaces.items)))
    return sorted(_select_pods(map(_decode, pods.items), gvcs), key=lambda pod: (pod.key, pod.name))


async def list_workload_pods(api: KubeApi, location: ClusterLocation, key: Key) -> list[WorkloadPod]:
    """The pods of one workload at ``location``, ordered by name."""
    namespace = location.namespace_of(key.gvc)
    selector = f"{location.selector},{GVC}={format_label_value(key.gvc)},{WORKLOAD}={format_label_value(key.name)}"
    space, pods = await asyncio.gather(
        api.get_metadata(ObjectId(NAMESPACE, "", namespace)), api.list(POD, selector, namespace)
    )
    if space is None or not location.owns(space):
        return []
    selected = _select_pods(map(_decode, pods.items), {namespace: key.gvc})
    return sorted((pod for pod in selected if pod.key == key), key=lambda pod: pod.name)


def _list_gvcs(spaces: Iterable[ObjectPart]) -> Iterable[tuple[str, str]]:
    """The GVC of each namespace: its label may have a hash in place of a part."""
    for space in spaces:
        key = _parse_key(read_text(space, "metadata", "annotations", KEY))
        yield name_of(space), key.name if key is not None else read_text(space, "metadata", "labels", GVC)


def _select_pods(parts: Iterable[ObjectPart], gvcs: Mapping[str, str]) -> Iterable[WorkloadPod]:
    """Those in namespaces of ``gvcs``; a pod that names its GVC otherwise than its namespace is none of ours."""
    for part in parts:
        labels = read_mapping(part, "metadata", "labels")
        gvc = gvcs.get(read_text(part, "metadata", "namespace"), "")
        if not gvc or labels.get(GVC) != format_label_value(gvc):
            continue
        workload = read_text(labels, WORKLOAD)
        key = _parse_key(read_text(part, "metadata", "annotations", KEY)) or Key(Kind.WORKLOAD, gvc, workload)
        if key.gvc == gvc and format_label_value(key.name) == workload:
            yield WorkloadPod(key, part)


def _parse_key(text: str) -> Key | None:
    try:
        return Key.parse(text)
    except ValueError:
        return None


def find_run(part: ObjectPart, container: str) -> str | None:
    """What tells the present run of a container of a pod from others; None if it does not run."""
    for status in read_items(part, "status", "containerStatuses"):
        if status.get("name") == container and read_mapping(status, "state", "running"):
            return f"{read_text(status, 'containerID')} {read_number(status, 'restartCount')}"
    return None
