"""Secrets of manifests: the secrets, configs and env files of a project, and files that services mount."""

from __future__ import annotations

import posixpath
import re
from base64 import b64encode
from typing import NamedTuple

from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file
from reconciler.convert.compose.nodes import CONTROL
from reconciler.convert.compose.project import Project, join_path
from reconciler.convert.compose.values import Field
from reconciler.convert.drafts import Body, Draft, make_draft, without_empty
from reconciler.convert.names import Names, make_valid_name
from reconciler.errors import OutsideFileError, UnreadableFileError
from reconciler.model.key import Kind
from reconciler.model.platform import SECRET_URI

MOST_BYTES = 256 << 10
"""The largest file of the project that becomes a secret."""
_ODD = re.compile(r"[^-._a-zA-Z0-9]")


class StoredFile(NamedTuple):
    """A file in a secret; ``is_whole``: it is the whole secret, and so needs a path of two segments."""

    secret: str
    uri: str
    is_whole: bool


class StoredVariables(NamedTuple):
    """The variables of an env file, as the keys of a secret; ``secret`` is "" if it has none."""

    secret: str
    keys: tuple[str, ...]


_NO_VARIABLES = StoredVariables("", ())


class StoredFiles:
    """The secrets of a project, each once."""

    def __init__(self, root: Field, project: Project, names: Names) -> None:
        self.drafts: list[Draft] = []
        self._root = root
        self._project = project
        self._names = names
        self._declared: dict[tuple[str, str], StoredFile | None] = {}
        self._files: dict[str, StoredFile | None] = {}
        self._variables: dict[tuple[str, bool], StoredVariables] = {}

    def find_declared(self, section: str, name: str, user: Field) -> StoredFile | None:
        """The secret or config ``name``; None with a note where it cannot be used."""
        if (section, name) not in self._declared:
            self._declared[section, name] = self._read_declared(section, name, user)
        return self._declared[section, name]

    def file(self, source: Field) -> StoredFile | None:
        """A file beside the compose file, which a service mounts; None with a note where it is none."""
        path = join_path(self.base(source), source.text())
        if path not in self._files:
            self._files[path] = self._read_mounted(path, source)
        elif self._files[path] is None:
            self._note_mount(source, "is left out as before")
        return self._files[path]

    def variables(self, entry: Field) -> StoredVariables:
        """The variables of an entry of ``env_file``."""
        plain, is_required = entry["format"].text() == "raw", not entry["required"] or entry["required"].flag()
        path = join_path(self.base(entry["path"]), entry["path"].require_text())
        if (path, plain) not in self._variables:
            self._variables[path, plain] = self._read_variables(path, plain, entry, is_required=is_required)
        stored_variables = self._variables[path, plain]
        fits = self._project.budget.allows(
            len(stored_variables.keys), sum(map(len, stored_variables.keys)), entry.add_note
        )
        return stored_variables if fits else _NO_VARIABLES

    def note_unused(self) -> None:
        """Note the secrets and configs that no service uses."""
        for section in ("secrets", "configs"):
            for name, part in self._root[section].fields():
                if (section, name) not in self._declared:
                    part.ignore()
                    part.add_note("convert-left-out", f"no service uses {name}; it is left out", on_key=True)

    def base(self, part: Field) -> str:
        """The directory at which relative paths in ``part`` begin."""
        at = part.at
        while at not in self._project.origins:
            at = at[:-1]
        return self._project.origins[at].base

    def _read_declared(self, section: str, name: str, user: Field) -> StoredFile | None:
        part = self._root[section][name]
        if name not in (self._root[section].value or {}):
            user.add_note("convert-malformed", f"`{section}` does not declare what is named here")
            return None
        external = part["external"]
        if external:
            named = external["name"].text() if isinstance(external.value, dict) else ""
            if named or external.flag():
                secret = make_valid_name(named or part["name"].text() or name)
                part.add_note("convert-missing", f"{name} is external", f"the secret {secret} must exist", on_key=True)
                return StoredFile(secret, f"{SECRET_URI}{secret}", is_whole=True)
        content = self._content(part)
        if content is None:
            return None
        wish = make_valid_name(part["name"].text() or name)
        end = section.removesuffix("s")
        wishes = (wish, f"{wish}-{end}")
        return self._add(wishes, posixpath.basename(part["file"].text()) or name, content)

    def _content(self, part: Field) -> bytes | None:
        """The content of a secret or config; None with a note where there is none."""
        for field, read in (("file", self._of_file), ("environment", self._of_variable)):
            if part[field]:
                content = read(part[field])
                if content is None or not self._project.budget.allows(1, len(content), part[field].add_note):
                    return None
                return content
        if part["content"]:
            return part["content"].text().encode("utf-8", "surrogatepass")
        part.add_note("convert-malformed", f"`{part.at[-1]}` has none of file, environment, content and external")
        return None

    def _of_file(self, part: Field) -> bytes | None:
        try:
            return self._project.read_file(join_path(self.base(part), part.require_text()))
        except UnreadableFileError as error:
            part.add_note(error.rule, f"the file cannot be read: {error}", error.suggestion)
        return None

    def _of_variable(self, part: Field) -> bytes | None:
        variable = part.require_text()
        if variable in self._project.environ:
            return self._project.environ[variable].encode("utf-8", "surrogateescape")
        part.add_note("convert-file", "the variable with the value is not set")
        return None

    def _read_mounted(self, path: str, source: Field) -> StoredFile | None:
        if not source.text().startswith("."):
            self._note_mount(source, "is a path of the machine, and is left out")
            return None
        try:
            content = self._project.read_file(path)
        except OutsideFileError as error:
            source.add_note(error.rule, f"the source of this mount cannot be read: {error}", error.suggestion)
            return None
        except UnreadableFileError as error:
            self._note_mount(source, f"is left out: {error}")
            return None
        if len(content) > MOST_BYTES:
            self._note_mount(source, f"is left out: it is larger than {MOST_BYTES >> 10} KiB")
            return None
        if not self._project.budget.allows(1, len(content), source.add_note):
            return None
        source.add_note(
            "compose-copied",
            "the file becomes a secret: later changes of it have no effect",
            "convert and apply again after a change",
        )
        name = posixpath.basename(path)
        return self._add((name, f"{posixpath.basename(posixpath.dirname(path))}-{name}"), name, content)

    def _note_mount(self, source: Field, reason: str) -> None:
        source.add_note(
            "convert-host-path", f"the source of this mount {reason}", "put the files into the image, or into a volume"
        )

    def _read_variables(self, path: str, plain: bool, entry: Field, *, is_required: bool) -> StoredVariables:
        try:
            env_file = parse_env_file(self._project.read_file(path), self._project.environ, plain=plain)
        except OutsideFileError as error:
            entry.add_note(error.rule, f"the env file cannot be read: {error}", error.suggestion)
            return _NO_VARIABLES
        except (UnreadableFileError, EnvFileError) as error:
            entry.add_note(
                "convert-file" if is_required else "convert-missing", f"the env file cannot be read: {error}"
            )
            return _NO_VARIABLES
        texts = {name: text for name, text in env_file.items() if not CONTROL.search(text)}
        if len(texts) < len(env_file):
            names = ", ".join(sorted(env_file.keys() - texts.keys()))
            entry.add_note("convert-left-out", f"variables with control characters are left out: {names}")
        if not texts:
            entry.add_note("convert-left-out", "the env file has no variables")
            return _NO_VARIABLES
        stem = posixpath.basename(path).strip(".")
        folder = posixpath.basename(posixpath.dirname(path))
        name = self._names.take(Kind.SECRET, "", (make_valid_name(stem), make_valid_name(f"{folder}-{stem}")))
        self.drafts.append(_make_secret_draft(name, {"type": "dictionary", "data": texts}))
        return StoredVariables(name, tuple(texts))

    def _add(self, wishes: tuple[str, ...], key: str, content: bytes) -> StoredFile:
        name = self._names.take(Kind.SECRET, "", wishes)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = "\0"
        if CONTROL.search(text):
            data = {"payload": b64encode(content).decode(), "encoding": "base64"}
            self.drafts.append(_make_secret_draft(name, {"type": "opaque", "data": data}))
            return StoredFile(name, f"{SECRET_URI}{name}", is_whole=True)
        key = _ODD.sub("_", key).strip(".") or "file"
        self.drafts.append(_make_secret_draft(name, {"type": "dictionary", "data": {key: text}}))
        return StoredFile(name, f"{SECRET_URI}{name}.{key}", is_whole=False)


def _make_secret_draft(name: str, body: Body) -> Draft:
    return make_draft(Kind.SECRET, name, "", None, without_empty(body))
