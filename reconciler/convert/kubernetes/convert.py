"""The whole way from Kubernetes documents to manifests (docs/platform/cli.md#convert)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.convert.drafts import Draft, in_order
from reconciler.convert.kubernetes.addresses import tell_addresses
from reconciler.convert.kubernetes.bundle import GROUPS, WORKLOADS, Bundle, Item, Source
from reconciler.convert.kubernetes.ingress import Domains
from reconciler.convert.kubernetes.unused_fields import note_unused_fields
from reconciler.convert.kubernetes.workloads import ConversionContext, Deployed, workload
from reconciler.convert.notes import ConversionNote

INSTEAD = {
    "EndpointSlice": "workloads are found by their names",
    "Endpoints": "workloads are found by their names",
    "LimitRange": "write cpu and memory of the containers",
    "PriorityClass": "workloads have no ranks",
    "Pod": "write a Deployment, a Job or a StatefulSet for it",
    "Kustomization": "convert what `kustomize build` prints",
    "Namespace": "a GVC takes its place; it has to say at which locations it is",
    "NetworkPolicy": "see firewallConfig of the workloads",
    "Role": "see the kinds identity and policy",
    "RoleBinding": "see the kinds identity and policy",
    "ClusterRole": "see the kinds identity and policy",
    "ClusterRoleBinding": "see the kinds identity and policy",
    "PodDisruptionBudget": "see rolloutOptions.maxUnavailableReplicas",
    "HTTPRoute": "see the kind domain",
    "Gateway": "see the kind domain",
    "Certificate": "the platform makes certificates for domains",
    "ServiceMonitor": "see metrics of the containers",
    "PodMonitor": "see metrics of the containers",
    "ScaledObject": "see defaultOptions.autoscaling",
    "VolumeSnapshot": "see snapshots of the kind volumeset",
    "ResourceQuota": "see the kind quota",
}
"""What serves instead of a kind that has no meaning here."""

_ONLY_INFORM = ("PersistentVolume", "StorageClass")


class Converted(msgspec.Struct, frozen=True):
    """The manifests in apply order, and what is to be said about them."""

    drafts: list[Draft]
    remarks: list[ConversionNote]


def convert(sources: Iterable[Source], gvc: str = "", protocol: str = "") -> Converted:
    """Manifests for the Kubernetes resources in ``sources``, all in the GVC ``gvc`` or each in that of its namespace.

    ``protocol`` is that of all ports where it is given. Whatever is not carried over is in the remarks; of a resource
    that is malformed they say so, and what was made of it is a guess.
    """
    bundle = Bundle(sources)
    _set_aside(bundle)
    scene = ConversionContext.of(bundle, gvc, protocol)
    deployed = [workload(item, scene) for item in bundle.of(*WORKLOADS)]
    domains = list(Domains(bundle, scene.secrets, deployed).drafts())
    scene.services.finish()
    for item in bundle.items:
        if item.kind not in _ONLY_INFORM:
            note_unused_fields(item.root.sheet, item.root)
    tell_addresses(bundle, deployed)
    _tell_outbound(deployed)
    remarks = [remark for sheet in bundle.sheets for remark in sheet.remarks]
    return Converted(in_order([*scene.secrets.drafts, *scene.claims.drafts, *scene.drafts, *domains]), remarks)


def _set_aside(bundle: Bundle) -> None:
    """Tell of resources that mean nothing here, or that another one makes, and take them out."""
    kept: list[Item] = []
    for item in bundle.items:
        owner = _owner(item, bundle)
        if not item.meant:
            told = item.kind if item.kind not in GROUPS else f"{item.kind} of {item.root['apiVersion'].text()}"
            item.root["kind"].add_note(
                "convert-no-meaning",
                f"{told} has no meaning here; {item.name or 'it'} is left out",
                f"{owner} is converted" if owner else INSTEAD.get(item.kind, ""),
            )
        elif owner:
            item.root["kind"].add_note("convert-owned", f"{item} is made by {owner}, which is converted")
        else:
            kept.append(item)
            continue
        item.root.ignored()
    bundle.restrict(kept)


def _owner(item: Item, bundle: Bundle) -> Item | None:
    """The resource of the bundle that makes ``item``."""
    for reference in item.root["metadata"]["ownerReferences"].items():
        kind, name = reference["kind"].text(), reference["name"].text()
        owner = bundle.find(kind, item.namespace, name)
        if reference["controller"].flag() and owner is not None and owner is not item:
            return owner
    return None


def _tell_outbound(deployed: Iterable[Deployed]) -> None:
    """Say once that nothing may be reached from here, which is otherwise in Kubernetes."""
    for first in list(deployed)[:1]:
        first.item.root["kind"].add_note(
            "convert-default", "workloads reach nothing outside the platform unless it is listed",
            "see firewallConfig.external: outboundAllowHostname, outboundAllowCIDR")  # fmt: skip
