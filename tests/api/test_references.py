"""What a caller may refer to and grant over HTTP: the straight way and each detour get the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.api.conftest import FILES
from tests.support.api import ORG, ApiSandbox, api_sandbox

SHOP = f"{ORG}/gvc/shop"
WEB_IDENTITY = """kind: identity
name: web
---
kind: identity
name: mail
"""
CRON = """kind: workload
name: {name}
spec:
  type: cron{identity}
  containers: [{{name: main, image: "//image/job:1"}}]
  job: {{schedule: "0 3 * * *"}}
"""
VOLUMES = """kind: volumeset
name: {name}
spec: {{initialCapacity: 10, performanceClass: general-purpose-ssd}}
"""
SECRETS = """kind: secret
name: pull
type: docker
data: '{"auths": {"registry.example.com": {"username": "a", "password": "not-real"}}}'
---
kind: secret
name: aws
type: aws
data: {accessKey: AKIAIOSFODNN7EXAMPLE, secretKey: not-a-real-key}
---
kind: cloudaccount
name: aws1
provider: aws
data: {roleArn: 'arn:aws:iam::123456789012:role/platform'}
"""


def account(name: str, kind: str, *permissions: str, target: str = "target: all") -> str:
    """A service account with permissions on a kind."""
    bound = f"{{permissions: [{', '.join(permissions)}], principalLinks: [//serviceaccount/{name}]}}"
    return (
        f"---\nkind: serviceaccount\nname: {name}\n---\nkind: policy\nname: {name}-{kind}\ntargetKind: {kind}\n"
        f"{target}\nbindings: [{bound}]\n"
    )


ACCOUNTS = (
    account("secrets", "secret", "create", "edit")
    + account("keeper", "secret", "manage")
    + account("runner", "workload", "exec.runCronWorkload")
    + account("author", "workload", "create", "edit")
    + account("identities", "identity", "create")
    + account("gvcs", "gvc", "edit")
    + account("policies", "policy", "create")
    + account("groups", "group", "edit")
    + """---
