"""Records, failures and facts for status tests."""

from __future__ import annotations

import json
from typing import Any

from reconciler.model.key import Key
from reconciler.model.record import Failure, Health, Record
from reconciler.reasons import Reason
from reconciler.records.tables.desired import DesiredEntry

API = Key.parse("workload/shop/api")
SHOP = Key.parse("gvc/shop")
COMMIT = "main@sha1:" + "1" * 40


def deployment(ready: int, expected: int, version: int = 3) -> bytes:
    """The state of a workload at a location, with an old version still going."""

    def containers(replicas: int, good: int) -> dict[str, Any]:
        resources = {"replicas": replicas, "replicasReady": good, "cpu": "50m", "memory": "128Mi"}
        return {name: {"name": name, "image": "x", "resources": resources} for name in ("main", "side")}

    versions = [
        {"name": "old", "workload": version - 1, "containers": containers(9, 9)},
        {"name": "new", "workload": version, "containers": containers(expected, ready)},
    ]
    status = {"endpoint": "api-abc.local", "expectedDeploymentVersion": version, "versions": versions}
    return json.dumps({"name": "local", "status": status, "workload": {"health": "Healthy"}}).encode()


def record(key: Key | str = API, location: str = "", **fields: Any) -> Record:
    """A record that is as wanted and well."""
    defaults: dict[str, Any] = {
        "key": Key.parse(key) if isinstance(key, str) else key,
        "location": location,
        "source": "main",
        "digest": "d1",
        "body": b'{"password": "hunter2"}',
        "version": 3,
        "engine": "recorded",
        "health": Health.HEALTHY,
        "revision": COMMIT,
        "applied_at": 1000.0,
    }
    return Record(**defaults | fields)


def failure(key: Key = API, location: str = "local", **fields: Any) -> Failure:
    """A first failure that will be tried again."""
    defaults: dict[str, Any] = {
        "reason": Reason.PROGRAM_NOT_FOUND,
        "message": "no such image",
        "attempts": 1,
        "since": 0.0,
    }
    return Failure(key=key, location=location, **defaults | {"next_attempt": 5.0} | fields)


def entry(key: Key | str, digest: str = "d1", source: str = "main", path: str = "") -> DesiredEntry:
    """A desired resource."""
    text = str(key)
    return DesiredEntry(text, source, path or f"{text.replace('/', '-')}.yaml", 0, 1, "b" * 40, digest)
