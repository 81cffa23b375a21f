"""Some of the newest commits of a running pipeline, compared with the topics on a schedule."""
