"""Values of secrets that change on the host while the daemon runs: taken up without a commit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.host_sandbox import host_site, served
from tests.support.rule_cases import private
from tests.support.sandbox import GVC, Site, eventually

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
    site = Site(tmp_path, {"shop/gvc.yaml": GVC, "db.yaml": SECRET})
    site.configure(secrets={"directory": str(file.parent)}, drift={"interval": "200ms"})
    with site.daemon() as daemon:
        eventually(lambda: "secret/db" in site.recorded(), "the first commit is applied")
        before = site.recorded()["secret/db"].digest
        file.write_text("battery-staple")
        eventually(lambda: site.recorded()["secret/db"].digest != before, "the new value is applied")
        # The line follows the records.
        eventually(lambda: daemon.logged("reconciled", reason="secret", outcome="applied"), "it is logged")
        assert b"battery-staple" not in daemon.log_file.read_bytes()
        daemon.stop()
    file.write_text("correct-horse")
    with site.daemon():
        eventually(lambda: site.recorded()["secret/db"].digest == before, "what changed meanwhile is applied")


def test_containers_get_the_value_that_is_applied_and_no_other(tmp_path: Path) -> None:
    file = private(tmp_path / "host" / "db", "correct-horse")
    web = served(replicas=1, identityLink="//identity/web", env={"GREETING": "platform://secret/db.password"})
    settings = {"secrets": {"directory": str(file.parent)}, "drift": {"interval": "200ms"}}
    with host_site(tmp_path / "site", {"db.yaml": SECRET, "may.yaml": MAY, "shop/web.yaml": web}, **settings) as site:
        with site.daemon() as daemon:
            eventually(lambda: site.healthy() and site.greetings("web") == {"correct-horse"}, "the first value is used")
            file.write_text("battery-staple")
            eventually(lambda: site.greetings("web") == {"battery-staple"}, "the new value is used")
            daemon.stop()
        with site.daemon():
            eventually(site.healthy, "the next daemon takes the replica over")
            [pid] = site.programs()
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: site.programs().keys() - {pid}, "it is started again")
            eventually(lambda: site.greetings("web") == {"battery-staple"}, "with the same value")
