"""The catalog port and the maintenance port on top of Iceberg's Java library, reached through py4j."""
