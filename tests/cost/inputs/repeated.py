"""How inputs of any size are written."""

from __future__ import annotations

import re

_PLACE = re.compile(r"(?<![A-UW-Z])([NM])(?![A-Z])")


def lines(count: int, form: str, join: str = "\n") -> str:
    """``form`` for each number below ``count``, which it names N; M is the number before. CMD and ENC are words."""
    parts = _PLACE.split(form)
    return join.join(
        "".join(
            part if index % 2 == 0 else str(number if part == "N" else max(number - 1, 0))
            for index, part in enumerate(parts)
        )
        for number in range(count)
    )
