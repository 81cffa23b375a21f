"""What tests of look-ups share: a scene of tables with a query."""

from tests.unit.ingest.conftest import scene as scene
