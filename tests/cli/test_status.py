"""`reconciler status`: is it live and well, and if not, why; the first command of every incident and script."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import yaml

from reconciler.model.key import Key
from reconciler.model.record import Failure
from reconciler.overviews.showing import is_summary_changing
from reconciler.queries.summary import summarize_status
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.conditions import HOST
from reconciler.settings import load_settings
from reconciler.status.conditions import make_condition
from reconciler.status.summary import Outlook, UnreadyResource
from tests.support.command_sandbox import SETTINGS, CommandSandbox, workload

BAD = "kind: workload\nname: bad\n"


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A sandbox whose shop is applied."""
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    return sandbox


def row(text: str, title: str) -> str:
    """What stands beside ``title`` in ``text``."""
    [line] = [line for line in text.splitlines() if line.startswith(f"  {title} ")]
    return line.removeprefix(f"  {title}").strip()


def test_all_is_well(sandbox: CommandSandbox) -> None:
    result = sandbox.run("status")
    assert (result.code, result.err) == (0, "")
    head = sandbox.repo.git("rev-parse", "main")[:12]
    assert result.out.startswith("source/main\n")
    assert row(result.out, "Live").startswith(head)
    assert result.out.endswith("8 resources, none not ready: all is well\n")
    documents = sandbox.run("status", "-o", "json").json, yaml.safe_load(sandbox.run("status", "-o", "yaml").out)
    for document in documents:
        assert (document["outlook"], document["exitCode"], document["unready"]) == ("well", 0, [])


def test_a_refused_commit_is_shown_with_its_reason(sandbox: CommandSandbox) -> None:
    good = sandbox.repo.git("rev-parse", "main")
    bad = sandbox.commit({"shop/bad.yaml": BAD}, message="Break it")
    assert sandbox.run("apply").code == 1
    result = sandbox.run("status")
    refused = rf"{bad[:12]} \(Break it, .*\) is refused since .*shop/bad\.yaml:\d+:\d+"
    assert re.match(refused, row(result.out, "Refusal"))
    assert row(result.out, "Repair") == "reconciler plan shows each error with its line, and what to do"
    assert "shop/bad.yaml" in sandbox.run("plan").out
    assert (result.code, result.out.endswith(": not all is well\n")) == (1, True)
    result = sandbox.run("status", bad[:8])
    assert (result.code, f"{bad[:12]} is refused" in result.out) == (1, True)
    assert sandbox.run("status", good).code == 0, "what runs is well"


def test_a_commit_that_no_run_has_read_is_in_progress(sandbox: CommandSandbox) -> None:
    newer = sandbox.commit({"shop/web.yaml": workload("web", "3")}, message="Go on")
    result = sandbox.run("status")
    assert (result.code, row(result.out, "Newest")[:12]) == (3, newer[:12])
    assert row(result.out, "Next") == "no daemon runs; `reconciler apply` reads it"
    assert sandbox.run("status", "--wait", "--timeout", "1h").code == 3, "nobody goes on, so it does not wait"
    for words in ([newer], [newer[:7]], ["HEAD"]):
        result = sandbox.run("status", *words, cwd=sandbox.path / "manifests")
        assert (result.code, f"{newer[:12]} is not applied yet" in result.out) == (3, True), words
    sandbox.applied()
    result = sandbox.run("status", newer)
    assert result.out.endswith(f"{newer[:12]} is applied; 8 resources, none not ready: all is well\n")


def test_a_commit_of_another_branch_waits_for_a_merge(sandbox: CommandSandbox) -> None:
    sandbox.repo.git("branch", "side")
    commit = sandbox.commit({"shop/web.yaml": workload("web", "4")}, branch="side")
    result = sandbox.run("status", commit)
    assert result.code == 3
    assert f"{commit[:12]} is in the repository, and not on main: merge or push it" in result.out


