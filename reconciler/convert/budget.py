"""How much a conversion may make of what it reads: a few lines can stand for more than a machine has memory."""

from __future__ import annotations

from collections.abc import Callable

RULE = "convert-too-large"
MOST_VALUES = 200_000
"""The most values of all files together, each counted wherever it is used."""
MOST_CHARACTERS = 16 << 20
"""The most characters of their texts, each counted wherever it is used."""


class Budget:
    """The values and characters that are left; what does not fit is left out, and noted once."""

    def __init__(self, values: int = MOST_VALUES, characters: int = MOST_CHARACTERS) -> None:
        self._most = (values, characters)
        self._values = values
        self._characters = characters
        self.is_spent = False

    def allows(self, values: int, characters: int, note: Callable[[str, str, str], object]) -> bool:
        """Count these, and return whether they fit; ``note`` gets rule, message and suggestion for the first ones
        that do not."""
        if self.is_spent:
            return False
        self._values -= values
        self._characters -= characters
        self.is_spent = self._values < 0 or self._characters < 0
        if self.is_spent:
            most = f"{self._most[0]:,} values" if self._values < 0 else f"{self._most[1] >> 20} MiB of text"
            note(
                RULE,
                f"with this, the files become more than {most}; it and what follows is left out",
                "convert fewer files at once, and use what is large in fewer places",
            )
        return not self.is_spent
