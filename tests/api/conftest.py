"""One applied sandbox for all tests that only read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.api import ApiSandbox, api_sandbox
from tests.support.sandbox import GVC, workload

POLICIES = """kind: user
name: ann@example.com
tags: {team: web}
---
kind: user
name: bob@example.com
---
kind: group
name: web
memberQuery: {kind: user, spec: {terms: [{tag: team, value: web}]}}
---
kind: serviceaccount
name: ci
---
kind: policy
name: web-edits
targetKind: workload
targetQuery: {kind: workload, spec: {terms: [{tag: team, value: web}]}}
bindings: [{permissions: [edit], principalLinks: [//group/web, //serviceaccount/ci]}]
---
kind: secret
name: db
type: dictionary
data: {password: hunter2-hunter2}
"""

FILES = {
    "shop/gvc.yaml": GVC,
    "shop/api.yaml": workload("api"),
    "shop/web.yaml": workload("web", more="tags: {team: web}\n"),
    "access.yaml": POLICIES,
}


@pytest.fixture(scope="package")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSandbox]:
    """A sandbox with two workloads, a secret, users, a group and a policy."""
    with api_sandbox(tmp_path_factory.mktemp("api"), FILES) as made:
        yield made
