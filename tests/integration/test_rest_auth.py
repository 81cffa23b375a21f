"""How a pipeline logs in to a REST catalog: each way is asked for by a proxy in front of Iceberg's own server. That a run
outlives its tokens is in test_capabilities.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.runtime.light_jvm import LightJvm
from frazil.runtime.properties import catalog_properties
from frazil.schema.evolve import new_schema
from frazil.spec import load_spec
from tests.acceptance.proxy import Proxy
from tests.fixtures.gatekeeper import Gatekeeper, Headers
from tests.fixtures.jvms import light_jvm
from tests.integration.servers import RestCatalogServer

_SIGNED = (
    r"AWS4-HMAC-SHA256 Credential=AKEXAMPLE/\d{8}/eu-central-1/glue/aws4_request, SignedHeaders=[^,]*host[^,]*,"
    r" Signature=[0-9a-f]{64}"
)
WAYS: Mapping[str, tuple[dict[str, str], Callable[[Headers], bool]]] = {
    "bearer token": ({"token": "t0ken"}, lambda sent: sent.get("authorization") == "Bearer t0ken"),
    "basic": (
        {"rest.auth.type": "basic", "rest.auth.basic.username": "u", "rest.auth.basic.password": "p"},
        lambda sent: sent.get("authorization") == "Basic dTpw",
    ),
    "headers": (
        {"header.X-Realm": "lake", "header.Polaris-Realm": "r"},
        lambda sent: (sent.get("x-realm"), sent.get("polaris-realm")) == ("lake", "r"),
    ),
    "SigV4": (
        {
            "rest.auth.type": "sigv4",
            "rest.signing-name": "glue",
            "rest.signing-region": "eu-central-1",
            "rest.access-key-id": "AKEXAMPLE",
            "rest.secret-access-key": "s3cr3t",
        },
        lambda sent: re.fullmatch(_SIGNED, sent.get("authorization", "")) is not None,
    ),
}


OVERRIDDEN = {"s3.endpoint": "http://of-the-server", "client.region": "eu-central-1"}


@pytest.fixture(scope="module")
def plain_jvm() -> Iterator[LightJvm]:
    """With Amazon's clients, which sign requests."""
    with light_jvm(needs_s3=True) as running:
        yield running


def _document(uri: str, properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": "localhost:9092"},
        "catalog": {"type": "rest", "uri": uri, "properties": dict(properties)},
        "tables": {"a.b.t": {"topic": "t"}},
    }


@pytest.mark.parametrize("way", WAYS)
def test_a_catalog_lets_in_who_shows_what_it_asks_for(
    way: str, server: RestCatalogServer, plain_jvm: LightJvm, tmp_path: Path
) -> None:
    """Below a prefix, in a namespace of two levels."""
    properties, admits = WAYS[way]
    file, table = tmp_path / "pipeline.yaml", f"a.b.t{new_id()[:8]}"
    with _closing(Gatekeeper(server.port, admits, prefix="lake")) as gate:
        file.write_text(yaml.safe_dump(_document(gate.url, {**properties, "prefix": "lake"})))
        catalog = IcebergCatalog(plain_jvm.gateway, "p", catalog_properties(load_spec(file)), {})
        made, loaded = catalog.create(table, new_schema([]), {}, 2), catalog.load(table)
        assert loaded is not None
        assert loaded.uuid == made.uuid
        assert any(re.match("/v1/lake/namespaces/a[^/]+b/tables", path) for path in gate.paths), gate.paths
        file.write_text(yaml.safe_dump(_document(gate.url, {"prefix": "lake", "token": "wrong"})))
        with pytest.raises(UnavailableError) as refused:
            IcebergCatalog(plain_jvm.gateway, "p", catalog_properties(load_spec(file)), {})
    assert "show me who you are" in refused.value.message
    assert "catalog.properties" in refused.value.remedy


class Overriding(Proxy):
    """A server whose configuration overrides two properties of its clients."""

    def changed(self, content: bytes) -> bytes:
        """The configuration, with them."""
        document = json.loads(content) if content.startswith(b"{") else {}
        if "overrides" not in document:
            return content
        return json.dumps({**document, "overrides": {**document["overrides"], **OVERRIDDEN}}).encode()


def test_overrides_of_the_server_count_for_tables_and_for_files_before_the_first(
    server: RestCatalogServer, plain_jvm: LightJvm
) -> None:
    own = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.endpoint": "http://mine", "client.region": "mine"}
    with _closing(Overriding(server.port)) as catalogs:
        properties = {"type": "rest", "uri": catalogs.url, **own}
        catalog = IcebergCatalog(plain_jvm.gateway, "p", properties, {})
        of_file = catalog.store_properties("s3://lake/countries.csv")
        of_table = catalog.create(f"o{new_id()[:8]}.t", new_schema([]), {}, 2).io_properties
    for found in (of_file, of_table):
        assert found.items() >= {**own, **OVERRIDDEN}.items()


@contextmanager
def _closing(gate: Any) -> Iterator[Any]:
    try:
        yield gate
    finally:
        gate.close()
