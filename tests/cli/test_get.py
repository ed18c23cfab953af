"""`reconciler get` and `describe` show what is recorded, and never a secret."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from reconciler.model.record import Health
from reconciler.records.store import FILE
from reconciler.times import format_iso_time
from tests.support.command_sandbox import alone, here
from tests.support.pace import on_quiet_machine
from tests.support.records import AT, REVISION, cpu_seconds, record, shop

MISSING = "there is no workload/shop/wep, neither in Git nor in the records"


def items(directory: Path, *words: str) -> dict[str, dict[str, object]]:
    result = here("get", *words, "-o", "json", cwd=directory)
    assert result.code == 0, result.err
    document = json.loads(result.out)
    return {item["name"]: item for item in document.get("items", [document])}


def test_the_table_has_a_line_for_each_resource(tmp_path: Path) -> None:
    shop(tmp_path).close()
    result = alone("get", cwd=tmp_path)
    assert result.code == 0, result.err
    lines = [line.split(maxsplit=5) for line in result.out.splitlines()]
    assert lines[:4] == [
        ["KEY", "HEALTH", "READY", "VERSION", "AGE", "MESSAGE"],
        ["gvc/shop", "Unhealthy", "no", "1", "0s", "a resource in it is Unhealthy: reconciler get --gvc shop"],
        ["secret/db", "Healthy", "yes", "1", "0s"],
        ["workload/shop/api", "Healthy", "yes", "3", "0s"],
    ]
    assert lines[4][:5] == ["workload/shop/web", "Unhealthy", "no", "1", "0s"]
    assert lines[4][5].startswith("ProgramNotFound: at aws-us-west-2: ")
    assert "\x1b" not in result.out


def test_an_item_is_the_manifest_and_what_is_recorded_of_it(tmp_path: Path) -> None:
    shop(tmp_path).close()
    api = items(tmp_path, "workload", "api")["api"]
    conditions = {condition["type"]: condition for condition in api.pop("conditions")}  # type: ignore[attr-defined]
    assert conditions["Ready"]["status"] is True
    assert "gcp-us-east1" in conditions["Placed"]["message"]
    assert api == {
        "kind": "workload",
        "name": "api",
        "gvc": "shop",
        "description": "api",
        "spec": {"type": "standard"},
        "source": "main",
        "revision": REVISION,
        "version": 3,
        "applied": format_iso_time(AT),
        "created": format_iso_time(AT),
        "health": "Healthy",
        "deployments": [
            {
                "location": "aws-us-west-2",
                "engine": "recorded",
                "health": "Healthy",
                "version": 3,
                "status": {"endpoint": "https://api-abc.aws-us-west-2.platform.local", "ready": True},
            }
        ],
    }
    gvc = items(tmp_path, "gvc")["shop"]
    assert gvc["alias"] == "abcdefghijklm"
    assert "gvc" not in gvc


def test_arguments_of_get_filter_the_list(tmp_path: Path) -> None:
    shop(tmp_path).close()
    assert set(items(tmp_path)) == {"shop", "db", "api", "web"}
    assert set(items(tmp_path, "workload")) == {"api", "web"}
    assert set(items(tmp_path, "workload", "--gvc", "shop")) == {"api", "web"}
    assert set(items(tmp_path, "volumeset", "--gvc", "shop")) == set()


@pytest.mark.parametrize("output", ["json", "yaml", "text"])
def test_secret_data_is_shown_by_no_output(tmp_path: Path, output: str) -> None:
    shop(tmp_path).close()
    text = here("get", "secret", "db", "-o", output, cwd=tmp_path).out
    assert "5f3c" not in text
    if output != "text":
        assert yaml.safe_load(text)["data"] == {"password": "***", "user": "***"}
    assert "5f3c" not in here("describe", "secret/db", cwd=tmp_path).out


def test_yaml_and_json_show_the_same(tmp_path: Path) -> None:
    shop(tmp_path).close()
    texts = [here("get", "-o", form, cwd=tmp_path).out for form in ("json", "yaml")]
    assert json.loads(texts[0]) == yaml.safe_load(texts[1])
    none = [here("get", "policy", "-o", form, cwd=tmp_path).out for form in ("json", "yaml")]
    assert json.loads(none[0]) == yaml.safe_load(none[1])
    assert json.loads(none[0])["items"] == []


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["workload", "apo"], 1, "error: there is no workload 'apo'; did you mean api?"),
        (
            ["workload", "api", "--gvc", "shap"],
            1,
            "error: there is no gvc 'shap', neither in Git nor in the records; did you mean shop?",
        ),
        (["worklod"], 2, "error: there is no kind 'worklod'; did you mean workload?"),
        (["all"], 2, "error: there is no kind 'all'; `reconciler get` lists all kinds"),
        (["po"], 2, "error: there is no kind 'po'; `reconciler top` lists the replicas"),
        (["services"], 2, "error: there is no kind 'services'; `reconciler get workload` lists them"),
        (["x"], 2, "error: there is no kind 'x'; there are: org, agent, auditctx, "),
    ],
)
def test_get_suggests_the_nearest_name(tmp_path: Path, words: list[str], code: int, complaint: str) -> None:
    shop(tmp_path).close()
    result = here("get", *words, cwd=tmp_path)
    assert (result.code, result.out) == (code, "")
    assert result.err.splitlines()[-1].startswith(complaint)


def test_records_that_are_not_there_yet_are_an_error_and_stay_so(tmp_path: Path) -> None:
    shop(tmp_path).close()
    for file in (tmp_path / "state").iterdir():
        file.unlink()
    result = here("get", cwd=tmp_path)
    assert result.code == 1
    assert result.err.startswith("error: there are no records yet")
    assert not (tmp_path / "state" / FILE).exists()


def test_reading_goes_on_while_the_daemon_writes(tmp_path: Path) -> None:
    records = shop(tmp_path)
    with records.transaction():
        records.applied.put(record("secret/new", {"type": "opaque", "data": {"payload": "***00"}}))
        assert set(items(tmp_path, "secret")) == {"db"}
    assert set(items(tmp_path, "secret")) == {"db", "new"}


def test_get_answers_in_a_quarter_of_a_second(tmp_path: Path) -> None:
    shop(tmp_path).close()
    assert any(on_quiet_machine(cpu_seconds("get", "-o", "json", cwd=tmp_path)) < 0.25 for _ in range(20))


def test_describe_shows_all_that_is_known(tmp_path: Path) -> None:
    shop(tmp_path).close()
    result = alone("describe", "workload/shop/web", cwd=tmp_path)
    assert result.code == 0, result.err
    sections = result.out.split("\n\n")
    assert [section.splitlines()[0] for section in sections] == [
        "workload/shop/web",
        "Not well",
        "Summary",
        "Conditions",
        "Locations",
        "Failures",
        "Fields",
        "Events",
    ]
    assert re.match(r"Not well\n  ProgramNotFound +at aws-us-west-2: ", sections[1])
    assert "main (workload/shop/web.yaml)" in sections[2]
    assert "ProgramNotFound" in sections[3]
    assert "gcp-us-east1" in sections[4]
    assert "tried 2 times, again at 2027-01-15T08:01:00Z" in sections[5]
    assert yaml.safe_load(sections[6].partition("\n")[2]) == {"spec": {}}
    assert "no such image" in sections[7]
    assert "image changed" not in sections[7]


def test_a_crash_leads_to_its_log(tmp_path: Path) -> None:
    records = shop(tmp_path)
    ended = {"name": "old-4bpw8", "version": 1, "ready": False, "ports": {}, "message": "main: ended with 3 (Error)"}
    state = json.dumps({"status": {"replicas": [ended]}}).encode()
    failing = record("workload/shop/old", {}, "aws-us-west-2", health=Health.UNHEALTHY, state=state)
    with records.transaction():
        records.applied.put(failing)
    first = here("describe", "workload/shop/old", cwd=tmp_path).out.partition("\n\nSummary")[0]
    assert re.search(r"^  old-4bpw8 +main: ended with 3 \(Error\)$", first, re.M)
    assert re.search(r"^  Log +its last lines: reconciler logs workload/shop/old$", first, re.M)


def test_describe_shows_replicas_and_where_they_answer(tmp_path: Path) -> None:
    records = shop(tmp_path)
    common = {"version": 2, "ready": True, "ports": {"8080": 29624, "9000": 29625}, "message": "", "restarts": 1}
    ending = {"version": 1, "ready": False, "ports": {}, "message": "ending: Replaced"}
    lacks = {"type": "NotEnforced", "status": "True", "reason": "NotEnforced", "message": "No a:1.2 here. And no b."}
    state = {
        "status": {"conditions": [lacks], "replicas": [common | {"name": "api-4bpw8"}, ending | {"name": "api-snqg6"}]}
    }
    with records.transaction():
        records.applied.put(record("workload/shop/api", {}, "aws-us-west-2", state=json.dumps(state).encode()))
        records.applied.put(record("workload/shop/api", {}, "gcp-us-east1"))
    output = here("describe", "workload/shop/api", cwd=tmp_path).out
    assert output.partition("\nReplicas\n")[2].partition("\n\n")[0].splitlines() == [
        "  api-4bpw8  aws-us-west-2  version 2  ready      1 restart   127.0.0.1:29624->8080 127.0.0.1:29625->9000",
        "  api-snqg6  aws-us-west-2  version 1  not ready  0 restarts"
        "                                               ending: Replaced",
    ]
    assert output.partition("\nNo effect\n")[2].partition("\n\n")[0].splitlines() == [
        "  aws-us-west-2  No a:1.2 here.",
        "  aws-us-west-2  And no b.",
    ]
    places = output.partition("\nLocations\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in places] == ["aws-us-west-2", "gcp-us-east1"]
    assert places[1].endswith("no longer bound here, so not observed")


def test_describe_shows_the_executions_of_a_cron_workload(tmp_path: Path) -> None:
    records = shop(tmp_path)
    times = {"startTime": "2026-01-01T00:01:00Z", "completionTime": "2026-01-01T00:01:30Z"}
    failed = {"type": "Failed", "status": "True", "message": "main ended with 3 (Error)", "reason": "Error"}
    ended = {"name": "api-29453761", "workloadVersion": 1, "status": "Failure", **times, "conditions": [failed]}
    runs = {"name": "api-29453762", "workloadVersion": 2, "status": "Active", **times, "conditions": []}
    state = {"status": {"jobExecutions": [ended, runs | {"completionTime": ""}]}}
    with records.transaction():
        records.applied.put(record("workload/shop/api", {}, "aws-us-west-2", state=json.dumps(state).encode()))
    output = here("describe", "workload/shop/api", cwd=tmp_path).out
    begin, end = times["startTime"], times["completionTime"]
    assert output.partition("\nExecutions\n")[2].partition("\n\n")[0].splitlines() == [
        f"  api-29453761  aws-us-west-2  version 1  Failure  {begin}  {end}  main ended with 3 (Error)",
        f"  api-29453762  aws-us-west-2  version 2  Active   {begin}  -",
    ]


def test_describing_the_unknown_names_the_nearest(tmp_path: Path) -> None:
    shop(tmp_path).close()
    result = here("describe", "workload/shop/wep", cwd=tmp_path)
    assert result.code == 1
    assert result.err == f"error: {MISSING}; did you mean workload/shop/web?\n"


def test_texts_of_several_lines_are_shown_as_they_are_written(tmp_path: Path) -> None:
    records = shop(tmp_path)
    script = "import os\n\nif os:\n    print('a: b')  # no quotes around it\n"
    odd = {"trailing": "blank \nline", "leading": "\n  indented", "empty": "", "tab": "\ta\n\tb\n", "signs": "\x07\n"}
    with records.transaction():
        records.applied.put(record("workload/shop/script", {"spec": {"args": [script]}, "tags": odd}))
    result = here("get", "workload", "script", "-o", "yaml", cwd=tmp_path)
    assert "    - |\n      import os\n\n      if os:\n          print('a: b')  # no quotes" in result.out
    item = yaml.safe_load(result.out)
    assert (item["spec"]["args"], item["tags"]) == ([script], odd)
    fields = here("describe", "workload/shop/script", cwd=tmp_path).out.partition("\nFields\n")[2].partition("\n\nE")[0]
    assert yaml.safe_load(fields) == {"spec": {"args": [script]}, "tags": odd}
