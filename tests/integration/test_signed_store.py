"""A store that verifies signatures, which moto does not: both clients sign what it accepts, and what it refuses is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType, NestedField

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.store_access import probe_store
from frazil.catalog.port import TableState
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.runtime.light_jvm import LightJvm
from frazil.store.file_io import StoreIO
from frazil.types import Commit, Progress, Writer
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from tests.fixtures.jvms import light_jvm
from tests.fixtures.stores.servers import BUCKET, S3Gateway

COLUMNS = Schema(NestedField(1, "id", LongType(), required=False))
ROWS = 1_000_000  # More than one part of an upload.
EMPTY = "it answers, and is empty"
S3 = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Gateway]:
    made = S3Gateway(tmp_path_factory.mktemp("signed"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def jvm(store: S3Gateway) -> Iterator[LightJvm]:  # noqa: ARG001  (without a store there is nothing to start it for)
    with light_jvm(needs_s3=True) as running:
        running.listen()
        yield running


def fill(catalog: IcebergCatalog) -> TableState:
    """The table `shop.orders`, new, with a file that is uploaded in parts."""
    state = catalog.create("shop.orders", COLUMNS, {}, 2)
    writer = FileWriter(plain_target(state))
    writer.write(pa.table({"id": range(ROWS)}, schema=writer._target.arrow_schema))
    progress = Progress({"orders": {0: ROWS}}, {"orders": "id"}, "c", new_id(), Writer(1, "run"))
    catalog.commit(Commit("shop.orders", tuple(writer.finish()), progress, state.progress))
    return state


def test_a_store_that_verifies_signatures_takes_those_of_both_clients(
    jvm: LightJvm, store: S3Gateway, tmp_path: Path
) -> None:
    own = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}", "jdbc.schema-version": "V1"}
    odd = {"warehouse": "s3://lake/with spaces/é%2F+=&"}
    catalog = IcebergCatalog(jvm.gateway, "p", {**store.access().all_properties(), **S3, **own, **odd}, {})
    state = fill(catalog)
    metadata = str(catalog.java_table("shop.orders").operations().current().metadataFileLocation())
    read = StaticTable.from_metadata(metadata, store.access().all_properties()).scan().to_arrow()
    assert sorted(read["id"].to_pylist()) == list(range(ROWS))
    assert probe_store(jvm.gateway, {}, state.io_properties, state.location) == "it answers"


def test_a_wrong_key_and_a_missing_bucket_are_named_with_a_remedy(jvm: LightJvm, store: S3Gateway) -> None:
    wrong = store.access(is_wrong=True)
    with pytest.raises(UnavailableError) as raised:
        probe_store(jvm.gateway, {}, {**wrong.all_properties(), **S3}, wrong.warehouse)
    assert "signature" in raised.value.message
    assert raised.value.remedy.startswith("check the credentials under `catalog.properties`")
    with pytest.raises(OSError, match=r"s3://lake/warehouse.*SignatureDoesNotMatch"):
        StoreIO(wrong.all_properties()).probe(wrong.warehouse)
    missing = store.access("missing")
    with pytest.raises(UnavailableError) as raised:
        probe_store(jvm.gateway, {}, {**missing.all_properties(), **S3}, missing.warehouse)
    assert "NoSuchBucket" in raised.value.message
    assert raised.value.where == missing.warehouse
    assert raised.value.remedy.startswith("create the bucket, or correct `catalog.warehouse`")
    store.client().create_bucket(Bucket="missing")
    assert probe_store(jvm.gateway, {}, {**missing.all_properties(), **S3}, missing.warehouse) == EMPTY


OF_OBJECTS = {"s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"}
"""With `s3:ListBucket`, the least rights of docs/security/privileges.md."""


def test_the_least_rights_suffice_and_a_missing_one_is_named(jvm: LightJvm, store: S3Gateway, tmp_path: Path) -> None:
    user = store.add_user()
    own = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}", "jdbc.schema-version": "V1"}
    named = {**user.all_properties(), **S3, **own, "warehouse": f"{user.warehouse}/least"}

    def probe() -> str:
        return probe_store(jvm.gateway, {}, named, user.warehouse)

    store.allow(user, OF_OBJECTS, {"s3:ListBucket"})
    before = uploads(store)
    catalog = IcebergCatalog(jvm.gateway, "p", named, {})
    state = fill(catalog)
    assert probe() == "it answers"
    assert uploads(store) == before == []
    tasks, path = StoreIO(user.all_properties()), f"{state.location}/data/refused"
    with tasks.new_output(path).create() as stream:
        stream.write(b"rows")
    for missing in ("s3:PutObject", "s3:AbortMultipartUpload"):
        store.allow(user, OF_OBJECTS - {missing}, {"s3:ListBucket"})
        with pytest.raises(UnavailableError, match=r"the store cannot be written to: .*Access Denied") as raised:
            probe()
        assert raised.value.remedy.startswith("grant this user the right")
    store.allow(user, OF_OBJECTS - {"s3:PutObject"}, {"s3:ListBucket"})
    with pytest.raises(UnavailableError, match=r"the table cannot be created: .*Access Denied") as raised:
        catalog.create("shop.more", COLUMNS, {}, 2)
    assert raised.value.remedy.startswith("grant this user the right")
    store.allow(user, OF_OBJECTS - {"s3:GetObject"}, {"s3:ListBucket"})
    with pytest.raises(OSError, match="lacked the necessary privileges"):
        tasks.new_input(path).open()
    store.allow(user, OF_OBJECTS - {"s3:DeleteObject"}, {"s3:ListBucket"})
    with pytest.raises(OSError, match="AccessDenied"):
        tasks.delete(path)
    store.allow(user, OF_OBJECTS, ())
    assert probe() == "it answers, but this client may not list it"


def uploads(store: S3Gateway) -> list[str]:
    """Uploads in parts that nobody has ended."""
    return [one["Key"] for one in store.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())]
