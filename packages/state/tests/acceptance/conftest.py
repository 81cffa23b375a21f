"""The fixtures of acceptance tests."""

from tests.acceptance.conftest import pipeline as pipeline
