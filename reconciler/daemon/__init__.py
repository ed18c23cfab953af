"""The daemon: wake-ups of the pipeline, retries, and shutdown."""
