"""What an operator has: a repository of manifests, settings and a state directory, and the commands run on them."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from reconciler.cli import main
from tests.support import processes
from tests.support.cases import CASES
from tests.support.git import File
from tests.support.sandbox import Sandbox

GVC = """kind: gvc
name: shop
spec:
  staticPlacement:
    locationLinks:
      - //location/here
      - //location/there
"""

SECRET = """kind: secret
name: db
type: dictionary
data: # reconciler: ignore secret-plain-text made up
  user: shop
  password: {password}
---
kind: policy
name: reveal-db
targetKind: secret
targetLinks: [//secret/db]
bindings:
  - permissions: [reveal]
    principalLinks: [//gvc/shop/identity/api]
"""

DB = """kind: volumeset
name: data
spec: {initialCapacity: 10, performanceClass: general-purpose-ssd, fileSystemType: ext4}
---
kind: workload
name: db
spec:
  type: stateful
  containers:
    - name: store
      image: //image/store:1
      ports: [{number: 7000, protocol: tcp}]
      readinessProbe: {exec: {command: [ready]}}
      volumes: [{uri: "platform://volumeset/data", path: /data}]
"""


def workload(name: str = "api", tag: str = "1", more: str = "") -> str:
    """A standard workload; ``more`` are further lines at its top level."""
    return f"""kind: workload
name: {name}
{more}spec:
  type: standard
  containers:
    - name: main
      image: //image/{name}:{tag}
      ports: [{{number: 8080, protocol: http}}]
      readinessProbe: {{httpGet: {{path: /}}}}
"""


WITH_PASSWORD = (
    workload()
    .replace("spec:", "spec:\n  identityLink: //identity/api")
    .replace(
        "protocol: http}]", "protocol: http}]\n      env: [{name: PASSWORD, value: platform://secret/db.password}]"
    )
)

SHOP: dict[str, File] = {
    "secrets.yaml": SECRET.format(password="not-a-real-password"),
    "shop/gvc.yaml": GVC,
    "shop/api.yaml": f"kind: identity\nname: api\n---\n{WITH_PASSWORD}",
    "shop/web.yaml": workload("web"),
    "shop/db.yaml": DB,
}
"""Eight resources in a GVC at two places, eleven records."""

SETTINGS = """org: acme
state: state
sources:
  - {name: main, url: ./manifests, branch: main}
locations:
  here: {engine: recorded}
  there: {engine: recorded}
"""


class CommandResult(NamedTuple):
    """The exit code of a command, and its output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


class CommandSandbox(Sandbox):
    """A sandbox for commands, run in this process as ``main`` runs them, or with ``real`` in one of their own."""

    def __init__(self, path: Path, files: Mapping[str, File] = SHOP, settings: str = SETTINGS) -> None:
        super().__init__(path, "manifests", files)
        self.settings = self.settings_file
        self.settings.write_text(settings)

    def run(self, *words: str, real: bool = False, cwd: Path | None = None, **environ: str) -> CommandResult:
        """``reconciler WORDS``, at the sandbox or in ``cwd``."""
        place = cwd or self.path
        environ = {**self.environ, **environ}
        return (alone if real else here)(*words, cwd=place, **environ)

    def commit(self, files: Mapping[str, File], **how: Any) -> str:
        """One more commit on the source's branch."""
        return self.repo.commit(files, **how)

    def applied(self) -> CommandResult:
        """One run that must end well."""
        result = self.run("apply")
        assert result.code == 0, result
        return result

    def plan(self, *words: str) -> Any:
        """The plan as a document."""
        return self.run("plan", "--format", "json", *words).json

    def status(self, path: str) -> str:
        """A file of the status branch."""
        return self.repo.git("show", f"reconciler/status:{path}")

    def recorded(self) -> set[str]:
        """Keys of what is recorded."""
        items = self.run("get", "-o", "json").json["items"]
        return {"/".join(filter(None, (item["kind"], item.get("gvc"), item["name"]))) for item in items}


def here(*words: str, cwd: Path, **environ: str) -> CommandResult:
    """``reconciler WORDS`` in this process; the settings are those in ``cwd``."""
    environ = {"RECONCILER_SETTINGS": str(cwd / "settings.yaml"), **environ}
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["reconciler", *words]),
        patch.dict(os.environ, environ),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    output = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return CommandResult(int(code or 0), *output)


def alone(*words: str, cwd: Path, fresh: bool = False, **environ: str) -> CommandResult:
    """``reconciler WORDS`` in a process of its own; the settings are those in ``cwd``."""
    environ = {"RECONCILER_SETTINGS": str(cwd / "settings.yaml"), **environ}
    ended = processes.reconciler(*words, cwd=cwd, environ=environ, fresh=fresh)
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)


def golden(name: str, text: str) -> None:
    """``text`` is what the file ``name`` in tests/cases/cli shows, ids aside; written where NEW_GOLDEN asks for it."""
    shown = re.sub(r"\b([0-9a-f]{12}|[0-9a-f]{32,40})\b", "<id>", text)
    file = CASES / "cli" / name
    if os.environ.get("NEW_GOLDEN"):
        file.write_text(shown)
    expected = file.read_text()
    assert shown == expected, "".join(unified_diff(expected.splitlines(True), shown.splitlines(True), name, "shown"))
