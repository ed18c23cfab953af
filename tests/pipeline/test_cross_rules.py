"""Rules between resources over revisions in a row: a change is reported at the line that it makes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.manifests.cross_check import resources_to_check
from reconciler.model.finding import Severity
from reconciler.pipeline.planned_revision import PlannedRevision
from reconciler.records.store import Records
from tests.pipeline.test_convergence import few
from tests.support.examples import examples
from tests.support.git import File, GitRepo
from tests.support.pipeline import BASE, PipelineHarness, placed, shown

Files = dict[str | bytes, File]

WEB = """kind: workload
name: web
spec:
  type: standard
  identityLink: //identity/web
  containers:
  - name: main
    image: nginx:1.27
    env:
    - name: PASSWORD
      value: platform://secret/db.password
"""
IDENTITY = "kind: identity\nname: web\n"
SECRET = (
    "kind: secret\nname: db\ntags: {team: shop}\ntype: dictionary\n"
    "data: {password: not-real} # reconciler: ignore secret-plain-text not real\n"
)
POLICY = """kind: policy
name: web-reveals-db
targetKind: secret
targetLinks: [//secret/db]
bindings: [{permissions: [reveal], principalLinks: [//gvc/shop/identity/web]}]
"""
SHOP: Files = {
    "shop/gvc.yaml": BASE,
    "shop/web.yaml": WEB,
    "shop/identity.yaml": IDENTITY,
    "secret.yaml": SECRET,
    "policy.yaml": POLICY,
}
REVEAL = (
    "shop/web.yaml:11:14 secret-reveal | identity/shop/web may not reveal secret/db | "
    "add a policy with targetLinks: [//secret/db] that binds //gvc/shop/identity/web to `reveal`"
)


def findings_of(harness: PipelineHarness, files: Files) -> list[str]:
    """The findings of one more commit, ``PATH:LINE:COLUMN RULE`` each; a fresh load finds the same."""
    harness.commit(files)
    found = harness.prepare().findings
    assert shown(found) == shown(_newcomer(harness).prepare().findings)
    return [" ".join(line.split(" | ")[0].split()) for line in shown(found)]


def _newcomer(harness: PipelineHarness) -> PipelineHarness:
    """A pipeline that has never read the repository."""
    fresh = PipelineHarness.__new__(PipelineHarness)
    fresh.__dict__.update(harness.__dict__)
    fresh.records = Records.open(None, clock_now=harness.clock.now)
    fresh.pipeline = fresh.new_pipeline()
    return fresh


@pytest.fixture
def harness(tmp_path: Path) -> PipelineHarness:
    """The shop, applied."""
    made = PipelineHarness(tmp_path, SHOP)
    made.applied()
    return made


def test_a_deleted_policy_is_reported_where_the_secret_is_read(harness: PipelineHarness) -> None:
    harness.commit({"policy.yaml": None})
    assert shown(harness.prepare().findings) == [REVEAL]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[reveal]", "[view]"),
        ("targetKind: secret\ntargetLinks: [//secret/db]", "targetKind: workload\ntarget: all"),
        ("identity/web", "identity/api"),
    ],
    ids=["another permission", "another target", "another principal"],
)
def test_a_policy_that_no_longer_permits_is_reported_where_the_secret_is_read(
    harness: PipelineHarness, before: str, after: str
) -> None:
    harness.commit({"shop/api.yaml": "kind: identity\nname: api\n", "policy.yaml": POLICY.replace(before, after)})
    findings = shown(harness.prepare().findings)
    assert REVEAL in findings
    assert all(line == REVEAL or "policy-permission" in line for line in findings)


def test_a_secret_that_leaves_the_query_of_a_policy_is_reported_where_it_is_read(harness: PipelineHarness) -> None:
    by_team = "targetQuery: {spec: {terms: [{tag: team, value: shop}]}}"
    harness.commit({"policy.yaml": POLICY.replace("targetLinks: [//secret/db]", by_team)})
    harness.applied()
    assert findings_of(harness, {"secret.yaml": SECRET.replace("shop", "payments")}) == [
        "shop/web.yaml:11:14 secret-reveal"
    ]


def test_an_unreadable_policy_does_not_count_as_a_denial(harness: PipelineHarness) -> None:
    assert findings_of(harness, {"policy.yaml": POLICY.replace("bindings", "bindngs")}) == [
        "policy.yaml:5:1 unknown-field"
    ]


def test_a_key_that_leaves_its_secret_is_reported_where_it_is_read(harness: PipelineHarness) -> None:
    assert findings_of(harness, {"secret.yaml": SECRET.replace("password:", "passphrase:")}) == [
        "shop/web.yaml:11:14 secret-key"
    ]


def test_workloads_need_permission_for_secrets_that_their_gvc_reads(harness: PipelineHarness) -> None:
    inherits = WEB.replace("    env:\n", "    inheritEnv: true\n    env:\n")
    harness.commit({"shop/web.yaml": inherits, "other.yaml": SECRET.replace("db", "other")})
    harness.applied()
    env = "env: [{name: OTHER, value: platform://secret/other.password}], staticPlacement"
    assert findings_of(harness, {"shop/gvc.yaml": BASE.replace("staticPlacement", env)}) == [
        "shop/web.yaml:9:17 secret-reveal"
    ]


def test_a_location_that_a_gvc_leaves_is_reported_at_options_for_it(harness: PipelineHarness) -> None:
    harness.commit({"shop/web.yaml": f"{WEB}  localOptions:\n  - {{location: there, debug: true}}\n"})
    harness.applied()
    assert findings_of(harness, {"shop/gvc.yaml": BASE.replace(", //location/there", "")}) == [
        "shop/web.yaml:13:16 local-options-location"
    ]


def test_a_location_that_leaves_the_query_of_a_gvc_is_reported_at_options_and_gvc(harness: PipelineHarness) -> None:
    spec = "spec: {staticPlacement: {locationQuery: {spec: {terms: [{tag: tier, value: front}]}}}}"
    location = "kind: location\nname: {name}\nprovider: byok\ntags: {{tier: front}}\n"
    files: Files = {f"{name}.yaml": location.format(name=name) for name in ("here", "there")}
    files["shop/gvc.yaml"] = f"kind: gvc\nname: shop\n{spec}\n"
    files["shop/web.yaml"] = f"{WEB}  localOptions:\n  - {{location: there, debug: true}}\n"
    harness.commit(files)
    harness.applied()
    back = {"there.yaml": location.format(name="there").replace("front", "back")}
    assert findings_of(harness, back) == ["shop/web.yaml:13:16 local-options-location"]
    both = {**back, "here.yaml": None}
    assert findings_of(harness, both) == ["shop/gvc.yaml:3:41 location-query-empty"]


def test_a_location_that_leaves_the_query_of_a_gvc_takes_its_workloads_along(harness: PipelineHarness) -> None:
    spec = "spec: {staticPlacement: {locationQuery: {spec: {terms: [{tag: tier, value: front}]}}}}"
    location = "kind: location\nname: {name}\nprovider: byok\ntags: {{tier: front}}\n"
    files: Files = {f"{name}.yaml": location.format(name=name) for name in ("here", "there")}
    harness.commit({**files, "shop/gvc.yaml": f"kind: gvc\nname: shop\n{spec}\n", "shop/web.yaml": WEB})
    harness.applied()
    harness.commit({"there.yaml": f"{location.format(name='there')}description: on the left\n"})
    assert [placed(step) for step in harness.plan().steps] == ["location/there"]
    harness.applied()
    harness.commit({"there.yaml": location.format(name="there").replace("front", "back")})
    assert {placed(step) for step in harness.plan().steps} == {"location/there", "workload/shop/web@there"}


def test_a_second_user_of_a_volume_set_is_reported_at_both(harness: PipelineHarness) -> None:
    database = WEB.replace("standard", "stateful").replace("name: web", "name: db")
    mounts = "    volumes:\n    - {uri: platform://volumeset/data, path: /data}\n"
    volumes = "kind: volumeset\nname: data\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
    harness.commit({"shop/data.yaml": volumes, "shop/db.yaml": database + mounts})
    harness.applied()
    second = database.replace("name: db\n", "name: copy\n", 1) + mounts
    assert findings_of(harness, {"shop/copy.yaml": second}) == [
        "shop/copy.yaml:13:13 volumeset-shared",
        "shop/db.yaml:13:13 volumeset-shared",
    ]
    assert findings_of(harness, {"shop/copy.yaml": second, "shop/db.yaml": database}) == []


def test_an_account_that_changes_its_provider_is_reported_at_the_identity(harness: PipelineHarness) -> None:
    account = "kind: cloudaccount\nname: main\nprovider: gcp\ndata: {projectId: shop-1}\n"
    access = "gcp:\n  cloudAccountLink: //cloudaccount/main\n  serviceAccount: a@b.example.com\n"
    harness.commit({"account.yaml": account, "shop/identity.yaml": IDENTITY + access})
    harness.applied()
    aws = "provider: aws\ndata: {roleArn: 'arn:aws:iam::123456789012:role/platform'}\n"
    changed = account.partition("provider")[0] + "tags: {reconciler/allow-replace: 'true'}\n" + aws
    assert findings_of(harness, {"account.yaml": changed}) == ["shop/identity.yaml:4:21 cloudaccount-provider"]


def test_an_identity_that_loses_its_access_is_reported_at_the_mount(harness: PipelineHarness) -> None:
    account = "kind: cloudaccount\nname: main\nprovider: gcp\ndata: {projectId: shop-1}\n"
    access = "gcp:\n  cloudAccountLink: //cloudaccount/main\n  serviceAccount: a@b.example.com\n"
    mount = "    volumes:\n    - {uri: 'gs://pictures', path: /pictures}\n"
    outside = "  firewallConfig: {external: {outboundAllowCIDR: [0.0.0.0/0]}}\n"
    harness.commit({"a.yaml": account, "shop/identity.yaml": IDENTITY + access, "shop/web.yaml": WEB + mount + outside})
    harness.applied()
    assert findings_of(harness, {"shop/identity.yaml": IDENTITY}) == ["shop/web.yaml:13:13 object-store-access"]


def test_a_port_that_closes_is_reported_at_the_route(harness: PipelineHarness) -> None:
    port = "    readinessProbe: {httpGet: {}}\n    ports: [{number: 8080}]\n"
    route = "spec: {ports: [{routes: [{prefix: /, workloadLink: //gvc/shop/workload/web, port: 8080}]}]}"
    harness.commit({"shop/web.yaml": WEB + port, "domain.yaml": f"kind: domain\nname: shop.example.com\n{route}\n"})
    harness.applied()
    assert findings_of(harness, {"shop/web.yaml": WEB + port.replace("8080", "8081")}) == [
        "domain.yaml:3:83 domain-route-port"
    ]
    assert findings_of(harness, {"shop/web.yaml": WEB}) == ["domain.yaml:3:52 domain-route-workload"]


@pytest.mark.parametrize("leads", ["gvcLink: //gvc/shop", "workloadLink: //gvc/shop/workload/web"])
def test_a_deleted_domain_is_reported_at_the_tcp_port_behind_it(harness: PipelineHarness, leads: str) -> None:
    port = "    readinessProbe: {exec: {command: [ask]}}\n    ports: [{number: 5672, protocol: tcp}]\n"
    inside = "  firewallConfig: {external: {inboundAllowCIDR: [203.0.113.0/24]}}\n"
    harness.commit(
        {
            "shop/web.yaml": WEB + port + inside,
            "shop/gvc.yaml": BASE.replace("staticPlacement", "loadBalancer: {dedicated: true}, staticPlacement"),
            "domain.yaml": f"kind: domain\nname: shop.example.com\nspec: {{{leads}}}\n",
        }
    )
    harness.applied()
    assert findings_of(harness, {"domain.yaml": None}) == ["shop/web.yaml:13:38 tcp-outside"]


def test_a_secret_of_another_source_is_known_once_it_is_there(tmp_path: Path) -> None:
    theirs = PipelineHarness(tmp_path / "theirs", {"secret.yaml": SECRET})
    theirs.applied()
    ours = PipelineHarness(tmp_path / "ours", {**SHOP, "secret.yaml": None}, records=theirs.records, name="ours")
    ours.applied()
    ours.commit({"shop/web.yaml": WEB.replace("db.password", "db.user")})
    assert [line.partition(" |")[0] for line in shown(ours.prepare().findings)] == ["shop/web.yaml:11:14 secret-key"]


def test_external_resources_cause_no_finding(tmp_path: Path) -> None:
    outside = {**SHOP, "secret.yaml": None, "shop/identity.yaml": None, "policy.yaml": None}
    links = ("//secret/db", "//gvc/shop/identity/web")
    harness = PipelineHarness(tmp_path, {path: text for path, text in outside.items() if text}, external=links)
    assert shown(harness.prepare().findings) == []


def asked(harness: PipelineHarness) -> list[str]:
    """Who is asked about what the branch holds now."""
    changes = harness.prepare().loaded.change_set
    return [key for key, _ in resources_to_check(changes, harness.pipeline.view().with_changes(changes))]


def test_an_external_policy_may_permit_anything(tmp_path: Path) -> None:
    files = {path: text for path, text in SHOP.items() if path != "policy.yaml"}
    assert shown(PipelineHarness(tmp_path / "none", files).prepare().findings) == [REVEAL]
    assert shown(PipelineHarness(tmp_path / "one", files, external=("//policy/by-hand",)).prepare().findings) == []


def test_a_change_asks_only_those_whom_it_concerns(harness: PipelineHarness) -> None:
    for number in range(20):
        name = f"w{number}"
        documents = (WEB, IDENTITY, POLICY)
        harness.commit({f"shop/{name}.yaml": "---\n".join(documents).replace("web", name)})
    harness.applied()
    harness.commit({"policy.yaml": f"# only a comment\n{POLICY}"})
    assert asked(harness) == []
    harness.commit({"policy.yaml": POLICY.replace("[reveal]", "[manage]")})
    assert asked(harness) == ["workload/shop/web"]
    harness.commit({"policy.yaml": POLICY, "shop/identity.yaml": IDENTITY + ACCESS})
    assert asked(harness) == ["identity/shop/web", "workload/shop/web"]
    harness.commit(
        {"policy.yaml": f"{POLICY}description: other\n", "shop/identity.yaml": f"{IDENTITY}tags: {{a: b}}\n"}
    )
    assert asked(harness) == []
    harness.commit({"policy.yaml": POLICY, "shop/identity.yaml": IDENTITY})
    harness.commit({"secret.yaml": SECRET.replace("team: shop", "team: front")})
    assert len(asked(harness)) == 21


def test_a_variable_of_a_gvc_asks_its_members_only_if_a_rule_reads_it(harness: PipelineHarness) -> None:
    def with_env(env: str) -> Files:
        return {"shop/gvc.yaml": BASE.replace("spec: {", f"spec: {{env: [{env}], ")}

    harness.commit(with_env("{name: A, value: one}"))
    harness.applied()
    harness.commit(with_env("{name: A, value: two}"))
    assert asked(harness) == []
    for env in ("{name: B, value: one}", "{name: A, value: $(B)}", "{name: PORT, value: '1'}", INHERITED):
        harness.commit(with_env(env))
        assert asked(harness)[-1:] == ["workload/shop/web"], env
    harness.commit(with_env("{name: PORT, value: '1'}"))
    harness.applied()
    harness.commit(with_env("{name: PORT, value: '2'}"))
    assert asked(harness)[-1:] == ["workload/shop/web"]


def test_ports_and_the_type_of_a_workload_ask_its_users_and_images_do_not(harness: PipelineHarness) -> None:
    harness.commit({"shop/web.yaml": WEB + PORTS, "domain.yaml": DOMAIN % ROUTE})
    harness.applied()
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1.27", "nginx:1.28") + PORTS})
    assert asked(harness) == ["workload/shop/web"]
    for other in (WEB + PORTS.replace("5672", "5673"), (WEB + PORTS).replace("type: standard", "type: serverless")):
        harness.commit({"shop/web.yaml": other})
        assert asked(harness) == ["workload/shop/web", "domain/shop.example.com"], other


def test_keys_and_tags_of_a_secret_ask_its_users_and_values_do_not(harness: PipelineHarness) -> None:
    harness.commit({"secret.yaml": SECRET.replace("not-real}", "not-this}")})
    assert asked(harness) == []
    for other in (SECRET.replace("password", "pass"), SECRET.replace("team: shop", "team: front")):
        harness.commit({"secret.yaml": other})
        assert asked(harness) == ["workload/shop/web"]


HERE, THERE = "//location/here", "//location/there"
QUERY = "{staticPlacement: {locationQuery: {spec: {terms: [{tag: tier, value: front}]}}}}"
PLACED = "{{loadBalancer: {{dedicated: {1}}}, staticPlacement: {{locationLinks: [{0}]}}, env: [{2}]}}"
INHERITED = "{name: INHERITED, value: platform://secret/db.password}"
EMBEDS = "    - {name: EMBEDS, value: $(EMBEDDED)}\n"
LOCAL = "  localOptions: [{location: there, debug: true}]\n"
PORTS = "    ports: [{number: 5672, protocol: tcp}]\n"
INSIDE = "  firewallConfig: {external: {inboundAllowCIDR: [203.0.113.0/24], outboundAllowCIDR: [0.0.0.0/0]}}\n"
MOUNT = "    volumes: [{uri: 'gs://pictures', path: /pictures}]\n"
DATA = "    volumes: [{uri: platform://volumeset/data, path: /data}]\n"
STORE = "kind: workload\nname: store\nspec:\n  type: stateful\n  containers:\n  - name: main\n    image: pg:16\n"
ACCESS = "gcp: {cloudAccountLink: //cloudaccount/main, serviceAccount: a@b.example.com}\n"
ACCOUNT = "kind: cloudaccount\nname: main\ntags: {reconciler/allow-replace: 'true'}\n"
DOMAIN = "kind: domain\nname: shop.example.com\nspec: {%s}\n"
ROUTE = "ports: [{routes: [{prefix: /, workloadLink: //gvc/shop/workload/web, port: 5672}]}]"
VARIANTS: dict[str | bytes, list[str]] = {
    "shop/gvc.yaml": [
        f"kind: gvc\nname: shop\nspec: {spec}\n"
        for spec in (
            PLACED.format(f"{HERE}, {THERE}", "true", ""),
            PLACED.format(HERE, "false", ""),
            PLACED.format(f"{HERE}, {THERE}", "false", INHERITED),
            PLACED.format(f"{HERE}, {THERE}", "false", "{name: EMBEDDED, value: $(EMBEDS)}"),
            PLACED.format(f"{HERE}, {THERE}", "false", "{name: EMBEDDED, value: plain}, {name: PORT, value: '80'}"),
            PLACED.format(f"{HERE}, {THERE}", "false", "{name: EMBEDDED, value: other}, {name: PORT, value: '1'}"),
            QUERY,
        )
    ],
    "shop/web.yaml": [
        WEB,
        WEB.replace("nginx:1.27", "nginx:1.28"),
        WEB + MOUNT + INSIDE,
        WEB + PORTS + INSIDE,
        WEB.replace("nginx:1.27", "nginx:1.28") + PORTS + INSIDE,
        WEB.replace("    env:\n", "    inheritEnv: true\n    env:\n") + LOCAL,
        WEB.replace("    env:\n", "    inheritEnv: true\n    env:\n").replace("PASSWORD", "INHERITED"),
        WEB.replace("    env:\n", "    inheritEnv: true\n    ports: [{number: 80}]\n    env:\n" + EMBEDS),
    ],
    "shop/identity.yaml": [
        IDENTITY,
        IDENTITY + ACCESS,
        IDENTITY + ACCESS.replace("gcp", "azure").split(", ")[0] + "}\n",
    ],
    "secret.yaml": [
        SECRET,
        SECRET.replace("real}", "this}"),
        SECRET.replace("password", "pass"),
        SECRET.replace("team: shop", "team: front"),
    ],
    "policy.yaml": [
        POLICY,
        POLICY.replace("reveal]", "view]"),
        POLICY.replace("targetLinks: [//secret/db]", "target: all"),
        POLICY.replace("targetLinks: [//secret/db]", "targetQuery: {spec: {terms: [{tag: team, value: shop}]}}"),
        POLICY.replace("bindings", "bindngs"),
    ],
    "account.yaml": [
        f"{ACCOUNT}provider: gcp\ndata: {{projectId: shop-1}}\n",
        f"{ACCOUNT}description: Of the shop\nprovider: gcp\ndata: {{projectId: shop-1}}\n",
        f"{ACCOUNT}provider: aws\ndata: {{roleArn: 'arn:aws:iam::123456789012:role/platform'}}\n",
    ],
    "here.yaml": [
        f"kind: location\nname: here\nprovider: byok\ntags: {{tier: {tier}}}\n" for tier in ("front", "back")
    ],
    "there.yaml": [
        f"kind: location\nname: there\nprovider: byok\ntags: {{tier: {tier}}}\n" for tier in ("front", "back")
    ],
    "shop/data.yaml": [
        "kind: volumeset\nname: data\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
    ],
    "shop/one.yaml": [STORE, STORE + DATA],
    "shop/two.yaml": [f"# empty\n{STORE}".replace("store", "two"), (STORE + DATA).replace("store", "two")],
    "domain.yaml": [
        DOMAIN % "gvcLink: //gvc/shop",
        DOMAIN % "workloadLink: //gvc/shop/workload/web",
        DOMAIN % ROUTE,
        (DOMAIN % ROUTE).replace("spec:", "description: Front\nspec:"),
        "",
    ],
}
"""The variants of each file; together they meet every rule between resources."""


@st.composite
def commits(draw: st.DrawFn) -> Files:
    """Some files, each with one of its variants."""
    paths = draw(st.lists(st.sampled_from(sorted(map(str, VARIANTS))), min_size=1, max_size=4, unique=True))
    return {path: draw(st.sampled_from(VARIANTS[path])) or None for path in paths}


@given(edits=st.lists(commits(), min_size=2, max_size=6))
@settings(few, max_examples=examples(25))
def test_commit_by_commit_finds_every_error_that_a_fresh_load_finds(
    repo: GitRepo, tmp_path: Path, edits: list[Files]
) -> None:
    harness = PipelineHarness(tmp_path, {path: variants[0] for path, variants in VARIANTS.items()}, repo=repo)
    for files in edits:
        harness.commit(files)
        prepared, fresh = harness.prepare(), _newcomer(harness)
        assert _errors(prepared) == _errors(fresh.prepare())
        fresh.records.close()
        if not prepared.loaded.is_refused:
            harness.accept(prepared)
    harness.records.close()


def _errors(prepared: PlannedRevision) -> list[str]:
    return shown([finding for finding in prepared.findings if finding.severity is Severity.ERROR])
