"""Cloud access of identities, and pull secrets for GVCs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reconciler.convert.drafts import Body
from reconciler.convert.kubernetes.bundle import Bundle, Item
from reconciler.convert.kubernetes.secrets import Secrets
from reconciler.convert.names import make_valid_name
from reconciler.convert.tracked_value import TrackedValue

_AWS, _GCP = "eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account"
"""Annotations of a ServiceAccount for access to a cloud."""
_AWS_ROLE = re.compile(r"arn:aws[-a-z]*:iam::([0-9]{12}):role/(?:.*/)?([^/]+)")
_GCP_ACCOUNT = re.compile(r"[-a-z0-9.]+@([-a-z0-9.]+)\.iam\.gserviceaccount\.com")


def cloud_access(bundle: Bundle, user: Item, pod: TrackedValue) -> Body:
    """Cloud access of the identity of ``user``, from the annotations of its ServiceAccount for EKS and GKE."""
    account = _account_of(bundle, user, pod)
    if account is None:
        named = _named_account(pod)
        if named.text("default") != "default":
            named.add_note(
                "convert-missing",
                f"the ServiceAccount {named.text()} is not among the files",
                "its access to cloud providers and its pull secrets are not known",
            )
        return {}
    annotations, access = account.root["metadata"]["annotations"], {}
    if match := _AWS_ROLE.fullmatch(annotations[_AWS].text()):
        cloud = _link_cloud_account(annotations[_AWS], f"aws-{match[1]}")
        access["aws"] = {"cloudAccountLink": cloud, "roleName": match[2]}
    if match := _GCP_ACCOUNT.fullmatch(annotations[_GCP].text()):
        cloud = _link_cloud_account(annotations[_GCP], f"gcp-{match[1]}")
        access["gcp"] = {"cloudAccountLink": cloud, "serviceAccount": match[0]}
    for name, provider in ((_AWS, "aws"), (_GCP, "gcp")):
        if annotations[name] and provider not in access:
            annotations[name].add_note("convert-left-out", f"{name} has no counterpart")
    return access


def _account_of(bundle: Bundle, user: Item, pod: TrackedValue) -> Item | None:
    """The ServiceAccount of a pod of ``user``, None where it is not among the files."""
    return bundle.find("ServiceAccount", user.namespace, _named_account(pod).text("default"))


def _named_account(pod: TrackedValue) -> TrackedValue:
    """Where a pod names its ServiceAccount; ``serviceAccount`` is the former name of the field."""
    return pod["serviceAccountName"] or pod["serviceAccount"]


def _link_cloud_account(part: TrackedValue, name: str) -> str:
    fit = make_valid_name(name)
    part.add_note(
        "convert-missing",
        f"access needs a cloud account; its name is assumed to be {fit}",
        f"write a manifest of the cloudaccount {fit}, or link to an existing one",
    )
    return f"//cloudaccount/{fit}"


class PullSecrets:
    """Notes, once for each GVC, the secrets that pull its images."""

    def __init__(self, bundle: Bundle, secrets: Secrets) -> None:
        self._bundle = bundle
        self._secrets = secrets
        self._noted: set[tuple[str, str]] = set()

    def note(self, user: Item, pod: TrackedValue, gvc: str) -> None:
        """Note the pull secrets of a pod and of its ServiceAccount."""
        for part in (*pod["imagePullSecrets"].items(), *self._of_account(user, pod)):
            reference = part["name"].require_text()
            secret = self._secrets.find("Secret", user.namespace, reference)
            name = secret.name if secret else make_valid_name(reference)
            if (gvc, name) not in self._noted:
                self._noted.add((gvc, name))
                part["name"].add_note(
                    "convert-pull-secret",
                    f"the GVC {gvc} must link to the secret {name}",
                    f"in gvc/{gvc}: spec.pullSecretLinks: [//secret/{name}]",
                )

    def _of_account(self, user: Item, pod: TrackedValue) -> Iterator[TrackedValue]:
        account = _account_of(self._bundle, user, pod)
        if account is not None:
            yield from account.root["imagePullSecrets"].items()
