"""Data of volumes stay until their deletion is approved, whatever would delete them."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

from tests.support.host_sandbox import HostSandbox, host_sandbox
from tests.support.sandbox import eventually

DATA, HERE, THERE = "volumeset/shop/data", "volumeset/shop/data@here", "volumeset/shop/data@there"
VOLUMESET = (
    "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
)
DATABASE = json.dumps(
    {
        "kind": "workload",
        "name": "db",
        "gvc": "shop",
        "spec": {
            "type": "stateful",
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "command": "sh",
                    "args": ["-c", 'cd "$RECONCILER_VOLUMES/data"; echo x > log; exec sleep 1000'],
                    "volumes": [{"uri": "platform://volumeset/data", "path": "/data"}],
                }
            ],
        },
    }
)

OTHER = "kind: gvc\nname: other\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
"""What stays: a source without any manifest changes nothing."""

wait = partial(eventually, patience=60.0)


def gvc(*locations: str) -> str:
    """The GVC at ``locations``."""
    links = ", ".join(f"//location/{name}" for name in locations)
    return f"kind: gvc\nname: shop\nspec: {{staticPlacement: {{locationLinks: [{links}]}}}}\n"


def log(sandbox: HostSandbox, location: str) -> Path:
    """The file that the program wrote into its volume."""
    return sandbox.state / "host" / location / "volumes/shop/data/0/log"


def words_of(sandbox: HostSandbox) -> set[str]:
    """What the volume set waits for."""
    return set(re.findall(r"waits for approval, .*", sandbox.run("describe", DATA).stdout))


def deleted_at(sandbox: HostSandbox) -> list[str]:
    """The locations of final snapshots."""
    listed = json.loads(sandbox.run("snapshots", "--deleted", "-o", "json").stdout)["items"]
    return sorted(each["location"] for each in listed)


def test_neither_a_removed_location_nor_a_removed_gvc_deletes_volumes(tmp_path: Path) -> None:
    files = {"shop/gvc.yaml": gvc("here", "there"), "shop/data.yaml": VOLUMESET, "shop/db.yaml": DATABASE}
    places = {name: {"engine": "host"} for name in ("here", "there")}
    with host_sandbox(tmp_path, {"other.yaml": OTHER, **files}, locations=places) as sandbox, sandbox.daemon():
        wait(lambda: all(log(sandbox, name).exists() for name in places), "the program writes everywhere")
        where = ("location=there", "volumeIndex=0", "snapshotName=nightly")
        taken = sandbox.run("command", DATA, "createVolumeSnapshot", *where)
        assert taken.returncode == 0, taken
        sandbox.repo.commit({"shop/gvc.yaml": gvc("here")})
        [asked] = wait(lambda: words_of(sandbox), "the removed location waits")
        assert "it deletes volumes and their data (volume 0 with " in asked
        assert " used, newest snapshot " in asked
        sandbox.repo.commit(dict.fromkeys(files))
        [asked] = wait(lambda: words_of(sandbox) - {asked}, "the removed GVC waits")
        assert "it deletes volumes and their data (volume 0 with " in asked
        assert all(log(sandbox, name).exists() for name in places)
        approved = sandbox.run("approve", asked.split()[-1])
        assert approved.returncode == 0, approved
        wait(lambda: not any(log(sandbox, name).exists() for name in places), "all of it is deleted then")
        wait(lambda: deleted_at(sandbox) == ["here", "there"], "final snapshots are left")
