"""Columns to files: arranged by partition and order, measured, described in Iceberg's own JSON."""
