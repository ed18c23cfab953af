"""Which images Podman gets by rules of the operator, so that it asks their registries itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.engines.host.runtimes.podman.registry_config import has_own_rules

NGINX = "docker.io/library/nginx"
ANYTHING = [{"type": "insecureAcceptAnything"}]
SIGNED = {"default": ANYTHING, "transports": {"docker": {"r.example": [{"type": "signedBy"}]}}}
SHIPPED = {
    "policy.json": json.dumps({"default": ANYTHING, "transports": {"docker-daemon": {"": ANYTHING}}}),
    "registries.conf": '# [[registry]]\nunqualified-search-registries = ["docker.io"]\n',
    "registries.conf.d/shortnames.conf": '[aliases]\n"nginx" = "docker.io/library/nginx"\n',
}


@pytest.mark.parametrize(
    ("files", "name", "expected"),
    [
        ({}, NGINX, False),
        (SHIPPED, NGINX, False),
        ({"policy.json": '{"default": [{"type": "reject"}]}'}, NGINX, True),
        ({"policy.json": json.dumps(SIGNED)}, NGINX, True),
        ({"policy.json": "{"}, NGINX, True),
        ({"policy.json": "[]"}, NGINX, True),
        ({"policy.json": '{"transports": []}'}, NGINX, True),
        ({"registries.conf": '[[registry]]\nprefix = "docker.io"\nlocation = "mirror.example"\n'}, NGINX, True),
        ({"registries.conf": '[[registry]]\nlocation = "docker.io/library"\n'}, NGINX, True),
        ({"registries.conf.d/a.conf": '[[registry]]\nlocation = "docker.io/lib"\n'}, NGINX, False),
        ({"registries.conf.d/a.conf": '[[registry]]\nlocation = "docker.io"\n'}, NGINX, True),
        ({"registries.conf": '[[registry]]\nprefix = "*.example.com"\n'}, "a.example.com/x", True),
        ({"registries.conf": '[[registry]]\nprefix = "*.example.com"\n'}, "example.org/a.example.com/x", False),
        ({"registries.conf": '[[registry]]\nlocation = "r.example:5000"\n'}, "r.example/x", False),
        ({"registries.conf": "[[registry"}, NGINX, True),
        ({"registries.conf": "registry = 1"}, NGINX, True),
        ({"registries.conf": "[[registry]]\nlocation = 1\n"}, NGINX, True),
        ({"certs.d/r.example:5000/ca.crt": ""}, "r.example:5000/x", True),
        ({"certs.d/r.example:5000/ca.crt": ""}, "r.example/x", False),
    ],
)
def test_a_rule_of_the_operator_is_found(tmp_path: Path, files: dict[str, str], name: str, expected: bool) -> None:
    for path, text in files.items():
        (tmp_path / "containers" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "containers" / path).write_text(text)
    assert has_own_rules(name, (tmp_path / "absent", tmp_path / "containers")) is expected
