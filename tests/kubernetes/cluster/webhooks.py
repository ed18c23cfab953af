"""Admission webhooks of tests: a function changes or refuses what is about to be stored."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.kubernetes.cluster.client import Object
from tests.kubernetes.cluster.credentials import AUTHORITY, encode_base64
from tests.support.certificates import authority

Review = Callable[[Object], Sequence[Object]]
"""Gets an admission request and returns operations of a JSON patch; raises Refused."""


class Refused(Exception):
    """A webhook does not admit the object; its text reaches the client."""


def answer_review(webhook: Review, review: Object) -> Object:
    """The review that answers ``review``."""
    request = review["request"]
    answer: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    try:
        if patch := webhook(request):
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    except Refused as refusal:
        answer |= {"allowed": False, "status": {"code": 403, "message": str(refusal)}}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


def describe_webhook(kind: str, name: str, port: int, namespace: str, resources: Sequence[str]) -> Object:
    """The configuration that asks the kubelets' webhook ``name`` about all changes of ``resources`` in ``namespace``.

    ``kind`` is Mutating or Validating; ``port`` is the kubelets', ``resources`` are plurals.
    """
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [*resources]}
    webhook = {
        "name": f"{name}.test.reconciler",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "failurePolicy": "Fail",
        "namespaceSelector": selector,
        "rules": [rule],
        "clientConfig": {
            "url": f"https://localhost:{port}/webhooks/{name}",
            "caBundle": encode_base64(authority(AUTHORITY).chain_pem),
        },
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": f"{name}.test.reconciler"},
        "webhooks": [webhook],
    }
