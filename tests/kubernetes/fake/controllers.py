"""The controllers of the cluster, which act only when a test says so: `converge`."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tests.kubernetes.fake.autoscalers import Autoscalers
from tests.kubernetes.fake.errors import ApiError, Object, Resource
from tests.kubernetes.fake.kubelet import Kubelet
from tests.kubernetes.fake.operations import MERGE_PATCH, make_call
from tests.kubernetes.fake.storage import name_of
from tests.kubernetes.fake.workloads import Workloads, hash_of

if TYPE_CHECKING:
    from tests.kubernetes.fake.state import State

ROUNDS = 200
"""More than any test needs: where it is not enough, two controllers disagree."""


class Writer:
    """Reads and writes objects under the name of one manager."""

    def __init__(self, state: State, manager: str) -> None:
        self.state = state
        self._manager = manager
        self._statuses: dict[str, tuple[Object, Object | None]] = {}

    def resource(self, kind: str, group: str | None = None) -> Resource:
        """The resource of a kind."""
        return self.state.resources.of_kind(kind, group)

    def all(self, kind: str, namespace: str = "") -> list[Object]:
        """The objects of a kind."""
        return self.state.storage.all(self.resource(kind), namespace)

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None."""
        return self.state.storage.find(self.resource(kind), namespace, name)

    def create(self, kind: str, value: Object) -> Object:
        """Create an object; what exists already stays."""
        try:
            return self.state.operations.create(make_call(self.resource(kind), value, manager=self._manager)).body
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return value

    def record_event(self, value: Object, reason: str, message: str, container: str = "", count: int = 1) -> None:
        """Record a warning about an object, or about a container of a pod, once."""
        metadata = value["metadata"]
        digest = hash_of([metadata["uid"], reason, message])
        name = f"{metadata['name']}.{digest}"
        if self.find("Event", metadata["namespace"], name):
            return
        reference = {"kind": value["kind"], "apiVersion": value["apiVersion"], "namespace": metadata["namespace"]}
        reference |= {"name": metadata["name"], "uid": metadata["uid"]}
        reference |= {"fieldPath": f"spec.containers{{{container}}}"} if container else {}
        now = self.state.operations.now()
        body = {"involvedObject": reference, "reason": reason, "message": message, "type": "Warning", "count": count}
        body |= {"firstTimestamp": now, "lastTimestamp": now, "source": {"component": self._manager}}
        self.create("Event", {"metadata": {"name": name, "namespace": metadata["namespace"]}, **body})

    def write_status(self, value: Object, status: Object) -> None:
        """Replace the status."""
        uid, stored = value["metadata"]["uid"], value.get("status")
        # What is stored has defaults, too, so that the same status would differ from it each time.
        if status == (stored or {}) or (status, stored) == self._statuses.get(uid):
            return
        new = {**value, "status": status}
        resource = self.resource(value["kind"], _group_of(value))
        written = self.state.operations.update(make_call(resource, new, "update", "status", self._manager))
        self._statuses[uid] = (status, written.body.get("status"))

    def patch(self, value: Object, patch: Object, subresource: str = "") -> Object:
        """Merge ``patch`` into an object."""
        resource = self.resource(value["kind"], _group_of(value))
        call = make_call(resource, value, "patch", subresource, self._manager)
        call = call._replace(media_type=MERGE_PATCH, body=json.dumps(patch).encode())
        return self.state.operations.patch(call).body

    def delete(self, value: Object, policy: str = "Background", grace: int | None = None) -> None:
        """Delete an object."""
        resource = self.resource(value["kind"], _group_of(value))
        call = make_call(resource, value, "delete", manager=self._manager)
        options: Object = {"propagationPolicy": policy}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self.state.operations.delete(call._replace(body=json.dumps(options).encode()))


def _group_of(value: Object) -> str:
    return str(value["apiVersion"].rpartition("/")[0])


