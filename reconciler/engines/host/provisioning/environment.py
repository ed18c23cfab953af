"""The environment of a container; nothing of the daemon's (docs/platform/workload.md#environment-variables)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.engines.host.provisioning.platform_env import PlatformEnvContext, built_in_variables
from reconciler.engines.host.provisioning.revision_hash import variables_of
from reconciler.engines.host.provisioning.secrets import env_value
from reconciler.engines.host.provisioning.variable_expansion import MAX_VARIABLE_BYTES, expand_variables
from reconciler.engines.host.runtimes.protocol import ContainerView
from reconciler.engines.protocol import SecretReader
from reconciler.errors import EngineError
from reconciler.model.kinds.workload import Container, Specification, declared_ports
from reconciler.model.platform import SECRET_URI, SPELLING
from reconciler.reasons import Reason

PORT = "PORT"


def environment(
    container: Container, context: PlatformEnvContext, view: ContainerView, reveal: SecretReader
) -> dict[str, str]:
    """All variables of ``container``, sorted by name.

    Its own variables override those of its GVC; both override the defaults of ``view`` and the PORT_ variables.
    Variables that the platform sets override all. Raises EngineError if a secret is unavailable or a value
    is too long.
    """
    written = variables_of(container, context.gvc_env)
    secret = {name: env_value(value, reveal) for name, value in written.items() if value.startswith(SECRET_URI)}
    plain = {name: value for name, value in written.items() if name not in secret}
    set_here = built_in_variables(context, container.image) | _paths(view)
    fixed = {**_defaults(view), **secret, **set_here}
    plain = {name: value for name, value in plain.items() if name not in set_here}
    declared = declared_ports(container)
    if declared:
        asked = expand_variables(plain, fixed).get(PORT, fixed.get(PORT, ""))
        plain.pop(PORT, None)
        fixed[PORT] = str(_assigned_port(asked, declared, view.ports))
    return _check_lengths(fixed | expand_variables(plain, fixed))


def unset_variables(spec: Specification, context: PlatformEnvContext) -> Iterator[str]:
    """A sentence for each container that uses the address of the API, which is not set without an API."""
    names = {f"{spelling}_ENDPOINT" for spelling in (SPELLING.upper(), context.scheme.upper())}
    for each in spec.containers if not context.api else ():
        used = (each.command, *each.args, *variables_of(each, context.gvc_env).values())
        if found := sorted(name for name in names if any(name in text for text in used)):
            yield f"{found[0]} is not set in the container {each.name}: there is no API here."


def _defaults(view: ContainerView) -> dict[str, str]:
    """The variables that images usually set, and the port of each declared one."""
    return {**view.defaults, **{f"{PORT}_{number}": str(port) for number, port in view.ports.items()}}


def _check_lengths(env: dict[str, str]) -> dict[str, str]:
    """``env`` sorted by name. Raises EngineError if a variable is too long to start a program."""
    for name, value in env.items():
        if len(name) + len(value.encode()) >= MAX_VARIABLE_BYTES - 1:
            message = f"the variable {name} is longer than {MAX_VARIABLE_BYTES >> 10} KiB, the limit of Linux"
            raise EngineError(message, reason=Reason.VARIABLE_TOO_LONG, retry=False)
    return dict(sorted(env.items()))


def _paths(view: ContainerView) -> dict[str, str]:
    # Users' programs read the former name; remove it in the release after the one that introduces the new name.
    former = {"RECONCILER_POOL": view.endpoints}
    return {"RECONCILER_ENDPOINTS": view.endpoints, "RECONCILER_VOLUMES": view.volumes} | former


def _assigned_port(asked: str, declared: tuple[int, ...], ports: Mapping[int, int]) -> int:
    """Where an exposed container must listen: for the declared port that PORT names, otherwise for the first.

    Any other PORT is denied: docs/platform/workload.md#the-variable-port.
    """
    number = next((each for each in declared if str(each) == asked), declared[0])
    return ports.get(number, number)