kind: policy
name: web-reveals
targetKind: secret
targetLinks: [//secret/db]
bindings: [{permissions: [reveal], principalLinks: [//gvc/shop/identity/web]}]
---
kind: policy
name: ops-reveal
targetKind: secret
target: all
bindings: [{permissions: [reveal], principalLinks: [//group/ops]}]
---
kind: group
name: ops
"""
)


COPIERS = account("copier", "volumeset", "view", "exec", target="targetLinks: [//gvc/shop/volumeset/copy]") + account(
    "owner", "volumeset", "edit", "exec.createVolumeSnapshot"
)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """Secrets, an identity that may reveal one of them, and accounts with one permission each."""
    files = {
        **FILES,
        "shop/identities.yaml": WEB_IDENTITY,
        "shop/report.yaml": CRON.format(name="report", identity=""),
        "shop/own.yaml": CRON.format(name="own", identity="\n  identityLink: //identity/web"),
        "secrets.yaml": SECRETS,
        "shop/volumes.yaml": "---\n".join(VOLUMES.format(name=name) for name in ("data", "copy")),
        "accounts.yaml": (ACCOUNTS + COPIERS).removeprefix("---\n"),
    }
    with api_sandbox(tmp_path_factory.mktemp("references"), files) as made:
        yield made


def ask(sandbox: ApiSandbox, name: str, method: str, path: str, body: Any) -> httpx2.Response:
    """The response to a request of a service account; changes are dry runs."""
    key = sandbox.api.store.add_key(name, "", "test", None)[1]
    query = "" if path.endswith("-command") else "?dryRun=true"
    return sandbox.client(None).request(method, f"{path}{query}", json=body, headers={"Authorization": key})


def run(name: str, **override: Any) -> tuple[str, dict[str, Any]]:
    """A command that runs a cron workload with an override."""
    spec = {"location": "here", "containerOverrides": [{"name": "main", **override}]}
    return f"{SHOP}/workload/{name}/-command", {"type": "runCronWorkload", "spec": spec}


def variable(value: str, name: str = "S") -> dict[str, Any]:
    return {"env": [{"name": name, "value": value}]}


@pytest.mark.parametrize("secret", ["aws.secretKey", "aws", "db.password", "missing", "missing.key"])
def test_a_run_reads_no_secret_that_neither_its_identity_nor_its_caller_may(sandbox: ApiSandbox, secret: str) -> None:
    answers = [
        ask(sandbox, "runner", "POST", *run(name, **variable(f"platform://secret/{secret}")))
        for name in ("report", "own")
    ]
    readable = secret == "db.password"
    assert [each.status_code for each in answers] == [403, 201 if readable else 403]
    name = secret.partition(".")[0]
    message = f"serviceaccount/runner has no permission `use` on secret/{name}, to which workload/shop/report refers"
    assert answers[0].json()["message"].startswith(message)


@pytest.mark.parametrize("source", ["//gvc/shop/volumeset/data", "volumeset/shop/data", "//gvc/shop/volumeset/none"])
def test_a_clone_reads_no_volume_set_that_its_caller_may_not_edit(sandbox: ApiSandbox, source: str) -> None:
    spec = {"location": "here", "volumeIndex": 0, "snapshotName": "one", "source": source}
    body = {"type": "cloneVolumeSnapshot", "spec": spec}
    path = f"{SHOP}/volumeset/copy/-command"
    refused, response = (ask(sandbox, name, "POST", path, body) for name in ("copier", "owner"))
    key = f"volumeset/shop/{source.rpartition('/')[2]}"
    message = f"serviceaccount/copier has no permission `edit` on {key}"
    assert (refused.status_code, refused.json()["message"]) == (403, message)
    assert response.status_code == 201
    wrong = ask(sandbox, "owner", "POST", path, {**body, "spec": {**spec, "source": "data"}})
    assert wrong.status_code == 400
    assert "it is a volume set like //gvc/shop/volumeset/data" in wrong.text


def test_the_rules_of_manifests_hold_for_a_run_by_any_caller(sandbox: ApiSandbox) -> None:
    for name, override, words in (
        ("report", variable("platform://secret/db.password"), "has no identity to read it"),
        ("own", variable("platform://secret/aws"), "identity/shop/web may not reveal secret/aws"),
        ("own", variable("platform://secret/missing"), "secret/missing, which does not exist"),
        ("own", variable("platform://secret/db.passwort"), "secret/db has no key `passwort`"),
        ("report", variable("x" * 5_000), "4096"),
        ("report", variable("x", name="a b"), "a b"),
        ("report", variable("x", name="PLATFORM_ORG"), "PLATFORM_ORG"),
        ("report", variable("$(A)$(B)", name="A"), "A"),
        ("report", {"args": ["x" * 2_000_000]}, ""),
        ("report", {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "A"),
    ):
        answer = sandbox.client().request("POST", run(name)[0], json=run(name, **override)[1])
        assert answer.status_code in (400, 413), (override, answer.text[:300])
        assert words in answer.json()["message"], answer.text[:500]


def test_a_run_with_what_a_manifest_may_have_is_accepted(sandbox: ApiSandbox) -> None:
    for override in (
        variable("platform://secret/db.password"),
        {"command": "sh", "args": ["-c", "true"]},
        variable("1"),
    ):
        path, body = run("own", **override)
        assert sandbox.client().request("POST", path, json=body).status_code == 201
    twice = {"location": "here", "containerOverrides": [{"name": "main"}, {"name": "main"}]}
    path = f"{SHOP}/workload/own/-command"
    answer = sandbox.client().request("POST", path, json={"type": "runCronWorkload", "spec": twice})
    assert (answer.status_code, "one override" in answer.json()["message"]) == (400, True)


def test_identities_accounts_and_pull_secrets_are_used_by_those_who_may(sandbox: ApiSandbox) -> None:
    new = {
        "name": "thief",
        "spec": {
            "type": "standard",
            "identityLink": "//gvc/shop/identity/web",
            "containers": [
                {
                    "name": "main",
                    "image": "//image/a:1",
                    "command": "sh",
                    "args": ["-c", "echo $PW"],
                    "env": [{"name": "PW", "value": "platform://secret/db.password"}],
                }
            ],
        },
    }
    role = {"name": "cloud", "aws": {"cloudAccountLink": "//cloudaccount/aws1", "roleName": "admin"}}
    pull = {"spec": {"pullSecretLinks": ["//secret/pull"]}}
    moved = {"spec": {"staticPlacement": {"locationLinks": ["//location/here", "//location/there"]}}}
    for name, method, path, body, needed in (
        ("author", "POST", f"{SHOP}/workload", new, "`use` on identity/shop/web"),
        ("author", "PATCH", f"{SHOP}/workload/api", {"spec": {"identityLink": "//identity/web"}}, "`use` on identity/"),
        ("identities", "POST", f"{SHOP}/identity", role, "`edit` on cloudaccount/aws1"),
        ("gvcs", "PATCH", SHOP, pull, "`use` on secret/pull"),
    ):
        answer = ask(sandbox, name, method, path, body)
        assert answer.status_code == 403, (name, answer.text)
        assert needed in answer.json()["message"]
    assert ask(sandbox, "gvcs", "PATCH", SHOP, moved).status_code == 200  # both were there before
    there = moved["spec"]["staticPlacement"]["locationLinks"][:1]
    assert (
        ask(sandbox, "gvcs", "PATCH", SHOP, {"spec": {"staticPlacement": {"locationLinks": there}}}).status_code == 200
    )


def test_no_caller_gets_more_permissions_by_a_change_of_their_own(sandbox: ApiSandbox) -> None:
    bound = [{"permissions": ["manage"], "principalLinks": ["//serviceaccount/policies"]}]
    own = {"name": "mine", "targetKind": "secret", "target": "all", "bindings": bound}
    answer = ask(sandbox, "policies", "POST", f"{ORG}/policy", own)
    assert answer.status_code == 403
    joins = {"memberLinks": ["//serviceaccount/groups"]}
    answer = ask(sandbox, "groups", "PATCH", f"{ORG}/group/ops", joins)
    assert answer.status_code == 403
    assert ask(sandbox, "groups", "PATCH", f"{ORG}/group/ops", {"description": "On call"}).status_code == 200
    assert sandbox.client().request("POST", f"{ORG}/policy?dryRun=true", json=own).status_code == 200


def test_a_refusal_is_the_same_whether_its_target_exists(sandbox: ApiSandbox) -> None:
    answers = [
        ask(sandbox, "author", "PATCH", f"{SHOP}/workload/web", {"spec": {"identityLink": f"//identity/{name}"}})
        for name in ("mail", "none")
    ]
    mail, none = (each.json()["message"] for each in answers)
    assert [each.status_code for each in answers] == [403, 403]
    assert mail.replace("/mail", "/none") == none


def test_a_value_on_the_host_is_named_by_those_who_manage_all_secrets(sandbox: ApiSandbox) -> None:
    own = {"name": "own", "type": "dictionary", "data": {"a": {"file": "root-password"}}}
    text = {"name": "own", "type": "docker", "data": {"credential": "pull"}}
    plain = {"name": "own", "type": "dictionary", "data": {"file": "a text", "credential": "another"}}
    patches = ({"a": {"file": "x"}}, {"password": {"$replace/file": "x"}}, {"$replace/password": {"credential": "x"}})
    for method, path, body in (
        ("POST", f"{ORG}/secret", own),
        ("POST", f"{ORG}/secret", text),
        ("PUT", f"{ORG}/secret/db", {**own, "name": "db"}),
        *(("PATCH", f"{ORG}/secret/db", {"data": patch}) for patch in patches),
        ("PATCH", f"{ORG}/secret/db", {"$replace/data": {"a": {"file": "x"}}}),
        ("PATCH", f"{ORG}/secret/pull", {"data": {"file": "x"}}),
    ):
        answer = ask(sandbox, "secrets", method, path, body)
        assert (answer.status_code, "value from the host" in answer.text) == (403, True), (method, body, answer.text)
        assert ask(sandbox, "keeper", method, path, body).status_code in (200, 400, 409)
    assert ask(sandbox, "secrets", "POST", f"{ORG}/secret", plain).status_code == 200
