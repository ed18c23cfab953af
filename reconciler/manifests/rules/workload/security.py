"""Rules for the users that containers run as."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_warning
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Workload
from reconciler.model.platform import RESTRICTED_USER


@register_warning("user-1337", "docs/platform/workload.md#users-and-groups", Kind.WORKLOAD)
def user_of_the_sidecar(workload: Workload) -> Iterator[Flaw]:
    """Containers do not run as user 1337.

    The platform reserves this user: a container with it has no network, neither inbound nor outbound.
    """
    if workload.spec.security_options.run_as_user == RESTRICTED_USER:
        message = "user 1337 has no network, neither inbound nor outbound"
        yield Flaw(("spec", "securityOptions", "runAsUser"), message, "use another user, for example 1000")
