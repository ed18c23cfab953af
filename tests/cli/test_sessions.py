"""Sessions in tests/cases/cli: every command with its output for people."""

from __future__ import annotations

import getpass
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.cli import read_commands
from reconciler.model.key import Key
from reconciler.model.record import Failure
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from tests.cli.test_convert import CONFIG, EXPORTED
from tests.support.cases import CASES
from tests.support.command_sandbox import DB, SETTINGS, SHOP, CommandSandbox, golden, here, workload
from tests.support.sandbox import DaemonSandbox, eventually
from tests.support.sops import fresh

WEB = "workload/shop/web"
VARYING = (
    (r"20\d\d-\d\d-\d\dT[\d:.]+Z", "<time>"),
    (r" +\d+\.\d s\b", " <seconds> s"),
    (r'"seconds": [\d.e-]+', '"seconds": <seconds>'),
    (r"\d+\.\d ([MG])B", r"<size> \1B"),
    (r"\d+ (s|min) ago", "<while> ago"),
    (r"for \d+ (s|min):", "for <while>:"),
    (r"(?m)^((?:\w+/)+\S+ +[A-Z]\w+ +\S+ +\d+ +)\d+[sm]\b", r"\g<1><age>"),
    (r"git version \S+", "git version <version>"),
    (r"pid \d+ on \S+,", "pid <number> on <host>,"),
    (r"-[a-z0-9]{13}\.", "-<alias>."),
    (r"Alias( +)[a-z0-9]{13}", r"Alias\1<alias>"),
    (r"(ok|warning|problem) +(clock|disk): .*\n(         .*\n)?", ""),
    (r"\d+ ok, \d+ warnings?", "<some> ok, <some> warnings"),
    (r"age1[a-z0-9]+…?", "<recipient>"),
)
"""Patterns of text that varies from run to run, and what replaces it."""


def without_variation(path: Path, text: str) -> str:
    """``text`` without what differs from run to run."""
    text = text.replace(str(path), "<here>").replace(f"belongs to {getpass.getuser()}", "belongs to <user>")
    text = text.replace(f"by {getpass.getuser()}", "by <user>")
    for pattern, words in VARYING:
        text = re.sub(pattern, words, text)
    return text


def session(sandbox: CommandSandbox, *lines: Sequence[str]) -> str:
    """Each command with its output: standard output first, then standard error."""
    results = ((words, sandbox.run(*words, SUDO_USER="ada")) for words in lines)
    texts = (f"$ reconciler {' '.join(words)}\n{result.out}{result.err}" for words, result in results)
    return "".join(without_variation(sandbox.path, text) for text in texts)


def test_from_nothing_to_a_shop_that_is_applied(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path, {**SHOP, "shop/web.yaml": f"{workload('web')}---\n{workload('job')}"})
    golden(
        "begin.txt",
        session(
            sandbox,
            ["init", "example"],
            ["validate"],
            ["validate", "example"],
            ["rules", "--severity", "notice"],
            ["get"],
            ["events"],
            ["history"],
            ["drift"],
            ["plan"],
            ["apply"],
            ["get"],
            ["get", "identity", "-o", "yaml"],
            ["describe", "volumeset/shop/data"],
            ["describe", "gvc/shop"],
            ["events", WEB],
            ["history"],
            ["drift"],
            ["diff", "main", "main"],
            ["apply"],
        ),
    )


def test_a_session_with_refusals_holds_and_approvals(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"shop/web.yaml": workload("web").replace("type: standard", "type: odd")}, message="Break it")
    refused = session(sandbox, ["plan"], ["diff", "main~1", "main"], ["apply"], ["events", "--last", "1"], ["doctor"])
    sandbox.commit(
        {"shop/web.yaml": workload("web"), "shop/db.yaml": DB.partition("---\n")[2].partition("      vol")[0]}
    )
    transcript = session(sandbox, ["plan"], ["apply"], ["get", "volumeset"], ["describe", "volumeset/shop/data"])
    digest = sandbox.plan()["hold_digest"]
    golden(
        "blocked.txt",
        refused
        + transcript
        + session(
            sandbox,
            ["approve", "deadbeef"],
            ["approve", digest],
            ["plan"],
            ["apply"],
            ["events", "volumeset/shop/data"],
            ["approve", digest],
            ["history"],
        ),
    )


