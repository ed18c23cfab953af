"""Converts probes and lifecycle hooks of containers."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.convert.drafts import Body
from reconciler.convert.kubernetes.services import get_port_reference
from reconciler.convert.probes import PROBE_BOUNDS, clamp_value
from reconciler.convert.tracked_value import TrackedValue
from reconciler.model.platform import BLOCKED_PORTS

_LOWEST_PORT = {"httpGet": 80, "tcpSocket": 80, "grpc": 1}


def convert_probe(part: TrackedValue, names: Mapping[str, int]) -> Body | None:
    """A readiness or liveness probe, None where it cannot be converted; ``names`` maps port names to numbers."""
    if not part:
        return None
    form = next((form for form in ("exec", *_LOWEST_PORT) if part[form]), "")
    if not form:
        part.ignore()
        part.add_note("convert-malformed", "a probe has one of exec, httpGet, tcpSocket and grpc")
        return None
    body: Body | None = (
        {"exec": _convert_command(part["exec"])} if form == "exec" else _convert_network_probe(part[form], form, names)
    )
    if body is None:
        part.ignore()
        return None
    for field, bounds in PROBE_BOUNDS.items():
        value = part[field].number()
        if value is not None:
            body[field] = clamp_value(part[field], value, *bounds)
    return body


def convert_lifecycle(part: TrackedValue) -> Body:
    """``postStart`` and ``preStop``, where they are commands."""
    hooks: Body = {}
    for hook in ("postStart", "preStop"):
        if part[hook]["exec"]:
            hooks[hook] = {"exec": _convert_command(part[hook]["exec"])}
        elif part[hook]["sleep"]:
            hooks[hook] = {"exec": {"command": ["sleep", str(part[hook]["sleep"]["seconds"].number() or 0)]}}
    return hooks


def _convert_command(part: TrackedValue) -> Body:
    if not part["command"].items():
        part.add_note("convert-malformed", "the command is missing")
    return {"command": part["command"].texts()}


def _convert_network_probe(part: TrackedValue, form: str, names: Mapping[str, int]) -> Body | None:
    port = _resolve_port(part["port"], form, names)
    if port is None:
        return None
    asked: Body = {}
    if form == "httpGet":
        headers = [
            {"name": tracked_value["name"].require_text(), "value": tracked_value["value"].text()}
            for tracked_value in part["httpHeaders"].items()
        ]
        path = part["path"].text()
        asked = {
            "path": path if path.startswith("/") else f"/{path}" if path else None,
            "port": port,
            "scheme": part["scheme"].text() or None,
            "httpHeaders": headers,
        }
    else:
        asked = {"port": port}
    return {form: {name: value for name, value in asked.items() if value not in (None, [])}}


def _resolve_port(part: TrackedValue, form: str, names: Mapping[str, int]) -> int | None:
    """The port number of a probe; None, with a note, where it is not usable."""
    reference = get_port_reference(part)
    if isinstance(reference, str) and reference not in names:
        part.add_note("convert-malformed", f"the container has no port {reference}")
        return None
    port = names[reference] if isinstance(reference, str) else reference
    if port < _LOWEST_PORT[form] or (form == "tcpSocket" and port in BLOCKED_PORTS):
        part.add_note(
            "convert-left-out",
            f"port {port} cannot be probed; the probe is left out",
            f"probe a port from {_LOWEST_PORT[form]} to 65535 that the platform does not use",
        )
        return None
    return port
