"""What a release consists of, made from one commit: `make release`, or ``python -m release``."""
