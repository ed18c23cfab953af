"""The example's programs do what its manifests declare, as plain processes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.project.tree import ROOT
from tests.support.processes import free_ports

PATIENCE = 60.0


def container(file: str) -> dict[str, Any]:
    """The first container of the workload in ``file``."""
    documents = yaml.safe_load_all((ROOT / "examples/repo" / file).read_text())
    (workload,) = [document for document in documents if document and document["kind"] == "workload"]
    found: dict[str, Any] = workload["spec"]["containers"][0]
    return found


def environment(file: str, **values: str) -> dict[str, str]:
    """What the container declares, with ``values`` in the place of what only a platform can know."""
    declared = {entry["name"]: entry["value"] for entry in container(file).get("env", [])}
    return {"PATH": os.environ["PATH"], **declared, **values}


def command(file: str) -> list[str]:
    """The program of the container with its arguments."""
    return [container(file)["command"], *container(file)["args"]]


def ask(url: str, body: bytes | None = None) -> str:
    """What ``url`` answers."""
    with urllib.request.urlopen(url, body, timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


def wait_until_ready(file: str, url: str) -> None:
    """Ask as the workload's readiness probe does until it answers."""
    path = container(file)["readinessProbe"]["httpGet"]["path"]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            ask(url + path)
            return
        time.sleep(0.02)
    pytest.fail(f"{file} is not ready")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Database, API and page, each with the address where it listens."""
    names = ("db", "api", "web")
    ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    values = {
        "db": {"DATA": str(tmp_path_factory.mktemp("data")), "PASSWORD": "same"},
        "api": {"DB_URL": urls["db"], "DB_PASSWORD": "same", "CURRENCY": "EUR"},
        "web": {"API_URL": urls["api"], "PLATFORM_LOCATION": "aws-us-west-2"},
    }
    with contextlib.ExitStack() as stack:
        for name, known in values.items():
            file = f"shop/{name}.yaml"
            variables = environment(file, PORT=ports[name], **known)
            running = stack.enter_context(subprocess.Popen(command(file), env=variables, stderr=subprocess.DEVNULL))
            stack.callback(running.kill)
        for name, url in urls.items():
            wait_until_ready(f"shop/{name}.yaml", url)
        yield urls


def test_an_order_ends_up_on_the_page(shop: dict[str, str]) -> None:
    ask(shop["api"] + "/orders", b"two cups")
    orders = json.loads(ask(shop["api"] + "/orders"))
    assert (orders["currency"], orders["orders"][-1][1]) == ("EUR", "two cups")
    page = ask(shop["web"])
    assert "Shop in aws-us-west-2" in page
    assert "two cups" in page


def test_the_database_answers_nothing_without_the_password(shop: dict[str, str]) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        ask(shop["db"] + "/orders")


@pytest.mark.parametrize("reachable", [True, False])
def test_the_report_ends_whether_or_not_the_shop_answers(shop: dict[str, str], reachable: bool) -> None:
    url = shop["api"] if reachable else f"http://127.0.0.1:{free_ports(1)[0]}"
    file = "ops/report.yaml"
    variables = environment(file, ORDERS_URL=url + "/orders", REPORT_KEY="key")
    answer = subprocess.run(command(file), env=variables, capture_output=True, text=True, check=True)
    assert ("no answer" in answer.stdout) is not reachable


def test_every_program_is_python_as_any_debian_has_it() -> None:
    example = ROOT / "examples/repo"
    texts = {str(path.relative_to(example)): path.read_text() for path in sorted(example.rglob("*.yaml"))}
    workloads = [file for file, text in texts.items() if "\nkind: workload\n" in text]
    assert workloads == ["ops/report.yaml", "shop/api.yaml", "shop/db.yaml", "shop/web.yaml"]
    assert {container(file)["command"] for file in workloads} == {"python3"}
