"""Metrics of workloads that really run, from their processes to the page for Prometheus."""

from __future__ import annotations

import json
import socket
import urllib.error
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.host_sandbox import SERVER, HostSandbox, fetch, host_sandbox, served
from tests.support.sandbox import eventually

OWN_PORT = SERVER.replace('"PORT"', '"PORT_9464"')
"""Serves its metrics only, at a port that the manifest does not declare."""


def exposing(name: str, text: str, replicas: int = 1, **fields: Any) -> str:
    """A workload that answers with ``text`` at the port for metrics."""
    manifest = json.loads(served(name, replicas=replicas, env={"GREETING": text}, **fields))
    [container] = manifest["spec"]["containers"]
    container["metrics"] = {"port": 8080 if "ports" in container else 9464}
    return json.dumps(manifest) + "\n"


def series(address: str) -> dict[tuple[str, str], tuple[dict[str, str], float]]:
    """Each series of the page, by its name and replica; its labels and value."""
    try:
        page = fetch(address, "/metrics")
    except urllib.error.URLError:
        return {}
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {(sample.name, sample.labels["replica"]): (sample.labels, sample.value) for sample in samples}


def test_prometheus_gets_the_metrics_of_all_replicas(tmp_path: Path) -> None:
    files = {
        "shop/web.yaml": exposing("web", "hits 3\nplatform_hits 4\n", replicas=2),
        "shop/jobs.yaml": exposing("jobs", "done 5\n", args=["-u", "-c", OWN_PORT], ports=None, readinessProbe=None),
        "shop/bad.yaml": exposing("bad", "<html>"),
    }
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    with host_sandbox(tmp_path, files, host={"metrics": {"address": address}}) as sandbox, sandbox.daemon():
        eventually(lambda: all(sandbox.healthy(f"workload/shop/{name}@here") for name in ("web", "jobs", "bad")))
        eventually(lambda: _values(address) >= {("hits", (3, 3)), ("done", (5,))}, address)
        check_page(sandbox, address)


def check_page(sandbox: HostSandbox, address: str) -> None:
    """Check the labels of the series, and what is dropped."""
    values = series(address)
    names = {name: replica for key in ("web", "jobs", "bad") for name, replica in sandbox.replicas(key).items()}
    web = next(name for name in names if name.startswith("web-"))
    labels, _ = values["hits", web]
    expected = {"org": "acme", "gvc": "shop", "location": "here", "provider": "byok", "workload": "web"}
    assert labels.items() >= expected.items()
    assert labels.keys() - expected.keys() == {"region", "cluster_id", "replica", "container"}
    assert {name for name, _ in values} == {"hits", "done", *(f"platform_scrape_{text}" for text in REPORTS)}
    ups = {replica: value for (name, replica), (_, value) in values.items() if name == "platform_scrape_up"}
    assert ups == {name: float(not name.startswith("bad-")) for name in names}
    # The port for metrics alone serves no requests.
    assert len(sandbox.ready("web")) == 2
    assert sandbox.ready("jobs") == []


REPORTS = ("up", "duration_seconds", "samples")


def _values(address: str) -> set[tuple[str, tuple[float, ...]]]:
    samples: dict[str, list[float]] = {}
    for (name, _), (_, value) in series(address).items():
        samples.setdefault(name, []).append(value)
    return {(name, tuple(values)) for name, values in samples.items()}
