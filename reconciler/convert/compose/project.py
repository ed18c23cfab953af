"""Loads a compose project: its files with what they include and extend, merged, and without inactive services."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from reconciler.convert.budget import Budget
from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file
from reconciler.convert.compose.long_forms import long_form
from reconciler.convert.compose.merging import SECTIONS, declared_twice, merge_nodes, without_directives
from reconciler.convert.compose.nodes import Interpolation, Node, NodeOrigin, collect_origins, get_plain_value, size_of
from reconciler.convert.compose.reading import ComposeDocument, read_compose
from reconciler.convert.notes import ConversionNote
from reconciler.errors import OutsideFileError, UnreadableFileError
from reconciler.model.finding import Finding, Pointer

MOST_FILES = 100
"""The most compose files of a project, with those that are included and extended, each as often as it is read."""
MOST_DOCUMENTS = 20
"""The most documents of a compose file."""
MOST_EXTENDED = 20
"""The longest chain of services that extend one another."""


FileReader = Callable[[str], bytes]
"""Path → content. Raises UnreadableFileError."""


def no_file(path: str) -> bytes:
    """The reader of a project whose language names no files. Raises UnreadableFileError."""
    raise UnreadableFileError(f"{path} is not read")


class Addition(NamedTuple):
    """What a file in another language has for a service, and compose has no field for.

    ``secrets``: variable → the secret with its key, such as ``db.password``; ``mounted``: path → the secret that is the
    file there. ``probe`` takes the place of that of the health check. ``schedule``: of a service that runs to its end.
    """

    secrets: Mapping[str, str] = {}
    mounted: Mapping[str, str] = {}
    probe: Mapping[str, Any] = {}
    description: str = ""
    schedule: str = ""


class Host(NamedTuple):
    """A domain that leads to a port of a service."""

    name: str
    service: str
    port: int
    prefix: str = "/"


class Project(NamedTuple):
    """The merged document as plain values, in long forms, with the origin of each by its path.

    ``inactive`` are services that no active profile has. ``contents`` are the compose files by path. ``faults`` make
    the rest a guess. The last four are those of other languages that become a project: additions by service, the
    services of a workload that has several, domains, and words of suggestions with those that replace them.
    """

    name: str
    value: dict[str, Any]
    origins: dict[Pointer, NodeOrigin]
    inactive: frozenset[str]
    environ: Mapping[str, str]
    read_file: FileReader
    contents: dict[str, bytes]
    notes: list[ConversionNote]
    faults: list[Finding]
    budget: Budget
    additions: Mapping[str, Addition] = {}
    groups: Mapping[str, Sequence[str]] = {}
    hosts: Sequence[Host] = ()
    wording: Mapping[str, str] = {}


class _Chain(NamedTuple):
    """The file of a service, and the services that extend it, as pairs of file and name."""

    path: str
    above: tuple[tuple[str, str], ...]


def load_project(
    paths: Sequence[str],
    environ: Mapping[str, str],
    profiles: Collection[str],
    read_file: FileReader,
    budget: Budget | None = None,
) -> Project:
    """The project of the files ``paths``, of which later ones override earlier ones.

    Relative paths begin at the directory of the first one. Raises UnreadableFileError if one of ``paths`` cannot be
    read; whatever is wrong in them, and in what they name, is a note or fault. What does not fit into ``budget``, by
    default the usual one, is left out with a note.
    """
    loader = _Loader(read_file, budget or Budget())
    variables = Interpolation(environ, loader.notes, loader.budget)
    whole = without_directives(loader.files(paths, posixpath.dirname(paths[0]), variables))
    active, inactive = _by_profile(whole, profiles, loader.notes)
    name = whole.fields.get("name")
    return Project(
        str(name.value) if name and isinstance(name.value, str) else "",
        get_plain_value(active),
        collect_origins(active),
        inactive,
        environ,
        read_file,
        loader.contents,
        loader.notes,
        [*loader.faults],
        loader.budget,
    )


def join_path(base: str, path: str) -> str:
    """``path``, which begins at the directory ``base`` unless it is absolute."""
    return path if path.startswith("~") else posixpath.normpath(posixpath.join(base, path))


def _by_profile(project: Node, profiles: Collection[str], notes: list[ConversionNote]) -> tuple[Node, frozenset[str]]:
    """``project`` without the services that no active profile has, and the names of these."""
    services, inactive = dict(project.fields.get("services", project).fields), set()
    active = {*profiles}
    if "services" not in project.fields:
        return project, frozenset()
    for name, node in list(services.items()):
        own_profiles = node.fields.get("profiles")
        names = [item.value for item in own_profiles.items if isinstance(item.value, str)] if own_profiles else []
        if names and "*" not in active and active.isdisjoint(names):
            inactive.add(name)
            del services[name]
            notes.append(
                node.origin.note(
                    "compose-profile",
                    f"the service {name} is left out: no profile of it is on",
                    "--compose-profile NAME turns one on, and '*' all",
                )
            )
    section = project.fields["services"]._replace(value=services)
    return project._replace(value={**project.fields, "services": section}), frozenset(inactive)


class _Loader:
    """Reads files once, and what they include and extend."""

    def __init__(self, read_file: FileReader, budget: Budget) -> None:
        self.notes: list[ConversionNote] = []
        self.faults: dict[Finding, None] = {}
        self.contents: dict[str, bytes] = {}
        self.budget = budget
        self._read_file = read_file
        self._loads = 0
        self._parsed: dict[str, list[ComposeDocument]] = {}
        self._including: list[str] = []
        self._extendable: dict[tuple[str, Interpolation], Mapping[str, Node]] = {}

    def files(self, paths: Sequence[str], base: str, variables: Interpolation) -> Node:
        """The files ``paths`` merged, with what they include. Raises UnreadableFileError."""
        documents = [document for path in paths for document in self._documents(path, base, variables)]
        empty = Node({}, NodeOrigin(paths[0], 0, (), base))
        node = reduce(merge_nodes, documents, empty)
        for entry in node.fields.get("include", empty).items:
            node = self._with_included(node, entry, variables)
        return node

    def _documents(self, path: str, base: str, variables: Interpolation) -> list[Node]:
        documents = self._nodes(path, base, variables)
        return [self._with_extended(document, path, variables) for document in documents]

    def _nodes(self, path: str, base: str, variables: Interpolation) -> list[Node]:
        """The documents of a file in the long form. Raises UnreadableFileError."""
        self._check_count()
        if path not in self.contents:
            self.contents[path] = self._read_file(path)
        self._loads += 1
        if path not in self._parsed:
            self._parsed[path], faults = read_compose(path, self.contents[path])
            self.faults |= dict.fromkeys(faults)
        documents = self._parsed[path]
        if len(documents) > MOST_DOCUMENTS:
            origin = NodeOrigin(path, documents[MOST_DOCUMENTS].position, (), base)
            self.notes.append(
                origin.note("convert-malformed", f"a compose file has at most {MOST_DOCUMENTS} documents")
            )
        return [
            long_form(variables.nodes(compose_document, base), self.notes)
            for compose_document in documents[:MOST_DOCUMENTS]
        ]

    def _check_count(self) -> None:
        """Raise UnreadableFileError if no further file is read."""
        if self._loads == MOST_FILES:
            raise UnreadableFileError(f"the project has more than {MOST_FILES} files")

    def _with_included(self, project: Node, entry: Node, variables: Interpolation) -> Node:
        """``project`` with the files of an entry of ``include``, which must not have its resources again."""
        paths = [join_path(entry.origin.base, text) for text in _list_texts(entry.fields.get("path"))]
        if not paths or any(path in self._including for path in paths):
            reason = "includes itself" if paths else "names no `path`"
            self.notes.append(entry.origin.note("convert-malformed", f"this entry of `include` {reason}"))
            return project
        directories = _list_texts(entry.fields.get("project_directory"))
        base = join_path(entry.origin.base, directories[0]) if directories else posixpath.dirname(paths[0])
        self._including += paths
        try:
            self._check_count()
            included = self.files(paths, base, self._own_variables(entry, base, variables))
        except UnreadableFileError as error:
            self._note_unreadable(entry, "the included file", error)
            return project
        finally:
            del self._including[-len(paths) :]
        for duplicate in declared_twice(project, included):
            section, name = duplicate.origin.at[-2:]
            message = f"{name} in `{section}` is also declared by an included file"
            self.notes.append(duplicate.origin.note("convert-duplicate", message))
        fields = {name: node for name, node in included.fields.items() if name in SECTIONS}
        return merge_nodes(included._replace(value=fields), project)

    def _own_variables(self, entry: Node, base: str, variables: Interpolation) -> Interpolation:
        """The variables of an included project: its own env files come last."""
        environ = dict(variables.environ)
        named = _list_texts(entry.fields.get("env_file"))
        for path in [join_path(entry.origin.base, text) for text in named] or [join_path(base, ".env")]:
            try:
                raw = self._read_file(path)
                if self.budget.allows(0, len(raw), entry.origin.make_note_adder(self.notes)):
                    environ = {**parse_env_file(raw, environ), **environ}
            except (UnreadableFileError, EnvFileError) as error:
                if named or isinstance(error, OutsideFileError):
                    self._note_unreadable(entry, "the env file of the included project", error)
        return variables.with_environ(environ)

    def _with_extended(self, project: Node, path: str, variables: Interpolation) -> Node:
        """``project`` with every service on top of the one that it extends."""
        if "services" not in project.fields:
            return project
        section = project.fields["services"]
        services = {
            name: self._extend_service(name, section.fields, _Chain(path, ()), variables) for name in section.fields
        }
        return project._replace(value={**project.fields, "services": section._replace(value=services)})

    def _extend_service(self, name: str, services: Mapping[str, Node], chain: _Chain, variables: Interpolation) -> Node:
        """The service ``name`` on top of the one that it extends; ``chain`` is its file, and what extends it."""
        service = services[name]
        extends = service.fields.get("extends")
        if extends is None:
            return service
        own = service._replace(value={key: node for key, node in service.fields.items() if key != "extends"})
        base = self._base(extends, name, services, chain, variables)
        return merge_nodes(base, own, ("services", name)) if base else own

    def _base(
        self, extends: Node, name: str, services: Mapping[str, Node], chain: _Chain, variables: Interpolation
    ) -> Node | None:
        base_name = next(iter(_list_texts(extends.fields.get("service"))), name)
        files = _list_texts(extends.fields.get("file"))
        path = join_path(extends.origin.base, files[0]) if files else chain.path
        link = (path, base_name)
        if link in chain.above or len(chain.above) == MOST_EXTENDED:
            reason = "extends itself" if link in chain.above else f"has more than {MOST_EXTENDED} services above it"
            self.notes.append(extends.origin.note("convert-malformed", f"the service {name} {reason}"))
            return None
        if self.budget.is_spent:
            return None
        if path != chain.path:
            services = self._services_of(path, extends, variables)
        if base_name not in services:
            if not files or services:
                self.notes.append(
                    extends.origin.note("convert-malformed", "there is no service of this name to extend")
                )
            return None
        base = self._extend_service(base_name, services, _Chain(path, (*chain.above, link)), variables)
        return base if self.budget.allows(*size_of(base), extends.origin.make_note_adder(self.notes)) else None

    def _services_of(self, path: str, extends: Node, variables: Interpolation) -> Mapping[str, Node]:
        """The services of a file, before they are extended; empty with a note if it cannot be read."""
        if (path, variables) not in self._extendable:
            try:
                nodes = self._nodes(path, posixpath.dirname(path), variables)
            except UnreadableFileError as error:
                self._note_unreadable(extends, "the extended file", error)
                return {}
            self._extendable[path, variables] = {
                name: service for node in nodes for name, service in node.fields.get("services", node).fields.items()
            }
        return self._extendable[path, variables]

    def _note_unreadable(self, node: Node, file: str, error: UnreadableFileError | EnvFileError) -> None:
        kind = error if isinstance(error, UnreadableFileError) else UnreadableFileError
        self.notes.append(node.origin.note(kind.rule, f"{file} cannot be read: {error}", kind.suggestion))


def _list_texts(node: Node | None) -> list[str]:
    """The text of ``node``, or the texts in it."""
    if node is None:
        return []
    return [item.value for item in (node.items or [node]) if isinstance(item.value, str) and item.value]
