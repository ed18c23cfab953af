"""How inputs of any size are written."""

from __future__ import annotations


def lines(count: int, form: str, join: str = "\n") -> str:
    """``form`` for each number below ``count``, which it names N; M is the number before."""
    return join.join(form.replace("N", str(number)).replace("M", str(max(number - 1, 0))) for number in range(count))
