"""The page on the installation: how people push to the repository of the daemon's user."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from reconciler.status.branch.branch import StatusBranch
from tests.project.tree import ROOT
from tests.support.git import GitRepo
from tests.support.programs import OWNER, give_away, only_root, open_way


@only_root("only root can give a repository to another user")
def test_what_people_push_belongs_to_the_user_of_the_daemon(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    block = re.search(r"```sh skip push\n(.*?)```", page, re.DOTALL)
    assert block is not None
    open_way(tmp_path)
    repo = GitRepo.create(tmp_path / "manifests.git", {"a.yaml": "kind: gvc\n"})
    give_away(repo.path)
    script = block[1].replace("/srv/git/manifests.git", str(repo.path)).replace("-u reconciler", f"-u '#{OWNER}'")
    script = script.replace("runuser -u '#", "setpriv --clear-groups --reuid ").replace(f"{OWNER}' --", f"{OWNER} --")
    typed = f"""set -e
{script}
cd ~/manifests
echo 'kind: gvc' > b.yaml
git add b.yaml
git -c user.name=Ada -c user.email=ada@example.com commit --quiet --message More
git push --quiet
git pull --quiet
"""
    environ = {**os.environ, "HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    (tmp_path / "home").mkdir()
    done = subprocess.run(["sh", "-c", typed], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.stat().st_uid for path in repo.path.rglob("*")} == {OWNER}
    StatusBranch(repo.path, "reconciler/status").commit({"a.yaml": b"1\n"}, "Status", 1)
    assert {path.stat().st_uid for path in repo.path.rglob("*")} == {OWNER}
