"""The daemon: what wakes the pipeline, how often it retries, how it stops."""
