"""Converts PersistentVolumeClaim and volumeClaimTemplates to volumeset, with the class of their storage."""

from __future__ import annotations

import re
from fractions import Fraction

from reconciler.convert.drafts import Body, Draft, make_draft
from reconciler.convert.kubernetes.bundle import Bundle, Item
from reconciler.convert.kubernetes.namespaces import Namespaces
from reconciler.convert.names import Names, make_valid_name
from reconciler.convert.quantities import convert_to_gigabytes, parse_quantity
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.key import Kind

_LEAST, _MOST = 10, 16384
_GENERAL, _PREMIUM = "general-purpose-ssd", "premium-low-latency-ssd"
_OURS = re.compile(rf"({_GENERAL}|{_PREMIUM})-(ext4|xfs)(?:-.*)?")
"""Names of storage classes that contain their properties (docs/platform/volumeset.md#clusters-of-your-own)."""
_FAST = frozenset({"io1", "io2", "pd-extreme", "hyperdisk-extreme", "premiumv2_lrs", "ultrassd_lrs"})
"""Low-latency disk types, as named in storage classes of the large providers."""
_TYPE_FIELDS = ("type", "skuname", "skuName", "storageaccounttype")
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_FILE_SYSTEM_FIELDS = ("csi.storage.k8s.io/fstype", "fsType", "fstype")


class Claims:
    """The volume sets of a bundle's claims, and the workload that uses each."""

    def __init__(self, bundle: Bundle, names: Names, namespaces: Namespaces) -> None:
        self.drafts: list[Draft] = []
        self._bundle = bundle
        self._names = names
        self._namespaces = namespaces
        self._sets: dict[tuple[str, str], Draft] = {}
        self._users: dict[tuple[str, str], str] = {}
        templates = _map_claim_templates(bundle)
        for item in bundle.of("PersistentVolumeClaim"):
            beginning, _, index = item.name.rpartition("-")
            owner = templates.get((item.namespace, beginning)) if index.isdigit() else None
            if owner is None:
                self._sets[item.namespace, item.name] = self._add(item.root, item, (item.name,))
                continue
            item.root.add_note("convert-owned", f"{item} belongs to a replica of {owner}, which creates it")
            item.root.ignore()

    def volume_set_for(self, user: Item, claim: TrackedValue) -> str:
        """The volume set for the claim that ``user`` mounts; a new one where another workload uses that already."""
        name = claim.require_text()
        volumeset = self._sets.get((user.namespace, name))
        if volumeset is None:
            claim.add_note(
                "convert-missing",
                f"the claim {name} is not among the files",
                f"the volume set {make_valid_name(name)} must exist",
            )
            return make_valid_name(name)
        if user.kind != "StatefulSet" and (user.spec["replicas"].number() or 1) > 1:
            claim.add_note("convert-shared-volume", f"each replica of {user} now has its own volume")
        gvc_and_name = (volumeset.gvc, volumeset.name)
        if self._users.setdefault(gvc_and_name, str(user)) == str(user):
            return volumeset.name
        own = self._names.take(Kind.VOLUMESET, volumeset.gvc, (f"{volumeset.name}-{user.name}",))
        claim.add_note(
            "convert-shared-volume",
            f"{self._users[gvc_and_name]} uses {volumeset.name}; {user} gets {own}",
            "copy the data that both need, or let one workload serve it to the other",
        )
        self.drafts.append(Draft(volumeset.kind, volumeset.gvc, own, {**volumeset.body, "name": own}))
        return own

    def of_template(self, user: Item, template: TrackedValue) -> tuple[str, str]:
        """The name of a template of ``user``, and the name of its volume set."""
        name = template["metadata"]["name"].require_text()
        template["status"].ignore()
        for field in ("apiVersion", "kind"):
            template[field].text()
        return name, self._add(template, user, (f"{name}-{user.name}",)).name

    def _add(self, root: TrackedValue, item: Item, wishes: tuple[str, ...]) -> Draft:
        gvc = self._namespaces.gvc(item)
        name = self._names.take(Kind.VOLUMESET, gvc, wishes)
        if name != wishes[0]:
            root["metadata"]["name"].add_note("convert-name", f"the claim {wishes[0]} becomes the volume set {name}")
        spec = root["spec"]
        volume = self._volume(item, spec)
        sort = self._sort(root["metadata"], spec, volume)
        body = {"spec": {"initialCapacity": _compute_capacity(spec, volume), **sort}}
        draft = make_draft(Kind.VOLUMESET, name, gvc, root, body)
        _note_shared_volume(spec)
        if spec["selector"]:
            spec["selector"].ignore()
            spec["selector"].add_note("convert-left-out", "volumes cannot be selected by labels", on_key=True)
        self.drafts.append(draft)
        return draft

    def _volume(self, item: Item, spec: TrackedValue) -> TrackedValue:
        """The spec of the volume that the claim names, empty where there is none."""
        named = spec["volumeName"]
        volume = self._bundle.find("PersistentVolume", item.namespace, named.text())
        if volume is None and named:
            named.add_note(
                "convert-missing",
                f"the volume {named.text()} is not among the files",
                "a volume set begins empty: copy the data of the volume",
            )
        return volume.spec if volume else TrackedValue(spec.sheet, spec.at, None)

    def _sort(self, metadata: TrackedValue, spec: TrackedValue, volume: TrackedValue) -> Body:
        """Performance class and file system (docs/platform/volumeset.md#performance-classes)."""
        tracked_value = spec["storageClassName"]
        if not tracked_value:
            # The annotation that preceded the field; clusters still follow it.
            tracked_value = metadata["annotations"][_OLD_CLASS]
        name = tracked_value.text() or volume["storageClassName"].text()
        if match := _OURS.fullmatch(name):
            return {"performanceClass": match[1], "fileSystemType": match[2]}
        item = self._bundle.find("StorageClass", "", name)
        if name and item is None:
            tracked_value.add_note(
                "convert-missing", f"the storage class {name} is not among the files; it becomes {_GENERAL}"
            )
        options = item.root["parameters"].mapping() if item else {}
        fast = any(options.get(field, "").lower() in _FAST for field in _TYPE_FIELDS)
        system = next((options[field] for field in _FILE_SYSTEM_FIELDS if field in options), "")
        system = volume["csi"]["fsType"].text() or system
        if system not in ("", "ext4", "xfs"):
            tracked_value.add_note("convert-changed", f"the file system {system} is not supported; it becomes ext4")
        return {
            "performanceClass": _PREMIUM if fast else _GENERAL,
            "fileSystemType": "xfs" if system == "xfs" else "ext4",
        }


