"""The rights that the engine needs on a cluster, as a table, as RBAC objects, and as questions to the API server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from reconciler.engines.kubernetes.client.objects import (
    ADDITIONAL,
    ALWAYS_SERVED,
    CONFIG_MAP,
    EVENT,
    JOB,
    NAMESPACE,
    PERSISTENT_VOLUME,
    POD,
    POD_METRICS,
    STORAGE_CLASS,
    VOLUME_SNAPSHOT,
    KubeObject,
    ObjectKind,
)
from reconciler.engines.kubernetes.rendering.names import TOOL

_FOLLOW = ("get", "list", "watch")
_WRITE = (*_FOLLOW, "create", "patch", "delete")
_NEVER = {CONFIG_MAP: "delete", JOB: "patch", VOLUME_SNAPSHOT: "patch"}
"""What is not done with a kind: the ConfigMap of a GVC stays with its Namespace, and the others never change."""


class Right(msgspec.Struct, frozen=True, order=True):
    """What the engine does with a kind, or with a part of its objects; ``optional``: it works without."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


def list_rights() -> tuple[Right, ...]:
    """All rights, those of each kind together."""
    written = [kind for kind in ALWAYS_SERVED if kind not in (NAMESPACE, POD)]
    return (
        Right("", NAMESPACE.plural, (*_FOLLOW, "create", "patch")),
        Right("", POD.plural, ("list", "watch", "delete")),
        Right("", f"{POD.plural}/log", ("get",), optional=True),
        # A session begins with a GET where the server has the newer protocol, and with a POST before that.
        Right("", f"{POD.plural}/exec", ("create", "get"), optional=True),
        Right("", EVENT.plural, ("list",), optional=True),
        Right("", PERSISTENT_VOLUME.plural, ("get", "patch"), optional=True),
        Right(STORAGE_CLASS.group, STORAGE_CLASS.plural, ("get",), optional=True),
        Right(POD_METRICS.group, POD_METRICS.plural, ("list",), optional=True),
        *(Right(kind.group, kind.plural, _list_verbs(kind)) for kind in written),
        *(Right(kind.group, kind.plural, _list_verbs(kind), optional=True) for kind in ADDITIONAL),
    )


def _list_verbs(kind: ObjectKind) -> tuple[str, ...]:
    return tuple(verb for verb in _WRITE if verb != _NEVER.get(kind))


def render_access(namespace: str, account: str) -> list[KubeObject]:
    """A ClusterRole with these rights and no others, bound to a ServiceAccount."""
    rules = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
        for right in list_rights()
    ]
    labels = {"app.kubernetes.io/name": TOOL}
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": TOOL, "labels": labels},
            "rules": rules,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": TOOL, "labels": labels},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": TOOL},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]


ACCESS_REVIEW = ObjectKind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)


class AccessReview(NamedTuple):
    """A question to the API server: whether it gives a verb of a right."""

    right: Right
    verb: str
    review: KubeObject


def make_reviews(rights: Sequence[Right]) -> Iterator[AccessReview]:
    """A question to the API server for each verb of ``rights``, in all namespaces."""
    for right in rights:
        resource, _, part = right.resource.partition("/")
        for verb in right.verbs:
            attributes = {"verb": verb, "group": right.group, "resource": resource}
            if part:
                attributes["subresource"] = part
            review = {
                "apiVersion": ACCESS_REVIEW.api_version,
                "kind": ACCESS_REVIEW.kind,
                "spec": {"resourceAttributes": attributes},
            }
            yield AccessReview(right, verb, review)
