"""What precedes a first run: a pipeline file proposed from records, and an estimate of what a load takes."""
