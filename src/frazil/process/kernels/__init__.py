"""Functions of Spark on Arrow arrays: those that tests prove equal to Spark 4.1 in ANSI mode."""
