"""A bug in a decoding process is reported by its place, as one in this process is."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import msgspec
import pytest

from reconciler.decode import worker
from reconciler.decode.pool import _Worker
from reconciler.errors import InternalError
from reconciler.manifests.decoder import ManifestFile
from reconciler.manifests.normalize import ManifestContext
from tests.support.buggy import MARK, SECRET, raising_rule


def test_a_bug_in_a_decoding_process_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = f"kind: workload\nname: web\ntags: {{test: {MARK}}}\n".encode()
    encode = msgspec.msgpack.Encoder().encode
    asked = worker.frame_body(encode(ManifestContext("acme"))) + worker.frame_body(encode([ManifestFile(raw)]))
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(asked)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    with raising_rule():
        worker.main()
    answer = worker.read_frame(io.BytesIO(out.getvalue()))
    with pytest.raises(InternalError, match="KeyError at reconciler/manifests/") as met:
        list(_Worker.decode_answer(SimpleNamespace(sent=[]), answer))  # type: ignore[arg-type]
    assert "in check" in met.value.trace
    assert SECRET not in str(met.value) + met.value.trace
