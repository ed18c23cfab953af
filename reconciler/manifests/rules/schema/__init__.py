"""The rules that a schema expresses: the constraint stands there, with ``x-rule``; what it is for stands here."""
