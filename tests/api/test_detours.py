"""What the straight way refuses, no detour permits: other spellings, several changes, and fields beside a link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.conftest import FILES
from tests.api.test_references import ACCOUNTS, CRON, SECRETS, SHOP, WEB_IDENTITY, account, ask, run, variable
from tests.support.api import ORG, ApiSandbox, api_sandbox
from tests.support.sandbox import GVC, workload

PLAIN = {"name": "main", "image": "//image/a:1"}
GRANTED = {"permissions": ["reveal"], "principalLinks": ["//serviceaccount/granter"]}
LONG = 60 * [{"value": "é" * 4_000}]
"""Values that are within the limits of a manifest in UTF-8, and beyond them as JSON in ASCII."""
MORE = (
    account("granter", "policy", "create", "edit")
    + account("granter", "serviceaccount", "view")
    + account("granter", "secret", "use")
    + account(
        "makers",
        "workload",
        "create",
        target='targetQuery: {kind: workload, spec: {terms: [{property: spec.type, op: "!=", value: serverless}]}}',
    )
    + account("runs", "workload", "exec.runCronWorkload")
    + account("runs", "secret", "use")
    + account("applies", "workload", "create")
    + account("applies", "identity", "create", "edit")
    + account("tagged", "identity", "create")
    + account(
        "tagged",
        "identity",
        "edit",
        target='targetQuery: {kind: identity, spec: {terms: [{tag: mine, value: "yes"}]}}',
    ).replace("name: tagged-identity", "name: tagged-edit")
    + account("editors", "user", "edit")
    + account("actors", "user", "edit", "impersonate")
    + account("idents", "identity", "edit")
    + account("orgs", "org", "edit")
    + "".join(account(f"tags-{kind}", kind, "edit") for kind in ("secret", "group", "policy", "workload"))
    + "".join(
        account(
            f"tags-{kind}",
            kind,
            "manage",
            target=f'targetQuery: {{kind: {kind}, spec: {{terms: [{{tag: grab, value: "yes"}}]}}}}',
        ).replace(f"name: tags-{kind}-{kind}", f"name: grab-{kind}")
        for kind in ("secret", "group", "policy", "workload")
    )
    + """---
