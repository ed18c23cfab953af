"""From Documents to Resources and Findings, without Git."""
