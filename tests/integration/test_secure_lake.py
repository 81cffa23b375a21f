"""A REST catalog and an S3 store behind TLS of a private authority, the catalog with a token: in the JVM of the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.store_access import probe_store
from frazil.errors import UnavailableError
from frazil.refusals import OF_TASKS, refusal_remedy
from frazil.runtime.light_jvm import LightJvm
from frazil.store.file_io import StoreIO, store_of
from tests.contracts.tables import SCHEMA, commit_of
from tests.fixtures.certificates import EXPIRED, Authority
from tests.fixtures.jvms import light_jvm
from tests.fixtures.stores.servers import S3Gateway
from tests.fixtures.tls_gate import Gate, gate
from tests.integration.servers import ObjectStore, RestCatalogServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]
TABLE = "secured.t"
S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}


def connect(jvm: LightJvm, catalog: RestCatalogServer, way: Gate, store: dict[str, str], token: str) -> IcebergCatalog:
    settings = {"type": "rest", "uri": way.url, "warehouse": catalog.warehouse, "token": token, **store}
    return IcebergCatalog(jvm.gateway, "p", {**settings, **S3}, {})


def test_catalog_and_store_of_a_private_authority_are_reached_by_a_trust_store(
    catalog: RestCatalogServer, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store also with it where tasks look."""
    authority = Authority(tmp_path)
    server = authority.make("server")
    trust = f"-Djavax.net.ssl.trustStore={authority.java_store('secret')} -Djavax.net.ssl.trustStorePassword=secret"
    bad = {
        "renew the service's certificate": authority.make("expired", until=EXPIRED),
        "use a host name that the service's certificate has": authority.make("misnamed", host="other.example"),
    }
    with (
        gate(catalog.port, server, "Bearer t0ken") as way,
        gate(store.port, server) as to_store,
        light_jvm(needs_s3=True, conf={"spark.driver.extraJavaOptions": trust}) as jvm,
    ):
        jvm.listen()
        secured = {**store.properties(), "s3.endpoint": to_store.url}
        mine = connect(jvm, catalog, way, secured, "t0ken")
        state = mine.create(TABLE, SCHEMA, {}, 2)
        mine.commit(replace(commit_of(state, 5, ids=()), table=TABLE))
        with pytest.raises(UnavailableError, match="tasks do not") as caught:
            probe_store(jvm.gateway, {}, state.io_properties, state.location)
        assert "in a file that the variable SSL_CERT_FILE names" in caught.value.remedy
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        store_of.cache_clear()  # A process that is started with the variable has no client yet.
        assert probe_store(jvm.gateway, {}, state.io_properties, state.location) == "it answers"
        with pytest.raises(UnavailableError) as caught:
            connect(jvm, catalog, way, secured, "wrong").load(TABLE)
        assert caught.value.remedy.startswith("check the credentials under `catalog.properties`"), caught.value
        for remedy, certificate in bad.items():
            with gate(catalog.port, certificate) as other, pytest.raises(UnavailableError) as caught:
                connect(jvm, catalog, other, secured, "t0ken")
            assert caught.value.remedy.startswith(remedy), caught.value
            with gate(store.port, certificate) as other:
                bad_store = {**secured, "s3.endpoint": other.url, "s3.retry.num-retries": "0", **S3}
                with pytest.raises(UnavailableError) as caught:
                    probe_store(jvm.gateway, {}, bad_store, state.location)
                assert caught.value.remedy.startswith(remedy), caught.value
                with pytest.raises(OSError, match="the store's certificate is not accepted") as failed:
                    store_of(tuple(sorted(bad_store.items()))).probe(state.location)
                assert refusal_remedy(str(failed.value), OF_TASKS).startswith(remedy), failed.value
    with (
        gate(catalog.port, server) as way,
        gate(store.port, server) as to_store,
        light_jvm(needs_s3=True) as jvm,
    ):
        untrusted = {**store.properties(), "s3.endpoint": to_store.url}
        for ask in (
            lambda: connect(jvm, catalog, way, untrusted, "t0ken"),
            lambda: probe_store(jvm.gateway, {}, untrusted | S3, "s3://lake/x"),
        ):
            with pytest.raises(UnavailableError) as caught:
                ask()
            assert caught.value.remedy.startswith("name the authority of the service's certificate in the JVM's trust")


_TASK = """
import json, sys
from frazil.store.file_io import store_of
files = store_of(tuple(sorted(json.loads(sys.argv[1]).items())))
with files.new_output(sys.argv[2]).create() as stream:
    stream.write(b"rows")
with files.new_input(sys.argv[2]).open() as stream:
    print(stream.read().decode())
"""


def test_tasks_trust_the_authorities_that_the_environment_names(store: ObjectStore, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with gate(store.port, authority.make("server")) as to_store:
        properties = {**store.properties(), "s3.endpoint": to_store.url, "s3.retry.num-retries": "0"}
        asked = [sys.executable, "-c", _TASK, json.dumps(properties), "s3://lake/secured/rows.parquet"]
        trusting = {**os.environ, "SSL_CERT_FILE": str(authority.file)}
        found = subprocess.run(asked, env=trusting, capture_output=True, text=True, check=False, timeout=120)
        assert found.stdout == "rows\n", found.stderr
        refused = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    assert "the store's certificate is not accepted: UnknownIssuer" in refused.stderr


def test_a_store_that_verifies_signatures_takes_content_that_tls_protects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    server = S3Gateway(tmp_path / "s3", authority)
    server.start()
    try:
        access = server.access()
        content = bytes(range(256)) * 50_000  # Several parts.
        files = StoreIO(access.all_properties())
        with files.new_output(f"{access.warehouse}/large").create() as stream:
            stream.write(content)
        with files.new_output(f"{access.warehouse}/small").create() as stream:
            stream.write(b"row")
        for name, expected in (("large", content), ("small", b"row")):
            with files.new_input(f"{access.warehouse}/{name}").open() as found:
                assert found.read() == expected
    finally:
        server.kill()
