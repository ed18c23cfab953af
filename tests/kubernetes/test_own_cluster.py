"""The promises of engines, on a cluster that somebody names: ``RECONCILER_TEST_KUBECONFIG=FILE make test-cluster``.

Its namespaces have a prefix of their own, and are deleted. No other file and no default of kubectl is ever used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from reconciler.clock import SystemClock
from reconciler.engines.context import EngineContext, LocationRecords
from reconciler.engines.kubernetes.client.api import KubeApi
from reconciler.engines.kubernetes.client.objects import NAMESPACE, ObjectId
from reconciler.engines.kubernetes.engine import KubernetesEngine
from reconciler.engines.kubernetes.reading.location import KubernetesReader
from reconciler.settings import ClusterSettings, LocationSettings, Settings
from tests.engines.contract import PROMISES, EngineHarness, EnginePair, Factory, subject_of
from tests.engines.test_contract import no_secret
from tests.support.kubernetes import find_test_kubeconfig
from tests.support.plans import ExecutorHarness

pytestmark = pytest.mark.own_cluster

IMAGE = "RECONCILER_TEST_IMAGE"
PYTHON = "docker.io/library/python:3-alpine"
"""Has the program ``python3``, which replicas run."""
PREFIX = "reconciler-test-"
PATIENCE = 300.0
"""Seconds for a step, with pulls of images."""


@pytest.fixture(scope="module")
def kubeconfig() -> Path:
    """The file that the variable names."""
    try:
        return find_test_kubeconfig(os.environ)
    except ValueError as refusal:
        pytest.fail(str(refusal), pytrace=False)


@pytest.fixture
def factory(kubeconfig: Path) -> Iterator[Factory]:
    """Makes engines whose namespace is deleted at the end."""
    prefix = f"{PREFIX}{uuid4().hex[:8]}-"
    bound = ClusterSettings(kubeconfig=kubeconfig, namespace_prefix=prefix, instance=prefix.strip("-"))

    def make(harness: ExecutorHarness, path: Path) -> EnginePair:
        settings = Settings("acme", (), path, locations={"here": LocationSettings("kubernetes", cluster=bound)})
        context = EngineContext(LocationRecords(harness.records, "here"), settings, harness.clock, no_secret)
        return EnginePair(KubernetesEngine(context), KubernetesReader(settings, "here"))

    brief = {"rolloutOptions": {"terminationGracePeriodSeconds": 1}}
    try:
        yield Factory(make, SystemClock, os.environ.get(IMAGE, PYTHON), brief, PATIENCE)
    finally:
        asyncio.run(delete_namespace(bound, f"{prefix}shop"))


async def delete_namespace(bound: ClusterSettings, name: str) -> None:
    """Delete a namespace of the tests, if it is there."""
    assert name.startswith(PREFIX)
    api = KubeApi(bound, SystemClock())
    try:
        if await api.get(ObjectId(NAMESPACE, "", name)) is not None:
            await api.delete(ObjectId(NAMESPACE, "", name))
    finally:
        await api.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_engine_keeps_its_promises_on_a_named_cluster(
    promise: Callable[[EngineHarness], None], factory: Factory, tmp_path: Path
) -> None:
    with subject_of(factory, tmp_path) as harness:
        promise(harness)
