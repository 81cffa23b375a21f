"""Functions on Arrow arrays that tests prove equal to Spark 4.1 in ANSI mode."""
