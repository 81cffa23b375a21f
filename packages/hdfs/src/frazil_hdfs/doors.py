"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.catalogs import StoreKind

HDFS = StoreKind("frazil_hdfs.files:HdfsCluster")
"""Locations that begin with `hdfs://`."""