def _compute_capacity(spec: TrackedValue, volume: TrackedValue) -> int:
    """GB, rounded up and within the limits; the capacity of the volume where it exceeds the claim's."""
    asked = spec["resources"]["requests"]["storage"]
    size = parse_quantity(asked.amount()) if asked else Fraction(0)
    if size is None:
        asked.add_note("convert-malformed", "the capacity is not a quantity such as 20Gi")
        return _LEAST
    requested = convert_to_gigabytes(max(size, parse_quantity(volume["capacity"]["storage"].amount()) or Fraction(0)))
    if requested == 0:
        spec.add_note("convert-malformed", "the claim requests no capacity")
    elif not _LEAST <= requested <= _MOST:
        fit = min(max(requested, _LEAST), _MOST)
        asked.add_note(
            "convert-capacity", f"{asked.amount()} is {requested} GB; a volume has {_LEAST} to {_MOST} GB, so {fit}"
        )
    return min(max(requested, _LEAST), _MOST)


def _note_shared_volume(spec: TrackedValue) -> None:
    for mode in spec["accessModes"].items():
        if mode.text().endswith("Many"):
            mode.add_note(
                "convert-shared-volume",
                f"{mode.text()}: volumes are not shared; each replica has its own",
                "let one workload serve the files, or mount an object store",
            )


def _map_claim_templates(bundle: Bundle) -> dict[tuple[str, str], Item]:
    """StatefulSets by namespace and the prefix of their claims' names: ``TEMPLATE-NAME``."""
    return {
        (owner.namespace, f"{template['metadata']['name'].text()}-{owner.name}"): owner
        for owner in bundle.of("StatefulSet")
        for template in owner.spec["volumeClaimTemplates"].items()
    }
