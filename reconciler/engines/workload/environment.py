"""The environment of a container; nothing of the daemon's (docs/platform/workload.md#environment-variables)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from reconciler.engines.protocol import SecretReader
from reconciler.engines.workload.names import make_alias
from reconciler.engines.workload.revision_hash import variables_of
from reconciler.engines.workload.secrets import env_value
from reconciler.engines.workload.variable_expansion import MAX_VARIABLE_BYTES, expand_variables
from reconciler.errors import EngineError
from reconciler.model.kinds.location import Location
from reconciler.model.kinds.workload import Container, Specification, Variable, declared_ports
from reconciler.model.platform import LOCATION_PROVIDERS, OWN_PROVIDER, SECRET_URI, SPELLING
from reconciler.reasons import Reason

PORT = "PORT"


class ContainerView(msgspec.Struct, frozen=True):
    """What the program of a container sees: paths and ports inside the container.

    ``volumes`` is the directory below which its mounts are at their paths, "" if they are at the paths themselves.
    ``endpoints`` is the directory of the endpoints files. ``ports`` maps each declared port of the replica to the one
    that its program must listen on. ``directory`` is the working directory, "" for that of the image. ``defaults`` are
    variables that an image would set; those of a manifest override them.
    """

    volumes: str
    endpoints: str
    ports: Mapping[int, int]
    directory: str
    defaults: Mapping[str, str] = {}


class PlatformEnvContext(msgspec.Struct, frozen=True):
    """The inputs that all containers of a workload at a location share.

    ``token`` belongs to the workload; ``gvc_env`` are the variables of the GVC in normal form. ``scheme`` is how
    manifests spell ``platform``. ``api`` is the address of the API, "" if there is none.
    """

    org: str
    gvc: str
    alias: str
    location: str
    provider: str
    region: str
    workload: str
    version: int
    namespace: str
    token: str
    endpoint_domain: str
    gvc_env: tuple[Variable, ...] = ()
    scheme: str = SPELLING
    api: str = ""

    def __repr__(self) -> str:
        return f"PlatformEnvContext(gvc={self.gvc!r}, workload={self.workload!r}, location={self.location!r})"


def build_environment(
    container: Container, context: PlatformEnvContext, view: ContainerView, reveal: SecretReader
) -> dict[str, str]:
    """All variables of ``container``, sorted by name.

    Its own variables override those of its GVC; both override the defaults of ``view`` and the PORT_ variables.
    Variables that the platform sets override all. Raises EngineError if a secret is unavailable or a value is too long.
    """
    written = variables_of(container, context.gvc_env)
    secret = {name: env_value(value, reveal) for name, value in written.items() if value.startswith(SECRET_URI)}
    plain = {name: value for name, value in written.items() if name not in secret}
    set_here = built_in_variables(context, container.image) | _build_path_variables(view)
    fixed = {**_build_default_variables(view), **secret, **set_here}
    plain = {name: value for name, value in plain.items() if name not in set_here}
    declared = declared_ports(container)
    if declared:
        asked = expand_variables(plain, fixed).get(PORT, fixed.get(PORT, ""))
        plain.pop(PORT, None)
        fixed[PORT] = str(_assigned_port(asked, declared, view.ports))
    env = fixed | expand_variables(plain, fixed)
    _check_lengths(env)
    return dict(sorted(env.items()))


def unset_variables(spec: Specification, context: PlatformEnvContext) -> Iterator[str]:
    """A sentence for each container that uses the address of the API, which is not set without an API."""
    names = {f"{spelling}_ENDPOINT" for spelling in (SPELLING.upper(), context.scheme.upper())}
    for container in spec.containers if not context.api else ():
        used = (container.command, *container.args, *variables_of(container, context.gvc_env).values())
        if texts := sorted(name for name in names if any(name in text for text in used)):
            yield f"{texts[0]} is not set in the container {container.name}: there is no API here."


def _build_default_variables(view: ContainerView) -> dict[str, str]:
    """The variables that images usually set, and the port of each declared one."""
    return {**view.defaults, **{f"{PORT}_{number}": str(port) for number, port in view.ports.items()}}


def _check_lengths(env: Mapping[str, str]) -> None:
    """Raise EngineError if a variable is too long to start a program."""
    for name, value in env.items():
        if len(name) + len(value.encode()) >= MAX_VARIABLE_BYTES - 1:
            message = f"the variable {name} is longer than {MAX_VARIABLE_BYTES >> 10} KiB, the limit of Linux"
            raise EngineError(message, reason=Reason.VARIABLE_TOO_LONG, retry=False)


def _build_path_variables(view: ContainerView) -> dict[str, str]:
    return {"RECONCILER_ENDPOINTS": view.endpoints, "RECONCILER_VOLUMES": view.volumes}


def _assigned_port(asked: str, declared: tuple[int, ...], ports: Mapping[int, int]) -> int:
    """Where an exposed container must listen: for the declared port that PORT names, otherwise for the first.

    Any other PORT is denied: docs/platform/workload.md#the-variable-port.
    """
    number = next((number for number in declared if str(number) == asked), declared[0])
    return ports.get(number, number)


def built_in_variables(context: PlatformEnvContext, image: str) -> dict[str, str]:
    """The built-in variables for a container of ``image``.

    If manifests use another spelling of ``platform``, each variable is set under both names.
    """
    values = {
        "GLOBAL_ENDPOINT": f"{context.workload}-{context.alias}.{context.endpoint_domain}",
        "GVC": context.gvc,
        "GVC_ALIAS": context.alias,
        "LOCATION": f"{context.provider}-{context.region}",
        "NAMESPACE": context.namespace,
        "PROVIDER": context.provider,
        "ORG": context.org,
        "WORKLOAD": context.workload,
        "WORKLOAD_VERSION": str(context.version),
        "TOKEN": context.token,
        "IMAGE": image,
    }
    if context.api:
        values["ENDPOINT"] = context.api
    spellings = (SPELLING.upper(), context.scheme.upper())
    return {f"{spelling}_{name}": value for spelling in spellings for name, value in values.items()}


def provider_and_region(location: str, body: bytes | None) -> tuple[str, str]:
    """Provider and region of a location: from its manifest, otherwise from its name ``<provider>-<region>``.

    ``body`` is the manifest in normal form, None without one. An own location, such as ``local``, has the provider
    byok; without a region in its manifest, its name is the region.
    """
    declared = msgspec.json.decode(body, type=Location) if body is not None else Location()
    provider, _, region = location.partition("-")
    if provider not in LOCATION_PROVIDERS or not region:
        provider, region = OWN_PROVIDER, location
    if declared.provider == OWN_PROVIDER != provider:
        region = location
    return declared.provider or provider, declared.region or region


def namespace_of(org: str, gvc: str) -> str:
    """The namespace of a GVC's containers: looks random, and is always the same."""
    return make_alias(f"{org}/{gvc}", "namespace")
