"""Names, labels and annotations of objects: the one place where names of ours become those of Kubernetes.

Names of two resources never meet: a name that does not fit gets a hash at its end, and one that looks like such a name
gets one too. For each kind of object, all names of workloads have the same form, which can be read from its end: the
name of the workload, then a role, then a digest, neither with a ``-``. Names of a namespace as a whole have a dot, and
no name of a manifest has one.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Final

from reconciler.engines.kubernetes.rendering.inputs import ObjectOwner

PREFIX = "reconciler.dev/"
"""The beginning of all labels and annotations of ours."""
TOOL: Final = "reconciler"
"""The field manager, and the name of the parent of a namespace."""

INSTANCE, ORG, GVC, LOCATION = (f"{PREFIX}{name}" for name in ("instance", "org", "gvc", "location"))
WORKLOAD, VOLUMESET, VERSION = (f"{PREFIX}{name}" for name in ("workload", "volumeset", "version"))
KEY, SOURCE, DIGEST, RESTART = (f"{PREFIX}{name}" for name in ("key", "source", "digest", "restart"))

RENDERED, FIELDS, OBJECTS, RESTARTS = (f"{PREFIX}{name}" for name in ("rendered", "fields", "objects", "restarts"))
"""How an object was applied: a hash of it, since an equal one needs no request; and a hash of the fields that were
applied, since another set of them shows a change by others. The object that runs a workload lists all objects of it, so
that a missing one is noticed, and has ``COUNT/MARK``: the requested restarts, and what its pods have for them."""

TOKEN = "token"
"""The key of a token in its Secret."""

MANAGED_BY = "app.kubernetes.io/managed-by"
NAME = "app.kubernetes.io/name"
PART_OF = "applyset.kubernetes.io/part-of"
APPLYSET_ID = "applyset.kubernetes.io/id"
APPLYSET_TOOL = "applyset.kubernetes.io/tooling"
APPLYSET_KINDS = "applyset.kubernetes.io/contains-group-kinds"

LABEL_LENGTH = 63
"""The most characters of a DNS label, and of the value of a label."""
SHORT_LENGTH = 52
"""The most characters of the name of a CronJob or StatefulSet, whose pods and labels have longer ones."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")
_HASHED = re.compile(r".*-[0-9a-f]{16}", re.DOTALL)
_HASH_LENGTH = 17


def format_label(text: str, limit: int = LABEL_LENGTH) -> str:
    """``text`` as a DNS label of at most ``limit`` characters: the same, or a part of it with a hash."""
    return _fit_text(text, _LABEL, limit, r"[^a-z0-9]+")


def format_label_value(text: str) -> str:
    """``text`` as the value of a label: the same, or a part of it with a hash; "" stays."""
    return _fit_text(text, _VALUE, LABEL_LENGTH, r"[^A-Za-z0-9]+") if text else ""


@lru_cache(8192)
def _fit_text(text: str, valid: re.Pattern[str], limit: int, others: str) -> str:
    if len(text) <= limit and valid.fullmatch(text) and not _HASHED.fullmatch(text):
        return text
    stem = re.sub(others, "-", text if valid is _VALUE else text.lower())[: limit - _HASH_LENGTH].strip("-")
    return f"{stem or 'x'}-{hash_text(text)}"


