"""What Spark tasks run, in Python workers: records in, files and a report out. Knows neither the loop nor the catalog."""
