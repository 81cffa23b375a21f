"""The fixtures of acceptance tests."""

from tests.acceptance.conftest import operator as operator
from tests.acceptance.conftest import pipeline as pipeline
