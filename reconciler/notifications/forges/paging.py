"""Lists that a forge gives in pages, some of which people of the forge can make larger than any answer may be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from reconciler.notifications.forges.client import AnswerTooLarge

SIZES = (100, 50, 10, 2, 1)
"""Items of a page, each a part of the one before."""
MOST_PAGES = 40

Item = TypeVar("Item")


async def collect_pages(read: Callable[[int, int], Awaitable[list[Item]]], largest: int, most: int) -> list[Item]:
    """The first items of a list, ``most`` or a few more; ``read`` gets the size of a page and its number, from 1.

    A page that is too large is read in smaller ones, and an item that is too large by itself is left out: long texts of
    one pull request hide no other. Raises SendRefused and SendFailed.
    """
    sizes = [size for size in SIZES if size <= largest]
    items: list[Item] = []
    start = 0
    for _ in range(MOST_PAGES):
        try:
            page = await read(sizes[0], start // sizes[0] + 1)
        except AnswerTooLarge:
            if len(sizes) > 1:
                del sizes[0]
            else:
                start += 1
            continue
        items += page
        start += sizes[0]
        if len(page) < sizes[0] or len(items) >= most:
            break
    return items
