"""Names of images: a short one means the registry that Docker and Kubernetes add to it."""

from __future__ import annotations

import pytest

from reconciler.engines.workload.image_reference import parse_reference
from reconciler.model.image_names import full_name, with_registry

DIGEST = f"sha256:{'0' * 64}"
SHORT = {
    "nginx": "docker.io/library/nginx",
    "nginx:1.27-alpine": "docker.io/library/nginx:1.27-alpine",
    f"postgres@{DIGEST}": f"docker.io/library/postgres@{DIGEST}",
    "miniflux/miniflux:2.2": "docker.io/miniflux/miniflux:2.2",
    "me/a/b": "docker.io/me/a/b",
    "library/redis:7": "docker.io/library/redis:7",
    "a.b:1": "docker.io/library/a.b:1",
}
OTHERS = (
    "docker.io/library/nginx:1",
    "ghcr.io/acme/web:1",
    "registry:5000/web:1",
    "localhost/web:1",
    "localhost:5555/me/depot:latest",
    "//image/web:1",
    "/org/acme/image/web:1",
    "Web Server:1",
    "$IMAGE",
    "{{ image }}",
    "",
)


@pytest.mark.parametrize("image", SHORT)
def test_a_short_name_gets_the_registry_and_the_containers_take_it(image: str) -> None:
    assert with_registry(image) == SHORT[image]
    assert full_name(image) == full_name(SHORT[image])
    assert parse_reference(image, "acme", "") == parse_reference(SHORT[image], "acme", "")


@pytest.mark.parametrize("image", OTHERS)
def test_any_other_name_stays_as_it_is(image: str) -> None:
    assert with_registry(image) == image
