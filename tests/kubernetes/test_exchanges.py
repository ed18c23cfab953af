"""The fake answers as the real API server does: both must give the answers that are recorded.

The answers in `tests/cases/kubernetes/answers.yaml` are those of the real server of the newest version. The controllers
are paused meanwhile. ``REWRITE_CASES=1`` with ``-m cluster`` records them again.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx2
import pytest
import yaml

from tests.kubernetes.api_server import fake_api_server
from tests.kubernetes.cluster.build import NEWEST
from tests.kubernetes.cluster.control_plane import Cluster
from tests.kubernetes.exchanges import EXCHANGES
from tests.kubernetes.fake.resources import Resources
from tests.kubernetes.requests import Exchange, Object, Step
from tests.support.cases import CASES
from tests.support.waiting import PATIENCE

ANSWERS = CASES / "kubernetes" / "answers.yaml"
OLDER = {
    "apply of a StatefulSet, and again": "no maxUnavailable",
    "apply of an autoscaler, and again": "no generation",
    "apply of bindings, and again": "other words about the role",
    "apply of long names": "other words about the name",
    "apply with a label and a manager that are too long": "other words about the label",
    "defaults of a HorizontalPodAutoscaler": "no generation",
    "defaults of a StatefulSet": "no maxUnavailable",
    "delete with a finalizer": "the same cause twice",
    "immutable fields of a StatefulSet": "one cause for all of the spec",
}
"""Exchange → what the oldest version answers otherwise."""
REWRITE = bool(os.environ.get("REWRITE_CASES"))
_NUMBERS = itertools.count(1)
_HIDDEN = {
    "uid": "UID",
    "creationTimestamp": "TIME",
    "deletionTimestamp": "TIME",
    "time": "TIME",
    "resourceVersion": None,
    "continue": "TOKEN",
    "clusterIP": "ADDRESS",
    "nodePort": "PORT",
    "controller-uid": "UID",
    "batch.kubernetes.io/controller-uid": "UID",
    "healthCheckNodePort": "PORT",
    "serverAddress": "ADDRESS",
}
"""Fields that vary → what is compared in their place; None leaves it out."""
_IN_TEXT = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"(resource ?version:?) (\d+)( \(\d+\))?(, current: \d+)?", re.IGNORECASE), r"\1 N"),
    (re.compile(r"in record \(\d+\)"), "in record (N)"),
    (re.compile(r"\n@@.*", re.DOTALL), ""),  # the difference as Go prints it
    (re.compile(r"Invalid value: \{.*\}: "), "Invalid value: {}: "),
    (re.compile(r"10\.96\.\d+\.\d+"), "ADDRESS"),
]


class Conversation:
    """The steps of an exchange, with what earlier answers had."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        self._namespace = f"exchange-{next(_NUMBERS)}-{os.getpid()}"
        self._known: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        metadata = {"name": self._namespace}
        client.post("/api/v1/namespaces", json={"metadata": metadata}).raise_for_status()

    def run(self, exchange: Exchange) -> list[Object]:
        """The answers."""
        answers = []
        for number, step in enumerate(exchange.steps, 1):
            answer = self._answer(step, number)
            deadline = time.monotonic() + PATIENCE
            while step.until not in (0, answer["status"]) and time.monotonic() < deadline:
                time.sleep(0.05)
                answer = self._answer(step, number)
            answers += [answer] if step.shown else []
        return answers

    def _answer(self, step: Step, number: int) -> Object:
        path, query, body = self._fill(step.path), self._fill(step.query), self._fill(step.body)
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": step.media_type, "Accept": step.accept}
        if step.events:
            return self._read_events(path, query, headers, step.events)
        answer = self._client.request(step.method, path, params=query, content=content, headers=headers)
        shown: Object = {"request": f"{step.method} {step.path}", "status": answer.status_code}
        if warning := answer.headers.get("warning"):
            shown["warning"] = warning
        if not answer.headers["content-type"].startswith("application/json"):
            return shown | {"text": answer.text}
        value = answer.json()
        if value["kind"] == "APIResourceList":
            return shown | {"body": reduce_discovery(value)}
        version = self._remember(value, number)
        return shown | ({"version": version} if version else {}) | {"body": self._hide(value)}

    def _read_events(self, path: str, query: dict[str, str], headers: dict[str, str], count: int) -> Object:
        with self._client.stream("GET", path, params=query, headers=headers) as answer:
            if answer.status_code != 200:
                answer.read()
                return {"request": "watch", "status": answer.status_code, "body": self._hide(answer.json())}
            lines = answer.iter_lines()
            events = [json.loads(next(lines)) for _ in range(count)]
        return {"request": "watch", "status": 200, "events": [self._hide(event) for event in events]}

    def _remember(self, value: Object, number: int) -> str:
        """Whether the answer has a new version of its object; empty for what is none."""
        metadata = value.get("metadata", {})
        self._known |= {"$CONTINUE": metadata["continue"]} if metadata.get("continue") else {}
        for name, key in (("$UID", "uid"), ("$VERSION", "resourceVersion")):
            if metadata.get(key):
                self._known |= {name: metadata[key], f"{name}{number}": metadata[key]}
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if not uid:
            return ""
        before = self._versions.get(uid)
        if version:
            self._versions[uid] = version
        return "none" if not version else "first" if before is None else "same" if before == version else "new"

    def _fill(self, value: Any) -> Any:
        """``value`` with the namespace, and with what earlier answers had."""
        if isinstance(value, dict):
            return {self._fill(key): self._fill(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._fill(entry) for entry in value]
        if not isinstance(value, str):
            return value
        return self._known.get(value, value.replace("NAMESPACE", self._namespace))

    def _hide(self, value: Any, key: str = "") -> Any:
        """``value`` without what differs between two runs."""
        if isinstance(value, dict):
            shown = {name: self._hide_entry(name, entry) for name, entry in value.items()}
            if value.get("reason") == "Conflict" and "causes" in value.get("details", {}):
                shown["details"]["causes"].sort(key=lambda cause: cause["field"])  # the server has them in any order
            if "generateName" in value:
                shown["name"] = "NAME"
            return {name: entry for name, entry in shown.items() if entry is not ...}
        if isinstance(value, list):
            return [self._hide(entry) for entry in value]
        if not isinstance(value, str):
            return value
        text = value.replace(self._namespace, "NAMESPACE")
        for pattern, replacement in _IN_TEXT:
            text = pattern.sub(replacement, text)
        return text

    def _hide_entry(self, name: str, entry: Any) -> Any:
        if name not in _HIDDEN or isinstance(entry, dict | list) or entry in (None, "", "None"):
            return self._hide(entry)
        return ... if _HIDDEN[name] is None else _HIDDEN[name]


def reduce_discovery(value: Object) -> Object:
    """The resources that the fake has, too, without what it does not show."""
    names = {(resource.api_version, resource.plural) for resource in Resources()}
    names |= {("example.com/v1", "things")}
    version = value["groupVersion"]
    listed = [
        {key: entry for key, entry in resource.items() if key not in ("storageVersionHash", "categories")}
        for resource in value["resources"]
        if (version, resource["name"].partition("/")[0]) in names
        and resource["name"].partition("/")[2] in ("", "status", "scale", "log")
    ]
    return value | {"resources": sorted(listed, key=lambda resource: resource["name"])}


@cache
def recorded_answers() -> dict[str, list[Object]]:
    """Exchange → its answers."""
    answers: dict[str, list[Object]] = yaml.load(ANSWERS.read_bytes(), yaml.CSafeLoader) or {}
    return answers


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """The fake."""
    with fake_api_server(tmp_path_factory.mktemp("fake")) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        with httpx2.Client(base_url=server.url, headers=headers, trust_env=False) as client:
            yield client


@pytest.fixture(scope="module")
def real(cluster: Cluster) -> Iterator[Cluster]:
    """A real server of each version, whose controllers do nothing."""
    with cluster.components["kube-controller-manager"].paused():
        yield cluster


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_the_fake_answers_as_recorded(fake: httpx2.Client, exchange: Exchange) -> None:
    assert Conversation(fake).run(exchange) == recorded_answers()[exchange.name]


@pytest.mark.cluster
def test_the_real_server_answers_as_recorded(real: Cluster) -> None:
    answers = {exchange.name: Conversation(real.api).run(exchange) for exchange in EXCHANGES}
    if real.minor != NEWEST:
        different = {name for name, answer in answers.items() if answer != recorded_answers()[name]}
        assert different == OLDER.keys()
        return
    if REWRITE:
        ANSWERS.parent.mkdir(exist_ok=True)
        ANSWERS.write_text(yaml.safe_dump(answers, sort_keys=True, width=120, default_flow_style=None))
        recorded_answers.cache_clear()
    assert answers == recorded_answers()
