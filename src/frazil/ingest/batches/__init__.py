"""One batch: its Spark job, its outcome, and what must happen before its commit."""
