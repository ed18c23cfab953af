"""What operators do with the platform command, and that every message names a command that works there."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click import Context

from reconciler.cli import cli
from reconciler.daemon.api_process import SOCKET
from reconciler.platform_cli.advice import HERE, ON_FILES, ON_THE_HOST, with_local_commands
from reconciler.platform_cli.command_line import RowCommand, all_rows
from reconciler.platform_cli.main import run_command_line
from tests.platform_cli.kit import PlatformHarness, harness
from tests.platform_cli.test_client import ScriptedServer, answer
from tests.support.host_sandbox import HostSandbox, host_sandbox, open_place, served
from tests.support.processes import ROOT
from tests.support.sandbox import DaemonProcess, eventually

ROWS = {row.words: row for row in all_rows()}
OTHER_PROGRAMS = ("reconciler/cli/", "reconciler/platform_cli/", "reconciler/demo.py", "reconciler/doctor/")
"""Code whose texts no caller of the API reads."""
NAMED = re.compile(r"(?:: |[`'(])reconciler ([a-z]+)((?: (?:--[a-z-]+|[A-Z]{2,}|\{[^}]*\}))*)")
"""A command in a message, with the options and placeholders behind it."""


def texts() -> Iterator[tuple[str, str]]:
    """Each text in the code behind the API, with its place; a value in it is ``{}``."""
    for path in sorted((ROOT / "reconciler").rglob("*.py")):
        path_text = str(path.relative_to(ROOT))
        if path_text.startswith(OTHER_PROGRAMS):
            continue
        code = path.read_text()
        if "reconciler " not in code:  # it names no command; to walk all code takes seconds
            continue
        tree = ast.parse(code)
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield (
                    path_text,
                    "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values),
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                yield path_text, node.value


def test_every_command_that_a_message_names_is_known_to_this_program() -> None:
    """A new one needs a place in one of the three tables."""
    found = {found[1] for _, text in texts() for found in NAMED.finditer(text)}
    assert len(found) > 15
    assert found <= {*HERE, *ON_FILES, *ON_THE_HOST}
    assert len({*HERE, *ON_FILES, *ON_THE_HOST}) == len(HERE) + len(ON_FILES) + len(ON_THE_HOST)
    assert {*HERE, *ON_FILES, *ON_THE_HOST} <= {*cli.list_commands(Context(cli))}, "each is a command of `reconciler`"


def test_what_a_message_names_takes_the_same_words_here() -> None:
    count = 0
    for path, text in texts():
        for match in NAMED.finditer(text):
            if match[1] not in HERE or "--out" in match[2]:
                continue
            row = ROWS[HERE[match[1]],]
            words = [re.sub(r"\{[^}]*\}|^[A-Z]+$", "main", word) for word in match[2].split()]
            if len(words) == 1 and words[0].startswith("--"):
                words.append("main")
            RowCommand(row.words[-1], row).make_context(path, [*words, *_missing(words, row.argument)])
            count += 1
    assert count > 15


def _missing(words: list[str], argument: str) -> list[str]:
    """The argument that a sentence leaves out, as in "see `reconciler top`"."""
    return ["main"] if argument.startswith("<") and not [word for word in words if not word.startswith("--")] else []


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("approve what waits: reconciler approve 3f6c0b52", "approve what waits: platform approve 3f6c0b52"),
        ("see `reconciler get` and\n`reconciler top`", "see `platform status` and\n`platform top`"),
        (
            "manage it again: reconciler adopt gvc/a",
            "manage it again, on the host of the daemon: reconciler adopt gvc/a",
        ),
        ("make one with: reconciler plan --out a", "make one with, on the host of the daemon: reconciler plan --out a"),
        ("encrypt it: reconciler secret encrypt a", "encrypt it: reconciler secret encrypt a"),
        (
            "gvc/a is in Git, and not applied yet; its -eventlog has the reason",
            "gvc/a is in Git, and not applied yet; see: platform events gvc/a",
        ),
        ("it alone writes: GET /org/acme/-audit", "it alone writes: platform rest get /org/acme/-audit"),
        ("the reconciler plans, and my-reconciler get", "the reconciler plans, and my-reconciler get"),
    ],
)
def test_a_message_names_what_works_here(text: str, here: str) -> None:
    assert with_local_commands(text) == here
    assert with_local_commands(here) == here


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformHarness]:
    gvc = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"
    data = (
        "kind: volumeset\nname: data\ngvc: shop\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n"
    )
    groups = "---\n".join(f"kind: group\nname: group-{number:02}\n" for number in range(60))
    db = (
        "kind: workload\nname: db\ngvc: shop\nspec:\n  type: stateful\n  containers: [{name: main, image: db, "
        "volumes: [{uri: platform://volumeset/data, path: /data}]}]\n"
    )
    files = {"gvc.yaml": gvc, "data.yaml": data, "db.yaml": db, "groups.yaml": groups}
    with harness(tmp_path_factory.mktemp("operating"), files, locations={"here": {"engine": "recorded"}}) as made:
        made.environ |= {"PLATFORM_GVC": "shop"}
        yield made


def test_the_command_in_a_note_releases_what_waits(shop: PlatformHarness) -> None:
    """A delete of a volume waits, and the words that say so are the ones that work."""
    assert shop.run("workload", "delete", "db").returncode == 0
    shop.wait_until_applied()
    done = shop.run("volumeset", "delete", "data")
    match = re.fullmatch(r"delete volumeset/shop/data waits for an approval: (platform .+)\n", done.stderr)
    assert match, done
    # The answer to the delete has the plan of its change; the daemon runs after it.
    eventually(lambda: "platform approve" in shop.run("describe", "volumeset/shop/data").stdout, "the hold is recorded")
    assert "reconciler approve" not in shop.run("describe", "volumeset/shop/data").stdout
    _, verb, digest = shlex.split(match[1])
    plan = shop.run("plan", "--digest", digest)
    assert (plan.returncode, "- volumeset/shop/data" in plan.stdout) == (0, True), plan
    refused = shop.run("refuse", digest, "--reason", "not now")
    assert (refused.returncode, refused.stdout) == (0, f"refused {digest[:12]} as user/root\n"), refused
    eventually(lambda: "not now" in shop.run("describe", "volumeset/shop/data").stdout, "the refusal is recorded")
    approved = shop.run(verb, digest)
    assert approved.returncode == 0, approved
    assert re.fullmatch(rf"approved {digest[:12]} as user/root, until \S+\n", approved.stdout)
    eventually(lambda: shop.run("volumeset", "get", "data").returncode == 1, "the volume set is deleted")
    source = shop.run("describe", "source/main")
    assert (source.returncode, "main" in source.stdout) == (0, True)


def test_force_bypasses_the_approval_of_what_it_deletes_alone(shop: PlatformHarness) -> None:
    for name in ("one", "two", "three"):
        made = shop.run("gvc", "create", "--name", name, "--location", "here")
        data = shop.run("volumeset", "create", "--name", "data", "--initial-capacity", "10", "--gvc", name)
        assert (made.returncode, data.returncode) == (0, 0), (made, data)
        shop.wait_until_applied()
    forced = shop.run("gvc", "delete", "one", "--force")
    assert (forced.returncode, forced.stdout, forced.stderr) == (0, "", "")
    eventually(lambda: shop.run("gvc", "get", "one").returncode == 1, "the GVC is deleted")
    waiting = shop.run("volumeset", "delete", "data", "--gvc", "two")
    shop.wait_until_applied()
    other = shop.run("gvc", "delete", "three", "--force")
    match = re.search(r"wait for an approval: platform approve ([0-9a-f]{12})\n$", other.stderr)
    assert match, (waiting, other)
    assert shop.run("gvc", "get", "three").returncode == 0
    assert shop.run("approve", match[1]).returncode == 0
    eventually(lambda: shop.run("gvc", "get", "three").returncode == 1, "the GVC is deleted")


def test_programs_get_all_records_and_people_a_page(shop: PlatformHarness) -> None:
    for form, count in (("json", 62), ("json-slim", 62), ("yaml-slim", 62), ("tf", 62), ("text", 51)):
        done = shop.run("group", "get", "-o", form)
        separator = {
            "json": '"kind": "group"',
            "json-slim": '"kind": "group"',
            "yaml-slim": "kind: group",
            "tf": "resource ",
            "text": "\n",
        }[form]
        assert done.stdout.count(separator) == count, form
        assert bool(done.stderr) == (form == "text")
    assert len(json.loads(shop.run("group", "get", "-o", "json", "--max", "3").stdout)["items"]) == 3
    queried = shop.run("group", "query", "--property", "name", "-o", "json")
    assert len(json.loads(queried.stdout)["items"]) == 62


def test_changes_in_a_row_lose_none(shop: PlatformHarness) -> None:
    """None waits until the one before is applied, so each reads what is old."""
    for words in (
        "serviceaccount create --name robot",
        "serviceaccount create --name other",
        "workload create --name many --type standard --image nginx --port 80",
    ):
        done = shop.run(*words.split())
        assert done.returncode == 0, done
    shop.wait_until_applied()
    for words in (
        "suspend main",
        "workload env set many A=1",
        "workload update many --set spec.containers.main.env.B=2",
        "workload env set many C=3",
        "workload env unset many A",
        "group add-member group-01 --serviceaccount robot",
        "group update group-01 --set memberLinks+=//serviceaccount/other",
        "workload scale many 2",
        "resume main",
    ):
        done = shop.run(*words.split())
        assert done.returncode == 0, (words, done)
    shop.wait_until_applied()
    listed = shop.run("workload", "env", "list", "many")
    assert [line.split() for line in listed.stdout.splitlines()] == [["NAME", "VALUE"], ["B", "2"], ["C", "3"]]
    group = yaml.safe_load(shop.run("group", "get", "group-01", "-o", "yaml-slim").stdout)
    assert [each.rpartition("/")[2] for each in group["memberLinks"]] == ["other", "robot"]


def test_errors_are_json_where_results_are(shop: PlatformHarness) -> None:
    for words, code, status in (
        ("gvc get nix -o json", 1, 404),
        ("gvc get nix --output=json-slim", 1, 404),
        ("gvc patch shop -ojson", 2, None),
        ("nonsense -o json", 2, None),
        ("workload create --name x --image y --port z -o json", 2, None),
        ("gvc patch shop --file bad.yaml -o json", 1, 400),
    ):
        (shop.home / "bad.yaml").write_text("spec: {staticPlacement: nothing}\n")
        done = shop.run(*words.split())
        error = json.loads(done.stderr)["error"]
        assert (done.returncode, done.stdout, error["status"]) == (code, "", status), done
        assert error["message"]
        assert bool(error["findings"]) == (status == 400), done
    assert shop.run("workload", "exec", "nix", "--", "ls", "-o", "json").stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("words", "request_line"),
    [
        ("retry api", "POST /org/acme/gvc/shop/workload/api/-retry"),
        ("retry gvc/shop", "POST /org/acme/gvc/shop/-retry"),
        ("hold api --for 60s --reason why", "POST /org/acme/gvc/shop/workload/api/-hold"),
        ("hold workload/other/api --release", "DELETE /org/acme/gvc/other/workload/api/-hold"),
    ],
)
def test_requests_of_operators_are_for_the_resource_that_is_named(
    words: str, request_line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    server = ScriptedServer(
        answer(body={"message": "recorded; release them: reconciler hold workload/shop/api --release"})
    )
    address = f"http://127.0.0.1:{server.server_port}"
    assert run_command_line([*words.split(), "--org", "acme", "--gvc", "shop", "--endpoint", address]) == 0
    assert [line for line, _ in server.asked] == [request_line]
    assert capsys.readouterr().out == "recorded; release them: platform hold workload/shop/api --release\n"


def test_the_refusal_of_a_program_in_a_container_names_what_works_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    server = ScriptedServer(
        answer(409, {"message": "api has no replica now; see: reconciler describe workload/shop/api"})
    )
    words = ["workload", "exec", "api", "--org", "acme", "--gvc", "shop"]
    assert run_command_line([*words, "--endpoint", f"http://127.0.0.1:{server.server_port}", "--", "ls"]) == 125
    assert capsys.readouterr().err == "error: api has no replica now; see: platform describe workload/shop/api\n"


def test_plans_of_several_sources_are_one_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    status, headers, body = answer(body={"digest": "d", "steps": []})
    sources = answer(body={"items": [{"name": "main"}, {"name": "more"}]})
    server = ScriptedServer(sources, (status, headers, body), (status, {**headers, "Plan-Changes": "2"}, body))
    words = ["plan", "--detailed-exitcode", "-o", "json", "--org", "acme"]
    assert run_command_line([*words, "--endpoint", f"http://127.0.0.1:{server.server_port}"]) == 3
    assert json.loads(capsys.readouterr().out) == 2 * [{"digest": "d", "steps": []}]
    assert [line for line, _ in server.asked][1:] == [f"GET /org/acme/source/{each}/-plan" for each in ("main", "more")]


def test_a_parameter_that_a_message_names_comes_with_the_command_that_takes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    server = ScriptedServer(answer(400, {"message": "add ?source=NAME: main, more"}))
    address = f"http://127.0.0.1:{server.server_port}"
    assert run_command_line(["group", "create", "--name", "x", "--org", "acme", "--endpoint", address]) == 1
    expected = "add ?source=NAME: main, more; that is: platform rest post '/org/acme/group?source=NAME' --file FILE"
    assert capsys.readouterr().err == f"error: {expected}\n"


@pytest.mark.parametrize(("background", "code"), [(True, 0), (False, 7)])
def test_an_agent_runs_in_a_container_and_its_token_is_in_no_command_line(
    tmp_path: Path, background: bool, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\necho "$@"\nexit {code}\n')
    program.chmod(0o700)
    fields = {"agentId": "1", "agentLink": "/org/acme/agent/edge", "hubEndpoint": "h", "registrationToken": "planted"}
    (tmp_path / "edge.json").write_text(json.dumps(fields))
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["agent", "up", "--bootstrap-file", str(tmp_path / "edge.json"), "--image", "agent:1", "--net", "host"]
    words += ["--background"] if background else []
    assert run_command_line(words) == (1 if code else 0)
    shown = capfd.readouterr()
    mount = f"type=bind,source={tmp_path}/edge.json,target=/etc/agent/bootstrap,readonly"
    ends = "--detach --restart unless-stopped" if background else "--rm"
    expected = f"run --name agent-edge --network host --mount {mount} --env BOOTSTRAP_FILE=/etc/agent/bootstrap {ends}"
    assert shown.out == f"{expected} agent:1\n"
    assert "planted" not in shown.out + shown.err
    assert ("podman ended with exit code 7" in shown.err) == bool(code)


CRON = json.dumps(
    {
        "kind": "workload",
        "name": "job",
        "gvc": "shop",
        "spec": {
            "type": "cron",
            "job": {"schedule": "0 0 29 2 *"},
            "containers": [{"name": "main", "image": "none", "command": "sh", "args": ["-c", "exit 0"]}],
        },
    }
)
GUEST = """kind: serviceaccount
name: runner
---
kind: policy
name: run-jobs
targetKind: workload
target: all
bindings: [{permissions: [view, exec], principalLinks: [//serviceaccount/runner]}]
"""


class HostHarness:
    """A daemon that runs workloads on this machine, and the command beside it."""

    def __init__(self, sandbox: HostSandbox, daemon: DaemonProcess) -> None:
        self.sandbox = sandbox
        self.daemon = daemon

    def run(self, *words: str, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        endpoint = f"unix://{self.sandbox.state / SOCKET}"
        return PlatformHarness.run(
            self,
            *words,
            text=text,  # type: ignore[arg-type]
            environ={"PLATFORM_ENDPOINT": endpoint, "PLATFORM_ORG": "acme", "PLATFORM_GVC": "shop", **environ},
        )

    @property
    def environ(self) -> dict[str, str]:
        """The variables of every command."""
        return {"HOME": str(self.sandbox.path), "XDG_CONFIG_HOME": str(self.sandbox.path / "config")}

    @property
    def home(self) -> Path:
        """Where commands run."""
        return self.sandbox.path


@pytest.fixture(scope="module")
def host() -> Iterator[HostHarness]:
    files = {"shop/job.yaml": CRON, "shop/web.yaml": served(replicas=1), "access.yaml": GUEST}
    with open_place() as path, host_sandbox(path, files, api={}) as sandbox, sandbox.daemon() as daemon:
        eventually(lambda: sandbox.ready("web"), "the replica is ready")
        eventually(lambda: (sandbox.state / SOCKET).exists(), "the API listens")
        yield HostHarness(sandbox, daemon)


def start(host: HostHarness, script: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Start the cron workload with another program."""
    overrides = json.dumps([{"name": "main", "command": "sh", "args": ["-c", script]}])
    return host.run("workload", "cron", "start", "job", "--file", "-", *words, text=overrides, **environ)


def test_the_end_of_a_run_is_the_end_of_the_command(host: HostHarness) -> None:
    good = start(host, "echo fine", "--wait")
    assert good.returncode == 0, good
    assert re.search(r"shop/job/job-\S+/main@here \| fine\njob-\S+ at here: Success\n$", good.stderr), good
    bad = start(host, "for n in $(seq 30); do echo line $n; done; exit 3", "--wait")
    assert bad.returncode == 1, bad
    assert re.search(r"error: job-\S+ at here ended as Failure\n$", bad.stderr), bad
    assert ("| line 30\n" in bad.stderr, "| line 1\n" in bad.stderr) == (True, False)
    assert start(host, "exit 3").returncode == 0, "without --wait, its start counts"


def test_a_run_that_goes_on_ends_the_command_in_time(host: HostHarness) -> None:
    late = start(host, "sleep 60", "--wait", "--timeout", "1s")
    assert late.returncode == 1, late
    assert "did not end in time, and goes on: platform workload cron get job" in late.stderr


def test_who_may_read_no_logs_gets_the_result_of_a_run(host: HostHarness) -> None:
    key = host.run("serviceaccount", "add-key", "runner").stdout.strip()
    done = start(host, "echo planted", "--wait", PLATFORM_TOKEN=key)
    assert (done.returncode, "planted" in done.stderr) == (0, False), done
    assert re.search(r"job-\S+ at here: Success\n$", done.stderr)


def test_requests_wait_and_replicas_are_listed_on_a_host(host: HostHarness) -> None:
    done = host.run("hold", "web", "--for", "60s")
    assert done.returncode == 0, done
    assert done.stdout.endswith("release them: platform hold workload/shop/web --release\n")
    assert host.run("hold", "web", "--release").returncode == 0
    top = host.run("top", "-o", "json")
    assert "workload/shop/web" in [each["workload"] for each in json.loads(top.stdout)["items"]]
    assert host.run("top").stdout.split()[:3] == ["WORKLOAD", "LOCATION", "NAME"]
