"""A catalog in a real PostgreSQL that wants TLS, a client certificate and a password, and grants the least."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.postgres import DATABASE

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]
_DRIVER = Path(__file__).parent.parent / "fixtures/connect-ivy.xml"
USER, PASSWORD = "frazil", "p'ass;word"
#: What PostgreSQL must let Frazil do where the catalog's tables exist.
LEAST = (
    f"grant connect on database {DATABASE} to {USER}",
    f"grant usage on schema public to {USER}",
    f"grant select, insert, update on iceberg_tables, iceberg_namespace_properties to {USER}",
)
