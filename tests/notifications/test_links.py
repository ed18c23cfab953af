"""Where the link of a message leads."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.notifications.links import make_linker
from reconciler.notifications.message import EventType, Message, MessageResource, State
from reconciler.settings import Settings
from reconciler.settings.api import ApiSettings
from tests.notifications.test_bodies import make_message

COMMIT = "4f" * 20
SETTINGS = Settings(org="acme", sources=(), api=ApiSettings(url="https://ops.example.com"))
RUN = make_message("x", source="shop", commit=COMMIT, resources=(), link="")
BACKUP = MessageResource("backups", "", "", "BackupStale", "none is known")
API = MessageResource("workload/shop/api", "", "here", "Unhealthy", "it is not ready")


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (msgspec.structs.replace(RUN, state=State.PENDING), f"/ui/plan/source/shop?revision={COMMIT}"),
        (msgspec.structs.replace(RUN, state=State.RUNNING), f"/ui/plan/source/shop?revision={COMMIT}"),
        (msgspec.structs.replace(RUN, state=State.SUCCESS), "/ui/resource/source/shop"),
        (msgspec.structs.replace(RUN, event=EventType.REFUSED, state=State.FAILURE), "/ui/resource/source/shop"),
        (msgspec.structs.replace(RUN, event=EventType.APPROVAL, state=State.NONE), "/ui/plan/source/shop"),
        (msgspec.structs.replace(RUN, event=EventType.HEALTH, resources=(API,)), "/ui/resource/workload/shop/api"),
        (msgspec.structs.replace(RUN, event=EventType.HEALTH, source=""), "/"),
        (msgspec.structs.replace(RUN, event=EventType.DAEMON, source="", resources=(BACKUP,)), "/"),
    ],
)
def test_a_link_leads_to_the_view_that_shows_more(message: Message, path: str) -> None:
    assert make_linker(SETTINGS)(message) == f"https://ops.example.com{path}"


@pytest.mark.parametrize("api", [None, ApiSettings(), ApiSettings(url="https://ops.example.com", page=False)])
def test_without_a_page_there_is_no_link(api: ApiSettings | None) -> None:
    assert make_linker(msgspec.structs.replace(SETTINGS, api=api))(RUN) == ""
