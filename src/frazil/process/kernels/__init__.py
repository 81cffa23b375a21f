"""Functions on Arrow arrays: those of Spark that tests prove equal to Spark 4.1 in ANSI mode, and those of `protect`."""
