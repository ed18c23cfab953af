"""Runs agents: the manifests for a cluster, or a container on this machine, with the bootstrap file of the agent."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from reconciler.errors import RefusedError, UsageError
from reconciler.input_files import STDIN, shown_name
from reconciler.platform_cli.documents import read_object
from reconciler.platform_cli.option_values import whole_number
from reconciler.platform_cli.session import Session

FIELDS = ("agentId", "agentLink", "hubEndpoint", "registrationToken")
"""What a bootstrap file has."""
FOLDER = "/etc/agent"
BOOTSTRAP = f"{FOLDER}/bootstrap"
"""Where an agent finds its bootstrap file; the variable ``BOOTSTRAP_FILE`` has it too."""
_VARIABLE = "BOOTSTRAP_FILE"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PROGRAMS = ("docker", "podman")


def print_manifest(
    session: Session, kind: str, bootstrap_file: str, namespace: str, replicas: str, **options: Any
) -> None:
    """Print the manifests for a cluster: a namespace, the bootstrap file as a secret, and a deployment."""
    bootstrap, image = _read_bootstrap(bootstrap_file), _require_image(options["image"])
    if not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"--namespace {namespace}: a name is lower-case letters, digits and hyphens, at most 63")
    name = _format_agent_name(bootstrap)
    labels = {"app.kubernetes.io/name": kind, "app.kubernetes.io/instance": name}
    metadata = {"name": f"{kind}-{name}"[:63].rstrip("-."), "namespace": namespace, "labels": labels}
    variables = {_VARIABLE: BOOTSTRAP} | ({"CLUSTER": options["cluster"]} if options["cluster"] else {})
    spec = {
        "replicas": whole_number(replicas, "--replicas"),
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": _make_pod(kind, image, variables, secret=metadata["name"]),
        },
    }
    text = json.dumps(bootstrap, indent=2) + "\n"
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "stringData": {os.path.basename(BOOTSTRAP): text},
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
    ]
    if options["create_namespace"]:
        objects.insert(0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    session.output.manifests(objects)


def _make_pod(kind: str, image: str, variables: Mapping[str, str], secret: Any) -> dict[str, Any]:
    """The specification of pods that run the agent, with the bootstrap file of ``secret``."""
    container = {
        "name": kind,
        "image": image,
        "env": [{"name": variable, "value": value} for variable, value in variables.items()],
        "volumeMounts": [{"name": "bootstrap", "mountPath": FOLDER, "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "bootstrap", "secret": {"secretName": secret}}],
    }


def run_agent(session: Session, kind: str, bootstrap_file: str, background: bool, image: str | None, net: str) -> int:
    """Run an agent in a container of this machine, and return its exit code; 0 in the ``background``."""
    bootstrap, agent_image = _read_bootstrap(bootstrap_file), _require_image(image)
    if bootstrap_file == STDIN:
        raise UsageError("the container reads the bootstrap file later: save it, and name the file")
    program = next((path for text in _PROGRAMS if (path := shutil.which(text))), None)
    if program is None:
        raise RefusedError("neither docker nor podman is installed here; in a cluster: platform agent manifest")
    mount = f"type=bind,source={os.path.abspath(bootstrap_file)},target={BOOTSTRAP},readonly"
    # The token is in the file alone: other users can see the words of a command.
    words = [
        program,
        "run",
        "--name",
        f"{kind}-{_format_agent_name(bootstrap)}",
        "--network",
        net,
        "--mount",
        mount,
        "--env",
        f"{_VARIABLE}={BOOTSTRAP}",
    ]
    words += ["--detach", "--restart", "unless-stopped"] if background else ["--rm"]
    sys.stdout.flush()
    code = subprocess.run([*words, agent_image], check=False).returncode
    if code:
        raise RefusedError(f"{os.path.basename(program)} ended with exit code {code}")
    if background:
        session.output.note(f"to see it: {os.path.basename(program)} logs {kind}-{_format_agent_name(bootstrap)}")
    return 0


def _read_bootstrap(path: str) -> dict[str, Any]:
    """The fields of a bootstrap file. Raises UsageError."""
    fields = read_object(path)
    if missing := [name for name in FIELDS if name not in fields]:
        raise UsageError(f"{shown_name(path)} is no bootstrap file: it has no {', '.join(missing)}")
    if not fields["registrationToken"]:
        raise UsageError(f"{shown_name(path)} has no token; make a new one: platform rest post AGENT/-bootstrap")
    return {name: fields[name] for name in FIELDS}


def _format_agent_name(bootstrap: dict[str, Any]) -> str:
    """The name of the agent, as names of containers and objects of Kubernetes may be."""
    name = str(bootstrap["agentLink"]).rpartition("/")[2]
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "agent"


def _require_image(image: str | None) -> str:
    """The image that was named. Raises UsageError: none is published."""
    if not image:
        raise UsageError(
            "name the image of your agent: --image IMAGE. None is published; it reads the bootstrap file at "
            f"${_VARIABLE}, and reports to -info of its link"
        )
    return image
