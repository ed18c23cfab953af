"""A rollback with its data, of programs that really run: the older version gets the data that it left."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox
from tests.support.programs import tool
from tests.support.sandbox import eventually

DATA, DB = "volumeset/shop/data", "workload/shop/db"
VOLUMESET = (
    "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
)

wait = partial(eventually, patience=60.0)


def database(version: int) -> str:
    """A program that writes its version into its volume, and then refuses data of newer versions."""
    script = f'cd "$RECONCILER_VOLUMES/data"; grep -q "[^1-{version}]" log && exit 1; echo {version} >> log; sleep 1000'
    container = {
        "name": "main",
        "image": "none",
        "command": "sh",
        "args": ["-c", script],
        "volumes": [{"uri": "platform://volumeset/data", "path": "/data"}],
        "readinessProbe": {"exec": {"command": ["grep", "-q", str(version), "log"]}, "periodSeconds": 1},
    }
    body = {
        "kind": "workload",
        "name": "db",
        "gvc": "shop",
        "tags": {"reconciler/snapshot-on": "new-version"},
        "spec": {"type": "stateful", "containers": [container]},
    }
    return json.dumps(body)


def written(sandbox: HostSandbox) -> list[str]:
    """The versions that have written to the volume."""
    log = sandbox.state / "host/here/volumes/shop/data/0/log"
    return log.read_text().split() if log.exists() else []


def test_an_older_version_gets_the_data_that_it_left(tmp_path: Path) -> None:
    with (
        host_sandbox(tmp_path, {"shop/db.yaml": database(1), "shop/data.yaml": VOLUMESET}) as sandbox,
        sandbox.daemon(),
    ):
        first = sandbox.repo.git("rev-parse", "main")
        wait(lambda: written(sandbox) == ["1"])
        for version in (2, 3):
            sandbox.repo.commit({"shop/db.yaml": database(version)})
            wait(lambda last=str(version): written(sandbox)[-1:] == [last])  # type: ignore[misc]
        assert written(sandbox) == ["1", "2", "3"]
        wait(lambda: "before-db-00003" in sandbox.run("snapshots", DATA).stdout)
        asked = sandbox.run("rollback", "main", first, "--with-data")
        digest = asked.stderr.split()[-1]
        done = sandbox.run("rollback", "main", first, "--with-data", "--approve", digest)
        assert done.returncode == 0, done
        assert "goes back to before-db-00002 of" in done.stderr
        wait(lambda: written(sandbox) == ["1", "1"], "the first version runs with its own data")
        listed = json.loads(sandbox.run("command", DATA, "-o", "json").stdout)["items"]
        assert [each["lifecycleStage"] for each in listed] == ["completed"]
        names = [each["name"] for each in json.loads(sandbox.run("snapshots", DATA, "-o", "json").stdout)["items"]]
        assert any(name.startswith("pre-restore-") for name in names), "what was lost is still there"


@pytest.mark.slow
def test_an_export_that_fails_is_in_the_status_until_it_is_done(tmp_path: Path) -> None:
    files = {"shop/db.yaml": database(1), "shop/data.yaml": VOLUMESET}
    password, repository = tmp_path / "password", tmp_path / "repository"
    password.write_text("secret")
    restic = {"repository": str(repository), "passwordFile": str(password)}
    with host_sandbox(tmp_path, files, snapshots={"export": {"restic": restic}}) as sandbox, sandbox.daemon():
        wait(lambda: written(sandbox) == ["1"])
        taken = sandbox.run("command", DATA, "createVolumeSnapshot", "volumeIndex=0", "snapshotName=nightly")
        assert taken.returncode == 0, taken
        wait(lambda: "SnapshotExportFailing  True" in sandbox.run("describe", DATA).stdout, "the condition")
        wait(lambda: "SnapshotExportFailing" in sandbox.status("shop/volumeset/data.yaml"), "and in the status")
        words = [tool("restic", "restic"), "--repo", str(repository), "--password-file", str(password), "init"]
        subprocess.run(words, check=True, capture_output=True)
        eventually(lambda: "SnapshotExportFailing" not in sandbox.run("describe", DATA).stdout, "it is done", 120.0)
        copies = subprocess.run([*words[:-1], "snapshots", "--json"], check=True, capture_output=True)
        assert len(json.loads(copies.stdout)) == 1
