"""The schema registry: the port that clients of packages implement."""
