"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.driver import RegistryKind

CONFLUENT = RegistryKind("frazil_registry.confluent:ConfluentRegistry", "frazil_registry.schema_check:check")
