"""Secrets that a workload uses, in variables and volumes."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule
from reconciler.model.finding import Flaw, Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Container, Workload
from reconciler.model.platform import SECRET_URI

_IDENTITY = ("spec", "identityLink")


@register_rule(
    "secret-without-identity",
    "docs/platform/workload.md#permission-to-reveal-secrets",
    Kind.WORKLOAD,
)
def without_identity(workload: Workload) -> Iterator[Flaw]:
    """A workload that uses a secret has an identity.

    Only identities can read secrets: a policy must grant `reveal` on the secret to the workload's identity. The rule
    `secret-reveal` covers secrets in the GVC's variables.
    """
    if workload.spec.identity_link:
        return
    for index, container in enumerate(workload.spec.containers):
        at = _find_secret_use(index, container)
        if at:
            message = "the workload uses a secret, and has no identity to read it"
            hint = "add `identityLink: //identity/NAME`, and a policy that grants this identity `reveal`"
            yield Flaw(at, message, hint, also=(_IDENTITY,))
            return


def _find_secret_use(index: int, container: Container) -> Pointer:
    """The pointer to the first use of a secret in ``container``; empty if there is none."""
    for step, variable in enumerate(container.env):
        if variable.value.startswith(SECRET_URI):
            return "spec", "containers", index, "env", step, "value"
    for step, volume in enumerate(container.volumes):
        if volume.uri.startswith(SECRET_URI):
            return "spec", "containers", index, "volumes", step, "uri"
    return ()
