"""Templates of executions are read back as they were, without secrets, and only while something uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engines.host.provisioning.template_store import TemplateFiles, TemplateStore
from reconciler.engines.host.provisioning.tokens import WorkloadTokens
from reconciler.engines.workload.environment import PlatformEnvContext
from reconciler.engines.workload.object_stores import CloudAccess
from reconciler.engines.workload.spec import ContainerSpec, Type, WorkloadSpec
from reconciler.engines.workload.template import ReplicaTemplate
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.workload import Job, Options, Variable, read_specification

KEY = Key(Kind.WORKLOAD, "shop", "report")
BODY = b"""{"kind": "workload", "name": "report", "spec": {"type": "cron", "job": {"schedule": "@daily"}, "containers":
  [{"name": "main", "image": "report:1", "env": [{"name": "DB", "value": "platform://secret/db.password"}]}]}}"""


def template(tokens: WorkloadTokens, version: int) -> ReplicaTemplate:
    """The template of a cron workload."""
    env_context = PlatformEnvContext(
        *("acme", "shop", "alias", "here", "aws", "us-west-2", "report", version, "namespace"),
        token=tokens.of(KEY),
        endpoint_domain="example.net",
        gvc_env=(Variable("ZONE", "b"),),
    )
    desired = WorkloadSpec(
        KEY, Type.CRON, version, "d", f"hash{version}", 0, (ContainerSpec("main"),), Options(), job=Job("0 0 * * *")
    )
    access = {"aws": CloudAccess("account", "keys")}
    return ReplicaTemplate(desired, read_specification(BODY), env_context, "2026-01-01T00:00:00Z", (KEY,), access)


def test_the_next_daemon_reads_the_same_template(tmp_path: Path) -> None:
    tokens = WorkloadTokens(tmp_path / "tokens", "here")
    replica_template = template(tokens, 1)
    store = TemplateStore(TemplateFiles(tmp_path / "templates", tokens))
    store.add(replica_template, ())
    assert list(tmp_path.rglob("*.json")) == []
    store.store(KEY, 1, "hash1")
    [path] = tmp_path.rglob("*.json")
    assert replica_template.env_context.token.encode() not in path.read_bytes()
    following = TemplateStore(TemplateFiles(tmp_path / "templates", tokens))
    following.add(template(tokens, 2), {(1, "hash1")})
    assert following.get(KEY, 1, "hash1") == replica_template
    assert following.get(KEY, 1, "hash2") is None
    following.add(template(tokens, 3), ())
    assert not path.exists()


def test_files_of_removed_workloads_are_removed(tmp_path: Path) -> None:
    tokens = WorkloadTokens(tmp_path / "tokens", "here")
    files = TemplateFiles(tmp_path / "templates", tokens)
    files.save(template(tokens, 1))
    files.forget_others({KEY})
    assert files.load(KEY, (1, "hash1")) is not None
    files.forget_others(())
    assert list(tmp_path.rglob("*.json")) == []
    files.save(template(tokens, 1))
    files.forget(KEY)
    assert not (tmp_path / "templates/shop/report").exists()


def test_a_damaged_file_is_no_template_and_a_full_disk_an_error(tmp_path: Path) -> None:
    tokens = WorkloadTokens(tmp_path / "tokens", "here")
    files = TemplateFiles(tmp_path / "templates", tokens)
    files.save(template(tokens, 1))
    [path] = tmp_path.rglob("*.json")
    path.write_bytes(path.read_bytes()[:-20])
    assert files.load(KEY, (1, "hash1")) is None
    (tmp_path / "other").write_text("")
    with pytest.raises(EngineError, match="cannot be written"):
        TemplateFiles(tmp_path / "other", tokens).save(template(tokens, 1))
