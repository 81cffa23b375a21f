"""Progress that goes from another tool to a pipeline, and back: what the tool has of it, and the commit that continues."""