class Controllers:
    """All controllers, and the other clients that a test plays."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._writer = Writer(state, "kube-controller-manager")
        self._workloads = Workloads(self._writer)
        self.kubelet = Kubelet(Writer(state, "kubelet"))
        self.autoscalers = Autoscalers(self._writer)
        self._acting = False
        self.stuck: set[str] = set()

    @property
    def workloads(self) -> Workloads:
        """Deployments, jobs and the others."""
        return self._workloads

    def create(self, value: Object, manager: str) -> Object:
        """Create an object as a client."""
        resource = self._writer.resource(value["kind"], _group_of(value))
        with self._state.storage.lock:
            body = self._state.operations.create(make_call(resource, value, manager=manager)).body
            self._state.react(resource, body)
            return body

    def update(self, value: Object, manager: str) -> Object:
        """Write an object as a client."""
        resource = self._writer.resource(value["kind"], _group_of(value))
        with self._state.storage.lock:
            body = self._state.operations.update(make_call(resource, value, "update", manager=manager)).body
            self._state.react(resource, body)
            return body

    def patch(
        self,
        kind: str,
        name: str,
        namespace: str,
        patch: Object,
        *,
        group: str | None = None,
        manager: str = "kubectl-patch",
        subresource: str = "",
    ) -> Object:
        """Merge a patch into an object as a client."""
        with self._state.storage.lock:
            value = {"metadata": {"name": name, "namespace": namespace}}
            resource = self._writer.resource(kind, group)
            call = make_call(resource, value, "patch", subresource, manager)
            call = call._replace(media_type=MERGE_PATCH, body=json.dumps(patch).encode())
            body = self._state.operations.patch(call).body
            self._state.react(resource, body)
            return body

    def delete(self, kind: str, name: str, namespace: str, group: str | None) -> None:
        """Delete an object as a client."""
        with self._state.storage.lock:
            value = {"metadata": {"name": name, "namespace": namespace}}
            resource = self._writer.resource(kind, group)
            body = self._state.operations.delete(make_call(resource, value, "delete")).body
            self._state.react(resource, body)

    def restart_containers(self, pod: Object, reason: str, message: str) -> None:
        """Let the kubelet show that the containers of a pod have started again."""
        for container in pod["spec"]["containers"] if reason else ():
            self._writer.record_event(pod, reason, message, container["name"], 3)
        self.converge()

    def react(self, resource: Resource, value: Object) -> None:
        """Act after a write of another client."""
        if not self._acting:
            self.converge()

    def converge(self) -> None:
        """Act until nothing changes."""
        with self._state.storage.lock:
            self._acting = True
            try:
                for _ in range(ROUNDS):
                    before = self._state.storage.revision
                    self._act()
                    if self._state.storage.revision == before:
                        return
            finally:
                self._acting = False
        raise AssertionError("the controllers of the fake do not converge")

    def _act(self) -> None:
        self._fill_namespaces()
        self._workloads.act()
        self.autoscalers.act()
        self.kubelet.act()
        self._collect_garbage()
        self._end_namespaces()

    def _fill_namespaces(self) -> None:
        for space in self._writer.all("Namespace"):
            name = space["metadata"]["name"]
            if space["metadata"].get("deletionTimestamp"):
                continue
            for kind, inside in (("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")):
                if self._writer.find(kind, name, inside) is None:
                    content = {"data": {"ca.crt": "fake"}} if kind == "ConfigMap" else {}
                    self._writer.create(kind, {"metadata": {"name": inside, "namespace": name}, **content})

    def _collect_garbage(self) -> None:
        uids = {value["metadata"]["uid"] for resource in self._state.resources for value in self._all(resource)}
        for resource in self._state.resources:
            for value in self._all(resource):
                metadata = value["metadata"]
                owners = metadata.get("ownerReferences") or []
                if owners and not any(owner["uid"] in uids for owner in owners):
                    if not metadata.get("deletionTimestamp"):
                        self._writer.delete(value)
                elif "foregroundDeletion" in (metadata.get("finalizers") or ()):
                    self._delete_dependents(value)
                elif "orphan" in (metadata.get("finalizers") or ()):
                    self._orphan_dependents(value)
                elif "kubernetes.io/pvc-protection" in (metadata.get("finalizers") or ()):
                    self._release_claim(value)

    def _all(self, resource: Resource) -> list[Object]:
        return self._state.storage.all(resource)

    def _dependents(self, owner: Object) -> list[Object]:
        return self._state.storage.dependents(owner["metadata"]["uid"])

    def _delete_dependents(self, owner: Object) -> None:
        dependents = self._dependents(owner)
        for value in dependents:
            if not value["metadata"].get("deletionTimestamp"):
                self._writer.delete(value, "Foreground" if self._dependents(value) else "Background")
        if not dependents:
            self._remove_finalizer(owner, "foregroundDeletion")

    def _orphan_dependents(self, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for value in self._dependents(owner):
            references = [entry for entry in value["metadata"]["ownerReferences"] if entry["uid"] != uid]
            self._writer.patch(value, {"metadata": {"ownerReferences": references or None}})
        self._remove_finalizer(owner, "orphan")

    def _release_claim(self, claim: Object) -> None:
        if not claim["metadata"].get("deletionTimestamp"):
            return
        namespace, name = name_of(claim)
        for pod in self._writer.all("Pod", namespace):
            for volume in pod["spec"].get("volumes") or ():
                if (volume.get("persistentVolumeClaim") or {}).get("claimName") == name:
                    return
        self._remove_finalizer(claim, "kubernetes.io/pvc-protection")

    def _remove_finalizer(self, value: Object, name: str) -> None:
        rest = [entry for entry in value["metadata"].get("finalizers") or () if entry != name]
        self._writer.patch(value, {"metadata": {"finalizers": rest or None}})

    def _end_namespaces(self) -> None:
        for space in self._writer.all("Namespace"):
            name = space["metadata"]["name"]
            if not space["metadata"].get("deletionTimestamp"):
                continue
            content = [
                value
                for resource in self._state.resources
                if resource.namespaced
                for value in self._inside(resource, name)
            ]
            for value in content:
                if not value["metadata"].get("deletionTimestamp"):
                    self._writer.delete(value)
            if not content and name not in self.stuck:
                self._finish_namespace(space)

    def _inside(self, resource: Resource, namespace: str) -> list[Object]:
        if (resource.group, resource.kind) == ("events.k8s.io", "Event"):
            return []  # the events of the core group are the same objects
        return self._state.storage.all(resource, namespace)

    def _finish_namespace(self, space: Object) -> None:
        new: dict[str, Any] = deepcopy(space)
        new["spec"] = {}
        resource = self._writer.resource("Namespace")
        if new["metadata"].get("finalizers"):
            if space["spec"] != new["spec"]:
                self._state.storage.write(resource, new, space)
            return
        self._state.storage.remove(resource, space)
