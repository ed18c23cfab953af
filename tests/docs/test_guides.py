"""The guides work as printed: their commands are run, their excerpts are what they print, their names exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate.pages import COMING_FROM, DOCS, GUIDES, TUTORIALS
from reconciler.cli import read_commands
from reconciler.documents.schema.loader import load_schema
from reconciler.settings.loader import load_settings
from tests.docs.journey import find_missing, read_journey, text
from tests.docs.shell import blocks, typed
from tests.project.tree import ROOT
from tests.support.programs import path_without

JOURNEY = ("docs/quickstart.md", "README.md", "docs/review.md", "docs/operations.md")
"""Pages whose commands are run one after the other, in one shell, as a reader would run them."""
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{name}" for name in GUIDES | COMING_FROM | TUTORIALS))
REASON = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`")
FULL = "org: acme\nsources: [{name: main, url: manifests}]\nlocations: {here: {engine: recorded}}\n"
"""Settings with all that is required."""


def check(home: Path, install: str) -> None:
    """Run every page of the journey in one shell and compare the excerpts."""
    journey = read_journey(JOURNEY, install)
    # Podman would pull the images of the pages.
    printed = typed(journey.script, home, ROOT, PATH=path_without("podman", home / ".programs"))
    assert "16 created (20 steps)" in printed
    assert find_missing(journey, printed) == []


def test_all_commands_and_excerpts_are_what_happens(tmp_path: Path) -> None:
    check(tmp_path, f"export PATH={Path(sys.executable).parent}:$PATH")


KEY = re.compile(r"\b(?:workload|volumeset|identity|secret|gvc)/[a-z][-a-z0-9]*(?:/[a-z][-a-z0-9]*)?")


def test_commands_of_the_journey_name_what_the_example_has() -> None:
    """A reader types them in the example; a block that no test runs has them, too."""
    there = set()
    for file in (ROOT / "examples/repo").glob("*/*.yaml"):
        for manifest in yaml.safe_load_all(file.read_text()):
            names = (manifest["kind"], "" if file.parent.name == "_org" else file.parent.name, manifest["name"])
            there.add("/".join(filter(None, names if manifest["kind"] != "gvc" else (names[0], names[2]))))
    for page in JOURNEY:
        commands = re.findall(r"reconciler [a-z][^`\n]*", text(page))
        named = {key for command in commands for key in KEY.findall(command)}
        assert named <= there, f"{page}: {sorted(named - there)}"


def find_nginx(manifest: Any) -> list[dict[str, Any]]:
    """The containers of ``manifest`` with ports that run nginx."""
    if not isinstance(manifest, dict) or manifest.get("kind") != "workload":
        return []
    containers = manifest["spec"]["containers"]
    return [each for each in containers if each["image"].startswith("nginx") and "ports" in each]


def test_the_examples_of_pages_declare_the_port_on_which_nginx_listens() -> None:
    """People copy the first example that they see, and any other port is never ready."""
    seen = 0
    for page in sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "rules.md"):
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for manifest in yaml.safe_load_all(block):
                for container in find_nginx(manifest):
                    seen += 1
                    assert container["ports"][0]["number"] == 80, page.name
    assert seen >= 2


@pytest.mark.slow
def test_the_quick_start_installs_as_printed(tmp_path: Path) -> None:
    (install,) = blocks(text("docs/quickstart.md"), "sh install")
    check(tmp_path, install)


def test_the_ci_commands_need_only_a_clone(tmp_path: Path) -> None:
    (run,) = [block for block in blocks(text("docs/review.md"), "") if "reconciler diff" in block]
    script = f"""
        export PATH={Path(sys.executable).parent}:$PATH
        reconciler init upstream
        git -C upstream switch --quiet --create other
        git clone --quiet --branch main upstream clone && cd clone
        git config user.name Ada && git config user.email ada@example.com
        sed -i 's/maxScale: 6/maxScale: 8/' shop/api.yaml
        git commit --quiet --all --message Grow
        {run}
        cat plan.md"""
    assert "maxScale" in typed(script, tmp_path, tmp_path)


@pytest.mark.parametrize(("page", "resources"), [("docs/manifests.md", 2), ("docs/secrets.md", 1)])
def test_manifests_in_the_pages_are_valid(page: str, resources: int, tmp_path: Path) -> None:
    (manifests,) = [block for block in blocks(text(page), "yaml") if block.startswith("kind:")]
    (tmp_path / "some.yaml").write_text(manifests)
    printed = typed(f"{Path(sys.executable).parent}/reconciler validate .", tmp_path, tmp_path)
    assert printed.startswith("no findings in ")
    assert f" {resources} resource" in printed


def test_settings_in_the_pages_are_valid(tmp_path: Path) -> None:
    found = [block for page in PAGES for block in blocks(text(page), "yaml") if not block.startswith("kind:")]
    assert len(found) > 3
    for number, block in enumerate(found):
        own = set(re.findall(r"^(\w+):", block, re.M))
        rest = [line for line in FULL.splitlines() if line.partition(":")[0] not in own]
        path = tmp_path / f"{number}.yaml"
        path.write_text("\n".join([*rest, block]))
        load_settings(path)


def test_every_setting_that_is_named_exists() -> None:
    schema = load_schema("settings")
    named = {name for page in PAGES for name in re.findall(r"`([a-z]\w*(?:\[\])?(?:\.\w+(?:\[\])?)+)[`:]", text(page))}
    names = {name for name in named if not name.endswith(".platform.local")}  # no hosts
    of_settings = {name for name in names if re.split(r"[\[.]", name)[0] in schema["properties"]}
    assert "sources[].credentials" in of_settings
    assert [name for name in sorted(of_settings) if not is_setting(schema, name)] == []


def is_setting(schema: dict[str, Any], path: str) -> bool:
    """Whether ``sources[].status.branch`` leads to something in the schema."""
    node = schema
    for part in path.split("."):
        node = node.get("properties", {}).get(part.removesuffix("[]"), {})
        node = node.get("items", {}) if part.endswith("[]") else node
    return bool(node)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_is_named_exists(page: str) -> None:
    named = set(re.findall(r"(?:`|^|\$ )reconciler ([a-z]+)", text(page), re.M))
    assert named - read_commands().keys() == set()


def test_every_reason_that_is_named_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", (DOCS / "status.md").read_text()))
    named = {reason for page in PAGES for reason in REASON.findall(text(page))}
    assert "InvalidRevision" in named
    assert named - documented == set()


def test_every_file_that_is_named_exists() -> None:
    named = {
        path
        for page in PAGES
        for path in re.findall(r"(?<![/\w])((?:systemd|schemas|examples)/[\w./@-]*\w)(?![\w*])", text(page))
    }
    assert "systemd/settings.yaml" in named
    assert [path for path in sorted(named) if "KIND" not in path and not (ROOT / path).exists()] == []


def test_every_target_of_make_that_is_named_exists() -> None:
    makefile = text("Makefile")
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make (\w+)\b", text(page), re.M)}
    assert named >= {"run", "test", "bench", "lint", "soak", "fuzz"}
    assert [name for name in named if f"\n{name}:" not in makefile] == []
