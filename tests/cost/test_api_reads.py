"""The cost of a read through the API follows its answer, whatever else is applied or has changed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from reconciler.access.rules import Grant, policy_grants
from reconciler.api.documents import resource_document
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.sandbox import GVC, workload
from tests.support.work import Work, counted

MANY = 40
POLICIES = """kind: serviceaccount
name: red
---
kind: serviceaccount
name: named
---
kind: policy
name: red
targetKind: workload
targetQuery: {kind: workload, spec: {terms: [{tag: team, value: red}]}}
bindings: [{permissions: [view], principalLinks: [//serviceaccount/red]}]
---
kind: policy
name: named
targetKind: workload
targetLinks: [//gvc/shop/workload/w39]
bindings: [{permissions: [view], principalLinks: [//serviceaccount/named]}]
"""
LAZY = {
    "authlib",
    "cryptography",
    "html.entities",
    "httpx2",
    "prometheus_client",
    "pygit2",
    "structlog",
    "websockets",
    "yaml",
}
"""What takes a megabyte or so, and only some requests need."""


def manifest(number: int, team: str) -> str:
    """A workload of ``team``."""
    return workload(f"w{number:02}", more=f"tags: {{team: {team}}}\n")


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """Many workloads, of which an account may view the last two by their tag, and another one by its name."""
    files = {f"shop/w{number:02}.yaml": manifest(number, "red" if number > 37 else "blue") for number in range(MANY)}
    with api_sandbox(tmp_path_factory.mktemp("cost"), {"shop/gvc.yaml": GVC, "access.yaml": POLICIES, **files}) as made:
        yield made


def read(sandbox: ApiSandbox, path: str, account: str = "") -> tuple[Work, list[str]]:
    """The work of a read, by the root of this host or by ``account``, and the names of the items."""
    headers = {"Authorization": sandbox.api.store.add_key(account, "", "test", None)[1]} if account else {}
    with counted(sandbox.api.reader.records) as work:
        found = sandbox.client().get(f"{ORG}/{path}", headers=headers)
    return work, [each["name"] for each in found.get("items", ())]


def change(sandbox: ApiSandbox, file: str, content: str) -> None:
    """Apply a commit that changes one file."""
    sandbox.repo.commit({file: content})
    done = sandbox.run("apply")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_read_has_as_many_statements_after_a_change_and_compiles_no_policy_again(sandbox: ApiSandbox) -> None:
    read(sandbox, "gvc/shop/workload/w00")
    first, _ = read(sandbox, "gvc/shop/workload/w00")
    assert first.statements <= 12
    change(sandbox, "shop/w01.yaml", manifest(1, "green"))
    after, _ = read(sandbox, "gvc/shop/workload/w00")
    assert after.calls_of(policy_grants) == 0
    assert after.statements <= first.statements + 12
    assert read(sandbox, "gvc/shop/workload/w00")[0].statements == first.statements


def test_a_changed_policy_is_compiled_alone(sandbox: ApiSandbox) -> None:
    read(sandbox, "workload")
    other = POLICIES.replace("value: red", "value: pink")
    change(sandbox, "access.yaml", other)
    work, _ = read(sandbox, "gvc/shop/workload/w00")
    assert work.calls_of(policy_grants) <= 2  # a generator with one grant
    assert read(sandbox, "workload", "red")[1] == []
    change(sandbox, "access.yaml", other.replace("value: pink", "value: red"))
    assert read(sandbox, "workload", "red")[1] == ["w38", "w39"]


def test_a_page_reads_what_the_caller_may_view_and_no_more(sandbox: ApiSandbox) -> None:
    assert read(sandbox, "workload", "red")[1] == ["w38", "w39"]
    work, names = read(sandbox, "workload", "red")
    assert names == ["w38", "w39"]
    assert work.calls_of(resource_document) == 2
    assert work.calls_of(Grant.selects) <= 2
    work, names = read(sandbox, "workload", "named")
    assert (names, work.calls_of(resource_document)) == (["w39"], 1)


def test_a_page_follows_what_changes(sandbox: ApiSandbox) -> None:
    read(sandbox, "workload", "red")
    change(sandbox, "shop/w05.yaml", manifest(5, "red"))
    work, names = read(sandbox, "workload", "red")
    assert names == ["w05", "w38", "w39"]
    assert work.calls_of(Grant.selects) <= 4
    change(sandbox, "shop/w05.yaml", manifest(5, "blue"))
    assert read(sandbox, "workload", "red")[1] == ["w38", "w39"]


def test_a_server_at_rest_has_loaded_what_every_request_needs() -> None:
    code = "import runpy, sys; sys.argv = ['api']; runpy.run_module('reconciler.api', run_name='__main__')"
    end = (
        f"import atexit, sys; atexit.register(lambda: print('uvicorn' in sys.modules, *{LAZY!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", f"{end}\n{code}"], input="", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), "without settings, it ends without a word"
    assert done.stdout == "True\n"
