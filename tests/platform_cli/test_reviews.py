"""Changes that wait for a review or an approval: each command says so, and none claims more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.changes import commits
from reconciler.platform_cli.main import run_command_line
from reconciler.platform_cli.session import REVIEW_BRANCH
from tests.platform_cli.kit import harness
from tests.platform_cli.test_client import ScriptedServer, answer

GROUP = "kind: group\nname: ops\n"
NOTE = rf"nothing changes before a review of the branch ({REVIEW_BRANCH}[0-9a-f]{{16}}); merge it: git merge \1\n"


def test_the_branch_of_a_review_begins_as_the_daemon_names_it() -> None:
    assert REVIEW_BRANCH == commits.REVIEW_BRANCH


def test_a_change_for_a_review_is_a_branch_and_nothing_else(tmp_path: Path) -> None:
    with harness(
        tmp_path, {"groups.yaml": GROUP, "other.yaml": "kind: group\nname: other\n"}, api={"writes": "branch"}
    ) as shop:
        (shop.home / "new.yaml").write_text("kind: group\nname: new\n")
        (shop.home / "group.yaml").write_text(GROUP)
        newest = shop.sandbox.repo.git("rev-parse", "main")
        for words, code, out in (
            ("group tag ops --tag a=b", 0, "group ops changed\n"),
            ("group delete ops", 0, ""),
            ("apply -f new.yaml", 0, r"group new created\ncommit \w+ on {}, plan \w+\n"),
            ("delete -f group.yaml", 0, r"group ops deleted\ncommit \w+ on {}, plan \w+\n"),
            ("apply -f new.yaml --ready", 1, r"group new created\n.*\n"),
        ):
            done = shop.run(*words.split())
            noted = re.match(NOTE, done.stderr)
            assert noted, done
            assert (done.returncode, bool(re.fullmatch(out.format(noted[1]), done.stdout))) == (code, True), done
            assert noted[1] in shop.sandbox.repo.git("branch", "--list", f"{REVIEW_BRANCH}*")
        assert "error: what waits for a review does not become ready" in done.stderr
        assert shop.sandbox.repo.git("rev-parse", "main") == newest


@pytest.mark.parametrize(
    ("words", "hold", "keys", "note"),
    [
        (
            "gvc delete shop",
            "deletes-volumes",
            ["gvc/shop", "volumeset/shop/data", "volumeset/shop/data", "gvc/old"],
            "delete gvc/shop, delete volumeset/shop/data wait for an approval: platform approve d1\n",
        ),
        (
            "gvc delete shop",
            "prune-budget",
            [f"workload/shop/w{number}" for number in range(7)],
            "delete workload/shop/w0, delete workload/shop/w1, delete workload/shop/w2, delete workload/shop/w3, "
            "delete workload/shop/w4 and 2 more wait for an approval: platform approve d1\n",
        ),
        (
            "workload delete api --gvc shop",
            "suspended",
            ["workload/shop/api", "workload/shop/api-2", "gvc/shop"],
            "delete workload/shop/api waits until it is resumed: platform resume workload/shop/api\n",
        ),
        ("org tag acme --tag a=b", "prune-budget", ["gvc/shop", "org/other"], ""),
        ("gvc delete shop", "", ["gvc/shop"], ""),
    ],
)
def test_steps_that_wait_are_named_with_what_releases_them(
    words: str,
    hold: str,
    keys: list[str],
    note: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    steps = [{"action": "delete", "key": key, "hold": hold or None} for key in keys]
    plan = {"source": "main", "digest": "d0", "hold_digest": "d1", "steps": steps}
    server = ScriptedServer(answer(body={"name": "x", "change": {"branch": "main", "commit": "c", "plan": plan}}))
    run_command_line([*words.split(), "--org", "acme", "--endpoint", f"http://127.0.0.1:{server.server_port}"])
    assert capsys.readouterr().err == note


def test_the_link_of_the_forge_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    change = {"branch": f"{REVIEW_BRANCH}1", "review": "https://forge.example.com/new?b=1", "commit": "c"}
    server = ScriptedServer(answer(body={"name": "ops", "change": change}))
    words = f"group tag ops --tag a=b --org acme --endpoint http://127.0.0.1:{server.server_port}"
    assert run_command_line(words.split()) == 0
    assert capsys.readouterr().err.endswith("; open it: https://forge.example.com/new?b=1\n")
