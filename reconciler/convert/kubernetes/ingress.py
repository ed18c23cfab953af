"""Converts Ingress to domain: one for each host, with routes by path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from reconciler.convert.drafts import Body, Draft, make_draft, without_empty
from reconciler.convert.kubernetes.bundle import Bundle, Item
from reconciler.convert.kubernetes.secrets import Secrets
from reconciler.convert.kubernetes.services import IngressBackend, backend_of, ports_of
from reconciler.convert.kubernetes.workloads import Deployed
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.key import Kind

_FULL_NAME = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_REWRITE = "nginx.ingress.kubernetes.io/rewrite-target"
_REGEX = re.compile(r"[()\[\]{}|*+^$\\?]")
"""Characters that occur in regular expressions but not in paths."""
_MOST_NAMES = 10
"""The most workloads that a message names."""
_AS_REGEX = "nginx.ingress.kubernetes.io/use-regex"


class _Host(msgspec.Struct):
    """A domain, collected from the Ingresses that name it."""

    gvc: str
    origin: Item
    subdomains: bool = False
    certificate: str = ""
    routes: dict[tuple[str, str], Body] = {}


class Domains:
    """The domains for the Ingresses of a bundle, based on the converted workloads."""

    def __init__(self, bundle: Bundle, secrets: Secrets, deployed: Sequence[Deployed]) -> None:
        self._bundle = bundle
        self._secrets = secrets
        self._serving: dict[tuple[str, str], list[Deployed]] = {}
        for workload in deployed:
            for service in workload.services if workload.ports else ():
                self._serving.setdefault((service.namespace, service.name), []).append(workload)
        self._ports: dict[tuple[str, str], dict[int | str, int]] = {}
        self._hosts: dict[str, _Host] = {}
        for item in bundle.of("Ingress"):
            self._add(item)

    def drafts(self) -> Iterator[Draft]:
        """A manifest for each host; where paths overlap, the longer one comes first."""
        for name, host in self._hosts.items():
            routes = [host.routes[path] for path in sorted(host.routes, key=_longest_first)]
            port: Body = {"number": 443, "protocol": "http2", "routes": routes}
            if host.certificate:
                port["tls"] = {"serverCertificate": {"secretLink": f"//secret/{host.certificate}"}}
            spec = {**({"acceptAllSubdomains": True} if host.subdomains else {}), "ports": [port]}
            yield make_draft(Kind.DOMAIN, name, "", host.origin.root, {"spec": spec})

    def _add(self, item: Item) -> None:
        spec = item.spec
        default = spec["defaultBackend"] or spec["backend"]
        rules = [rule for rule in spec["rules"].items() if self._has_host(rule)]
        if default and not rules:
            default.add_note(
                "convert-left-out",
                "a backend for every host has no counterpart",
                "name the host, or use the workload's own endpoint",
            )
        for rule in rules:
            routes = [self._route(item, path) for path in rule["http"]["paths"].items()]
            if default:
                routes.append(self._to(item, backend_of(default), {"prefix": "/"}, default))
            for deployed, route in filter(None, routes):
                self._place(item, rule["host"], deployed.gvc, route)
        self._certify(item, rules)

    def _has_host(self, rule: TrackedValue) -> bool:
        host = rule["host"]
        if _FULL_NAME.fullmatch(host.text().removeprefix("*.")):
            return True
        problem = f"{host.text()} is no full domain name" if host else "a rule for every host has no counterpart"
        (host or rule).add_note("convert-left-out", f"{problem}; the rule is left out", "name the host")
        rule.ignore()
        return False

    def _route(self, item: Item, path: TrackedValue) -> tuple[Deployed, Body] | None:
        return self._to(item, backend_of(path["backend"]), _convert_path_match(item, path), path)

    def _to(self, item: Item, backend: IngressBackend, match: Body, path: TrackedValue) -> tuple[Deployed, Body] | None:
        """The route to ``backend``, and its workload; None, with a note, where there is no workload."""
        if not backend.name:
            backend.part.ignore()
            backend.part.add_note(
                "convert-left-out", "a backend that is no Service has no counterpart; the path is left out"
            )
            return None
        service = self._bundle.find("Service", item.namespace, backend.name)
        serving = self._serving.get((item.namespace, backend.name), [])
        if service is None or not serving:
            path["backend"].ignore()
            backend.part.add_note(
                "convert-missing", f"no workload in these files serves {backend.name}; the path is left out"
            )
            return None
        if len(serving) > 1:
            names = ", ".join(deployed.name for deployed in serving[:_MOST_NAMES])
            more = f" and {len(serving) - _MOST_NAMES} more" if len(serving) > _MOST_NAMES else ""
            backend.part.add_note("convert-changed", f"{service} selects {names}{more}; only the first gets requests")
        port = self._port(service, backend, serving[0])
        link = f"//gvc/{serving[0].gvc}/workload/{serving[0].name}"
        return serving[0], {"workloadLink": link, **match, **({"port": port} if port else {})}

    def _place(self, item: Item, written: TrackedValue, gvc: str, route: Body) -> None:
        name = written.text()
        host = self._hosts.setdefault(name.removeprefix("*."), _Host(gvc, item))
        if name.startswith("*."):
            host.subdomains = True
            written.add_note("convert-changed", f"{name} becomes {name[2:]} with all its subdomains")
        if host.gvc != gvc:
            written.add_note("convert-left-out", f"{name} can lead only to the GVC {host.gvc}; {gvc} is left out")
            return
        path = ("prefix", route["prefix"]) if "prefix" in route else ("regex", route["regex"])
        if host.routes.setdefault(path, route) != route:
            written.add_note(
                "convert-left-out", f"{name} already has a route for {path[1]}; the second one is left out"
            )

    def _port(self, service: Item, backend: IngressBackend, deployed: Deployed) -> int:
        """The port of the container behind a port of ``service``; 0 where it is unknown."""
        key = (service.namespace, service.name)
        if key not in self._ports:
            self._ports[key] = _map_port_numbers(service, deployed)
        if backend.port in self._ports[key]:
            return self._ports[key][backend.port]
        backend.part.add_note("convert-missing", f"{service} has no port {backend.port}")
        return 0

    def _certify(self, item: Item, rules: Sequence[TrackedValue]) -> None:
        # Later ones win, and one that names no hosts is for all: a number says which was later.
        last: tuple[int, str] = (-1, "")
        named_by: dict[str, tuple[int, str]] = {}
        for number, tls in enumerate(item.spec["tls"].items()):
            named = tls["secretName"]
            secret = self._secrets.find("Secret", item.namespace, named.text())
            hosts = [host.removeprefix("*.") for host in tls["hosts"].texts()]
            if secret is None or not secret.certificate:
                (named or tls).add_note(
                    "convert-missing",
                    f"{named.text() or 'no Secret'} with tls.crt and tls.key is not "
                    "among the files, so the platform makes the certificate",
                )
            elif hosts:
                named_by |= dict.fromkeys(hosts, (number, secret.certificate))
            else:
                last = (number, secret.certificate)
        for host in (rule["host"].text().removeprefix("*.") for rule in rules if last[1]):
            named_by[host] = max(named_by.get(host, last), last)
        for host, (_, certificate) in named_by.items():
            if host in self._hosts:
                self._hosts[host].certificate = certificate


def _longest_first(path: tuple[str, str]) -> tuple[bool, int, str]:
    form, text = path
    return form != "regex", -len(text), text


def _convert_path_match(item: Item, path: TrackedValue) -> Body:
    """The match of a request's path, and its rewrite."""
    text, form = path["path"].text("/") or "/", path["pathType"].text("Prefix")
    annotations = item.root["metadata"]["annotations"]
    if form == "ImplementationSpecific":
        as_regex = annotations[_AS_REGEX].text() if isinstance(annotations.peek(_AS_REGEX), str) else ""
        if as_regex != "true" and _REGEX.search(text):
            message = f"{text} is taken for a regular expression, since no path has such characters"
            path["path"].add_note("convert-changed", message, "make it a prefix if it is one")
        if as_regex == "true" or _REGEX.search(text):
            return {"regex": text}
    if form == "Exact":
        return {"regex": f"^{re.escape(text)}$"}
    rewrite = annotations.peek(_REWRITE)
    if isinstance(rewrite, str) and "$" not in rewrite:
        return without_empty({"prefix": text, "replacePrefix": annotations[_REWRITE].text()})
    return {"prefix": text}


def _map_port_numbers(service: Item, deployed: Deployed) -> dict[int | str, int]:
    """Number or name of a port of ``service`` → the port of the container behind it; 0 stands for the first one."""
    behind: dict[int | str, int] = {}
    for container_port in deployed.ports:
        behind.setdefault(container_port.number, container_port.number)
        behind.setdefault(container_port.name, container_port.number)
    numbers: dict[int | str, int] = {}
    for port in ports_of(service):
        for word in (port.number, port.name, 0):
            numbers.setdefault(word, behind.get(port.target, 0))
    return numbers
