"""Loads a compose project: its files with what they include and extend, merged, and without inactive services."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file
from reconciler.convert.compose.long_forms import long_form
from reconciler.convert.compose.merging import SECTIONS, declared_twice, merged, without_directives
from reconciler.convert.compose.nodes import Interpolation, Node, Origin, origins, plain
from reconciler.convert.compose.reading import read_compose
from reconciler.convert.notes import ConversionNote
from reconciler.errors import ReconcilerError
from reconciler.model.finding import Finding, Pointer

MOST_FILES = 100
"""The most compose files of a project, with those that are included and extended."""
MOST_EXTENDED = 20
"""The longest chain of services that extend one another."""


class UnreadableFileError(ReconcilerError):
    """A file that a compose file names cannot be read; the message is the reason, such as `it is a directory`."""


FileReader = Callable[[str], bytes]
"""Path → content. Raises UnreadableFileError."""


class Project(NamedTuple):
    """The merged document as plain values, in long forms, with the origin of each by its path.

    ``inactive`` are services that no active profile has. ``contents`` are the compose files by path. ``faults`` make
    the rest a guess.
    """

    name: str
    value: dict[str, Any]
    origins: dict[Pointer, Origin]
    inactive: frozenset[str]
    environ: Mapping[str, str]
    read_file: FileReader
    contents: dict[str, bytes]
    notes: list[ConversionNote]
    faults: list[Finding]


def load(paths: Sequence[str], environ: Mapping[str, str], profiles: Collection[str], read_file: FileReader) -> Project:
    """The project of the files ``paths``, of which later ones override earlier ones.

    Relative paths begin at the directory of the first one. Raises UnreadableFileError if one of ``paths`` cannot be
    read; whatever is wrong in them, and in what they name, is a note or fault.
    """
    loader = _Loader(read_file)
    whole = without_directives(loader.files(paths, posixpath.dirname(paths[0]), Interpolation(environ, loader.notes)))
    active, inactive = _by_profile(whole, profiles, loader.notes)
    name = whole.fields.get("name")
    return Project(
        str(name.value) if name and isinstance(name.value, str) else "", plain(active), origins(active), inactive,
        environ, read_file, loader.contents, loader.notes, loader.faults)  # fmt: skip


def joined(base: str, path: str) -> str:
    """``path``, which begins at the directory ``base`` unless it is absolute."""
    return path if path.startswith("~") else posixpath.normpath(posixpath.join(base, path))


def _by_profile(project: Node, profiles: Collection[str], notes: list[ConversionNote]) -> tuple[Node, frozenset[str]]:
    """``project`` without the services that no active profile has, and the names of these."""
    services, inactive = dict(project.fields.get("services", project).fields), set()
    active = {*profiles}
    if "services" not in project.fields:
        return project, frozenset()
    for name, each in list(services.items()):
        wanted = each.fields.get("profiles")
        names = [item.value for item in wanted.items if isinstance(item.value, str)] if wanted else []
        if names and "*" not in active and active.isdisjoint(names):
            inactive.add(name)
            del services[name]
            notes.append(each.origin.note("compose-profile", f"the service {name} is left out: no profile of it is on",
                                          "--compose-profile NAME turns one on, and '*' all"))  # fmt: skip
    section = project.fields["services"]._replace(value=services)
    return project._replace(value={**project.fields, "services": section}), frozenset(inactive)


class _Loader:
    """Reads files once, and what they include and extend."""

    def __init__(self, read_file: FileReader) -> None:
        self.notes: list[ConversionNote] = []
        self.faults: list[Finding] = []
        self.contents: dict[str, bytes] = {}
        self._read_file = read_file
        self._including: list[str] = []

    def files(self, paths: Sequence[str], base: str, variables: Interpolation) -> Node:
        """The files ``paths`` merged, with what they include. Raises UnreadableFileError."""
        documents = [document for path in paths for document in self._documents(path, base, variables)]
        empty = Node({}, Origin(paths[0], 0, (), base))
        found = reduce(merged, documents, empty)
        for entry in found.fields.get("include", empty).items:
            found = self._with_included(found, entry, variables)
        return found

    def _documents(self, path: str, base: str, variables: Interpolation) -> list[Node]:
        if path not in self.contents:
            if len(self.contents) == MOST_FILES:
                raise UnreadableFileError(f"the project has more than {MOST_FILES} files")
            self.contents[path] = self._read_file(path)
        found, faults = read_compose(path, self.contents[path])
        self.faults += [each for each in faults if each not in self.faults]
        documents = [long_form(variables.nodes(each, base), self.notes) for each in found]
        return [self._with_extended(each, path, variables) for each in documents]

    def _with_included(self, project: Node, entry: Node, variables: Interpolation) -> Node:
        """``project`` with the files of an entry of ``include``, which must not have its resources again."""
        paths = [joined(entry.origin.base, each) for each in _texts(entry.fields.get("path"))]
        if not paths or any(path in self._including for path in paths):
            reason = "includes itself" if paths else "names no `path`"
            self.notes.append(entry.origin.note("convert-malformed", f"this entry of `include` {reason}"))
            return project
        directories = _texts(entry.fields.get("project_directory"))
        base = joined(entry.origin.base, directories[0]) if directories else posixpath.dirname(paths[0])
        self._including += paths
        try:
            included = self.files(paths, base, self._own_variables(entry, base, variables))
        except UnreadableFileError as error:
            self.notes.append(entry.origin.note("compose-file", f"the included file cannot be read: {error}"))
            return project
        finally:
            del self._including[-len(paths) :]
        for each in declared_twice(project, included):
            section, name = each.origin.at[-2:]
            message = f"{name} in `{section}` is also declared by an included file"
            self.notes.append(each.origin.note("convert-duplicate", message))
        fields = {name: each for name, each in included.fields.items() if name in SECTIONS}
        return merged(included._replace(value=fields), project)

    def _own_variables(self, entry: Node, base: str, variables: Interpolation) -> Interpolation:
        """The variables of an included project: its own env files come last."""
        environ = dict(variables.environ)
        named = _texts(entry.fields.get("env_file"))
        for path in [joined(entry.origin.base, each) for each in named] or [joined(base, ".env")]:
            try:
                environ = {**parse_env_file(self._read_file(path), environ), **environ}
            except (UnreadableFileError, EnvFileError) as error:
                if named:
                    message = f"the env file of the included project cannot be read: {error}"
                    self.notes.append(entry.origin.note("compose-file", message))
        return variables.with_environ(environ)

    def _with_extended(self, project: Node, path: str, variables: Interpolation) -> Node:
        """``project`` with every service on top of the one that it extends."""
        if "services" not in project.fields:
            return project
        section = project.fields["services"]
        services = {name: self._extended(name, section.fields, (path,), variables) for name in section.fields}
        return project._replace(value={**project.fields, "services": section._replace(value=services)})

    def _extended(
        self, name: str, services: Mapping[str, Node], chain: tuple[str, ...], variables: Interpolation
    ) -> Node:
        """The service ``name`` on top of the one that it extends; ``chain`` is its file, and what extends it."""
        service = services[name]
        extends = service.fields.get("extends")
        if extends is None:
            return service
        own = service._replace(value={key: each for key, each in service.fields.items() if key != "extends"})
        base = self._base(extends, name, services, chain, variables)
        return merged(base, own, ("services", name)) if base else own

    def _base(
        self, extends: Node, name: str, services: Mapping[str, Node], chain: tuple[str, ...], variables: Interpolation
    ) -> Node | None:
        wanted = next(iter(_texts(extends.fields.get("service"))), name)
        files = _texts(extends.fields.get("file"))
        path = joined(extends.origin.base, files[0]) if files else chain[0]
        link = f"{path}\0{wanted}"
        if link in chain or len(chain) > MOST_EXTENDED:
            reason = "extends itself" if link in chain else f"has more than {MOST_EXTENDED} services above it"
            self.notes.append(extends.origin.note("convert-malformed", f"the service {name} {reason}"))
            return None
        if path != chain[0]:
            services = self._services_of(path, extends, variables)
        if wanted not in services:
            if not files or services:
                self.notes.append(
                    extends.origin.note("convert-malformed", "there is no service of this name to extend")
                )
            return None
        return self._extended(wanted, services, (path, *chain[1:], link), variables)

    def _services_of(self, path: str, extends: Node, variables: Interpolation) -> Mapping[str, Node]:
        """The services of a file, before they are extended; empty with a note if it cannot be read."""
        try:
            if path not in self.contents:
                self.contents[path] = self._read_file(path)
        except UnreadableFileError as error:
            self.notes.append(extends.origin.note("compose-file", f"the extended file cannot be read: {error}"))
            return {}
        found, faults = read_compose(path, self.contents[path])
        self.faults += [each for each in faults if each not in self.faults]
        nodes = [long_form(variables.nodes(each, posixpath.dirname(path)), self.notes) for each in found]
        return {name: each for node in nodes for name, each in node.fields.get("services", node).fields.items()}


def _texts(node: Node | None) -> list[str]:
    """The text of ``node``, or the texts in it."""
    if node is None:
        return []
    return [each.value for each in (node.items or [node]) if isinstance(each.value, str) and each.value]
