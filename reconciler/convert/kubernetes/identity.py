"""What a workload needs to read secrets, and its GVC to pull images."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.convert.drafts import Draft, drafted
from reconciler.convert.kubernetes.bundle import Bundle, Item
from reconciler.convert.kubernetes.names import Names, fitting
from reconciler.convert.kubernetes.secrets import Secrets
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.key import Kind


def identity_for(gvc: str, workload: str, secrets: set[str], names: Names) -> tuple[str, list[Draft]]:
    """An identity for ``workload`` and a policy that lets it reveal ``secrets``; the identity's name comes first."""
    identity = names.take(Kind.IDENTITY, gvc, (workload,))
    policy = names.take(Kind.POLICY, "", (f"{gvc}-{workload}-reveal",))
    binding = {"permissions": ["reveal"], "principalLinks": [f"//gvc/{gvc}/identity/{identity}"]}
    targets = [f"//secret/{name}" for name in sorted(secrets)]
    rest = {"targetKind": "secret", "targetLinks": targets, "bindings": [binding]}
    return identity, [drafted(Kind.IDENTITY, identity, gvc, None, {}), drafted(Kind.POLICY, policy, "", None, rest)]


class PullSecrets:
    """Tells, once for each GVC, with which secrets images are pulled."""

    def __init__(self, bundle: Bundle, secrets: Secrets) -> None:
        self._bundle = bundle
        self._secrets = secrets
        self._told: set[tuple[str, str]] = set()

    def tell(self, user: Item, pod: TrackedValue, gvc: str) -> None:
        """Remark the pull secrets of a pod and of its ServiceAccount."""
        for part in (*pod["imagePullSecrets"].items(), *self._of_account(user, pod)):
            wanted = part["name"].required()
            kept = self._secrets.look("Secret", user.namespace, wanted)
            name = kept.name if kept else fitting(wanted)
            if (gvc, name) not in self._told:
                self._told.add((gvc, name))
                part["name"].add_note("convert-pull-secret", f"the GVC {gvc} has to name the secret {name}",
                                 f"in gvc/{gvc}: spec.pullSecretLinks: [//secret/{name}]")  # fmt: skip

    def _of_account(self, user: Item, pod: TrackedValue) -> Iterator[TrackedValue]:
        account = self._bundle.find("ServiceAccount", user.namespace, pod["serviceAccountName"].text("default"))
        if account is not None:
            yield from account.root["imagePullSecrets"].items()
