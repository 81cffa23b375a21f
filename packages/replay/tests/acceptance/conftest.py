"""The fixtures of acceptance tests."""

from tests.acceptance.conftest import pipeline as pipeline
from tests.acceptance.conftest import registry as registry
from tests.acceptance.conftest import shared_pipeline as shared_pipeline
