"""A hash of a replica's inputs besides its version: variables of the GVC, secrets, restarts, the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Container, Specification, Variable, options_at
from reconciler.model.platform import SECRET_URI

_encode = msgspec.json.Encoder(order="deterministic").encode


def variables_of(container: Container, gvc: tuple[Variable, ...]) -> dict[str, str]:
    """The variables of a container as written: those of its GVC, if it inherits them, and its own.

    Its own variables override the GVC's of the same name: docs/platform/workload.md#variables-of-the-gvc.
    """
    inherited = {variable.name: variable.value for variable in gvc} if container.inherit_env else {}
    return inherited | {variable.name: variable.value for variable in container.env}


def secrets_used(spec: Specification, gvc: tuple[Variable, ...]) -> tuple[Key, ...]:
    """The secrets that the containers read or mount, without duplicates, sorted; ``gvc`` are the GVC's variables."""
    values = [value for container in spec.containers for value in variables_of(container, gvc).values()]
    values += [volume.uri for container in spec.containers for volume in container.volumes]
    names = {text[len(SECRET_URI) :].partition(".")[0] for text in values if text.startswith(SECRET_URI)}
    return tuple(Key(Kind.SECRET, "", name) for name in sorted(names))


class HashInputs(NamedTuple):
    """What a replica depends on besides the spec and version of its workload.

    ``gvc`` are the variables of the GVC. ``secrets`` maps the secrets in use to the digests of their records.
    ``restarts`` counts the requested restarts. ``runtime`` is the name of the runtime, with what the settings forbid: a
    change of it is a rollout.
    ``images`` are the images that its tags mean, if ``supportDynamicTags`` lets them change.
    """

    gvc: tuple[Variable, ...]
    secrets: Mapping[Key, str]
    restarts: int
    runtime: str
    images: tuple[str, ...] = ()


def base_hash(secret_key: bytes, spec: Specification, location: str) -> str:
    """The hash of what containers at ``location`` get from ``spec``, except their limits of CPU and memory.

    Fields whose change creates no new version are left out.
    """
    plain = Specification()
    containers = [replace(container, cpu="", memory="", min_cpu="", min_memory="") for container in spec.containers]
    got = replace(
        plain,
        type=spec.type,
        identity_link=spec.identity_link,
        containers=tuple(containers),
        default_options=replace(plain.default_options, debug=options_at(spec, location).debug),
        security_options=spec.security_options,
    )
    return blake2b(_encode(got), key=secret_key[:64], digest_size=8).hexdigest()


def config_hash(secret_key: bytes, spec: Specification, inputs: HashInputs) -> str:
    """The hash that replicas of ``spec`` must have: equal for equal inputs, also after a restart of the daemon.

    It uses the key of the records, so that its inputs cannot be guessed.
    """
    gvc, secrets, restarts, runtime, images = inputs
    inherited = (
        [(variable.name, variable.value) for variable in gvc] if any(c.inherit_env for c in spec.containers) else []
    )
    digests = [[str(key), digest] for key, digest in sorted(secrets.items())]
    return blake2b(
        _encode([sorted(inherited), digests, restarts, runtime, *images]), key=secret_key[:64], digest_size=8
    ).hexdigest()