def test_a_session_about_who_wrote_what_and_a_refusal(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    files = {"shop/web.yaml": workload("web"), "shop/db.yaml": DB.partition("---\n")[2].partition("      vol")[0]}
    sandbox.commit(files, message="Drop the data")
    digest = sandbox.plan()["hold_digest"]
    waiting = session(
        sandbox,
        ["versions", "workload/shop/db"],
        ["blame", "workload/shop/db"],
        ["refuse", "deadbeef"],
        ["refuse", digest, "--reason", "the data is\nstill needed"],
        ["plan"],
        ["apply"],
        ["versions", "workload/shop/db"],
        ["blame", "workload/shop/db"],
        ["blame", "workload/shop/db", "--commits", "1"],
        ["versions", "volumeset/shop/data"],
        ["versions", "volumeset/shop/nothing"],
        ["diff", "main~1", "main", "--key", "workload/shop/db"],
        ["diff", "main~1", "--key", "workload/shop/db"],
        ["diff", "main~1", "main", "--key", "db"],
        ["get", "volumeset"],
        ["status"],
        ["doctor"],
        ["approve", digest],
        ["apply"],
        ["events", "source/main"],
    )
    golden("refusal.txt", waiting)


def test_a_session_of_commands_that_are_carried_out_or_refused(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    unknown = session(sandbox, ["suspend", "main"], ["retry", WEB], ["backup", "copy.sqlite"])
    sandbox.applied()
    records = Records.open(sandbox.state / FILE)
    records.failures.put(Failure(Key.parse(WEB), "here", Reason.PROGRAM_NOT_FOUND, "no such image", 3, 1.8e9, 1.9e9))
    records.close()
    golden(
        "operators.txt",
        unknown
        + session(
            sandbox,
            ["get", "workload"],
            ["retry", WEB],
            ["retry", "workload/shop/api"],
            ["sync"],
            ["suspend", "nobody"],
            ["suspend", WEB, "--until", "2h", "--reason", "a look inside"],
            ["get", "workload"],
            ["suspend", "identity/shop/api"],
            ["describe", "identity/shop/api"],
            ["adopt", WEB],
            ["resume", "main"],
            ["rollback", "main", "nowhere"],
            ["rollback", "main", "main", "--reason", "broken release"],
            ["get", "workload"],
        ),
    )


def test_what_workloads_used(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    text = session(sandbox, ["usage", WEB])
    sandbox.applied()
    golden("usage.txt", text + session(sandbox, ["usage", WEB], ["usage", "wl", "wed"], ["help", "usage"]))


def test_the_host_and_its_records(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    before = session(sandbox, ["doctor"])
    sandbox.applied()
    sandbox.settings.write_text(f"{SETTINGS}readers: nobody-there\nsecrets: {{identity: age.txt}}\n")
    golden(
        "host.txt",
        before
        + session(
            sandbox,
            ["doctor"],
            ["backup", "copy.sqlite"],
            ["restore", "copy.sqlite"],
            ["restore", "copy.sqlite", "--force"],
            ["restore", "settings.yaml", "--force"],
        ),
    )


def test_secrets_and_what_is_brought_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = CommandSandbox(tmp_path)
    identity, recipient = fresh()
    (tmp_path / "identity.txt").write_text(identity)
    (tmp_path / "db.yaml").write_text("kind: secret\nname: db\ntype: dictionary\ndata: {password: correct-horse}\n")
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "export.yaml").write_text(EXPORTED.replace("../../db", "db"))
    (tmp_path / "editor.py").write_text(
        "import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write(t.replace('horse', 'battery'))"
    )
    monkeypatch.setenv("SOPS_AGE_KEY_FILE", str(tmp_path / "identity.txt"))
    monkeypatch.setenv("SOPS_EDITOR", f"{sys.executable} {tmp_path / 'editor.py'}")
    text = session(
        sandbox,
        ["secret", "encrypt", "db.yaml", "--in-place"],
        ["secret", "encrypt", "db.yaml", "--recipient", recipient, "--in-place"],
        ["secret", "encrypt", "db.yaml", "--recipient", recipient, "--in-place"],
        ["secret", "edit", "db.yaml"],
        ["secret", "rotate", "db.yaml", "--add", fresh()[1]],
        ["secret", "rotate", "db.yaml", "--remove", recipient],
        ["secret", "edit", "db.yaml"],
        ["convert", "config.yaml"],
        ["import", "export.yaml"],
    )
    assert "correct-" not in text
    golden("brought.txt", text)


def test_a_daemon_and_who_asks_it(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, log={"format": "json", "level": "info"})
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    lines = (["run"], ["restore", "copy.sqlite"], ["sync"], ["apply"])
    with sandbox.daemon() as daemon:
        eventually(lambda: sandbox.applied(sandbox.repo.git("rev-parse", "main")), "the first commit is applied")
        eventually(lambda: daemon.logged("reconciled"), "and logged")
        text = ""
        for words in lines:
            result = sandbox.run(*words)
            text += f"$ reconciler {' '.join(words)}\n{without_variation(tmp_path, result.stdout + result.stderr)}"
        daemon.signal(signal.SIGTERM)
        daemon.process.wait(60)
    entries = [
        mapping
        for mapping in daemon.log()
        if mapping["event"] in ("started", "stopped") or mapping.get("reason") == "start"
    ]
    log = "".join(
        f"{' '.join(f'{name}={value}' for name, value in entry.items() if name != 'seconds')}\n" for entry in entries
    )
    golden("daemon.txt", f"{text}the daemon's log\n{without_variation(tmp_path, log)}")


def test_the_status_of_all_sources_and_of_one_resource(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    text = session(sandbox, ["status"], ["status", "wl", "web"], ["help", "status"], ["help", "up"], ["help", "down"])
    sandbox.commit({"shop/db.yaml": None}, message="Remove the data")
    text += session(sandbox, ["apply"], ["status"])
    helps = [["help", name] for name in ("completion", "version", "help", "install", "uninstall")]
    golden("status.txt", text + session(sandbox, *helps, ["settings", "validate"]))


def test_messages_and_mutes(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    lists = (
        ["notifications"],
        ["notify", "list"],
        ["notify", "show", "1"],
        ["notify", "test"],
        ["notify", "test", "ops"],
    )
    mutes = (["mute"], ["mute", "gvc/shop"], ["mute", "gvc/shop", "--end"], ["mute", "gvc/nope", "--until", "2h"])
    golden("notify.txt", session(sandbox, ["help", "notify"], *lists, ["help", "mute"], *mutes))


def test_no_command_is_without_a_golden_case() -> None:
    files = list((CASES / "cli").glob("*.txt"))
    sessions = (re.findall(r"^\$ reconciler (?:help )?(\w+)", file.read_text(), re.MULTILINE) for file in files)
    assert set(read_commands()) - set().union(*sessions) - {file.stem for file in files} == set()


def test_wrong_use_is_reported_in_one_manner(tmp_path: Path) -> None:
    lines = (["gett"], ["get", "--nonsense"], ["describe"], ["describe", "a/b/c/d"], ["get", "worklod"], ["plan", "x"])
    results = ((words, here(*words, cwd=tmp_path)) for words in lines)
    golden("wrong-use.txt", "".join(f"$ reconciler {' '.join(words)}\n{each.out}{each.err}" for words, each in results))
