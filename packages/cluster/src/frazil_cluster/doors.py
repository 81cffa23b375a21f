"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.driver import ClusterKind

CLUSTER = ClusterKind("frazil_cluster.cluster:SparkCluster")
"""Standalone masters, YARN and Kubernetes, as `spark.master` names them."""
