"""The rights that requests to the fake API server need, and those of the manifest, as verbs with resources."""

from __future__ import annotations

from reconciler.engines.kubernetes.access import list_rights
from tests.kubernetes.api_server import FakeApiServer
from tests.kubernetes.fake.state import LoggedRequest

SUBRESOURCES = ("log", "exec", "status", "scale", "eviction")
EVERYONE = {("create", "selfsubjectaccessreviews.authorization.k8s.io")}
"""What Kubernetes permits to all who have logged in."""


def list_requested_rights(server: FakeApiServer) -> set[tuple[str, str]]:
    """The verb and the resource of each request; discovery has none."""
    return {(entry.verb, _name_resource(entry)) for entry in server.requests if entry.resource}


def list_table(*, optional: bool = True) -> set[tuple[str, str]]:
    """What the manifest permits, with what everyone may do; without ``optional`` only what the engine cannot lack."""
    rights = [right for right in list_rights() if optional or not right.optional]
    return {(verb, str(right)) for right in rights for verb in right.verbs} | (EVERYONE if optional else set())


def _name_resource(entry: LoggedRequest) -> str:
    """As RBAC names it: ``deployments.apps``, ``pods/log``."""
    last = entry.path.rpartition("/")[2]
    plural, dot, group = entry.resource.partition(".")
    return f"{plural}/{last}{dot}{group}" if last in SUBRESOURCES else entry.resource
