"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.driver import ElectionKind

ELECTION = ElectionKind("frazil_ha.electing:open_leadership", "frazil_ha.electing:check_election")
"""By Kafka, by Kubernetes or by PostgreSQL, as `ha.elect` names it."""
