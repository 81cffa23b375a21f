"""The fixtures of acceptance tests."""

from tests.acceptance.conftest import pipeline as pipeline
from tests.acceptance.conftest import remote_lake as remote_lake