def test_what_waits_for_an_approval_has_its_command(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/db.yaml": None}, message="Remove the data")
    assert sandbox.run("apply").code == 1
    result = sandbox.run("status")
    assert result.code == 3
    digest = re.search(r"reconciler approve ([0-9a-f]{12})$", row(result.out, "Approval"))
    assert digest is not None
    assert re.search(r"Waits for a person\n(.*\n)*  volumeset/shop/data  ApprovalRequired", result.out)
    assert sandbox.run("approve", digest[1]).code == 0
    sandbox.applied()
    assert sandbox.run("status").code == 0


def test_a_suspension_and_a_rollback_wait_for_a_person(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", "main", "--reason", "a look")
    result = sandbox.run("status")
    assert (result.code, "a look; to end it: reconciler resume main" in row(result.out, "Suspension")) == (3, True)
    sandbox.run("resume", "main")
    sandbox.commit({"shop/web.yaml": workload("web", "5")})
    sandbox.applied()
    sandbox.run("rollback", "main", "main~1", "--reason", "broken")
    sandbox.run("apply")
    result = sandbox.run("status")
    assert (result.code, "broken; to end it: reconciler resume main" in row(result.out, "Rollback")) == (3, True)


def test_what_a_rollback_holds_is_waited_for_unless_an_approval_keeps_others(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", "main")
    settings, records = load_settings(sandbox.settings), Records.open(sandbox.state / FILE)
    summary = summarize_status(settings, records, "", 0.0, daemon_runs=True)
    records.close()

    def is_waited_for(approvals: list[str], *outlooks: Outlook) -> bool:
        unready = [UnreadyResource(Key.parse("workload/shop/api"), "main", outlook, "", "") for outlook in outlooks]
        sources = [msgspec.structs.replace(source, approvals=approvals) for source in summary.sources]
        return is_summary_changing(msgspec.structs.replace(summary, sources=sources, unready=unready))

    assert summary.outlook is Outlook.WAITING
    assert not is_waited_for([])
    assert is_waited_for([], Outlook.PROGRESSING)
    assert not is_waited_for(["7e20"], Outlook.PROGRESSING)
    assert not is_waited_for([], Outlook.PROGRESSING, Outlook.WAITING)


def test_a_resource_has_one_reason(sandbox: CommandSandbox) -> None:
    web = Key.parse("workload/shop/web")
    records = Records.open(sandbox.state / FILE)
    failure = Failure(web, "here", Reason.PROGRAM_NOT_FOUND, "no such program: wbe", 99, 1.8e9, 1.9e9, retry=False)
    records.failures.put(failure)
    records.close()
    result = sandbox.run("status")
    assert result.code == 1
    assert re.search(r"Not well\n  workload/shop/web  ProgramNotFound  at here: no such program: wbe\n", result.out)
    for words in (["workload/shop/web"], ["wl", "web"], ["web"]):
        result = sandbox.run("status", *words)
        assert (result.code, result.out.endswith("1 resource, 1 not ready: not all is well\n")) == (1, True), words
    assert sandbox.run("status", "volumeset/shop/data").code == 0


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("wbe", 1, "there is no resource or source 'wbe'; did you mean web?"),
        ("source/mian", 1, "there is no source/mian; the settings have main"),
        ("a/b/c/d", 2, "names no resource"),
        ("HEAD~99", 2, "is no commit of the repository here"),
        ("0123456789abcdef", 1, "there is no resource or source '0123456789abcdef'"),
    ],
)
def test_what_is_not_there_is_an_error(sandbox: CommandSandbox, target: str, code: int, message: str) -> None:
    result = sandbox.run("status", target, cwd=sandbox.path / "manifests")
    assert (result.code, message in result.err) == (code, True), result


def test_a_repository_that_cannot_be_read_is_reported(sandbox: CommandSandbox) -> None:
    (sandbox.path / "manifests").rename(sandbox.path / "away")
    result = sandbox.run("status")
    assert result.code == 1
    assert "manifests" in row(result.out, "Unreadable")
    applied = sandbox.run("apply")
    assert applied.code == 1
    assert (applied.out + applied.err).count("no Git repository can be read") == 1, "said once"
    shown = sandbox.run("status").out
    assert shown.count("no Git repository can be read") == 1, shown
    assert "manifests" in row(shown, "Trouble")


def test_a_remote_that_does_not_answer_is_reported_once_by_its_cause(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path, settings=SETTINGS.replace("./manifests", "ssh://git@127.0.0.1:1/x.git"))
    assert sandbox.run("apply").code == 1
    shown = sandbox.run("status").out
    assert "ssh" in row(shown, "Trouble")
    assert "Unreadable" not in shown, "the copy here is empty, which is not the cause"
    assert sandbox.run("doctor").out.count("127.0.0.1:1/x.git: ssh") == 1


def test_a_certificate_of_the_api_that_expires_soon_is_shown_and_fails_no_deployment(sandbox: CommandSandbox) -> None:
    kind, reason = ConditionType.CERTIFICATE_EXPIRING, Reason.CERTIFICATE_EXPIRING
    with closing(Records.open(sandbox.state / FILE)) as records:
        records.conditions.set(HOST, make_condition(kind, True, reason, "it expires at 3"))
    result = sandbox.run("status")
    assert (result.code, "CertificateExpiring  it expires at 3" in result.out) == (0, True)
