"""Answers name only what their caller may view: findings of every rule, and the documents in a diff."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.visibility import sees_everything, visible_findings, visible_text
from reconciler.manifests.reference_check import RULES as BETWEEN
from reconciler.manifests.rules import generated_rules
from reconciler.manifests.rules.registry import Section
from reconciler.model.finding import Finding, Severity
from reconciler.model.key import Key, Kind
from tests.api.conftest import FILES
from tests.api.test_references import ACCOUNTS, SHOP, ask
from tests.support.api import api_sandbox
from tests.support.rule_cases import Case, case_files, found_in
from tests.support.sandbox import workload

WEB = Key(Kind.WORKLOAD, "shop", "web")


def rules_between_resources() -> set[str]:
    """The rules whose findings can name other resources."""
    return {rule.id for rule in BETWEEN} | {
        rule.id for rule, home in generated_rules().items() if home == Section.BETWEEN
    }


def findings_between_resources(folder: Path) -> Iterator[tuple[Path, Finding]]:
    rules = rules_between_resources()
    for path in case_files():
        if path.parent.name in rules and path.name.startswith("fails"):
            place = folder / path.parent.name / path.stem
            place.mkdir(parents=True)
            yield from ((path, each) for each in found_in(Case.load(path), place).findings if each.rule in rules)


def test_no_finding_of_a_rule_between_resources_names_what_its_reader_may_not_view(tmp_path: Path) -> None:
    seen: set[str] = set()
    for path, finding in findings_between_resources(tmp_path):
        seen.add(finding.rule)
        own = finding.key
        [shown] = visible_findings([finding], [finding.path], lambda key, own=own: str(key) == own)  # type: ignore[misc]
        text = f"{shown.message} {shown.suggestion}"
        foreign = {
            name
            for name in re.findall(r"[a-z]+/[-\w.@/:]+", f"{finding.message} {finding.suggestion}")
            if name.partition("/")[0] in [*Kind] and name.rstrip(".") != own and not name.endswith("/NAME")
        }
        assert not [name for name in foreign if name in text], (path, finding)
    assert seen == rules_between_resources()


def finding(message: str, suggestion: str = "", key: str = str(WEB), path: str = "shop/web.yaml") -> Finding:
    return Finding(path, 3, 5, "missing-reference", Severity.ERROR, message, suggestion, key)


@pytest.mark.parametrize(
    "message",
    [
        "workload/shop/web refers to secret/dbx, which does not exist; did you mean secret/db?",
        "add a policy with targetLinks: [//secret/db] that binds //gvc/shop/identity/web to `reveal`",
        "it is mounted by workload/shop/api, workload/shop/job and 3 more too",
        "set spec.loadBalancer.dedicated: true in gvc/shop, or close the firewall",
        "list /org/acme/gvc/shop/workload/api first",
        "`identity/shop/web` is hidden",
    ],
)
def test_a_finding_that_names_a_hidden_resource_has_the_words_of_its_rule(message: str) -> None:
    for whole in (finding(message), finding("Something", message)):
        [shown] = visible_findings([whole], ["shop/web.yaml"], lambda key: key == WEB)
        assert shown.message.startswith("A link leads to something that exists")
        assert (shown.suggestion, shown.path, shown.line) == ("", "shop/web.yaml", 3)
        assert visible_findings([whole], ["shop/web.yaml"], lambda _: True) == [whole]


def test_a_finding_about_a_hidden_resource_shows_neither_its_place_nor_its_words() -> None:
    others = [finding("a", key=f"workload/shop/{name}", path=f"{name}.yaml") for name in ("api", "job")]
    [shown] = visible_findings(others, ["shop/web.yaml"], lambda key: key == WEB)
    assert (shown.path, shown.line, shown.key, shown.suggestion) == ("", 0, "", "")
    assert shown.message == "a resource that you may not view would break the rule missing-reference"
    [unnamed] = visible_findings([finding("tabs", key="", path="x.yaml")], ["shop/web.yaml"], lambda key: key == WEB)
    assert unnamed.path == ""
    assert visible_findings([finding("tabs", key="")], ["shop/web.yaml"], lambda key: key == WEB)[0].path


def test_a_text_has_only_the_documents_that_its_reader_sees() -> None:
    text = (
        "# about web\nkind: workload\nname: web\n---\nkind: workload\nname: api # hidden\n---\nkind: group\nname: ops\n"
        "---\nkind: workload\nname: web\ngvc: other\n---\n- no manifest\n---\nkind: [\n"
    )
    whole = text.removesuffix("---\nkind: [\n")
    assert visible_text(whole, [WEB], lambda key: key == WEB) == "# about web\nkind: workload\nname: web\n"
    assert visible_text(whole.removesuffix("---\n- no manifest\n"), [WEB], lambda _: True) == whole.removesuffix(
        "---\n- no manifest\n"
    )
    commented = "kind: workload\nname: web\n\n  # about api\n---\nkind: workload\nname: api\n"
    assert visible_text(commented, [WEB], lambda key: key == WEB) == "kind: workload\nname: web\n"
    assert visible_text(text, [WEB], sees_everything) == text
    assert visible_text(text, [WEB], lambda _: True) == ""  # it cannot be read, so nobody knows what is in it
    assert visible_text("kind: workload\nname: web\n", [], lambda _: False) == ""
    listed = '[\n  {"kind": "workload", "name": "api"},\n  {"kind": "workload", "name": "web"}\n]\n'
    alone = '[\n  {"kind": "workload", "name": "web"}\n]\n'
    assert visible_text(listed, [WEB], lambda key: key == WEB) == alone
    assert visible_text(listed.replace("}\n]", "},\n]"), [WEB], lambda key: key == WEB) == ""


def test_answers_over_http_name_no_hidden_neighbour(tmp_path: Path) -> None:
    groups = "kind: group\nname: vis1\n---\nkind: group\nname: hid1\ndescription: HIDDEN-NEIGHBOUR\n"
    more = ACCOUNTS + (
        "---\nkind: serviceaccount\nname: one\n---\nkind: policy\nname: one\ntargetKind: group\n"
        "targetLinks: [//group/vis1]\nbindings: [{permissions: [edit], principalLinks: [//serviceaccount/one]}]\n"
        "---\nkind: policy\nname: gone\ntargetKind: identity\ntarget: all\n"
        "bindings: [{permissions: [delete], principalLinks: [//serviceaccount/one]}]\n"
    )
    files = {
        **FILES,
        "groups.yaml": groups,
        "accounts.yaml": more.removeprefix("---\n"),
        "shop/id.yaml": "kind: identity\nname: web\n---\nkind: identity\nname: mail\n",
        "shop/user.yaml": workload("hidden-user", more="") + "  identityLink: //identity/mail\n",
    }
    with api_sandbox(tmp_path, files) as sandbox:
        answer = ask(sandbox, "one", "PATCH", "/org/acme/group/vis1", {"description": "new"})
        assert answer.status_code == 200, answer.text
        diff = answer.json()["change"]["diff"]
        assert "+description: new" in diff
        assert "HIDDEN-NEIGHBOUR" not in answer.text
        assert "hid1" not in answer.text
        gone = ask(sandbox, "one", "DELETE", f"{SHOP}/identity/mail", None)
        assert gone.status_code == 400
        assert "a resource that you may not view would break the rule missing-reference" in gone.json()["message"]
        assert "hidden-user" not in gone.text
        assert "user.yaml" not in gone.text
        everything = sandbox.client().request("DELETE", f"{SHOP}/identity/mail?dryRun=true")
        assert "hidden-user" in everything.text
        env: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "//image/a:1", "env": []}]}}
        answers = []
        for name in ("dbx.password", "db.passwort", "zz"):
            env["spec"]["containers"][0]["env"] = [{"name": "A", "value": f"platform://secret/{name}"}]
            answers.append(ask(sandbox, "author", "PATCH", f"{SHOP}/workload/api", env))
        assert {each.status_code for each in answers} == {403}
        assert not [each for each in answers if "mean" in each.text]


def test_a_gvc_is_deleted_without_a_word_about_members_that_the_caller_may_not_view(tmp_path: Path) -> None:
    more = (
        "kind: serviceaccount\nname: one\n---\nkind: policy\nname: one\ntargetKind: gvc\ntarget: all\n"
        "bindings: [{permissions: [manage], principalLinks: [//serviceaccount/one]}]\n"
    )
    with api_sandbox(tmp_path, {**FILES, "one.yaml": more}) as sandbox:
        answer = ask(sandbox, "one", "DELETE", SHOP, None)
        assert (answer.status_code, "a member that you may not view" in answer.text) == (403, True)
        assert "workload/shop" not in answer.text
