"""Secrets that a workload uses, in variables and volumes."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import rule
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Container, Workload
from reconciler.model.platform import SECRET_URI

_IDENTITY = ("spec", "identityLink")


@rule(
    "secret-without-identity",
    "docs/platform/workload.md#permission-to-reveal-secrets",
    Kind.WORKLOAD,
)
def without_identity(workload: Workload) -> Iterator[Flaw]:
    """A workload that uses a secret has an identity.

    Secrets are revealed to identities only: the workload's has to be in a policy that grants `reveal` on the secret.
    Of secrets that come with the GVC's variables `secret-reveal` tells.
    """
    if workload.spec.identity_link:
        return
    for index, container in enumerate(workload.spec.containers):
        at = _use(index, container)
        if at:
            message = "a secret is used here, and the workload has no identity that it could be revealed to"
            hint = "add `identityLink: //identity/NAME`, and a policy that grants this identity `reveal`"
            yield Flaw(at, message, hint, also=(_IDENTITY,))
            return


def _use(index: int, container: Container) -> Pointer:
    """Where ``container`` uses a secret first; empty where it uses none."""
    for step, variable in enumerate(container.env):
        if variable.value.startswith(SECRET_URI):
            return "spec", "containers", index, "env", step, "value"
    for step, volume in enumerate(container.volumes):
        if volume.uri.startswith(SECRET_URI):
            return "spec", "containers", index, "volumes", step, "uri"
    return ()
