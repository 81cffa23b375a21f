"""What tests of the package share: a scene of tables, topics and a registry."""

from tests.unit.ops.conftest import scenario as scenario