kind: policy
name: harmless
targetKind: secret
targetLinks: []
bindings: [{permissions: [view], principalLinks: [//serviceaccount/ci]}]
---
kind: agent
name: site
---
kind: secret
name: keys
type: aws
data: {accessKey: AKIAIOSFODNN7EXAMPLE, secretKey: not-a-real-key}
---
kind: org
name: acme
spec: {logging: {s3: {bucket: logs, region: us-east-1, prefix: /, credentials: //secret/keys}}}
"""
)
CLOUDS = """---
kind: identity
name: cloudy
aws: {cloudAccountLink: //cloudaccount/aws1, roleName: reader}
networkResources: [{name: db, agentLink: //agent/site, IPs: [10.0.0.1], ports: [5432]}]
"""


def accounts() -> str:
    """Every account once, whatever the number of its policies."""
    documents = dict.fromkeys((ACCOUNTS + MORE).removeprefix("---\n").split("---\n"))
    return "---\n".join(documents)


def files() -> dict[str, Any]:
    return {
        **FILES,
        "shop/identities.yaml": WEB_IDENTITY + CLOUDS,
        "shop/own.yaml": CRON.format(name="own", identity="\n  identityLink: //identity/web"),
        "secrets.yaml": SECRETS,
        "accounts.yaml": accounts(),
    }


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox for dry runs."""
    with api_sandbox(tmp_path_factory.mktemp("detours"), files()) as made:
        yield made


def write(sandbox: ApiSandbox, name: str, method: str, path: str, body: Any) -> httpx2.Response:
    """The response to a change by a service account, which is made."""
    key = sandbox.api.store.add_key(name, "", "test", None)[1]
    # "*": whatever was there before.
    return sandbox.client(None).request(method, path, json=body, headers={"Authorization": key, "If-Match": "*"})


def thief(*variables: dict[str, Any]) -> dict[str, Any]:
    """A workload that acts as an identity of others."""
    container = {
        "name": "main",
        "image": "//image/a:1",
        "env": [{"name": "PW", "value": "platform://secret/db.password"}],
    }
    container["env"] += [{"name": f"V{number}", **each} for number, each in enumerate(variables)]
    return {"name": "thief", "spec": {"type": "standard", "identityLink": "//identity/web", "containers": [container]}}


@pytest.mark.parametrize("more", [[], [{"value": "\U0001f600"}], [{"value": "a\u2028b"}], LONG])
def test_a_link_needs_a_permission_whatever_is_beside_it(sandbox: ApiSandbox, more: list[dict[str, Any]]) -> None:
    answer = ask(sandbox, "author", "POST", f"{SHOP}/workload", thief(*more))
    assert (answer.status_code, "`use` on identity/shop/web" in answer.text) == (403, True), answer.text[:300]


def test_a_patch_of_a_manifest_that_is_too_large_to_read_is_refused(tmp_path: Path) -> None:
    text = "".join(f"      - {{name: V{number}, value: '{chr(0x1F600) * 3_000}'}}\n" for number in range(85))
    big = (
        "kind: workload\nname: big\nspec:\n  type: standard\n  containers:\n    - name: main\n"
        f"      image: //image/a:1\n      env:\n{text}"
    )
    with api_sandbox(tmp_path, {**files(), "shop/big.yaml": big}) as sandbox:
        answer = write(sandbox, "author", "PATCH", f"{SHOP}/workload/big", {"spec": {"identityLink": "//identity/web"}})
        assert (answer.status_code, "`use` on identity/shop/web" in answer.text) == (403, True), answer.text[:300]


def test_two_changes_grant_no_more_together_than_one(tmp_path: Path) -> None:
    parts: list[dict[str, Any]] = [{"bindings": [GRANTED]}, {"targetLinks": ["//secret/aws"]}]
    with api_sandbox(tmp_path, files()) as sandbox:
        answers = [write(sandbox, "granter", "PATCH", f"{ORG}/policy/harmless", part) for part in parts]
        assert [each.status_code for each in answers] == [200, 403], answers[1].text
        assert "`reveal` on secret/aws" in answers[1].text
        assert sandbox.run("apply").returncode == 0
        assert write(sandbox, "granter", "GET", f"{ORG}/secret/aws/-reveal", None).status_code == 403


def test_a_permission_that_a_newer_commit_takes_away_is_a_new_one(tmp_path: Path) -> None:
    link = {"spec": {"identityLink": "//identity/web"}}
    with api_sandbox(tmp_path, files()) as sandbox:
        web = f"{SHOP}/workload/api"
        assert sandbox.client().request("PATCH", web, json=link).status_code == 200
        assert sandbox.run("apply").returncode == 0
        taken = {"spec": {"identityLink": None}}
        assert sandbox.client().request("PATCH", web, json=taken).status_code == 200
        answer = write(sandbox, "author", "PATCH", web, link | {"description": "new"})
        assert (answer.status_code, "`use` on identity/shop/web" in answer.text) == (403, True)


def test_fields_beside_a_link_are_part_of_it(sandbox: ApiSandbox) -> None:
    cloudy = f"{SHOP}/identity/cloudy"
    network = {"name": "db", "agentLink": "//agent/site", "IPs": ["10.0.0.1"], "ports": [5432]}
    for body, needed in (
        ({"aws": {"roleName": "admin"}}, "`edit` on cloudaccount/aws1"),
        ({"aws": {"roleName": None, "policyRefs": ["aws::AdministratorAccess"]}}, "`edit` on cloudaccount/aws1"),
        ({"networkResources": [network | {"IPs": ["10.0.0.2"]}]}, "`use` on agent/site"),
        ({"networkResources": [network, network | {"name": "all", "ports": [22]}]}, "`use` on agent/site"),
    ):
        answer = ask(sandbox, "idents", "PATCH", cloudy, body)
        assert (answer.status_code, needed in answer.text) == (403, True), (body, answer.text)
        assert sandbox.client().request("PATCH", f"{cloudy}?dryRun=true", json=body).status_code == 200
    logs = {"spec": {"logging": {"s3": {"bucket": "of-others"}}}}
    answer = ask(sandbox, "orgs", "PATCH", ORG, logs)
    assert (answer.status_code, "`use` on secret/keys" in answer.text) == (403, True), answer.text
    for method, body in (
        ("PATCH", {"description": "new"}),
        ("PATCH", {"networkResources": [network]}),
        ("PATCH", {"networkResources": []}),
        ("PATCH", {"networkResources": [network], "aws": {"cloudAccountLink": "/org/acme/cloudaccount/aws1"}}),
        ("PUT", {"aws": {"roleName": "reader", "cloudAccountLink": "//cloudaccount/aws1"}}),
    ):
        answer = write(sandbox, "idents", method, f"{cloudy}?dryRun=true", body)
        assert answer.status_code == 200, (body, answer.text)


def test_a_text_becomes_no_place_on_the_host_by_another_type(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, files()) as sandbox:
        own = {"name": "own", "type": "dictionary", "data": {"file": "of-the-operator"}}
        assert write(sandbox, "secrets", "POST", f"{ORG}/secret", own).status_code == 201
        assert sandbox.run("apply").returncode == 0
        for method in ("PATCH", "PUT"):
            answer = ask(sandbox, "secrets", method, f"{ORG}/secret/own", {"type": "docker"})
            assert (answer.status_code, "value from the host" in answer.text) == (403, True), answer.text
        docker = {"type": "docker", "$replace/data": '{"auths": {}}'}
        assert sandbox.client().request("PATCH", f"{ORG}/secret/own", json=docker).status_code == 200
        assert sandbox.run("apply").returncode == 0
        # The applied type is the one that the second change asks for.
        again = {"type": "dictionary", "$replace/data": {"file": "of-the-operator"}}
        assert write(sandbox, "secrets", "PATCH", f"{ORG}/secret/own", again).status_code == 200
        answer = ask(sandbox, "secrets", "PATCH", f"{ORG}/secret/own", {"type": "docker"})
        assert (answer.status_code, "value from the host" in answer.text) == (403, True), answer.text


def test_a_query_permits_the_creation_of_what_it_selects_in_normal_form(sandbox: ApiSandbox) -> None:
    image = {"name": "main", "image": "//image/a:1", "port": 80}
    for spec, status in (
        ({"type": "standard", "containers": [image]}, 200),
        ({"type": "serverless", "containers": [image]}, 403),
        ({"containers": [image]}, 403),
    ):
        answer = ask(sandbox, "makers", "POST", f"{SHOP}/workload", {"name": "new", "spec": spec})
        assert answer.status_code == status, answer.text


def test_a_change_of_many_creates_nothing_that_a_newer_commit_has(tmp_path: Path) -> None:
    with api_sandbox(tmp_path, files()) as sandbox:
        strong = {"kind": "identity", "gvc": "shop", "name": "strong"}
        assert sandbox.client().request("POST", f"{SHOP}/identity", json=strong).status_code == 201
        linking = {"kind": "workload", "gvc": "shop"} | thief() | {"name": "linking"}
        linking["spec"] = linking["spec"] | {"identityLink": "//identity/strong", "containers": [PLAIN]}
        body = {"items": [strong | {"description": "mine"}, linking]}
        answer = ask(sandbox, "applies", "POST", f"{ORG}/-apply", body)
        assert (answer.status_code, "`use` on identity/shop/strong" in answer.text) == (403, True), answer.text
        own = {
            "items": [
                strong | {"name": "own"},
                linking | {"spec": linking["spec"] | {"identityLink": "//identity/own"}},
            ]
        }
        assert ask(sandbox, "applies", "POST", f"{ORG}/-apply", own).status_code == 200
        tagged = {"items": [strong | {"tags": {"mine": "yes"}}]}
        answer = ask(sandbox, "tagged", "POST", f"{ORG}/-apply", tagged)
        assert (answer.status_code, "`edit` on identity/shop/strong" in answer.text) == (403, True), answer.text


def test_the_refusal_of_a_new_member_names_no_hidden_target_of_the_group(tmp_path: Path) -> None:
    broad = "name: ops-reveal\ntargetKind: secret\ntarget: all"
    narrow = accounts().replace(broad, broad.replace("target: all", "targetLinks: [//secret/aws]"))
    assert narrow != accounts()
    more = account("joins", "group", "edit") + account("joins", "serviceaccount", "view")
    documents = "---\n".join(dict.fromkeys((narrow + more).split("---\n")))
    with api_sandbox(tmp_path, {**files(), "accounts.yaml": documents}) as sandbox:
        joins = {"memberLinks": ["//serviceaccount/joins"]}
        answer = ask(sandbox, "joins", "PATCH", f"{ORG}/group/ops", joins)
        assert (answer.status_code, "a resource that you may not view" in answer.text) == (403, True), answer.text
        assert "aws" not in answer.text


def test_another_address_of_a_user_needs_the_permission_to_act_as_them(sandbox: ApiSandbox) -> None:
    ann = f"{ORG}/user/ann@example.com"
    other = {"email": "eve@evil.example.com"}
    answer = ask(sandbox, "editors", "PATCH", ann, other)
    assert (answer.status_code, "`impersonate` on user/ann@example.com" in answer.text) == (403, True), answer.text
    assert ask(sandbox, "editors", "PUT", ann, {"tags": {"team": "web"}} | other).status_code == 403
    assert ask(sandbox, "editors", "PATCH", ann, {"email": "Ann@example.com", "description": "Ann"}).status_code == 200
    assert ask(sandbox, "actors", "PATCH", ann, other).status_code == 200


def test_an_invitation_grants_no_more_than_its_author_has(tmp_path: Path) -> None:
    query = 'memberQuery: {kind: user, spec: {terms: [{property: name, op: "~", value: "ops-*"}]}}'
    reveal = "bindings: [{permissions: [reveal], principalLinks: [//group/on-call]}]"
    groups = f"kind: group\nname: on-call\n{query}\n---\nkind: policy\nname: on-call\ntargetKind: secret\ntarget: all\n"
    more = account("hosts", "user", "invite")
    with api_sandbox(tmp_path, {**files(), "on-call.yaml": groups + reveal + "\n" + more}) as sandbox:
        answer = write(sandbox, "hosts", "POST", f"{ORG}/user/ops-eve@example.com/-invite", {})
        assert (answer.status_code, "`reveal` on every secret" in answer.text) == (403, True), answer.text
        assert write(sandbox, "hosts", "POST", f"{ORG}/user/eve@example.com/-invite", {}).status_code == 201
        assert sandbox.client().request("POST", f"{ORG}/user/ops-eve@example.com/-invite").status_code == 201
        assert write(sandbox, "hosts", "POST", f"{ORG}/user/ops-eve@example.com/-invite", {}).status_code == 201


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("secret", f"{ORG}/secret/db"),
        ("group", f"{ORG}/group/ops"),
        ("policy", f"{ORG}/policy/harmless"),
        ("workload", f"{SHOP}/workload/api"),
    ],
)
def test_a_tag_gives_its_author_nothing_new_whatever_it_is_on(sandbox: ApiSandbox, kind: str, path: str) -> None:
    answer = ask(sandbox, f"tags-{kind}", "PATCH", path, {"tags": {"grab": "yes"}})
    assert (answer.status_code, "nobody grants more than they have" in answer.text) == (403, True), answer.text
    assert ask(sandbox, f"tags-{kind}", "PATCH", path, {"tags": {"other": "yes"}}).status_code == 200


def test_a_change_is_about_the_document_that_names_its_gvc(tmp_path: Path) -> None:
    both = workload("twin") + "---\n" + workload("twin", more="gvc: shop\n")
    other = {"other/gvc.yaml": GVC.replace("name: shop", "name: other"), "other/twins.yaml": both}
    with api_sandbox(tmp_path, {**FILES, **other}) as sandbox:
        answer = sandbox.client().request("PATCH", f"{SHOP}/workload/twin", json={"description": "of the shop"})
        assert answer.status_code == 200, answer.text
        assert sandbox.run("apply").returncode == 0
        assert sandbox.client().get(f"{SHOP}/workload/twin")["description"] == "of the shop"
        assert sandbox.client().get(f"{ORG}/gvc/other/workload/twin")["description"] != "of the shop"


def test_the_refusal_of_a_run_names_no_resource_that_its_caller_may_not_view(sandbox: ApiSandbox) -> None:
    path, body = run("own", **variable("platform://secret/aws.secretKey"))
    answer = ask(sandbox, "runs", "POST", path, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["message"].startswith("the overrides are refused: The identity of a workload is permitted")
    assert "identity/shop" not in answer.text
    assert "identity/shop/web may not reveal secret/aws" in sandbox.client().request("POST", path, json=body).text


def test_a_run_of_a_workload_that_is_too_large_to_check_is_refused(tmp_path: Path) -> None:
    text = ", ".join(f"{{name: V{number}, value: '{chr(0x1F600) * 3_000}'}}" for number in range(85))
    cron = CRON.format(name="big", identity="\n  identityLink: //identity/web")
    big = cron.replace('{name: main, image: "//image/job:1"}', f"{{name: main, image: //image/job:1, env: [{text}]}}")
    assert text in big
    with api_sandbox(tmp_path, {**files(), "shop/big.yaml": big}) as sandbox:
        path, body = run("big", **variable("platform://secret/aws.secretKey"))
        answer = sandbox.client().request("POST", path, json=body)
        assert (answer.status_code, "the overrides are refused" in answer.text) == (400, True), answer.text[:300]
