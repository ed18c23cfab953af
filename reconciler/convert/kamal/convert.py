"""deploy.yml of Kamal as a compose project: a service for each role and accessory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from reconciler.convert.budget import Budget
from reconciler.convert.compose.convert import convert as convert_project
from reconciler.convert.compose.dotenv import EnvFileError, names_in_env_file
from reconciler.convert.compose.long_forms import long_form
from reconciler.convert.compose.nodes import Node, Origin, Verbatim, made, origins, plain, size_of
from reconciler.convert.compose.project import Addition, FileReader, Host, Project, joined, no_file
from reconciler.convert.compose.reading import ComposeDocument, read_compose
from reconciler.convert.drafts import Body, Converted
from reconciler.convert.kamal.fields import unused
from reconciler.convert.names import fitting
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
    found = [
        KamalProject(each, contents, next(iter(over), None), destination, directory_of(path), read_file)
        for each in documents
    ]
    return [] if faults else found, faults


def convert(kamal: KamalProject, gvc: str = "", budget: Budget | None = None) -> Converted:
    """Manifests for the roles and accessories of a project, in the GVC ``gvc``, else in that of the service.

    The notes name everything that is not converted. None has a value of the file.
    """
    notes: list[ConversionNote] = []
    budget = budget or Budget()
    variables = Verbatim(notes, budget)
    root = variables.nodes(kamal.document, kamal.base)
    if kamal.over is not None and kamal.over.value is not None:
        root = _overridden(root, variables.nodes(kamal.over, kamal.base))
    deployment = _Deployment(kamal, _without_ruby(root, notes), notes, budget)
    return convert_project(deployment.project(), gvc or fitting(deployment.full_name))


def _overridden(node: Node, over: Node) -> Node:
    """``node`` with what the destination says: fields are merged, all else is replaced."""
    if not (isinstance(node.value, dict) and isinstance(over.value, dict)):
        return over
    found = dict(node.value)
    for name, each in over.value.items():
        found[name] = _overridden(found[name], each) if name in found else each
    return node._replace(value=found)


def _without_ruby(node: Node, notes: list[ConversionNote]) -> Node:
    """``node`` without values that Ruby makes, with a note on each."""
    if isinstance(node.value, dict):
        found = {key: _without_ruby(each, notes) for key, each in node.value.items()}
        return node._replace(value={key: each for key, each in found.items() if not _is_ruby(node.value[key])})
    if isinstance(node.value, list):
        return node._replace(value=[_without_ruby(each, notes) for each in node.value])
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
        self.name = _text(root.fields.get("service")) or "app"
        self.full_name = f"{self.name}-{kamal.destination}".removesuffix("-")
        self._secret = fitting(f"{self.full_name}-secrets")
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
            if not _text(self._root.fields.get(field)):
                self._note(self._root, "convert-malformed", f"the field `{field}` is missing or no text")
        required = self._root.fields.get("require_destination")
        if required is not None and required.value is True and not self._kamal.destination:
            self._note(
                required,
                "convert-malformed",
                "a destination is required",
                "name it: --destination NAME reads deploy.NAME.yml too",
            )
        self._notes.extend(unused(self._root))
        self._note_secrets()
        tree = made({"services": self._services, "volumes": self._volumes}, self._root.origin)
        tree.fields["services"] = tree.fields["services"]._replace(origin=self._origin("servers"))
        whole = long_form(tree, self._notes)

        hosts = [*self._hosts.values()]
        return Project(
            self.name,
            plain(whole),
            origins(whole),
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
        primary = _text(self._root.fields.get("primary_role")) or _WEB
        service = self.name if name == primary else f"{self.name}-{name}"
        hosts = role if isinstance(role.value, list) else role.fields.get("hosts", role._replace(value=[]))
        # Each role has all that the root has: a small file can stand for more than fits.
        if not self._budget.allows(*self._shared, role.origin.noted(self._notes)):
            return
        found = self._common(service, role, [self._root.fields.get("env"), role.fields.get("env")])
        found["image"] = self._image(self._root)
        found["labels"] = {**self._fields("labels"), **_fields(role, "labels")}
        found["deploy"] = self._deploy(hosts)
        found["volumes"] = [self._volume(each, "") for each in self._items("volumes")]
        proxies = [self._root.fields.get("proxy"), role.fields.get("proxy")]
        is_on = proxies[1] is not None if name != primary else True
        if is_on and not any(each is not None and each.value is False for each in proxies):
            self._serve(service, [each for each in proxies if each is not None], found)
        self._keep(service, role, found)

    def _add_accessory(self, name: str, accessory: Node) -> None:
        service = _text(accessory.fields.get("service")) or f"{self.name}-{name}"
        found = self._common(service, accessory, [accessory.fields.get("env")])
        found["image"] = self._image(accessory)
        found["labels"] = _fields(accessory, "labels")
        found["deploy"] = self._deploy(accessory.fields.get("hosts", accessory._replace(value=[])))
        wanted = [(each, f"{service}-") for each in _items(accessory, "directories")]
        wanted += [(each, "") for each in _items(accessory, "volumes")]
        found["volumes"] = [self._volume(each, prefix) for each, prefix in wanted]
        found["volumes"] += filter(None, map(self._file, _items(accessory, "files")))
        if port := accessory.fields.get("port"):
            # The address is that of the machine; workloads of the GVC reach the port by the name of the workload.
            found["expose"] = [port._replace(value=str(port.value).rpartition(":")[2])]
        if (proxy := accessory.fields.get("proxy")) is not None and proxy.value is not False:
            self._serve(service, [proxy], found)
        self._keep(service, accessory, found)

    def _keep(self, service: str, node: Node, found: dict[str, Any]) -> None:
        """Add the service, unless another role or accessory has its name."""
        if service in self._services:
            self._note(
                node,
                "convert-duplicate",
                "another role or accessory has the name of this one",
                "give one of the two another name",
            )
        else:
            self._services[service] = made(found, node.origin)

    def _common(self, service: str, node: Node, envs: Sequence[Node | None]) -> dict[str, Any]:
        """What roles and accessories have alike."""
        found: dict[str, Any] = {}
        clear: dict[str, Node] = {}
        secret: dict[str, Node] = {}
        for env in filter(None, envs):
            is_parted = not {"clear", "secret", "tags"}.isdisjoint(env.fields)
            clear |= _fields(env, "clear") if is_parted else env.fields
            secret |= {_text(each).partition(":")[0]: each for each in _items(env, "secret")}
        found["environment"] = {name: each for name, each in clear.items() if name not in secret}
        keys = {name: _text(each).partition(":")[2] or name for name, each in secret.items() if name}
        self._keys |= {key: secret[name] for name, key in keys.items()}
        self._additions[service] = Addition({name: f"{self._secret}.{key}" for name, key in keys.items()})
        options = _fields(node, "options")
        wanted = {"command": node.fields.get("cmd"), "cpus": options.get("cpus"), "mem_limit": options.get("memory")}
        return found | {field: each for field, each in wanted.items() if each is not None}

    def _deploy(self, hosts: Node) -> dict[str, Any]:
        """A replica for each host; a host with tags is a mapping."""
        for each in hosts.items:
            if isinstance(each.value, dict):
                self._note(
                    each,
                    "convert-left-out",
                    "the tags of a host are left out: all replicas are alike",
                    "write a role for the hosts that have the tag",
                )
        count = min(len(hosts.items), _MOST_REPLICAS)
        if count < 2:
            return {}
        self._note(hosts, "convert-changed", f"{count} hosts become {count} replicas at each location of the GVC")
        return {"replicas": made(count, hosts.origin)}

    def _image(self, node: Node) -> Node:
        """The image with its registry; the one of the service has the tag of each build, which no file names."""
        image = node.fields.get("image", node._replace(value=None))
        server = _text(node.fields.get("registry", node).fields.get("server"))
        text = _text(image)
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
        source, colon, target = _text(entry).partition(":")
        if not colon or not source:
            return entry
        if source.startswith(("/", ".", "~")) and not prefix:
            return entry._replace(value=f"/{source.lstrip('./~')}:{target}")  # of the machine, not of the project
        name = fitting(f"{prefix}{source}")
        self._volumes.setdefault(name, entry._replace(value={}))
        return entry._replace(value=f"{name}:{target}")

    def _file(self, entry: Node) -> Node | None:
        """A file of the project that an accessory mounts; None with a note where Ruby makes it."""
        entry = self._pair(entry)
        source, colon, target = _text(entry).partition(":")
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
        return entry._replace(value=f"{_text(local)}:{_text(remote)}")

    def _serve(self, service: str, proxies: Sequence[Node], found: dict[str, Any]) -> None:
        """The port, the domains and the probe of a service behind the proxy; the last of ``proxies`` wins."""
        merged: dict[str, Node] = {}
        for each in proxies:
            merged |= each.fields
        port = self._number(merged.get("app_port"), _PORT)
        origin = merged["app_port"].origin if "app_port" in merged else _origin_of(proxies, self._root)
        found["ports"] = [made({"target": port, "app_protocol": "http"}, origin)]
        named = [*([merged["host"]] if "host" in merged else []), *(merged["hosts"].items if "hosts" in merged else [])]
        names = [(each, name.strip()) for each in named for name in _text(each).split(",") if name.strip()]
        if names and merged.get("ssl", self._root).value is False:
            self._note(merged["ssl"], "convert-changed", "the domain is served with TLS")
        prefix = _text(merged.get("path_prefix")) or "/"
        for each, name in names:
            if not _FULL_NAME.fullmatch(name):
                self._note(each, "convert-left-out", "this is no full domain name; it is left out")
            elif (name, prefix) in self._hosts:
                self._note(each, "convert-left-out", "this domain leads to another workload; it is left out here")
            else:
                self._hosts[name, prefix] = Host(name, service, port, prefix)
        self._additions[service] = self._additions[service]._replace(probe=self._probe(merged.get("healthcheck"), port))

    def _probe(self, check: Node | None, port: int) -> Body:
        fields = check.fields if check is not None else {}
        path = _text(fields.get("path")) or _PATH
        found: Body = {"httpGet": {"path": path if path.startswith("/") else f"/{path}", "port": port}}
        for name, field in (("periodSeconds", "interval"), ("timeoutSeconds", "timeout")):
            least, most = PROBE_BOUNDS[name]
            if wanted := self._number(fields.get(field), 0):
                found[name] = min(max(wanted, least), most)
                if found[name] != wanted:
                    self._note(fields[field], "convert-changed", f"this is not from {least} to {most}, and becomes so")
        return found

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
        known = self._known_secrets(first)
        here = f" -d {self._kamal.destination}" if self._kamal.destination else ""
        source = f"; the values: kamal secrets print{here}" if known is not None else ""
        self._note(
            first,
            "convert-missing",
            f"the secret {self._secret} must exist, with the keys {names}",
            f"platform secret set {self._secret} KEY -{source}",
        )
        for key, node in self._keys.items():
            if known is not None and key not in known:
                self._note(node, "convert-missing", f"the files of secrets have no {key}", "add it, or correct it here")

    def _known_secrets(self, node: Node) -> set[str] | None:
        """The names in the files of secrets; None where there is no file. Faults are notes at ``node``."""
        path = _text(self._root.fields.get("secrets_path")) or _SECRETS
        found: set[str] | None = None
        for each in (f"{path}-common", f"{path}.{self._kamal.destination}".removesuffix(".")):
            try:
                found = (found or set()).union(names_in_env_file(self._kamal.read_file(joined(self._kamal.base, each))))
            except EnvFileError as error:
                self._note(node, "convert-malformed", f"{each} cannot be read: {error}")
            except OutsideFileError as error:
                self._note(node, error.rule, f"{each} cannot be read: {error}", error.suggestion)
            except UnreadableFileError:
                continue
        return found

    def _fields(self, name: str) -> dict[str, Node]:
        return _fields(self._root, name)

    def _items(self, name: str) -> list[Node]:
        return _items(self._root, name)

    def _origin(self, name: str) -> Origin:
        return self._root.fields.get(name, self._root).origin

    def _note(self, node: Node, rule: str, message: str, suggestion: str = "") -> None:
        self._notes.append(node.origin.note(rule, message, suggestion))


def _origin_of(proxies: Sequence[Node], root: Node) -> Origin:
    """The place of a port that no file names: the proxy, else the root."""
    return proxies[-1].origin if proxies else root.origin


def _fields(node: Node, name: str) -> dict[str, Node]:
    return node.fields[name].fields if name in node.fields else {}


def _items(node: Node, name: str) -> list[Node]:
    return node.fields[name].items if name in node.fields else []


def _text(node: Node | None) -> str:
    return node.value if node is not None and isinstance(node.value, str) else ""
