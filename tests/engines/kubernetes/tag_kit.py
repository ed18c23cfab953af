"""The engine beside a registry of images, whose tags a test moves."""

from __future__ import annotations

import pytest

from reconciler.engines.images import refresh
from reconciler.engines.protocol import Result
from reconciler.settings import ImageSettings
from tests.engines.kubernetes.engine_kit import EngineHarness, change_body, make_step
from tests.support.registry import FakeRegistry, manifest


class RegistryHarness(EngineHarness):
    """The engine of a location, with a registry that has ``team/app:1`` once it is started."""

    registry: FakeRegistry

    def start_registry(self) -> None:
        """Let the registry answer an engine that begins anew."""
        self.registry = FakeRegistry()
        self.do(self.registry.__aenter__())
        self.push("one")
        self.images = ImageSettings(insecure=(self.registry.host,), allowed=(f"{self.registry.host}/*",))
        self.begin_anew()

    def close(self) -> None:
        """Let go, also of the registry."""
        self.do(self.engine.close())
        self.do(self.registry.__aexit__(None, None, None))
        super().close()

    def push(self, mark: str) -> None:
        """Let the tag mean another image."""
        self.registry.push("team/app", "1", manifest(mark))

    def apply_app(self, version: int = 1, tag: str = "1", *, dynamic: bool = True) -> None:
        """Apply a workload that follows its tag."""
        body = change_body(image=f"{self.registry.host}/team/app:{tag}")
        body["spec"]["supportDynamicTags"] = dynamic
        [outcome] = self.apply(make_step(body, version)).values()
        assert outcome.result is Result.APPLIED, outcome.message


def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tags be looked up again and again at once."""
    for name, seconds in (("TICK_SECONDS", 0.02), ("FIRST", 0.02), ("SHORTEST", 0.05), ("LONGEST", 0.1)):
        monkeypatch.setattr(refresh, name, seconds)
