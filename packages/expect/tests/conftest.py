"""What tests of stages share: a pipeline file, and a scene of tables with a query."""

from tests.unit.ingest.conftest import scene as scene
from tests.unit.spec.conftest import load as load
from tests.unit.spec.conftest import refuse as refuse
from tests.unit.spec.conftest import working_directory as working_directory
