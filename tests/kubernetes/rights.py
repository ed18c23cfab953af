"""The rights that requests need, and those of the manifest: as verbs with resources, and as an account with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from reconciler.engines.kubernetes.access import list_rights, render_access
from tests.kubernetes.api_server import FakeApiServer
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.cluster.objects import describe_namespace
from tests.kubernetes.fake.state import LoggedRequest

SUBRESOURCES = ("log", "exec", "status", "scale", "eviction")
ACCOUNT = "daemon-of-tests"
EVERYONE = {("create", "selfsubjectaccessreviews.authorization.k8s.io")}
"""What Kubernetes permits to all who have logged in."""


def list_requested_rights(server: FakeApiServer) -> set[tuple[str, str]]:
    """The verb and the resource of each request; discovery has none. An apply that creates needs two verbs."""
    entries = [entry for entry in server.requests if entry.resource]
    created = {("create", _name_resource(entry)) for entry in entries if entry.verb == "patch" and entry.status == 201}
    return created | {(entry.verb, _name_resource(entry)) for entry in entries}


def list_table(*, optional: bool = True) -> set[tuple[str, str]]:
    """What the manifest permits, with what everyone may do; without ``optional`` only what the engine cannot lack."""
    rights = [right for right in list_rights() if optional or not right.optional]
    return {(verb, str(right)) for right in rights for verb in right.verbs} | (EVERYONE if optional else set())


def _name_resource(entry: LoggedRequest) -> str:
    """As RBAC names it: ``deployments.apps``, ``pods/log``."""
    last = entry.path.rpartition("/")[2]
    plural, dot, group = entry.resource.partition(".")
    return f"{plural}/{last}{dot}{group}" if last in SUBRESOURCES else entry.resource


@cache
def give_rights(cluster: Cluster) -> Path:
    """The kubeconfig of an account that has the rights of the manifest, and no others."""
    metadata = {"name": ACCOUNT, "namespace": ACCOUNT}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    role, binding = render_access(ACCOUNT, ACCOUNT)
    # Others apply the manifest as it is, and delete it.
    for item in (role, binding):
        item["metadata"]["name"] = ACCOUNT
    binding["roleRef"]["name"] = ACCOUNT
    cluster.apply(describe_namespace(ACCOUNT), account, role, binding)
    kubeconfig = cluster.kubeconfig_of_token(ACCOUNT, cluster.token_of(ACCOUNT, ACCOUNT, seconds=86_400.0))
    # The server learns of a role by a watch, a moment later.
    cluster.wait_for(lambda: "yes" in ask_for_right(cluster, kubeconfig), "the account has its rights")
    return kubeconfig


def ask_for_right(cluster: Cluster, kubeconfig: Path) -> str:
    """Whether the account may change the last kind of the manifest, in the words of kubectl."""
    try:
        return cluster.kubectl("auth", "can-i", "patch", "ingresses.networking.k8s.io", config=kubeconfig)
    except AssertionError:
        return "no"
