"""What others wrote is inert on every view: names, values of a megabyte, changes of direction, scripts, and links."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import pytest

from reconciler.model.key import Key
from reconciler.planning.drift import Drift, DriftKind, encode_drift
from reconciler.planning.plan import ChangeClass, FieldChange
from reconciler.records.store import FILE, Records
from reconciler.records.tables.drift import DriftRow
from tests.api.browser import Browser
from tests.api.conftest import FILES
from tests.engines.host.logs.kit import LogHarness, place
from tests.support.api import ApiSandbox, api_sandbox

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"{{ 7 * 7 }}"
BIDI, BELL = "a\u202eb\u2066c", "\x07"
LARGE = "x" * 1_000_000
WEB = "workload/shop/web"
VIEWS = (
    f"/ui/resource/{WEB}",
    f"/ui/evidence/{WEB}",
    f"/ui/exec/{WEB}",
    f"/ui/logs?query={WEB}",
    f"/ui/diff/source/main?from=HEAD~1&to=HEAD&key={WEB}",
    "/ui/diff/source/main?from=HEAD~2&to=HEAD",
    f"/ui/rollback/{WEB}?revision=HEAD~1",
    f"/ui/rollback/{WEB}?revision=HEAD~2",
    "/ui/plan/source/main?revision=HEAD~1",
    "/ui/resource/source/main",
    "/ui/resource/workload/shop/job",
    "/ui/runs",
    "/ui/runs/1",
    "/",
)
MOST_BYTES = 600_000
"""The largest view, also where a manifest has a value of a megabyte."""


def make_manifest(name: str, note: str, **more: object) -> str:
    """A workload with ``note`` where people write what they like."""
    container = {"name": "main", "image": f"//image/{name}:1", "args": [note]}
    spec = {"type": "standard", "containers": [container], **more}
    head = {"kind": "workload", "name": name, "description": note[:250], "tags": {"note": SCRIPT[:50]}}
    return json.dumps({**head, "spec": spec}, ensure_ascii=False)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox in which everything that others write is hostile: manifests, commits, logs, and what a location has."""
    path = tmp_path_factory.mktemp("hostile")
    note = SCRIPT + BIDI
    job = make_manifest("job", note, type="cron", job={"schedule": "30 4 * * 1"})
    with api_sandbox(path, FILES | {"shop/web.yaml": make_manifest("web", note), "shop/job.yaml": job}) as sandbox:
        for text in (note[::-1] + SCRIPT, f"{note}{LARGE}"):
            sandbox.repo.commit({"shop/web.yaml": make_manifest("web", text)}, f"{SCRIPT}{BIDI}{BELL}")
            done = sandbox.run("apply")
            assert done.returncode == 0, done.stdout + done.stderr
        harness = LogHarness(path)
        harness.taken(f"ERROR {note}{BELL}\njavascript:alert(1)\n{'y' * 100_000}\n", place("web"))
        change = FieldChange("spec.containers[main].args", note, f"{note}{LARGE}", ChangeClass.IN_PLACE)
        records = Records.open(sandbox.state / FILE)
        drift = Drift(Key.parse(WEB), "here", DriftKind.CHANGED, changes=(change,))
        records.drifts.put_many([DriftRow(WEB, "here", "main", 1.7e9, encode_drift(drift))])
        records.suspensions.put(WEB, note, SCRIPT, None)
        records.close()
        yield sandbox


@pytest.mark.parametrize("path", VIEWS)
def test_nothing_that_others_wrote_does_anything(hostile: ApiSandbox, path: str) -> None:
    response = Browser(hostile).log_in().request("GET", path)
    assert response.status_code == 200, response.text[:2000]
    shown = response.text
    assert "<script>alert" not in shown
    assert "<img" not in shown
    assert "49" not in re.findall(r"onerror=alert\(1\)&gt;.{0,20}?(\d+)", shown)
    assert not re.search("[\u202e\u2066\x07]", shown)
    assert not re.search(r'href="(?!/|#|https?:)', shown)
    assert len(response.content) < MOST_BYTES


def test_what_is_hostile_is_there_to_be_seen(hostile: ApiSandbox) -> None:
    browser = Browser(hostile).log_in()
    for path in VIEWS[:1] + VIEWS[3:8]:
        assert html.escape("<script>alert(1)</script>") in browser.get(path), path


def test_a_large_value_is_cut_and_its_size_is_named(hostile: ApiSandbox) -> None:
    shown = Browser(hostile).log_in().get(f"/ui/resource/{WEB}")
    assert re.search(r"\(1,\d{3},\d{3} characters\)", shown)


@pytest.mark.parametrize(
    "name", ["<script>", "..", "%2e%2e", "a%0d%0aSet-Cookie:x", "\u202e", "a" * 5_000, "'\"><img>"]
)
@pytest.mark.parametrize("view", ["resource", "evidence", "exec", "rollback"])
def test_a_page_refuses_a_hostile_name(hostile: ApiSandbox, view: str, name: str) -> None:
    browser = Browser(hostile).log_in()
    response = browser.request("GET", f"/ui/{view}/workload/shop/{name}")
    assert response.status_code in (400, 404), response.text[:500]
    assert "x" not in browser.cookies
    assert "<script>" not in response.text.replace("<script src", "")
    assert "<img" not in response.text
    assert "\u202e" not in response.text
    assert len(response.content) < 50_000
