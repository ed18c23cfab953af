"""Rules for the users that containers run as."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import warning
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Workload

SIDECAR = 1337
"""The user of the proxy beside every replica."""


@warning("user-1337", "docs/platform/workload.md#users-and-groups", Kind.WORKLOAD)
def user_of_the_sidecar(workload: Workload) -> Iterator[Flaw]:
    """Containers do not run as user 1337.

    The platform keeps this user for itself: whatever runs as it has no network, neither inbound nor outbound.
    """
    if workload.spec.security_options.run_as_user == SIDECAR:
        message = "user 1337 has no network: nothing reaches the workload, and it reaches nothing"
        yield Flaw(("spec", "securityOptions", "runAsUser"), message, "take another user, for example 1000")
