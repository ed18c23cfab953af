"""Findings in the forms that forges read: annotations of a workflow, and SARIF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from reconciler.model.finding import Finding, Severity
from reconciler.render.forges import build_report, workflow_commands
from reconciler.render.junit import build_junit_report
from reconciler.render.sarif import build_sarif_run
from reconciler.rulebook import load_rulebook
from tests.cli.test_validate import FAULTY, lay
from tests.support.command_sandbox import SETTINGS, CommandResult, CommandSandbox, here, workload
from tests.support.rule_cases import Case, case_files, found_in

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-schema-2.1.0.json").read_bytes())
SARIF = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
ODD = "100 %, a: b\nand\r more"


def finding(path: str = "shop/api.yaml", line: int = 3, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(path, line, 7 if line else 0, "some-rule", severity, ODD, "do: this, 1 %")


def validate(path: Path, form: str, *words: str, **environ: str) -> CommandResult:
    environ = {"RECONCILER_SETTINGS": str(path / "none.yaml"), "GITHUB_WORKSPACE": "", **environ}
    return here("validate", *words, "--format", form, cwd=path, **environ)


def results(result: CommandResult) -> list[dict[str, Any]]:
    document = result.json
    SARIF.validate(document)
    found: list[dict[str, Any]] = document["runs"][0]["results"]
    return found


def uris(result: CommandResult) -> set[str]:
    return {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results(result)}


def test_an_annotation_escapes_what_would_end_it() -> None:
    line = workflow_commands([finding("a,b:c%.yaml")])
    place = "file=a%2Cb%3Ac%25.yaml,line=3,col=7,title=some-rule"
    assert line == f"::error {place}::100 %25, a: b%0Aand%0D more%0Ado: this, 1 %25\n"


@pytest.mark.parametrize("severity", Severity)
def test_an_annotation_has_the_severity_of_its_finding(severity: Severity) -> None:
    assert workflow_commands([finding(severity=severity)]).startswith(f"::{severity} file=")


def test_an_annotation_of_a_whole_file_has_no_line() -> None:
    assert workflow_commands([finding(line=0)]).startswith("::error file=shop/api.yaml,title=some-rule::100")


def test_a_workflow_gets_every_finding_and_the_count(tmp_path: Path) -> None:
    lay(tmp_path / "m", FAULTY)
    result = validate(tmp_path, "github", "m")
    *commands, count = result.out.splitlines()
    assert (result.code, len(commands), count) == (1, 5, "4 errors, 1 notice")
    assert "::error file=shop/web.yaml,line=4,col=9,title=workload-type::`standrd` is not allowed here" in result.out


def test_a_report_of_tests_has_a_suite_for_each_file_and_a_failure_for_each_error(tmp_path: Path) -> None:
    lay(tmp_path / "m", FAULTY)
    result = validate(tmp_path, "junit", "m")
    top = ElementTree.fromstring(result.out)
    suites = {suite.get("name"): (suite.get("tests"), suite.get("failures")) for suite in top}
    assert (result.code, len(top.findall("*/testcase/failure")), len(top.findall("*/testcase"))) == (1, 4, 5)
    assert suites["broken.yaml"] == ("1", "1")
    [failure] = [each for each in top.iter("failure") if each.get("type") == "workload-type"]
    assert (failure.text or "").startswith("shop/web.yaml:4:9: error: `standrd` is not allowed here")


def test_a_report_of_tests_without_findings_has_one_that_passes() -> None:
    top = ElementTree.fromstring(build_junit_report([]))
    assert [(case.get("name"), len(case)) for case in top.iter("testcase")] == [("no findings", 0)]


def test_a_report_of_tests_escapes_what_xml_cannot_have() -> None:
    hostile = Finding('a<&".yaml', 1, 1, "some-rule", Severity.ERROR, "]]> \x1b \ud800 \ufffe", "")
    [failure] = ElementTree.fromstring(build_junit_report([hostile])).iter("failure")
    assert failure.text == 'a<&".yaml:1:1: error: ]]> \ufffd \ufffd \ufffd'


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_paths_begin_at_the_root_of_the_repository(tmp_path: Path, form: str) -> None:
    lay(tmp_path / "deploy/m", FAULTY)
    (tmp_path / ".git").mkdir()
    assert "deploy/m/broken.yaml" in validate(tmp_path, form, "deploy/m").out
    assert "deploy/m/broken.yaml" in validate(tmp_path / "deploy", form, "m/broken.yaml").out
    result = validate(tmp_path, form, "deploy/m", GITHUB_WORKSPACE=str(tmp_path / "deploy"))
    assert '"m/broken.yaml"' in result.out or "file=m/broken.yaml," in result.out


def test_paths_of_a_source_begin_at_the_root_of_its_repository(tmp_path: Path) -> None:
    sandbox = CommandSandbox(
        tmp_path, {"deploy/a.yaml": workload()}, SETTINGS.replace("branch: main", "branch: main, path: deploy")
    )
    assert uris(sandbox.run("validate", "--format", "sarif")) == {"deploy/a.yaml"}


def test_sarif_lists_the_rules_that_are_broken(tmp_path: Path) -> None:
    lay(tmp_path / "m", FAULTY)
    result = validate(tmp_path, "sarif", "m")
    assert result.code == 1
    broken = results(result)
    rules = result.json["runs"][0]["tool"]["driver"]["rules"]
    assert [rules[each["ruleIndex"]]["id"] for each in broken] == [each["ruleId"] for each in broken]
    assert {rule["id"] for rule in rules} == {each["ruleId"] for each in broken}
    assert {(each["ruleId"], each["level"]) for each in broken} >= {("syntax", "error"), ("server-owned-field", "note")}
    assert all("reconciler explain" in rule["help"]["text"] for rule in rules)


def test_sarif_of_sound_files_has_no_results(tmp_path: Path) -> None:
    lay(tmp_path / "m", {"location.yaml": "kind: location\nname: local\nprovider: byok\n"})
    result = validate(tmp_path, "sarif", "m")
    assert (result.code, results(result)) == (0, [])


def test_sarif_of_every_rule_fits_its_schema(tmp_path: Path) -> None:
    findings = []
    for number, path in enumerate(path for path in case_files() if path.name == "fails.yaml"):
        folder = tmp_path / str(number)
        folder.mkdir()
        findings += found_in(Case.load(path), folder).findings
    document = build_sarif_run(findings)
    SARIF.validate(document)
    assert {rule["id"] for rule in document["runs"][0]["tool"]["driver"]["rules"]} == load_rulebook().keys()


def test_sarif_encodes_paths_and_leaves_out_places_that_are_none() -> None:
    document = build_sarif_run([finding("Größe 1/a%b.yaml", line=0)])
    SARIF.validate(document)
    (location,) = document["runs"][0]["results"][0]["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "Gr%C3%B6%C3%9Fe%201/a%25b.yaml", "uriBaseId": "%SRCROOT%"}
    }


def test_a_code_quality_report_has_a_line_for_everything() -> None:
    (whole, there) = build_report([finding(line=0), finding(severity=Severity.WARNING)])
    assert (whole["location"], whole["severity"]) == ({"path": "shop/api.yaml", "lines": {"begin": 1}}, "critical")
    assert (there["location"]["lines"], there["severity"]) == ({"begin": 3}, "minor")
    assert there["description"] == f"{ODD}; do: this, 1 %"
    assert whole["fingerprint"] != there["fingerprint"]


def test_a_fingerprint_stays_where_lines_are_added_above() -> None:
    def fingerprints(*lines: int) -> list[str]:
        found = build_sarif_run([finding(line=line) for line in lines])["runs"][0]["results"]
        return [each["partialFingerprints"]["findingWithoutLine/v1"] for each in found]

    assert fingerprints(3, 9) == fingerprints(5, 11)
    assert len(set(fingerprints(3, 9))) == 2
