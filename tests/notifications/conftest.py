"""Fixtures of the tests of notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.settings.notifications import NotificationSettings
from tests.notifications.harness import Post, notify


@pytest.fixture
def make_post(tmp_path: Path) -> Iterator[Callable[..., Post]]:
    """Makes records with notifications; without settings, those of one channel."""
    posts: list[Post] = []

    def make(settings: NotificationSettings | None = None, **more: object) -> Post:
        posts.append(Post(tmp_path / f"state-{len(posts)}", settings or notify(), **more))  # type: ignore[arg-type]
        return posts[-1]

    yield make
    for post in posts:
        post.close()
