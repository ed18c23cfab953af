"""Values of secrets that change on the host while the daemon runs: taken up without a commit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.host_sandbox import host_sandbox, served
from tests.support.rule_cases import private
from tests.support.sandbox import GVC, DaemonSandbox, eventually

SECRET = "kind: secret\nname: db\ntype: dictionary\ndata: {password: {file: db}}\n"

MAY = """kind: identity
name: web
gvc: shop
---
kind: policy
name: web-reveals-db
targetKind: secret
targetLinks: [//secret/db]
bindings: [{permissions: [reveal], principalLinks: [//gvc/shop/identity/web]}]
"""


def test_the_next_check_applies_a_changed_file_of_the_host(tmp_path: Path) -> None:
    file = private(tmp_path / "host" / "db", "correct-horse")
    sandbox = DaemonSandbox(tmp_path, {"shop/gvc.yaml": GVC, "db.yaml": SECRET})
    sandbox.configure(secrets={"directory": str(file.parent)}, drift={"interval": "200ms"})
    with sandbox.daemon() as daemon:
        eventually(lambda: "secret/db" in sandbox.recorded(), "the first commit is applied")
        before = sandbox.recorded()["secret/db"].digest
        file.write_text("battery-staple")
        eventually(lambda: sandbox.recorded()["secret/db"].digest != before, "the new value is applied")
        # The line follows the records.
        eventually(lambda: daemon.logged("reconciled", reason="secret", outcome="applied"), "it is logged")
        assert b"battery-staple" not in daemon.log_file.read_bytes()
        daemon.stop()
    file.write_text("correct-horse")
    with sandbox.daemon():
        eventually(lambda: sandbox.recorded()["secret/db"].digest == before, "what changed meanwhile is applied")


def test_containers_get_the_value_that_is_applied_and_no_other(tmp_path: Path) -> None:
    file = private(tmp_path / "host" / "db", "correct-horse")
    web = served(replicas=1, identityLink="//identity/web", env={"GREETING": "platform://secret/db.password"})
    settings = {"secrets": {"directory": str(file.parent)}, "drift": {"interval": "200ms"}}
    with host_sandbox(
        tmp_path / "site", {"db.yaml": SECRET, "may.yaml": MAY, "shop/web.yaml": web}, **settings
    ) as sandbox:
        with sandbox.daemon() as daemon:
            eventually(
                lambda: sandbox.healthy() and sandbox.greetings("web") == {"correct-horse"}, "the first value is used"
            )
            file.write_text("battery-staple")
            eventually(lambda: sandbox.greetings("web") == {"battery-staple"}, "the new value is used")
            daemon.stop()
        with sandbox.daemon():
            eventually(sandbox.healthy, "the next daemon takes the replica over")
            eventually(lambda: len(sandbox.programs()) == 1, "the replica with the former value has ended")
            [pid] = sandbox.programs()
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: sandbox.programs().keys() - {pid}, "it is started again")
            eventually(lambda: sandbox.greetings("web") == {"battery-staple"}, "with the same value")
