"""Reads of resources: what a document shows, pages, queries, and refusals."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest

from reconciler.api.documents import resource_id
from reconciler.api.routes import resources
from reconciler.api.service import Api
from reconciler.records.store import FILE as RECORDS
from reconciler.records.store import Records
from reconciler.settings import load_settings
from tests.api.conftest import FILES, POLICIES
from tests.support.api import ORG, READER_PEER, ApiClient, ApiSandbox, api_sandbox
from tests.support.clock import FakeClock
from tests.support.sandbox import DaemonSandbox

WEB = f"{ORG}/gvc/shop/workload/web"


def names(answer: Any) -> list[str]:
    """The names of the items."""
    return [each["name"] for each in answer["items"]]


def test_a_resource_shows_its_manifest_and_what_the_server_owns(sandbox: ApiSandbox) -> None:
    resource = sandbox.client().get(WEB)
    assert (resource["kind"], resource["name"], resource["gvc"], resource["version"]) == ("workload", "web", "shop", 1)
    assert resource["spec"]["containers"][0]["image"] == "/org/acme/image/web:1.0.8080"
    assert resource["status"]["canonicalEndpoint"].startswith("web-")
    assert resource["status"]["conditions"][0]["type"] == "Ready"
    assert {"rel": "self", "href": WEB} in resource["links"]
    assert resource["id"] == sandbox.client().get(WEB)["id"]
    assert resource["created"] <= resource["lastModified"]


def test_a_secret_has_no_data(sandbox: ApiSandbox) -> None:
    answers = [f"{ORG}/secret", f"{ORG}/secret/db", f"{ORG}/secret/db/-eventlog", f"{ORG}/secret/db/-accessreport"]
    for path in answers:
        response = sandbox.client().request("GET", path)
        assert response.status_code == 200
        assert "hunter2" not in response.text
    assert "data" not in sandbox.client().get(f"{ORG}/secret/db")


def test_pages_are_followed_to_the_end(sandbox: ApiSandbox) -> None:
    first = sandbox.client().get(f"{ORG}/workload?limit=1")
    assert names(first) == ["api"]
    second = sandbox.client().get(first["links"][1]["href"])
    assert names(second) == ["web"]
    assert [link["rel"] for link in second["links"]] == ["self"]


def test_fields_are_selected(sandbox: ApiSandbox) -> None:
    assert sandbox.client().get(f"{ORG}/workload?fields=name,status.health")["items"] == [
        {"name": "api", "status": {"health": "Recorded"}},
        {"name": "web", "status": {"health": "Recorded"}},
    ]


def test_a_query_selects(sandbox: ApiSandbox) -> None:
    query = {"kind": "workload", "spec": {"terms": [{"tag": "team", "value": "web"}]}}
    found = sandbox.client().request("POST", f"{ORG}/workload/-query", json=query).json()
    assert (found["kind"], names(found), found["query"]) == ("queryresult", ["web"], query)


def pages_of(sandbox: ApiSandbox, query: dict[str, Any], key: str | None = None, limit: int = 50) -> list[list[str]]:
    """The names of workloads on each page of a query, of a superuser or with a ``key``."""
    client, headers = (sandbox.client(), {}) if key is None else (sandbox.client(None), {"Authorization": key})
    href: str | None = f"{ORG}/workload/-query?limit={limit}"
    pages = []
    while href:
        page = client.request("POST", href, json=query, headers=headers).json()
        pages.append(names(page))
        href = next((link["href"] for link in page["links"] if link["rel"] == "next"), None)
    return pages


def test_a_page_of_a_query_compares_a_bounded_number_of_resources(
    sandbox: ApiSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "MOST_EXAMINED", 1)
    assert pages_of(sandbox, {"spec": {"terms": [{"property": "name", "value": "none"}]}}) == [[], []]
    assert pages_of(sandbox, {"spec": {"terms": [{"property": "name", "value": "web"}]}}) == [[], ["web"]]
    monkeypatch.setattr(resources, "MOST_EXAMINED", 2)
    assert pages_of(sandbox, {}, limit=1) == [["api"], ["web"]]
    assert pages_of(sandbox, {}) == [["api", "web"]]
    key = sandbox.api.store.add_key("ci", "", "test", None)[1]
    monkeypatch.setattr(resources, "MOST_EXAMINED", 1)
    assert pages_of(sandbox, {"spec": {"terms": [{"property": "name", "value": "none"}]}}, key) == [[]]


def test_a_query_compares_the_links_of_a_document(sandbox: ApiSandbox) -> None:
    def found(**term: str) -> list[list[str]]:
        return pages_of(sandbox, {"spec": {"terms": [term]}})

    assert found(rel="gvc", value="/org/acme/gvc/shop") == [["api", "web"]]
    assert found(rel="gvc", value="/org/acme/gvc/other") == [[]]
    for link in sandbox.client().get(WEB)["links"]:
        assert "web" in found(rel=link["rel"], value=link["href"])[0]
    # A caller finds nothing that it may not view.
    key = sandbox.api.store.add_key("ci", "", "test", None)[1]
    hidden = {"spec": {"terms": [{"rel": "self", "value": "//gvc/shop/workload/api"}]}}
    assert pages_of(sandbox, hidden, key) == [[]]
    assert pages_of(sandbox, {"spec": {"match": "none", **hidden["spec"]}}, key) == [["web"]]


def test_a_policy_grants_by_the_link_to_a_gvc(tmp_path: Path) -> None:
    policy = POLICIES.replace("{tag: team, value: web}]}}\nbindings", '{rel: gvc, value: "//gvc/shop"}]}}\nbindings')
    assert policy != POLICIES
    with api_sandbox(tmp_path, {**FILES, "access.yaml": policy}) as made:
        client = made.client(None)
        headers = {"Authorization": made.api.store.add_key("ci", "", "test", None)[1]}
        assert names(client.get(f"{ORG}/workload", headers=headers)) == ["api", "web"]
        assert client.request("GET", f"{ORG}/gvc/other/workload/api", headers=headers).status_code == 403
        assert client.request("GET", f"{ORG}/gvc/shop/workload/none", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"spec": {"terms": [{"tag": "a", "op": "like", "value": "b"}]}}, "$.spec.terms[0].op"),
        ({"spec": {"terms": [{"value": "b"}]}}, "exactly one of property, rel and tag"),
        ({"spec": {"terms": [{"tag": "a"}]}}, "the operator = has a value"),
        ({"kind": "gvc"}, "the query is for kind 'gvc'"),
        ([], "Expected `object`"),
    ],
)
def test_a_wrong_query_is_refused_with_its_place(sandbox: ApiSandbox, body: Any, message: str) -> None:
    answer = sandbox.client().request("POST", f"{ORG}/workload/-query", json=body)
    assert answer.status_code == 400
    assert message in answer.json()["message"]


def test_what_the_client_has_is_not_sent_again(sandbox: ApiSandbox) -> None:
    first = sandbox.client().request("GET", WEB)
    again = sandbox.client().request("GET", WEB, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    # A proxy that compresses makes tags weak, and a client may have several.
    for known in (f"W/{first.headers['etag']}", f'"other",{first.headers["etag"]}'):
        assert sandbox.client().request("GET", WEB, headers={"If-None-Match": known}).status_code == 304
    other = sandbox.client().request("GET", WEB, headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


REFUSED = [
    ("GET", f"{ORG}/workloads", 404, "there is no kind 'workloads' here; did you mean workload?"),
    ("GET", f"{ORG}/gvc/shop/secret", 404, "there is no kind 'secret' here"),
    ("GET", f"{ORG}/workload/web", 404, "a workload belongs to a GVC: /org/acme/gvc/GVC/workload/NAME"),
    ("GET", f"{ORG}/gvc/shop/workload/wub", 404, "there is no workload/shop/wub"),
    ("GET", f"{ORG}/gvc/nope/workload", 404, "there is no gvc/nope"),
    ("GET", "/org/other/gvc", 403, "this server has the org acme alone"),
    ("GET", f"{ORG}/workload?limit=0", 400, "limit is a number from 1 to 500, not '0'"),
    ("GET", f"{ORG}/workload?cursor=%ff", 400, "the cursor is not one of a page; use the link `next`"),
    ("GET", "/nowhere", 404, "the API has no path /nowhere"),
    ("TRACE", WEB, 405, f"{WEB} takes only"),
    ("GET", f"{WEB}/-command/none", 404, "workload/shop/web has no command 'none'"),
    ("GET", f"{WEB}/deployment/moon", 404, "workload/shop/web has no deployment at 'moon'"),
    ("GET", f"{ORG}/gvc/shop/volumeset/data/deployment", 404, "there is no volumeset/shop/data"),
]


@pytest.mark.parametrize(("method", "path", "status", "message"), REFUSED)
def test_a_refusal_names_its_reason(sandbox: ApiSandbox, method: str, path: str, status: int, message: str) -> None:
    answer = sandbox.client().request(method, path)
    body = answer.json()
    assert (answer.status_code, body["status"]) == (status, status)
    assert body["message"].startswith(message)
    assert set(body) == {"status", "message", "code", "details", "id"}
    assert answer.headers["x-request-id"] == body["id"]


def test_a_request_over_tcp_needs_a_credential(sandbox: ApiSandbox) -> None:
    for headers in ({}, {"Authorization": "Bearer unknown"}):
        answer = sandbox.client(peer=None).request("GET", WEB, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert sandbox.client(peer=None).get("/healthz") == {"status": "ok"}
    assert sandbox.client(peer=None).get("/readyz") == {"status": "ready"}


def test_a_first_revision_that_is_refused_was_read(tmp_path: Path) -> None:
    sandbox = DaemonSandbox(tmp_path, {"shop/gvc.yaml": "kind: gvc\nname: shop\nspec: 1\n"}, api={})
    settings = load_settings(sandbox.settings_file)
    Records.open(sandbox.state / RECORDS).close()
    with closing(Api(settings, FakeClock(), lambda: True)) as api:
        answer = ApiClient(api, None).request("GET", "/readyz")
        assert (answer.status_code, answer.json()["message"]) == (503, "not read yet: main")
        assert sandbox.run("apply").returncode == 1
        assert ApiClient(api, None).get("/readyz") == {"status": "ready"}


def test_readers_read_and_see_who_may_what(sandbox: ApiSandbox) -> None:
    client = sandbox.client(READER_PEER)
    assert names(client.get(f"{ORG}/workload")) == ["api", "web"]
    report = {value["name"]: value["bindings"] for value in client.get(f"{WEB}/-accessreport")["permissions"]}
    edits = {value["principalLink"]: value for value in report["edit"]}
    assert edits["/org/acme/group/web"] == {
        "principalLink": "/org/acme/group/web",
        "grantingPolicyLink": "/org/acme/policy/web-edits",
        "grantedPermissions": ["edit"],
    }
    assert "/org/acme/serviceaccount/ci" in {value["principalLink"] for value in report["view"]}
    other = client.get(f"{ORG}/gvc/shop/workload/api/-accessreport")["permissions"]
    assert "/org/acme/group/web" not in str(other)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("gvc/shop/workload?namePrefix=", ["api", "web"]),
        ("gvc/shop/workload?namePrefix=w", ["web"]),
        ("gvc/shop/workload?namePrefix=web", ["web"]),
        ("gvc/shop/workload?namePrefix=web-", []),
        ("gvc/shop/workload?namePrefix=%25", []),
        ("workload?namePrefix=shop/a", ["api"]),
        ("gvc?namePrefix=sho", ["shop"]),
        ("user?namePrefix=b", ["bob@example.com"]),
        ("user?namePrefix=a&limit=1", ["ann@example.com"]),
    ],
)
def test_a_list_is_of_names_that_begin_with_a_prefix(sandbox: ApiSandbox, path: str, names: list[str]) -> None:
    assert [each["name"] for each in sandbox.client().get(f"{ORG}/{path}")["items"]] == names


def test_permissions_are_listed_with_what_they_imply(sandbox: ApiSandbox) -> None:
    schema = sandbox.client().get(f"{ORG}/secret/-schema/permissions")
    assert schema["targetKind"] == "secret"
    assert {"name": "reveal", "description": "see its data"} in schema["items"]
    assert schema["implied"]["reveal"] == ["view"]


def test_deployments_and_events(sandbox: ApiSandbox) -> None:
    deployments = sandbox.client().get(f"{WEB}/deployment")["items"]
    assert [value["name"] for value in deployments] == ["here", "there"]
    assert deployments[0]["status"]["expectedDeploymentVersion"] == 1
    assert sandbox.client().get(f"{WEB}/deployment/there") == deployments[1]
    assert [value["reason"] for value in sandbox.client().get(f"{WEB}/-eventlog")["items"]]
    assert sandbox.client().get(f"{WEB}/-command")["items"] == []


def test_what_is_built_in_is_there_without_a_manifest(sandbox: ApiSandbox) -> None:
    found = sandbox.client().get(f"{ORG}/group")
    assert names(found) == ["superusers", "viewers", "web"]
    assert [each.get("origin") for each in found["items"]] == ["builtin", "builtin", "default"]
    policy = sandbox.client().get(f"{ORG}/policy/viewers-secret")
    assert (policy["targetKind"], policy["bindings"][0]["permissions"], policy["origin"]) == (
        "secret",
        ["view"],
        "builtin",
    )
    pages = sandbox.client().get(f"{ORG}/policy?limit=7")
    seen = names(pages)
    while following := [link["href"] for link in pages["links"] if link["rel"] == "next"]:
        pages = sandbox.client().get(following[0])
        seen += names(pages)
    assert seen == sorted(set(seen))
    assert "web-edits" in seen


def test_a_secret_is_revealed_to_those_who_may(sandbox: ApiSandbox) -> None:
    answer = sandbox.client().get(f"{ORG}/secret/db/-reveal")
    assert answer["data"] == {"password": "hunter2-hunter2"}
    refused = sandbox.client(READER_PEER).request("GET", f"{ORG}/secret/db/-reveal")
    assert refused.status_code == 403
    assert "hunter2" not in refused.text
    last = sandbox.client().get(f"{ORG}/-audit")["items"][-2:]
    assert [(each["target"], each["outcome"]) for each in last] == [
        (f"{ORG}/secret/db/-reveal", code) for code in (200, 403)
    ]


def test_a_document_is_the_same_however_it_is_read(sandbox: ApiSandbox) -> None:
    """A list copies the fields of manifests as they are encoded, and a query decodes them."""
    for kind in ("gvc", "workload", "secret", "policy", "user"):
        listed = sandbox.client().get(f"{ORG}/{kind}")["items"]
        found = sandbox.client().request("POST", f"{ORG}/{kind}/-query", json={"kind": kind}).json()["items"]
        assert listed == found != []
    assert sandbox.client().get(WEB) == next(
        each for each in sandbox.client().get(f"{ORG}/workload")["items"] if each["links"][0]["href"] == WEB
    )


def test_the_id_is_a_uuid_of_the_url(sandbox: ApiSandbox) -> None:
    assert resource_id("/org/acme/gvc/shöp", 1.5) == str(uuid5(NAMESPACE_URL, "/org/acme/gvc/shöp@1.5"))
    assert UUID(sandbox.client().get(WEB)["id"]).version == 5
