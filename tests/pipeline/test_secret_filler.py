"""The data of applied secrets: from the records, from Git and from the host, and never of what is not applied."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.model.kinds.secret import SecretValue
from reconciler.pipeline.runner import Runner
from reconciler.pipeline.secret_filler import SecretFiller
from reconciler.records.store import Records
from reconciler.secrets.store import SecretStore
from reconciler.settings import SecretSettings
from reconciler.sops.encrypt import EncryptionRules, encrypt_secrets
from tests.support.pipeline import PipelineHarness
from tests.support.rule_cases import private
from tests.support.sops import MOMENT, fresh

CANARY, OTHER = "correct-horse", "battery-staple"
IDENTITY, RECIPIENT = fresh()
DB = Key.parse("secret/db")
PLAIN = f"kind: secret\nname: db\ntype: dictionary\ndata:\n  user: shop\n  password: {CANARY}\n"
HOSTED = "kind: secret\nname: db\ntype: dictionary\ndata:\n  user: shop\n  password: {file: db}\n"
EXPECTED = SecretValue("dictionary", {"user": "shop", "password": CANARY})


def sealed(text: str = PLAIN) -> bytes:
    """``text`` encrypted for the identity of these tests."""
    return encrypt_secrets(text.encode(), [RECIPIENT], EncryptionRules(), MOMENT)


def pipeline_of(path: Path, content: str | bytes, **more: Any) -> PipelineHarness:
    """A secret ``db`` that is applied, over records in a file; its second document, so that places matter."""
    host = path / "host"
    identity = private(host / "identity.txt", IDENTITY)
    private(host / "db", CANARY)
    records = Records.open(path / "state" / "records.sqlite")
    files = {"org/db.yaml": content, "first.yaml": "kind: group\nname: ops\n"}
    harness = PipelineHarness(
        path / "way", files, records=records, secrets=SecretSettings(identity, directory=host), **more
    )
    harness.applied()
    return harness


def vault(harness: PipelineHarness) -> SecretStore:
    """A vault as a daemon that has just started has it; the line fills it from now on."""
    harness.pipeline = harness.new_pipeline()
    store = SecretStore(harness.records, harness.settings)
    filler = SecretFiller(store, harness.records, {harness.pipeline.name: harness.pipeline.view})
    filler.fill()
    harness.accepted = filler.accept
    return store


FORMS = {"plain": lambda: PLAIN, "encrypted": sealed, "hosted": lambda: HOSTED}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
in_memory = pytest.mark.parametrize("form", [sealed, lambda: HOSTED], ids=["encrypted", "hosted"])
Form = Callable[[], str | bytes]


def refused(asked: SecretStore, key: Key = DB) -> str:
    """Why ``asked`` does not reveal ``key``, which must hold no value."""
    with pytest.raises(EngineError) as caught:
        asked.read(key)
    assert caught.value.reason == "SecretUnavailable"
    assert caught.value.retry
    assert not any(word in str(caught.value) for word in (CANARY, OTHER, IDENTITY))
    return str(caught.value)


@forms
def test_an_applied_secret_is_revealed(tmp_path: Path, form: Form) -> None:
    harness = pipeline_of(tmp_path, form())
    asked = vault(harness)
    assert [asked.read(DB) for _ in range(2)] == [EXPECTED] * 2
    harness.commit({"org/db.yaml": PLAIN.replace(CANARY, OTHER)})
    harness.applied()
    assert asked.read(DB).content == {"user": "shop", "password": OTHER}


@forms
def test_a_secret_is_not_revealed_before_it_is_applied(tmp_path: Path, form: Form) -> None:
    harness = pipeline_of(tmp_path, form())
    asked = vault(harness)
    asked.read(DB)
    harness.commit({"org/db.yaml": sealed(PLAIN.replace(CANARY, OTHER))})
    harness.accept(harness.prepare())
    assert asked.read(DB) == EXPECTED


@in_memory
def test_reading_takes_no_git_no_identity_and_one_connection(tmp_path: Path, form: Form) -> None:
    harness = pipeline_of(tmp_path, form())
    asked = vault(harness)
    harness.repo.path.rename(tmp_path / "away")
    (tmp_path / "host" / "identity.txt").unlink()
    (tmp_path / "host" / "db").unlink()
    connected: list[str] = []
    listening = [True]
    sys.addaudithook(lambda event, _: connected.append(event) if listening and event == "sqlite3.connect" else None)
    try:
        assert [asked.read(DB) for _ in range(5)] == [EXPECTED] * 5
    finally:
        listening.clear()
    assert connected == ["sqlite3.connect"]


@in_memory
def test_a_failed_decryption_is_retried(tmp_path: Path, form: Form) -> None:
    harness = pipeline_of(tmp_path, form())
    lost = [tmp_path / "host" / "identity.txt", tmp_path / "host" / "db"]
    texts = [path.read_text() for path in lost]
    for path in lost:
        path.unlink()
    asked = SecretStore(harness.records, harness.settings)
    line = harness.new_pipeline()
    filler = SecretFiller(asked, harness.records, {line.name: line.view})
    filler.fill()
    assert "secret/db can no longer be opened" in refused(asked)
    for path, text in zip(lost, texts, strict=True):
        private(path, text)
    filler.retry()
    assert asked.read(DB) == EXPECTED


def test_the_value_of_a_deleted_secret_is_forgotten(tmp_path: Path) -> None:
    harness = pipeline_of(tmp_path, sealed())
    asked = vault(harness)
    digest = harness.recorded()["secret/db"].digest
    harness.commit({"org/db.yaml": None})
    harness.applied()
    assert asked.holds(DB, digest)
    asked.forget_old([DB])
    assert not asked.holds(DB, digest)


@in_memory
def test_a_value_that_is_applied_no_more_stays_in_no_memory(tmp_path: Path, form: Form) -> None:
    harness = pipeline_of(tmp_path, form())
    asked = vault(harness)
    asked.read(DB)
    harness.commit({"org/db.yaml": sealed(PLAIN.replace(CANARY, OTHER))})
    harness.applied()
    asked.read(DB)
    gc.collect()
    values = [str(each.content) for each in gc.get_objects() if isinstance(each, SecretValue) and each is not EXPECTED]
    assert values
    assert not [value for value in values if CANARY in value]


@in_memory
def test_after_a_restart_a_secret_in_memory_only_is_unavailable(tmp_path: Path, form: Form) -> None:
    harness = pipeline_of(tmp_path, form())
    harness.commit({"org/db.yaml": sealed(PLAIN.replace(CANARY, OTHER))})
    harness.accept(harness.prepare())
    assert (
        refused(vault(harness))
        == "secret/db has another value than was applied (org/db.yaml:1); the next run applies it"
    )
    harness.pipeline = harness.new_pipeline()
    harness.applied()
    assert vault(harness).read(DB).content == {"user": "shop", "password": OTHER}


def test_a_file_of_the_host_that_changed_waits_for_the_run_that_applies_it(tmp_path: Path) -> None:
    harness = pipeline_of(tmp_path, HOSTED)
    asked = vault(harness)
    asked.read(DB)
    private(tmp_path / "host" / "db", OTHER)
    assert asked.read(DB) == EXPECTED
    assert "has another value than was applied" in refused(vault(harness))


def test_a_secret_that_can_no_longer_be_decrypted_is_unavailable(tmp_path: Path) -> None:
    harness = pipeline_of(tmp_path, sealed())
    private(tmp_path / "host" / "identity.txt", fresh()[0])
    assert "secret/db can no longer be opened (org/db.yaml:1)" in refused(vault(harness))
    (tmp_path / "host" / "identity.txt").unlink()
    refused(vault(harness))
    private(tmp_path / "host" / "identity.txt", IDENTITY)
    assert vault(harness).read(DB) == EXPECTED


def test_a_secret_of_a_missing_repository_is_unavailable(tmp_path: Path) -> None:
    harness = pipeline_of(tmp_path, sealed())
    harness.repo.path.rename(tmp_path / "away")
    assert "no Git repository can be read" in refused(vault(harness))
    gone = msgspec.structs.replace(harness.settings, sources=())
    assert "the source main, which is no longer in the settings" in refused(SecretStore(harness.records, gone))


def test_a_secret_that_is_not_applied_is_unavailable(tmp_path: Path) -> None:
    harness = pipeline_of(tmp_path, PLAIN)
    assert refused(vault(harness), Key.parse("secret/nobody")) == "secret/nobody is not applied"
    harness.commit({"org/db.yaml": None})
    harness.applied()
    assert refused(vault(harness)) == "secret/db is not applied"


@in_memory
def test_nothing_that_is_revealed_is_written_down(tmp_path: Path, form: Form) -> None:
    harness = pipeline_of(tmp_path, form())
    vault(harness).read(DB)
    found = (path for path in tmp_path.rglob("*") if path.is_file() and "host" not in path.parts)
    assert [path for path in found if CANARY.encode() in path.read_bytes()] == []


def test_it_may_be_asked_in_other_threads_while_a_run_uses_the_records(tmp_path: Path) -> None:
    harness = pipeline_of(tmp_path, sealed())
    asked = vault(harness)
    with harness.records.transaction(), ThreadPoolExecutor(4) as threads:
        harness.records.applied.remove([(str(DB), "")])
        found = [threads.submit(asked.read, DB).result(60) for _ in range(8)]
    assert found == [EXPECTED] * 8
    assert refused(asked) == "secret/db is not applied"


def test_records_in_memory_are_shared(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"db.yaml": PLAIN})
    harness.applied()
    assert vault(harness).read(DB) == EXPECTED


def test_no_connection_stays_open(tmp_path: Path) -> None:
    harness = pipeline_of(tmp_path, PLAIN)
    asked = vault(harness)
    asked.read(DB)
    gc.collect()  # closes what other tests left
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asked.read(DB)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_poll_reads_no_secret_of_the_host_and_a_check_does(tmp_path: Path) -> None:
    """So that a commit costs the same with any number of such secrets."""
    harness = pipeline_of(tmp_path, HOSTED)
    runner = Runner(harness.settings, harness.records, harness.clock)

    async def runs() -> None:
        name = harness.pipeline.name
        await runner.open()
        assert (await runner.run(name, "start")).good
        before = harness.recorded()["secret/db"].digest
        private(tmp_path / "host" / "db", OTHER)
        harness.commit({"first.yaml": "kind: group\nname: devs\n"})
        polled = await runner.poll(name)
        assert polled is not None
        assert polled.outcome == "applied"
        assert ("group/devs" in harness.recorded(), harness.recorded()["secret/db"].digest) == (True, before)
        assert (await runner.run(name, "secret")).outcome == "applied"
        assert harness.recorded()["secret/db"].digest != before

    asyncio.run(runs())
