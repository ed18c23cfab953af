"""Documents in, Resources and Findings out; knows nothing of Git."""
