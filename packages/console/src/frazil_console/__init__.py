"""The console: pages for people who run a pipeline, rendered here, with a little script that keeps them current."""
