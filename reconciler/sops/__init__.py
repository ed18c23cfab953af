"""Encrypted documents in the format of SOPS, for age recipients: text and keys in, values and faults out; pure."""