def hash_text(text: str) -> str:
    """Sixteen digits that stand for ``text``."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


def digest_content(salt: bytes, *parts: bytes) -> str:
    """Twenty-four digits that stand for ``parts``; without ``salt``, which is secret, nobody can compute them."""
    key = blake2b(salt).digest()
    sizes = b"".join(len(part).to_bytes(8, "big") for part in parts)
    return blake2b(sizes + b"".join(parts), key=key, digest_size=12).hexdigest()


def workload_name(workload: str) -> str:
    """The name of the Deployment, StatefulSet, CronJob, Service and so on of a workload, and the role of its pods."""
    return format_label(workload, SHORT_LENGTH)


def account_name(workload: str) -> str:
    """The ServiceAccount of a workload; never ``default``, which every namespace has."""
    return f"workload-{workload_name(workload)}"


def secret_name(workload: str, role: str, digest: str) -> str:
    """A Secret of a workload: ``role`` is ``env`` or ``file``, ``digest`` stands for its content."""
    return f"{workload_name(workload)}-{role}-{digest}"


def token_secret_name(workload: str) -> str:
    """The Secret with the token of a workload."""
    return f"{workload_name(workload)}-token"


def namespace_name(gvc: str, prefix: str) -> str:
    """The namespace of a GVC at a location whose namespaces begin with ``prefix``; never one of Kubernetes itself."""
    name = format_label(f"{prefix}{gvc}")
    return format_label(f"{name}/") if name == "default" or name.startswith("kube-") else name


def endpoint_route_name(workload: str) -> str:
    """The route of the endpoints of a workload."""
    return f"{workload_name(workload)}-endpoint"


def domain_route_name(workload: str, address: str) -> str:
    """The route from ``address``, ``HOST:NUMBER``, to a workload."""
    return f"{workload_name(workload)}-domain-{hash_text(address)}"


def stream_service_name(workload: str) -> str:
    """The Service of the tcp ports of a workload outside; always with a hash, as no other Service of it has one."""
    return format_label(f"{workload}/tcp")


def shared_name(purpose: str) -> str:
    """The name of an object of a namespace as a whole."""
    return f"{TOOL}.{purpose}"


SALT_SECRET = shared_name("salt")
"""The Secret of a namespace with what the names of pull secrets depend on."""


def claim_template_name(volumeset: str) -> str:
    """The volumeClaimTemplate of a volume set.

    Kubernetes puts a ``-`` between it and the workload. So a name with a ``-`` gets a hash, before which no name ends:
    the volume set ``a`` of the workload ``b-c``, and ``a-b`` of ``c``, would have the same claims.
    """
    name = format_label(volumeset, LABEL_LENGTH - _HASH_LENGTH - 1)
    return f"0{hash_text(volumeset)}-{name}" if "-" in name else name


def claim_name(volumeset: str, workload: str, index: int) -> str:
    """The PersistentVolumeClaim of the replica ``index`` of a workload."""
    return f"{claim_template_name(volumeset)}-{workload_name(workload)}-{index}"


def snapshot_name(claim: str, snapshot: str) -> str:
    """The VolumeSnapshot of a claim; its name may have any characters here. No claim has a dot in its name."""
    return f"{claim}.{hash_text(snapshot)}"


def applyset_id(namespace: str) -> str:
    """The id of the ApplySet whose parent is the ConfigMap of a namespace."""
    text = f"{TOOL}.{namespace}.ConfigMap."
    return f"applyset-{base64.urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip('=')}-v1"


def select_pods(workload: str) -> dict[str, str]:
    """The label by which the pods of a workload are found in their namespace."""
    return {WORKLOAD: format_label_value(workload)}


def build_labels(owner: ObjectOwner, org: str) -> dict[str, str]:
    """The labels by which an object of ``owner`` is found again; they are the same for all its versions."""
    return {**build_pod_labels(owner, org), INSTANCE: format_label_value(owner.instance)}


def build_pod_labels(owner: ObjectOwner, org: str) -> dict[str, str]:
    """The labels of pods and claims, without the daemon: another one adopts them, and restarts none."""
    key = owner.key
    kind = {"workload": WORKLOAD, "volumeset": VOLUMESET}.get(str(key.kind))
    labels = {
        MANAGED_BY: TOOL,
        NAME: format_label_value(key.name),
        ORG: format_label_value(org),
        GVC: format_label_value(key.gvc or key.name),
        LOCATION: format_label_value(owner.location),
    }
    return labels | ({kind: format_label_value(key.name)} if kind else {})


def build_metadata(
    owner: ObjectOwner, org: str, namespace: str, name: str, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """The metadata of an object in ``namespace``, one of its ApplySet; ``annotations`` are those besides ours."""
    return {
        "name": name,
        "namespace": namespace,
        "labels": {**build_labels(owner, org), PART_OF: applyset_id(namespace)},
        "annotations": {**build_annotations(owner), **(annotations or {})},
    }


def build_annotations(owner: ObjectOwner) -> dict[str, str]:
    """The annotations that name ``owner`` as it was applied."""
    return {KEY: str(owner.key), SOURCE: owner.source, DIGEST: owner.digest, VERSION: str(owner.version)}
