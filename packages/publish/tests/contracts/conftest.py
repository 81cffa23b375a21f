"""The fixtures of contracts."""

from tests.contracts.conftest import folder as folder
from tests.contracts.conftest import lake as lake
