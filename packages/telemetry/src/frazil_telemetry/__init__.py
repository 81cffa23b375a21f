"""What `frazil run` sends elsewhere: metrics and traces to an OpenTelemetry collector, lineage to an OpenLineage service."""
