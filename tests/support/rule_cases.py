"""Case files of rules: manifests as a user could have written them, each expected finding marked on its line.

``# ← rule`` or ``# ← rule:column`` at the end of a line, several parted by commas; ``# ↓ rule`` on the line above where
the line itself has no room for a comment. A file that is one mapping with ``files`` holds several, or odd bytes, or
what was applied ``before``, or an ``identity`` and files of the ``host``, or engines by
``locations``, or patterns of ``allowed`` images, or ``channels`` with their GVCs; its ``expect`` lists the findings.
Instead of its text, such a file may be a list of parts, with ``{repeat: TEXT, times: N}`` for what is many, or
``{link to: PATH}`` or ``{submodule at: COMMIT}``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Finding
from reconciler.pipeline.externals import ExternalResources
from reconciler.render.excerpt import Excerpts
from reconciler.render.findings import findings_text
from reconciler.review.folder import check_folder
from reconciler.settings import ImageSettings, LocationSettings, SecretSettings, SettingsError, load_settings
from reconciler.settings.notifications import ChannelSettings, NotificationSettings, WebhookChannelSettings
from reconciler.source.file_reader import Read
from tests.support.git import File, Submodule, Symlink
from tests.support.pipeline import PipelineHarness

CASES = Path(__file__).parent.parent / "cases" / "rules"
NAME = "manifest.yaml"
SETTINGS = "settings.yaml"
MOST_SHOWN = 10
"""Findings of a case that its golden text shows."""
DIALECT = ManifestContext("acme", secret_key=b"k" * 32)
AROUND = ExternalResources(external=frozenset({"gvc/shop", "gvc/ops"}), settings_unknown=True)
_MARK = re.compile(r"#\s*([←↓])\s*(.*?)\s*$")


class Mark(NamedTuple):
    """An expected finding; ``column`` is 0 where the case leaves it open."""

    rule: str
    path: str
    line: int
    column: int = 0


class Case(msgspec.Struct):
    """One case; ``files`` by path."""

    files: dict[str, File] = {}
    before: dict[str, File] = {}
    settings: str = ""
    identity: str = ""
    host: dict[str, str] = {}
    locations: dict[str, str] = {}
    allowed: tuple[str, ...] = ()
    channels: dict[str, tuple[str, ...]] = {}
    expect: list[dict[str, Any]] = []
    plain: bool = False

    @classmethod
    def load(cls, path: Path) -> Case:
        """The case in the file at ``path``."""
        raw = path.read_bytes()
        written = wrapped(raw)
        if not written:
            return cls({NAME: raw}, plain=True)
        files = {part: _files(written.pop(part, {})) for part in ("files", "before")}
        return cls(**files, **written)


def _files(written: dict[str, Any]) -> dict[str, File]:
    return {path: _file(content) for path, content in written.items()}


def _file(content: Any) -> File:
    if isinstance(content, dict):
        return Symlink(content["link to"]) if "link to" in content else Submodule(content["submodule at"])
    if isinstance(content, list):
        return "".join(part if isinstance(part, str) else part["repeat"] * part["times"] for part in content)
    return content if isinstance(content, bytes) else str(content)


def wrapped(raw: bytes) -> dict[str, Any]:
    """The mapping that a case of several files is, or of settings; empty for a manifest as it is."""
    try:
        value = yaml.load(raw, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return {}
    return value if isinstance(value, dict) and ("files" in value or "settings" in value) else {}


def case_files() -> list[Path]:
    """Every case file, in order."""
    return sorted(CASES.glob("*/*.yaml"))


class Found(NamedTuple):
    """Findings, and the files that they are in."""

    findings: list[Finding]
    read: Read


def found_in(case: Case, folder: Path) -> Found:
    """The findings of ``case``, whose files are written to ``folder``."""
    if case.settings:
        return settings_findings(case, folder)
    if case.plain:
        folder.joinpath(NAME).write_bytes(bytes(case.files[NAME]))
        checked = check_folder(folder, DIALECT, AROUND)
        return Found(checked.findings, checked.read)
    secrets = SecretSettings(directory=folder / "host")
    for name, text in case.host.items():
        private(folder / "host" / name, text)
    if case.identity:
        secrets = msgspec.structs.replace(secrets, identity=private(folder / "identity.txt", case.identity))
    bound: dict[str, Any] = {
        "locations": {name: LocationSettings(engine, runtime="process") for name, engine in case.locations.items()}
    }
    more = bound if case.locations else {"external": ("//gvc/shop", "//gvc/ops")}
    images = ImageSettings(allowed=case.allowed)
    hook = WebhookChannelSettings(Path("/secret"), "http://127.0.0.1:9/")
    channels = {name: ChannelSettings(webhook=hook, gvcs=tuple(gvcs)) for name, gvcs in case.channels.items()}
    if channels:
        more["notifications"] = NotificationSettings(channels)
    harness = PipelineHarness(folder / "way", case.before or case.files, secrets=secrets, images=images, **more)
    if case.before:
        harness.applied()
        harness.commit(case.files)
    prepared = harness.prepare()
    return Found(prepared.findings, prepared.read)


def private(path: Path, text: str) -> Path:
    """``path``, with ``text`` in it that others cannot read."""
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def settings_findings(case: Case, folder: Path) -> Found:
    """The findings of the settings of ``case``."""
    path = folder / SETTINGS
    path.write_text(case.settings)
    try:
        load_settings(path)
    except SettingsError as error:
        raw = error.raw
        return Found([msgspec.structs.replace(each, path=SETTINGS) for each in error.findings], lambda _: raw)
    return Found([], lambda _: b"")


def marks_of(case: Case) -> list[Mark]:
    """The findings that ``case`` expects, in order."""
    if not case.plain:
        name = SETTINGS if case.settings else NAME
        return sorted(
            Mark(
                one["rule"],
                one.get("path", name),
                one.get("line", 0) + number * one.get("step", 0),
                one.get("column", 0),
            )
            for one in case.expect
            for number in range(one.get("times", 1))
        )
    marks: list[Mark] = []
    for number, line in enumerate(bytes(case.files[NAME]).decode("utf-8", "replace").split("\n"), 1):
        mark = _MARK.search(line)
        for word in mark[2].split(",") if mark else ():
            rule, _, column = word.strip().partition(":")
            marks.append(Mark(rule, NAME, number + (mark is not None and mark[1] == "↓"), int(column or 0)))
    return sorted(marks)


def text_of(case: Case, folder: Path) -> str:
    """The output of `reconciler validate` for ``case``, with the usual directory of the host's secrets."""
    return _make_text(case, folder).replace(str((folder / "host").resolve()), "/etc/reconciler/secrets")


def _make_text(case: Case, folder: Path) -> str:
    result = found_in(case, folder)
    excerpts = Excerpts(result.read, secrets=not case.settings)
    rest = len(result.findings) - MOST_SHOWN
    if rest <= 0:
        return findings_text(result.findings, excerpts)
    few, last = result.findings[: MOST_SHOWN - 5], result.findings[-1:]
    return f"{findings_text(few, excerpts)}… and {rest + 4} more …\n{findings_text(last, excerpts)}"
