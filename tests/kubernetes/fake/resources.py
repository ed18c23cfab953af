"""The resources that the server serves, and the discovery of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.kubernetes.fake.errors import Object, Resource

CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
BUILT_IN = """
-                         v1       namespaces               Namespace               ns        cluster status
-                         v1       nodes                    Node                    no        cluster status
-                         v1       persistentvolumes        PersistentVolume        pv        cluster status
-                         v1       services                 Service                 svc       status
-                         v1       secrets                  Secret                  -
-                         v1       configmaps               ConfigMap               cm
-                         v1       serviceaccounts          ServiceAccount          sa
-                         v1       persistentvolumeclaims   PersistentVolumeClaim   pvc       status
-                         v1       pods                     Pod                     po        status
-                         v1       events                   Event                   ev
-                         v1       resourcequotas           ResourceQuota           quota     status
-                         v1       limitranges              LimitRange              limits
apps                      v1       deployments              Deployment              deploy    status scale
apps                      v1       statefulsets             StatefulSet             sts       status scale
apps                      v1       daemonsets               DaemonSet               ds        status
apps                      v1       replicasets              ReplicaSet              rs        status scale
autoscaling               v2       horizontalpodautoscalers HorizontalPodAutoscaler hpa       status
batch                     v1       jobs                     Job                     -         status
batch                     v1       cronjobs                 CronJob                 cj        status
coordination.k8s.io       v1       leases                   Lease                   -
events.k8s.io             v1       events                   Event                   ev
networking.k8s.io         v1       ingresses                Ingress                 ing       status
networking.k8s.io         v1       ingressclasses           IngressClass            -         cluster
networking.k8s.io         v1       networkpolicies          NetworkPolicy           netpol
policy                    v1       poddisruptionbudgets     PodDisruptionBudget     pdb       status
rbac.authorization.k8s.io v1       clusterroles             ClusterRole             -         cluster
rbac.authorization.k8s.io v1       clusterrolebindings      ClusterRoleBinding      -         cluster
rbac.authorization.k8s.io v1       roles                    Role                    -
rbac.authorization.k8s.io v1       rolebindings             RoleBinding             -
storage.k8s.io            v1       storageclasses           StorageClass            sc        cluster
authorization.k8s.io      v1       selfsubjectaccessreviews SelfSubjectAccessReview -         cluster create
apiextensions.k8s.io      v1       customresourcedefinitions CustomResourceDefinition crd     cluster status
"""
"""Group, version, plural, kind and short name of each; what is no name says what else is true of it."""

KNOWN_CUSTOM = {
    "Gateway": Resource("gateway.networking.k8s.io", "v1", "gateways", "Gateway", status=True, custom=True),
    "HTTPRoute": Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", status=True, custom=True),
    "VolumeSnapshot": Resource(
        "snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot", status=True, custom=True
    ),
    "VolumeSnapshotClass": Resource(
        "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", namespaced=False, custom=True
    ),
    "KnativeService": Resource("serving.knative.dev", "v1", "services", "Service", status=True, custom=True),
    "HTTPScaledObject": Resource(
        "http.keda.sh", "v1alpha1", "httpscaledobjects", "HTTPScaledObject", status=True, custom=True
    ),
    "ScaledObject": Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject", status=True, custom=True),
    "PodMetrics": Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", verbs=("get", "list"), custom=True),
}
"""Custom resources that a test installs by their kind, as their operators would."""


def built_in_resources() -> Iterator[Resource]:
    """The resources that every server has."""
    for line in BUILT_IN.strip().splitlines():
        group, version, plural, kind, short, *marks = line.split()
        resource = Resource("" if group == "-" else group, version, plural, kind, "cluster" not in marks)
        if "create" in marks:
            resource = resource._replace(verbs=("create",))
        if kind == "Namespace":
            resource = resource._replace(verbs=tuple(verb for verb in resource.verbs if verb != "deletecollection"))
        if short != "-":
            resource = resource._replace(short=(short,))
        yield resource._replace(status="status" in marks, scale="scale" in marks)


class Resources:
    """The resources that are served now; tests add and remove those of operators."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        for resource in built_in_resources():
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter([*self._resources.values()])

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource of a path."""
        return self._resources.get((group, version, plural))

    def of_kind(self, kind: str, group: str | None = None) -> Resource:
        """The resource of a kind; of several groups the first that is served."""
        return next(resource for resource in self if resource.kind == kind and group in (None, resource.group))

    def add(self, resource: Resource) -> None:
        """Serve one more."""
        self._resources[resource.group, resource.version, resource.plural] = resource

    def remove(self, resource: Resource) -> None:
        """No longer serve it."""
        del self._resources[resource.group, resource.version, resource.plural]

    def has_group(self, path: str) -> bool:
        """Whether ``path`` is below the core group or a group that is served."""
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "v1"]:
            return True
        groups = {resource.group for resource in self if not resource.custom}
        return len(parts) > 2 and parts[0] == "apis" and parts[1] in groups

    def define(self, definition: Object) -> list[Resource]:
        """Serve the versions of a CustomResourceDefinition."""
        spec = definition["spec"]
        names, namespaced = spec["names"], spec["scope"] == "Namespaced"
        resources = []
        for version in spec["versions"]:
            status = "status" in (version.get("subresources") or {})
            resource = Resource(spec["group"], version["name"], names["plural"], names["kind"], namespaced)
            short = tuple(names.get("shortNames") or ())
            resources.append(resource._replace(status=status, custom=True, short=short, verbs=CUSTOM_VERBS))
        for resource in resources:
            self.add(resource)
        return resources

    def discover(self, path: str) -> Object | None:
        """The answer to a path of discovery."""
        parts = path.strip("/").split("/")
        if path.strip("/") == "api":
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:443"}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        if path.strip("/") == "apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": self._groups()}
        if parts[0] == "apis" and len(parts) == 2:
            entry = next((group for group in self._groups() if group["name"] == parts[1]), None)
            return entry and {"kind": "APIGroup", "apiVersion": "v1", **entry}
        if (parts[0], len(parts)) in (("api", 2), ("apis", 3)):
            version = ("" if parts[0] == "api" else parts[1], parts[-1])
            return _resource_list(resource for resource in self if (resource.group, resource.version) == version)
        return None

    def _groups(self) -> list[Object]:
        versions: dict[str, list[str]] = {}
        for resource in self:
            if resource.group and resource.version not in versions.setdefault(resource.group, []):
                versions[resource.group].append(resource.version)
        groups = []
        for name, listed in versions.items():
            entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in listed]
            groups.append({"name": name, "versions": entries, "preferredVersion": entries[0]})
        return groups


def _resource_list(resources: Iterable[Resource]) -> Object | None:
    entries: list[Object] = []
    version = ""
    for resource in resources:
        version = resource.api_version
        entries += _entries(resource)
    body: Object = {"kind": "APIResourceList", "groupVersion": version, "resources": entries}
    if "/" in version:
        body["apiVersion"] = "v1"  # the server leaves it out of the list of the core group
    return body if entries else None


def _entries(resource: Resource) -> Iterator[Object]:
    entry: dict[str, Any] = {"name": resource.plural, "singularName": resource.singular}
    entry |= {"namespaced": resource.namespaced, "kind": resource.kind, "verbs": list(resource.verbs)}
    if resource.short:
        entry["shortNames"] = list(resource.short)
    yield entry
    below = {"name": f"{resource.plural}/status", "singularName": "", "namespaced": resource.namespaced}
    if resource.status:
        yield below | {"kind": resource.kind, "verbs": ["get", "patch", "update"]}
    if resource.scale:
        scale = {"name": f"{resource.plural}/scale", "group": "autoscaling", "version": "v1", "kind": "Scale"}
        yield below | scale | {"verbs": ["get", "patch", "update"]}
    if resource.kind == "Pod":
        yield below | {"name": "pods/log", "kind": "Pod", "verbs": ["get"]}
        yield below | {"name": "pods/exec", "kind": "PodExecOptions", "verbs": ["create", "get"]}
