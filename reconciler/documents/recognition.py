"""What a file is, by its name and its first keys, and which command takes it."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from reconciler.documents.reader import parse_documents
from reconciler.documents.types import Document
from reconciler.errors import RefusedError
from reconciler.model.key import KINDS
from reconciler.printable import escape_text

UNIT_SUFFIXES = (".container", ".pod", ".volume", ".network", ".image", ".build", ".kube", ".timer")
"""How the names of quadlets end, and of the timers beside them."""
DROP_IN = ".conf"
"""How the name of a drop-in ends, which has more entries of a unit."""
_UNIT_TYPES = "|".join(suffix[1:] for suffix in UNIT_SUFFIXES)
_DROP_IN = re.compile(rf"(?:^|.*/)(?:[^/]*\.)?(?:{_UNIT_TYPES})\.d/[^/]+\{DROP_IN}")
_KEY = re.compile(rb"^[\"']?([A-Za-z][-A-Za-z0-9_]{0,40})[\"']?[ \t]*:(?:[ \t\r\n]|\Z)", re.MULTILINE)
_KIND = re.compile(rb"^kind[ \t]*:[ \t]*[\"']?([A-Za-z]{1,60})", re.MULTILINE)
_TEMPLATE = re.compile(rb"\{\{-?[ \t]*[^}\n]{0,200}\}\}")
_COMPOSE = re.compile(r"(?:docker-)?compose(?:\.[-.\w]{1,60})?\.ya?ml")
_KAMAL = frozenset({"servers", "image", "accessories", "proxy", "registry", "builder"})
_DESTINATION = re.compile(r"deploy\.([-\w]{1,60})\.ya?ml")
_CI_FOLDERS = frozenset({".github", ".gitea", ".forgejo", ".circleci", ".woodpecker", ".buildkite"})
_OURS = frozenset({*KINDS, "list", "queryresult"})
"""Kinds of manifests, and of the lists of them that the platform exports."""
_VALUES = "values.yaml"
_STDIN = "stdin"
"""The path of standard input among the files of a command."""
_LFS = b"version https://git-lfs.github.com/spec/"
_MOST_BYTES = 1 << 20
"""The largest file that is read for its keys where they are not at the beginning of lines."""


class Form(StrEnum):
    """The sorts of files that people come with; the value stands behind `is`."""

    MANIFEST = "a manifest"
    KUBERNETES = "Kubernetes YAML"
    KUSTOMIZATION = "a Kustomization"
    CHART = "a part of a Helm chart"
    COMPOSE = "a compose file"
    KAMAL = "a deploy.yml of Kamal"
    DESTINATION = "a destination of Kamal"
    QUADLET = "a quadlet of Podman"
    TIMER = "a timer of systemd"
    PROCFILE = "a Procfile"
    APP = "an app.json"
    FLY = "a fly.toml"
    CI = "a CI file"
    DOCKERFILE = "a Dockerfile"
    ENV = "an env file"
    TERRAFORM = "a Terraform file"
    NOMAD = "a job of Nomad"
    SYSTEMD = "a unit of systemd"
    RENDER = "a render.yaml"
    SERVERLESS = "a serverless.yml"
    SKAFFOLD = "a skaffold.yaml"
    SETTINGS = "settings of the reconciler"
    LFS = "a pointer of Git LFS"
    UNKNOWN = ""


_NONE = "no command converts it: "
_PROCESSES = f"{_NONE}write a workload for each process, see docs/platform/workload.md"
_TAKEN: dict[Form, str] = {
    Form.MANIFEST: "it needs no conversion: reconciler validate {path}",
    Form.KUBERNETES: "convert it with: {convert} {path}",
    Form.KUSTOMIZATION: "convert what it makes: kustomize build {folder} | {convert} -",
    Form.CHART: "convert what it makes: helm template {chart} | {convert} -",
    Form.COMPOSE: "convert it with: {compose} {path}",
    Form.KAMAL: "convert it with: {convert} {path}",
    Form.DESTINATION: "convert it with: {convert} {main} --destination {destination}",
    Form.QUADLET: "convert it with: {convert} {path}",
    Form.TIMER: "convert it with the quadlet beside it: {convert} {folder}",
    Form.PROCFILE: _PROCESSES,
    Form.APP: _PROCESSES,
    Form.FLY: _PROCESSES,
    Form.CI: f"{_NONE}your forge runs it; to check manifests there, see docs/review.md",
    Form.DOCKERFILE: f"{_NONE}build and push its image, and name that in a workload, see docs/platform/workload.md",
    Form.ENV: f"{_NONE}name it in a compose file or a quadlet, or make a secret of its values, see docs/secrets.md",
    Form.TERRAFORM: _PROCESSES,
    Form.NOMAD: _PROCESSES,
    Form.SYSTEMD: _PROCESSES,
    Form.RENDER: _PROCESSES,
    Form.SERVERLESS: _PROCESSES,
    Form.SKAFFOLD: "convert what it makes: skaffold render --filename {path} | {convert} -",
    Form.LFS: "commit the file itself, whose content is not in Git: "
    "git lfs untrack {path} && git add --renormalize {path}",
    Form.SETTINGS: "check them with: reconciler doctor --settings {path}",
}
"""Form → which command takes the file, or that none does."""
_IN_FOLDERS = frozenset({Form.CHART, Form.KUSTOMIZATION, Form.SKAFFOLD})
"""Forms of which another tool makes what is converted, mostly from the folder around a file."""
_BY_NAME = {
    ".drone.yml": Form.CI,
    ".env": Form.ENV,
    ".gitlab-ci.yml": Form.CI,
    ".travis.yml": Form.CI,
    ".woodpecker.yml": Form.CI,
    "Chart.yaml": Form.CHART,
    "app.json": Form.APP,
    "azure-pipelines.yml": Form.CI,
    "bitbucket-pipelines.yml": Form.CI,
    "fly.toml": Form.FLY,
    "kustomization.yaml": Form.KUSTOMIZATION,
    "kustomization.yml": Form.KUSTOMIZATION,
    "render.yaml": Form.RENDER,
    "serverless.yml": Form.SERVERLESS,
    "skaffold.yaml": Form.SKAFFOLD,
}
_BY_BEGIN = {
    "Containerfile": Form.DOCKERFILE,
    "Dockerfile": Form.DOCKERFILE,
    "Jenkinsfile": Form.CI,
    "Procfile": Form.PROCFILE,
}
_BY_SUFFIX = {
    ".Containerfile": Form.DOCKERFILE,
    ".Dockerfile": Form.DOCKERFILE,
    ".dockerfile": Form.DOCKERFILE,
    ".env": Form.ENV,
    ".nomad": Form.NOMAD,
    ".nomad.hcl": Form.NOMAD,
    ".path": Form.SYSTEMD,
    ".service": Form.SYSTEMD,
    ".socket": Form.SYSTEMD,
    ".target": Form.SYSTEMD,
    ".tf": Form.TERRAFORM,
    ".tf.json": Form.TERRAFORM,
    ".tofu": Form.TERRAFORM,
}
_KUSTOMIZE = ("bases", "configMapGenerator", "namePrefix", "nameSuffix", "patches", "secretGenerator")
_BY_KEYS = (
    (frozenset({"apiVersion", "name", "version"}), Form.CHART),
    *((frozenset({"resources", key}), Form.KUSTOMIZATION) for key in _KUSTOMIZE),
    (frozenset({"org", "sources"}), Form.SETTINGS),
    (frozenset({"on", "jobs"}), Form.CI),
    (frozenset({"service", "provider", "functions"}), Form.SERVERLESS),
    *((frozenset({"service", key}), Form.KAMAL) for key in sorted(_KAMAL)),
    (frozenset({"services"}), Form.COMPOSE),
)
"""Keys at the root that only files of one form have together."""


class _Keys(NamedTuple):
    """The keys at the root of a file, and its kinds."""

    names: frozenset[str]
    kinds: frozenset[str]


def form_of(path: str, raw: bytes, documents: Sequence[Document] | None = None) -> Form:
    """What the file at ``path`` is; no content makes it raise. ``documents`` are those of it, if it was read before."""
    name = posixpath.basename(path)
    if raw.startswith(_LFS):
        return Form.LFS
    if is_unit(path):
        return Form.TIMER if path.endswith(".timer") else Form.QUADLET
    keys = _collect_keys(raw, documents)
    if not keys.kinds.isdisjoint(_OURS):
        return _of_kinds(keys)  # whatever its name is
    if named := _of_name(name):
        return named
    if _TEMPLATE.search(raw) and ("templates" in path.split("/") or {"apiVersion", "kind"} <= keys.names):
        return Form.CHART
    if keys.kinds:
        return _of_kinds(keys)
    if form := _form_of_keys(keys.names):
        return form
    if _DESTINATION.fullmatch(name) and not _KAMAL.isdisjoint(keys.names):
        return Form.DESTINATION
    if _COMPOSE.fullmatch(name):
        return Form.COMPOSE
    if not _CI_FOLDERS.isdisjoint(path.split("/")[:-1]):
        return Form.CI
    return Form.CHART if name == _VALUES else Form.UNKNOWN


def is_unit(path: str) -> bool:
    """Whether a file is a quadlet, a timer or a drop-in of one, by its name."""
    return path.endswith(UNIT_SUFFIXES) or _DROP_IN.fullmatch(path) is not None


def _form_of_keys(names: Collection[str]) -> Form:
    """What a document without a kind is, by the keys at its root alone."""
    present = frozenset(names)
    return next((form for keys, form in _BY_KEYS if keys <= present), Form.UNKNOWN)


def suggest_command(names: Collection[str]) -> str:
    """What to do with a document among manifests that has no kind; "" where the keys at its root do not show it."""
    form = _form_of_keys(names)
    return (
        f"this {_get_verb(form)} {form}; {_describe_command('FILE', form)}, or list it in .reconcilerignore"
        if form
        else ""
    )


def _of_name(name: str) -> Form | None:
    """What a file is by its name alone; None where that does not show it."""
    begin = name.partition(".")[0]
    if begin in _BY_BEGIN or name.startswith(".env."):
        return _BY_BEGIN.get(begin, Form.ENV)
    return _BY_NAME.get(name) or next((form for end, form in _BY_SUFFIX.items() if name.endswith(end)), None)


def _of_kinds(keys: _Keys) -> Form:
    if "apiVersion" not in keys.names:
        return Form.MANIFEST
    if not keys.kinds.isdisjoint(_OURS):
        return Form.UNKNOWN  # of both sorts: each document is checked by itself
    return Form.KUSTOMIZATION if keys.kinds == {"Kustomization"} else Form.KUBERNETES


def describe_foreign_file(path: str, form: Form, program: str = "reconciler") -> str:
    """A sentence that says what the file at ``path`` is, and which command of ``program`` takes it."""
    source = "standard input" if path == _STDIN else path
    return escape_text(f"{source} {_get_verb(form)} {form}; {_describe_command(path, form, program)}")


def _describe_command(path: str, form: Form, program: str = "reconciler") -> str:
    """Which command of ``program`` takes the file at ``path``, or that none does."""
    folder, name = posixpath.split(path)
    named = _DESTINATION.fullmatch(name)
    places = {
        "path": "-" if path == _STDIN else path,
        "folder": folder or ".",
        "chart": (folder.partition("/templates")[0] if "templates" in folder.split("/") else folder) or ".",
        "main": posixpath.join(folder, "deploy.yml"),
        "destination": named[1] if named else "",
    }
    is_own = program == "reconciler"
    convert = "reconciler convert" if is_own else "platform convert --file"
    compose = convert if is_own else "platform stack manifest --file"
    return _TAKEN[form].format(
        convert=convert, compose=compose, **{key: shlex.quote(argument) for key, argument in places.items()}
    )


def _get_verb(form: Form) -> str:
    return "has" if form is Form.SETTINGS else "is"


class ForeignWords(NamedTuple):
    """What a finding says of a file among manifests that is none."""

    message: str
    suggestion: str


def describe_form(form: Form, path: str = "") -> ForeignWords | None:
    """What a finding says of a file of ``form``, whose ``path`` may not be known; None where it may be a manifest."""
    if form in MANIFESTS:
        return None
    known = path or ("FOLDER/FILE" if form in _IN_FOLDERS else "FILE")
    command = escape_text(_describe_command(known, form))
    return ForeignWords(
        f"this {_get_verb(form)} {form}, and no manifest", f"{command}, or list it in .reconcilerignore"
    )


def find_form_of_name(path: str) -> Form:
    """What a file without a kind is by its name alone; UNKNOWN where that does not show it."""
    name = posixpath.basename(path)
    form = Form.CHART if name == _VALUES else _BY_NAME.get(name, Form.UNKNOWN)
    return form if form in _IN_FOLDERS else Form.UNKNOWN


class Recogniser(NamedTuple):
    """Knows the forms that a command of ``program`` takes."""

    taken: frozenset[Form]
    program: str = "reconciler"

    def advice(self, path: str, raw: bytes) -> str:
        """The sentence for a file that the command does not take; "" where it does."""
        form = form_of(path, raw)
        return "" if form in self.taken else describe_foreign_file(path, form, self.program)

    def refuse_others(self, contents: Mapping[str, bytes]) -> None:
        """Raise RefusedError for the first file that the command does not take, with the one that does."""
        for path, raw in contents.items():
            if words := self.advice(path, raw):
                raise RefusedError(words)


MANIFESTS = frozenset({Form.MANIFEST, Form.UNKNOWN})
"""What commands for manifests take; they say what is wrong in an unknown file."""
CONVERTIBLE = frozenset({Form.KUBERNETES, Form.KAMAL, Form.QUADLET, Form.TIMER, Form.UNKNOWN})
"""What `platform convert` takes; of an unknown file it says what is no Kubernetes."""
CONVERTIBLE_HERE = CONVERTIBLE | {Form.COMPOSE}
"""What `reconciler convert` takes: `platform` has a command of its own for compose files."""
PROJECTS = frozenset({Form.COMPOSE, Form.UNKNOWN})
"""What `platform stack` takes."""


def _collect_keys(raw: bytes, documents: Sequence[Document] | None) -> _Keys:
    if raw.lstrip()[:1] in (b"{", b"[") and len(raw) <= _MOST_BYTES:
        documents = parse_documents(raw).documents if documents is None else documents
        values = [document.value for document in documents if isinstance(document.value, dict)]
        names = frozenset(str(name) for value in values for name in value)
        return _Keys(names, frozenset(str(value["kind"]) for value in values if isinstance(value.get("kind"), str)))
    names = frozenset(value.decode() for value in _KEY.findall(raw))
    return _Keys(names, frozenset(value.decode() for value in _KIND.findall(raw)))
