"""Values of secrets that change on the host while the daemon runs: taken up without a commit."""

from __future__ import annotations

from pathlib import Path

from tests.support.rule_cases import private
from tests.support.sandbox import GVC, Site, eventually

SECRET = "kind: secret\nname: db\ntype: dictionary\ndata: {password: {file: db}}\n"


def test_a_file_of_the_host_that_changes_is_taken_up_at_the_next_look(tmp_path: Path) -> None:
    file = private(tmp_path / "host" / "db", "correct-horse")
    site = Site(tmp_path, {"shop/gvc.yaml": GVC, "db.yaml": SECRET})
    site.configure(secrets={"directory": str(file.parent)}, drift={"interval": "200ms"})
    with site.daemon() as daemon:
        eventually(lambda: "secret/db" in site.recorded(), "the first commit is applied")
        before = site.recorded()["secret/db"].digest
        file.write_text("battery-staple")
        eventually(lambda: site.recorded()["secret/db"].digest != before, "the new value is applied")
        assert daemon.said("reconciled", reason="secret", outcome="applied")
        assert b"battery-staple" not in daemon.log_file.read_bytes()
        daemon.stop()
    file.write_text("correct-horse")
    with site.daemon():
        eventually(lambda: site.recorded()["secret/db"].digest == before, "what changed meanwhile is applied")
