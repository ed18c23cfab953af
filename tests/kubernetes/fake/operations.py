"""The verbs of the API: what each does with the storage."""

from __future__ import annotations

import json
import random
import uuid
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import yaml

from tests.kubernetes.fake import deletion, errors, fields, validation
from tests.kubernetes.fake.admission import Admission
from tests.kubernetes.fake.changes import (
    WITHOUT_GENERATION,
    content_of,
    finish_new,
    restrict_change,
    scale_of,
    tracker_of,
)
from tests.kubernetes.fake.defaults import fill_defaults
from tests.kubernetes.fake.errors import Cause, Object, Resource
from tests.kubernetes.fake.managers import Manager, check_applied, has_owner, manager_name, set_owners
from tests.kubernetes.fake.objects import normal_form, unknown_fields, unreadable_field
from tests.kubernetes.fake.patches import json_patch, merge_patch, strategic_merge_patch
from tests.kubernetes.fake.storage import Storage
from tests.kubernetes.fake.types import node_of

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
MOST_MANAGER_BYTES = 128
UNCONDITIONAL = frozenset({"PodDisruptionBudget"})
"""Built-in kinds whose updates need a resourceVersion, as those of custom kinds do."""


class Call(NamedTuple):
    """A request for a resource."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]
    body: bytes
    media_type: str
    user_agent: str
    accept: str = ""

    @property
    def metadata_only(self) -> bool:
        """Whether the client wants no more than the metadata."""
        return "as=PartialObjectMetadata" in self.accept

    @property
    def dry_run(self) -> bool:
        """Whether nothing is stored."""
        return self.query.get("dryRun") == "All"


class Answer(NamedTuple):
    """A status code, a body, and warnings."""

    code: int
    body: Object
    warnings: tuple[str, ...] = ()


def make_call(
    resource: Resource, value: Object, verb: str = "create", subresource: str = "", manager: str = "test"
) -> Call:
    """A call that writes ``value``, by a test or a controller, without HTTP."""
    metadata = value.get("metadata") or {}
    namespace = metadata.get("namespace") or "default"
    body = json.dumps({"apiVersion": resource.api_version, "kind": resource.kind, **value}).encode()
    return Call(
        verb=verb,
        resource=resource,
        namespace=namespace if resource.namespaced else "",
        name=metadata.get("name", ""),
        subresource=subresource,
        query={"fieldManager": manager},
        body=body,
        media_type=APPLY if verb == "apply" else "application/json",
        user_agent=manager,
    )


class Operations:
    """Performs calls on the storage."""

    def __init__(self, storage: Storage, admission: Admission) -> None:
        self._storage = storage
        self._admission = admission
        self.skew = 0.0

    def now(self) -> str:
        """The time of the server."""
        return (datetime.now(UTC) + timedelta(seconds=self.skew)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def get(self, call: Call) -> Answer:
        """One object."""
        value = self._live(call)
        return Answer(200, scale_of(value) if call.subresource == "scale" else value)

    def create(self, call: Call) -> Answer:
        """A new object."""
        value, warnings = self._decode(call, read_json(call.body))
        metadata = value.setdefault("metadata", {})
        if metadata.get("generateName") and not metadata.get("name"):
            suffix = "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
            metadata["name"] = metadata["generateName"] + suffix
        if metadata.get("resourceVersion"):
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        value = self._complete(call.resource, value)
        value = self._prepare_new(call, value)
        tracker = tracker_of(call.resource, "")
        set_owners(value, tracker.update({}, value, self._manager(call, "Update"), self.now()))
        return self._store_new(call, value, warnings)

    def update(self, call: Call) -> Answer:
        """An object as a whole."""
        live = self._live(call)
        value, warnings = self._decode(call, read_json(call.body))
        if call.subresource == "scale":
            return self._scale(call, live, value)
        name = value.get("metadata", {}).get("name", "")
        if name != call.name:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({call.name})"
            )
        conditional = call.resource.custom or call.resource.kind in UNCONDITIONAL
        if conditional and not value["metadata"].get("resourceVersion"):
            cause = validation.wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(call.resource._replace(kind=call.resource.plural), call.name, [cause])
        new = self._complete(call.resource, value)
        return self._store_change(call, live, new, self._manager(call, "Update"), warnings)

    def patch(self, call: Call) -> Answer:
        """A part of an object, or an apply."""
        if call.media_type == APPLY:
            return self._apply(call)
        live = self._live(call)
        patch = read_json(call.body)
        if call.media_type == JSON_PATCH:
            value = json_patch(live, patch)
        elif call.media_type == MERGE_PATCH:
            value = merge_patch(live, patch)
        elif call.media_type == STRATEGIC and not call.resource.custom:
            node = node_of(call.resource.api_version, call.resource.kind)
            value = strategic_merge_patch(node, live, patch)
        else:
            raise errors.unsupported_media_type(call.resource)
        if call.subresource == "scale":
            return self._scale(call, live, merge_patch(scale_of(live), patch))
        value, warnings = self._decode(call, value)
        new = self._complete(call.resource, value)
        return self._store_change(call, live, new, self._manager(call, "Update"), warnings)

    def delete(self, call: Call) -> Answer:
        """The end of an object, or its beginning."""
        live = self._live(call)
        options = deletion.read_options(read_json(call.body) if call.body else {}, call.query)
        deletion.check_preconditions(call.resource, live, options)
        new = deletion.mark_deleted(call.resource, live, options, self.now())
        if call.resource.kind == "Namespace":
            new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        gone = deletion.is_gone(new, live)
        if not (call.dry_run or options.dry_run):
            if gone:
                removed = self._storage.remove(call.resource, live)
                new = removed if call.resource.kind == "Service" else new
            elif new != live:
                new = self._storage.write(call.resource, new, live)
        if gone and call.resource.kind not in deletion.RETURNED:
            return Answer(200, deletion.success(call.resource, live), deletion.warnings_of(call.resource, options))
        return Answer(200, new, deletion.warnings_of(call.resource, options))

    def _apply(self, call: Call) -> Answer:
        applied = read_yaml(call.body)
        check_applied(applied)
        if not call.query.get("fieldManager"):
            cause = validation.required("fieldManager", "is required for apply patch")
            raise errors.invalid(Resource("meta.k8s.io", "v1", "", "PatchOptions"), "", [cause])
        if len(call.query["fieldManager"]) > MOST_MANAGER_BYTES:
            cause = Cause(
                "FieldValueTooLong", f"Too long: may not be more than {MOST_MANAGER_BYTES} bytes", "fieldManager"
            )
            raise errors.invalid(Resource("meta.k8s.io", "v1", "", "PatchOptions"), "", [cause])
        metadata = applied.setdefault("metadata", {})
        if metadata.setdefault("name", call.name) != call.name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
            )
        name = f"{metadata.get('namespace', '')}/{call.name}"
        if call.namespace and metadata.setdefault("namespace", call.namespace) != call.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        self._check_kind(call.resource, applied)
        live = self._storage.find(call.resource, call.namespace, call.name)
        if live is None and call.subresource:
            raise errors.not_found(call.resource, call.name)
        self._check_versions(call, live, metadata)
        self._check_typed(call, applied, name)
        tracker = tracker_of(call.resource, call.subresource)
        perform = tracker.force if call.query.get("force") == "true" else tracker.apply
        manager = self._manager(call, "Apply")
        base = live if live is not None else {}
        new = perform(base, applied, manager, self.now(), lambda value: self._complete(call.resource, value))
        if live is None:
            owners = new["metadata"].get("managedFields", [])
            new = self._prepare_new(call, new)
            set_owners(new, owners)
            return self._store_new(call, new, ())
        return self._store_change(call, live, new, None, ())

    def _check_versions(self, call: Call, live: Object | None, metadata: Object) -> None:
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if live is None and uid:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(call.resource, call.name, why)
        if live is not None and version and version != live["metadata"]["resourceVersion"]:
            raise errors.conflict(call.resource, call.name)
        if live is not None and uid and uid != live["metadata"]["uid"]:
            current = live["metadata"]["uid"]
            raise errors.conflict(
                call.resource,
                call.name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current}",
            )

    def _check_typed(self, call: Call, applied: Object, name: str) -> None:
        node = node_of(call.resource.api_version, call.resource.kind)
        try:
            fields.check_types(node, applied)
        except fields.TypeMismatch as error:
            kind = f"{call.resource.group}/{call.resource.version}, Kind={call.resource.kind}"
            raise errors.ApiError(500, "", f"failed to create typed patch object ({name}; {kind}): {error}") from None

    def _manager(self, call: Call, operation: str) -> Manager:
        name = manager_name(call.query.get("fieldManager", ""), call.user_agent)
        return Manager(name, operation, call.resource.api_version, call.subresource)

    def _live(self, call: Call) -> Object:
        value = self._storage.find(call.resource, call.namespace, call.name)
        if value is None:
            raise errors.not_found(call.resource, call.name)
        return value

    def _decode(self, call: Call, value: Any) -> tuple[Object, tuple[str, ...]]:
        """The object of a body, and warnings about fields that its type does not have."""
        if call.subresource == "scale":
            return value, ()
        if not isinstance(value, dict):
            raise errors.bad_request("couldn't get version/kind; json parse error")
        self._check_kind(call.resource, value)
        node = node_of(call.resource.api_version, call.resource.kind)
        unknown = [f'unknown field "{path}"' for path in unknown_fields(node, value)]
        validation_mode = call.query.get("fieldValidation") or "Warn"
        if unknown and validation_mode == "Strict":
            text = f"strict decoding error: {', '.join(unknown)}"
            if call.verb != "patch":
                text = _refuse_body(call.resource, call.resource.kind, text)
            raise errors.bad_request(text)
        if why := unreadable_field(node, value):
            raise errors.bad_request(
                _refuse_body(call.resource, call.resource.kind, why if why.startswith("illegal") else f"json: {why}")
            )
        return value, tuple(unknown) if validation_mode == "Warn" else ()

    def _check_kind(self, resource: Resource, value: Object) -> None:
        version, kind = value.get("apiVersion"), value.get("kind")
        if (version or resource.api_version, kind or resource.kind) != (resource.api_version, resource.kind):
            text = f'no kind "{kind}" is registered for version "{version}"'
            if version == resource.api_version:
                inner = f"({version.rpartition('/')[2]}.{kind}) to ({resource.group or 'core'}.{resource.kind})"
                text = f"converting {inner}: unknown conversion"
            raise errors.bad_request(_refuse_body(resource, str(kind), text))

    def _complete(self, resource: Resource, value: Object) -> Object:
        """The object as it is stored: typed, with defaults."""
        owners = (value.get("metadata") or {}).get("managedFields")
        value = normal_form(node_of(resource.api_version, resource.kind), value)
        value |= {"apiVersion": resource.api_version, "kind": resource.kind}
        if owners is not None:
            value["metadata"]["managedFields"] = owners
        if not resource.custom:
            fill_defaults(value)
        return value

    def _prepare_new(self, call: Call, value: Object) -> Object:
        metadata = value["metadata"]
        for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(name, None)
        if call.resource.namespaced:
            if metadata.setdefault("namespace", call.namespace) != call.namespace:
                raise errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            metadata.pop("namespace", None)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=self.now())
        if call.resource.kind not in WITHOUT_GENERATION:
            metadata["generation"] = 1
        if call.resource.status:
            value.pop("status", None)
        return self._complete(call.resource, value)

    def _store_new(self, call: Call, value: Object, warnings: tuple[str, ...]) -> Answer:
        name = value["metadata"].get("name", "")
        self._admission.check_namespace(call.resource, call.namespace, name)
        value = self._admit(call, value)
        finish_new(call.resource, value)
        if call.resource.kind == "Service" and not call.resource.group:
            self._admission.allocate(value, None)
        validation.check_object(call.resource, value)
        self._admission.check_object(value)
        if self._storage.find(call.resource, call.namespace, name):
            raise errors.already_exists(call.resource, name)
        self._admission.check_quota(call.resource, value)
        if not call.dry_run:
            value = self._storage.write(call.resource, value, None)
        return Answer(201, value, warnings)

    def _admit(self, call: Call, value: Object) -> Object:
        changed = self._admission.change_object(value)
        return value if changed is value else self._complete(call.resource, changed)

    def _store_change(
        self, call: Call, live: Object, new: Object, manager: Manager | None, warnings: tuple[str, ...]
    ) -> Answer:
        """Store ``new`` unless nothing changes; without ``manager`` its fields are tracked already."""
        asked = new["metadata"].get("resourceVersion")
        if asked and asked != live["metadata"]["resourceVersion"]:
            raise errors.conflict(call.resource, call.name)
        self._check_uid(call, live, new)
        new = restrict_change(call.resource, call.subresource, live, new)
        if call.resource.kind == "Service" and not call.resource.group:
            self._admission.allocate(new, live)
        if manager:
            tracker = tracker_of(call.resource, call.subresource)
            if call.subresource != "scale":
                set_owners(new, tracker.update(live, new, manager, self.now()))
            elif has_owner(live, ("f:spec", "f:replicas")):
                set_owners(new, tracker.update(live, new, manager, ""))
        if not call.subresource:
            new = self._admit(call, new)
        validation.check_object(call.resource, new)
        validation.check_change(call.resource, live, new)
        self._admission.check_object(new)
        if _is_same(live, new):
            return Answer(200, live, warnings)
        if call.resource.kind not in WITHOUT_GENERATION and content_of(live) != content_of(new):
            new["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1
        if call.dry_run:
            new["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
            return Answer(200, new, warnings)
        if deletion.is_finished(new):
            self._storage.remove(call.resource, new)
            return Answer(200, new, warnings)
        return Answer(200, self._storage.write(call.resource, new, live), warnings)

    def _check_uid(self, call: Call, live: Object, new: Object) -> None:
        uid = new["metadata"].get("uid")
        if uid and uid != live["metadata"]["uid"]:
            current = live["metadata"]["uid"]
            key = f"/registry/{call.resource.plural}/{call.namespace}/{call.name}"
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current}"
            text = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
            raise errors.conflict(call.resource, call.name, text)

    def _scale(self, call: Call, live: Object, scale: Object) -> Answer:
        new = deepcopy(live)
        new["spec"]["replicas"] = (scale.get("spec") or {}).get("replicas", 0)
        asked = scale.get("metadata", {}).get("resourceVersion")
        new["metadata"]["resourceVersion"] = asked or live["metadata"]["resourceVersion"]
        answer = self._store_change(call, live, new, self._manager(call, "Update"), ())
        return Answer(answer.code, scale_of(answer.body))


def _is_same(live: Object, new: Object) -> bool:
    """Whether a write changes nothing but times of managers."""

    def timeless(value: Object) -> Object:
        metadata = {key: entry for key, entry in value["metadata"].items() if entry not in (None, {}, [])}
        owners = [{**entry, "time": ""} for entry in metadata.get("managedFields", ())]
        return value | {"metadata": metadata | {"managedFields": owners}}

    return timeless(live) == timeless(new)


def _refuse_body(resource: Resource, kind: str, why: str) -> str:
    return f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}'


def accepted_patches(resource: Resource) -> tuple[str, ...]:
    """The formats of patches that a resource accepts."""
    strategic = () if resource.custom else (STRATEGIC,)
    return (JSON_PATCH, MERGE_PATCH, *strategic, APPLY)


def read_json(body: bytes) -> Any:
    """The JSON of a body, or its YAML, which the server reads too."""
    try:
        return json.loads(body)
    except ValueError:
        return read_yaml(body)


def read_yaml(body: bytes) -> Any:
    """The YAML of a body."""
    try:
        return json.loads(body) if body[:1] == b"{" else yaml.load(body, Loader=yaml.CSafeLoader)
    except (ValueError, yaml.YAMLError) as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from None
