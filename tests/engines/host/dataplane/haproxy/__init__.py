"""The data plane with HAProxy: its text, its decisions, and a real process."""
