"""Tests of pipelines as files: records in, rows or dead letters out, without a broker, a registry or a catalog.

A case is played by the service that `frazil run` runs, on the twins in memory of the services.
"""
