"""The loop: plans batches, reads them in Spark tasks, commits them, and backs off where a service is unavailable."""
