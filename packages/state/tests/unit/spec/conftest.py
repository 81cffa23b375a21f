"""What the tests of the pipeline file share."""

from tests.unit.spec.conftest import load as load
from tests.unit.spec.conftest import refuse as refuse
from tests.unit.spec.conftest import working_directory as working_directory
