"""deploy.yml of Kamal as a compose project: a service for each role and accessory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from reconciler.convert.budget import Budget
from reconciler.convert.compose.convert import convert_project as convert_project
from reconciler.convert.compose.dotenv import EnvFileError, names_in_env_file
from reconciler.convert.compose.long_forms import long_form
from reconciler.convert.compose.nodes import (
    Node,
    NodeOrigin,
    Verbatim,
    collect_origins,
    get_plain_value,
    make_node,
    size_of,
)
from reconciler.convert.compose.project import Addition, FileReader, Host, Project, join_path, no_file
from reconciler.convert.compose.reading import ComposeDocument, read_compose
from reconciler.convert.drafts import Body, Converted
from reconciler.convert.kamal.fields import check_unused_fields
from reconciler.convert.names import make_valid_name
from reconciler.convert.notes import ConversionNote
from reconciler.convert.probes import PROBE_BOUNDS
from reconciler.errors import OutsideFileError, UnreadableFileError
from reconciler.model.finding import Finding, Severity

_RUBY = re.compile(rb"^[ \t]*<%(?!=)(?:(?!%>).)*%>[ \t]*$", re.MULTILINE)
"""A line that is only a statement in Ruby."""
_PLAIN_LINE = re.compile(rb"[^\r\n]")
_FOLDER = "config"
_SECRETS = ".kamal/secrets"
_WEB = "web"
_PORT = 80
_PATH = "/up"
_FULL_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_MOST_REPLICAS = 10_000
_SHARED = {"env", "labels", "volumes"}
"""Fields of the root that each role has."""
_WORDING = {
    "set deploy.resources.limits": "set memory and cpus in `options`",
    "; expose names ports": "",
    "expose names ports": "write it as `port`",
    "set driver_opts.size, or initialCapacity of the volume set": "set initialCapacity of the volume set",
    "--location LOCATION creates it": "--gvc NAME selects another",
}
"""Words about compose files in suggestions, and those about deploy.yml."""


def without_statements(raw: bytes) -> bytes:
    """deploy.yml with spaces in place of lines that are only Ruby, so that places stay right."""
    return _RUBY.sub(lambda line: _PLAIN_LINE.sub(b" ", line[0]), raw)


class KamalProject(NamedTuple):
    """A deploy.yml, and the project that it is in.

    ``over`` is the file of the ``destination``, whose fields win. ``contents`` are both, without lines that are only
    Ruby. Paths of files begin at ``base``.
    """

    document: ComposeDocument
    contents: dict[str, bytes]
    over: ComposeDocument | None = None
    destination: str = ""
    base: str = ""
    read_file: FileReader = no_file


def directory_of(path: str) -> str:
    """The directory of the project of a deploy.yml: Kamal has it in the folder `config`."""
    folder = posixpath.dirname(path)
    return posixpath.dirname(folder) if posixpath.basename(folder) == _FOLDER else folder


def read_kamal(
    path: str, raw: bytes, destination: str = "", read_file: FileReader = no_file
) -> tuple[list[KamalProject], list[Finding]]:
    """The project of each document of a deploy.yml, and findings for what is unreadable."""
    contents = {path: without_statements(raw)}
    documents, faults = read_compose(path, contents[path])
    over: list[ComposeDocument] = []
    if destination:
        other = f"{posixpath.splitext(path)[0]}.{destination}.yml"
        try:
            contents[other] = without_statements(read_file(other))
        except UnreadableFileError as error:
            message = f"{other}, the file of the destination, cannot be read: {error}"
            return [], [*faults, Finding(path, 1, 1, error.rule, Severity.ERROR, message, error.suggestion)]
        over, others = read_compose(other, contents[other])
        faults += others
    projects = [
        KamalProject(document, contents, next(iter(over), None), destination, directory_of(path), read_file)
        for document in documents
    ]
    return [] if faults else projects, faults


def convert_kamal_project(kamal: KamalProject, gvc: str = "", budget: Budget | None = None) -> Converted:
    """Manifests for the roles and accessories of a project, in the GVC ``gvc``, else in that of the service.

    The notes name everything that is not converted. None has a value of the file.
    """
    notes: list[ConversionNote] = []
    budget = budget or Budget()
    variables = Verbatim(notes, budget)
    root = variables.nodes(kamal.document, kamal.base)
    if kamal.over is not None and kamal.over.value is not None:
        root = _override_node(root, variables.nodes(kamal.over, kamal.base))
    deployment = _Deployment(kamal, _without_ruby(root, notes), notes, budget)
    return convert_project(deployment.project(), gvc or make_valid_name(deployment.full_name))


def _override_node(node: Node, over: Node) -> Node:
    """``node`` with what the destination says: fields are merged, all else is replaced."""
    if not (isinstance(node.value, dict) and isinstance(over.value, dict)):
        return over
    fields = dict(node.value)
    for name, value in over.value.items():
        fields[name] = _override_node(fields[name], value) if name in fields else value
    return node._replace(value=fields)


def _without_ruby(node: Node, notes: list[ConversionNote]) -> Node:
    """``node`` without values that Ruby makes, with a note on each."""
    if isinstance(node.value, dict):
        fields = {key: _without_ruby(value, notes) for key, value in node.value.items()}
        return node._replace(value={key: child for key, child in fields.items() if not _is_ruby(node.value[key])})
    if isinstance(node.value, list):
        return node._replace(value=[_without_ruby(value, notes) for value in node.value])
    if _is_ruby(node):
        notes.append(node.origin.note("convert-left-out", "a value that Ruby makes is left out", "write the value"))
        return node._replace(value=None)
    return node


def _is_ruby(node: Node) -> bool:
    return isinstance(node.value, str) and "<%" in node.value


class _Deployment:
    """One deploy.yml, and the parts of a compose project that are made of it."""

    def __init__(self, kamal: KamalProject, root: Node, notes: list[ConversionNote], budget: Budget) -> None:
        self._kamal = kamal
        self._root = root
        self._notes = notes
        self._budget = budget
        self._shared = size_of(root._replace(value={name: root.fields[name] for name in _SHARED & root.fields.keys()}))
        self.name = _get_text(root.fields.get("service")) or "app"
        self.full_name = f"{self.name}-{kamal.destination}".removesuffix("-")
        self._secret = make_valid_name(f"{self.full_name}-secrets")
        self._keys: dict[str, Node] = {}
        self._services: dict[str, Any] = {}
        self._volumes: dict[str, Node] = {}
        self._additions: dict[str, Addition] = {}
        self._hosts: dict[tuple[str, str], Host] = {}

    def project(self) -> Project:
        """The project, with the notes about everything that has no counterpart."""
        for name, role in self._roles().items():
            self._add_role(name, role)
        for name, accessory in self._fields("accessories").items():
            self._add_accessory(name, accessory)
        for field in ("service", "image"):
            if not _get_text(self._root.fields.get(field)):
                self._note(self._root, "convert-malformed", f"the field `{field}` is missing or no text")
        required = self._root.fields.get("require_destination")
        if required is not None and required.value is True and not self._kamal.destination:
            self._note(
                required,
                "convert-malformed",
                "a destination is required",
                "name it: --destination NAME reads deploy.NAME.yml too",
            )
        self._notes.extend(check_unused_fields(self._root))
        self._note_secrets()
        tree = make_node({"services": self._services, "volumes": self._volumes}, self._root.origin)
        tree.fields["services"] = tree.fields["services"]._replace(origin=self._origin("servers"))
        whole = long_form(tree, self._notes)

        hosts = [*self._hosts.values()]
        return Project(
            self.name,
            get_plain_value(whole),
            collect_origins(whole),
            frozenset(),
            {},
            self._kamal.read_file,
            self._kamal.contents,
            self._notes,
            [],
            self._budget,
            self._additions,
            {},
            hosts,
            _WORDING,
        )

    def _roles(self) -> dict[str, Node]:
        servers = self._root.fields.get("servers")
        if servers is None:
            return {_WEB: self._root._replace(value={})}
        return servers.fields or {_WEB: servers}

    def _add_role(self, name: str, role: Node) -> None:
        primary = _get_text(self._root.fields.get("primary_role")) or _WEB
        service = self.name if name == primary else f"{self.name}-{name}"
        hosts = role if isinstance(role.value, list) else role.fields.get("hosts", role._replace(value=[]))
        # Each role has all that the root has: a small file can stand for more than fits.
        if not self._budget.allows(*self._shared, role.origin.make_note_adder(self._notes)):
            return
        definition = self._common(service, role, [self._root.fields.get("env"), role.fields.get("env")])
        definition["image"] = self._image(self._root)
        definition["labels"] = {**self._fields("labels"), **_get_fields(role, "labels")}
        definition["deploy"] = self._deploy(hosts)
        definition["volumes"] = [self._volume(item, "") for item in self._items("volumes")]
        proxies = [self._root.fields.get("proxy"), role.fields.get("proxy")]
        is_on = proxies[1] is not None if name != primary else True
        if is_on and not any(proxy is not None and proxy.value is False for proxy in proxies):
            self._serve(service, [proxy for proxy in proxies if proxy is not None], definition)
        self._keep(service, role, definition)

    def _add_accessory(self, name: str, accessory: Node) -> None:
        service = _get_text(accessory.fields.get("service")) or f"{self.name}-{name}"
        definition = self._common(service, accessory, [accessory.fields.get("env")])
        definition["image"] = self._image(accessory)
        definition["labels"] = _get_fields(accessory, "labels")
        definition["deploy"] = self._deploy(accessory.fields.get("hosts", accessory._replace(value=[])))
        mounts = [(item, f"{service}-") for item in _get_items(accessory, "directories")]
        mounts += [(item, "") for item in _get_items(accessory, "volumes")]
        definition["volumes"] = [self._volume(node, prefix) for node, prefix in mounts]
        definition["volumes"] += filter(None, map(self._file, _get_items(accessory, "files")))
        if port := accessory.fields.get("port"):
            # The address is that of the machine; workloads of the GVC reach the port by the name of the workload.
            definition["expose"] = [port._replace(value=str(port.value).rpartition(":")[2])]
        if (proxy := accessory.fields.get("proxy")) is not None and proxy.value is not False:
            self._serve(service, [proxy], definition)
        self._keep(service, accessory, definition)

    def _keep(self, service: str, node: Node, definition: dict[str, Any]) -> None:
        """Add the service, unless another role or accessory has its name."""
        if service in self._services:
            self._note(
                node,
                "convert-duplicate",
                "another role or accessory has the name of this one",
                "give one of the two another name",
            )
        else:
            self._services[service] = make_node(definition, node.origin)

    def _common(self, service: str, node: Node, envs: Sequence[Node | None]) -> dict[str, Any]:
        """What roles and accessories have alike."""
        definition: dict[str, Any] = {}
        clear: dict[str, Node] = {}
        secret: dict[str, Node] = {}
        for env in filter(None, envs):
            is_parted = not {"clear", "secret", "tags"}.isdisjoint(env.fields)
            clear |= _get_fields(env, "clear") if is_parted else env.fields
            secret |= {_get_text(item).partition(":")[0]: item for item in _get_items(env, "secret")}
        definition["environment"] = {name: node for name, node in clear.items() if name not in secret}
        keys = {name: _get_text(node).partition(":")[2] or name for name, node in secret.items() if name}
        self._keys |= {key: secret[name] for name, key in keys.items()}
        self._additions[service] = Addition({name: f"{self._secret}.{key}" for name, key in keys.items()})
        options = _get_fields(node, "options")
        candidates = {
            "command": node.fields.get("cmd"),
            "cpus": options.get("cpus"),
            "mem_limit": options.get("memory"),
        }
        return definition | {field: option for field, option in candidates.items() if option is not None}

    def _deploy(self, hosts: Node) -> dict[str, Any]:
        """A replica for each host; a host with tags is a mapping."""
        for item in hosts.items:
            if isinstance(item.value, dict):
                self._note(
                    item,
                    "convert-left-out",
                    "the tags of a host are left out: all replicas are alike",
                    "write a role for the hosts that have the tag",
                )
        count = min(len(hosts.items), _MOST_REPLICAS)
        if count < 2:
            return {}
        self._note(hosts, "convert-changed", f"{count} hosts become {count} replicas at each location of the GVC")
        return {"replicas": make_node(count, hosts.origin)}

    def _image(self, node: Node) -> Node:
        """The image with its registry; the one of the service has the tag of each build, which no file names."""
        image = node.fields.get("image", node._replace(value=None))
        server = _get_text(node.fields.get("registry", node).fields.get("server"))
        text = _get_text(image)
        if not text:
            return image
        is_tagged = ":" in text.rpartition("/")[2]
        if node is self._root and not is_tagged:
            self._note(
                image,
                "compose-build",
                "the image must be built and pushed: the tag is latest",
                "write the tag that your build pushes",
            )
            text = f"{text}:latest"
        return image._replace(value=f"{server}/{text}" if server and not text.startswith(f"{server}/") else text)

    def _volume(self, entry: Node, prefix: str) -> Node:
        """A volume or directory as compose has it; names are declared. Directories begin with ``prefix``."""
        entry = self._pair(entry)
        source, colon, target = _get_text(entry).partition(":")
        if not colon or not source:
            return entry
        if source.startswith(("/", ".", "~")) and not prefix:
            return entry._replace(value=f"/{source.lstrip('./~')}:{target}")  # of the machine, not of the project
        name = make_valid_name(f"{prefix}{source}")
        self._volumes.setdefault(name, entry._replace(value={}))
        return entry._replace(value=f"{name}:{target}")

    def _file(self, entry: Node) -> Node | None:
        """A file of the project that an accessory mounts; None with a note where Ruby makes it."""
        entry = self._pair(entry)
        source, colon, target = _get_text(entry).partition(":")
        if source.endswith(".erb"):
            self._note(entry, "convert-left-out", "a file that Ruby makes is left out", "write what it becomes")
            return None
        is_of_machine = not colon or source.startswith(("/", "~"))
        return entry if is_of_machine else entry._replace(value=f"./{source}:{target.partition(':')[0]}")

    def _pair(self, entry: Node) -> Node:
        """``local`` and ``remote`` of a mapping as one text; what else it has gets a note."""
        local, remote = entry.fields.get("local"), entry.fields.get("remote")
        if local is None or remote is None:
            return entry
        for field in ("mode", "owner", "options"):
            if field in entry.fields:
                self._note(entry.fields[field], "convert-left-out", f"`{field}` has no counterpart")
        return entry._replace(value=f"{_get_text(local)}:{_get_text(remote)}")

    def _serve(self, service: str, proxies: Sequence[Node], definition: dict[str, Any]) -> None:
        """The port, the domains and the probe of a service behind the proxy; the last of ``proxies`` wins."""
        merged: dict[str, Node] = {}
        for proxy in proxies:
            merged |= proxy.fields
        port = self._number(merged.get("app_port"), _PORT)
        origin = merged["app_port"].origin if "app_port" in merged else _origin_of(proxies, self._root)
        definition["ports"] = [make_node({"target": port, "app_protocol": "http"}, origin)]
        named = [*([merged["host"]] if "host" in merged else []), *(merged["hosts"].items if "hosts" in merged else [])]
        names = [(node, name.strip()) for node in named for name in _get_text(node).split(",") if name.strip()]
        if names and merged.get("ssl", self._root).value is False:
            self._note(merged["ssl"], "convert-changed", "the domain is served with TLS")
        prefix = _get_text(merged.get("path_prefix")) or "/"
        for host, name in names:
            if not _FULL_NAME.fullmatch(name):
                self._note(host, "convert-left-out", "this is no full domain name; it is left out")
            elif (name, prefix) in self._hosts:
                self._note(host, "convert-left-out", "this domain leads to another workload; it is left out here")
            else:
                self._hosts[name, prefix] = Host(name, service, port, prefix)
        self._additions[service] = self._additions[service]._replace(probe=self._probe(merged.get("healthcheck"), port))

    def _probe(self, check: Node | None, port: int) -> Body:
        fields = check.fields if check is not None else {}
        path = _get_text(fields.get("path")) or _PATH
        probe: Body = {"httpGet": {"path": path if path.startswith("/") else f"/{path}", "port": port}}
        for name, field in (("periodSeconds", "interval"), ("timeoutSeconds", "timeout")):
            least, most = PROBE_BOUNDS[name]
            if number := self._number(fields.get(field), 0):
                probe[name] = min(max(number, least), most)
                if probe[name] != number:
                    self._note(fields[field], "convert-changed", f"this is not from {least} to {most}, and becomes so")
        return probe

    def _number(self, node: Node | None, default: int) -> int:
        if node is None or node.value is None:
            return default
        text = str(node.value)
        if isinstance(node.value, bool) or not re.fullmatch("[0-9]{1,9}", text):
            self._note(node, "convert-malformed", "this is not a whole number")
            return default
        return int(text)

    def _note_secrets(self) -> None:
        """Note the secret with the values of .kamal/secrets, of which only the names are read."""
        if not self._keys:
            return
        names = ", ".join(sorted(self._keys))
        first = next(iter(self._keys.values()))
        declared = self._known_secrets(first)
        here = f" -d {self._kamal.destination}" if self._kamal.destination else ""
        source = f"; the values: kamal secrets print{here}" if declared is not None else ""
        self._note(
            first,
            "convert-missing",
            f"the secret {self._secret} must exist, with the keys {names}",
            f"platform secret set {self._secret} KEY -{source}",
        )
        for key, node in self._keys.items():
            if declared is not None and key not in declared:
                self._note(node, "convert-missing", f"the files of secrets have no {key}", "add it, or correct it here")

    def _known_secrets(self, node: Node) -> set[str] | None:
        """The names in the files of secrets; None where there is no file. Faults are notes at ``node``."""
        path = _get_text(self._root.fields.get("secrets_path")) or _SECRETS
        names: set[str] | None = None
        for text in (f"{path}-common", f"{path}.{self._kamal.destination}".removesuffix(".")):
            try:
                names = (names or set()).union(
                    names_in_env_file(self._kamal.read_file(join_path(self._kamal.base, text)))
                )
            except EnvFileError as error:
                self._note(node, "convert-malformed", f"{text} cannot be read: {error}")
            except OutsideFileError as error:
                self._note(node, error.rule, f"{text} cannot be read: {error}", error.suggestion)
            except UnreadableFileError:
                continue
        return names

    def _fields(self, name: str) -> dict[str, Node]:
        return _get_fields(self._root, name)

    def _items(self, name: str) -> list[Node]:
        return _get_items(self._root, name)

    def _origin(self, name: str) -> NodeOrigin:
        return self._root.fields.get(name, self._root).origin

    def _note(self, node: Node, rule: str, message: str, suggestion: str = "") -> None:
        self._notes.append(node.origin.note(rule, message, suggestion))


def _origin_of(proxies: Sequence[Node], root: Node) -> NodeOrigin:
    """The place of a port that no file names: the proxy, else the root."""
    return proxies[-1].origin if proxies else root.origin


def _get_fields(node: Node, name: str) -> dict[str, Node]:
    return node.fields[name].fields if name in node.fields else {}


def _get_items(node: Node, name: str) -> list[Node]:
    return node.fields[name].items if name in node.fields else []


def _get_text(node: Node | None) -> str:
    return node.value if node is not None and isinstance(node.value, str) else ""
