"""Tasks on a Spark cluster: what its executors are sent, its master, and the application that runs there."""
