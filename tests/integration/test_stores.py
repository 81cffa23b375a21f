"""Objects that a task writes carry what Iceberg's Java client gives to its metadata files in the same table: encryption,
tags, storage class, identity. Everything is read back from the store, or from the requests that reached it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.api.wiring import unmade_catalog
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.store_access import identity_of, place_of, probe_store, properties_of_file, proxy_to
from frazil.catalog.port import TableState
from frazil.clock import new_id
from frazil.errors import SpecError, UnavailableError
from frazil.runtime.light_jvm import LightJvm
from frazil.spec import load_spec
from frazil.store.file_io import StoreIO
from frazil.store.properties import DRIVERS_HADOOP, HADOOP_USER, PROXY
from frazil.types import Commit, DataFile, Progress, Writer
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter, file_io
from tests.fixtures.jvms import light_jvm
from tests.fixtures.store_proxy import Request, StoreProxy
from tests.integration.servers import ObjectStore

COLUMNS = Schema(NestedField(1, "id", LongType(), required=False))
KMS_KEY = "arn:aws:kms:us-east-1:123456789012:key/0af1"
CUSTOMER_KEY = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
ROLE = "arn:aws:iam::123456789012:role/lake-writer"
KEYS = ("s3.access-key-id", "s3.secret-access-key")
S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
ROWS = 1000


@pytest.fixture(scope="module")
def jvm() -> Iterator[LightJvm]:
    with light_jvm(needs_s3=True) as running:
        running.listen()
        yield running


@pytest.fixture
def proxy(store: ObjectStore) -> Iterator[StoreProxy]:
    proxy = StoreProxy(store.port)
    yield proxy
    proxy.close()


@dataclass
class Written:
    """A table with one batch, and the requests that created its objects."""

    catalog: IcebergCatalog
    state: TableState
    file: DataFile
    requests: list[Request]

    def puts(self, suffix: str) -> list[Request]:
        """The requests that wrote objects whose names end so."""
        return [one for one in self.requests if one.method == "PUT" and one.path.partition("?")[0].endswith(suffix)]


class Lake:
    """A warehouse of its own in the store, by way of the proxy."""

    def __init__(self, jvm: LightJvm, folder: Path, store: ObjectStore, proxy: StoreProxy) -> None:
        self.jvm, self.folder, self.store, self.proxy = jvm, folder, store, proxy
        self.properties = {
            **store.properties(),
            "s3.endpoint": proxy.url,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "type": "jdbc",
            "jdbc.schema-version": "V1",
        }

    def catalog(self, properties: Mapping[str, str], bucket: str = "lake") -> IcebergCatalog:
        """A catalog whose properties are those of the store and these; an empty value removes one."""
        name = new_id()
        own = {"uri": f"jdbc:sqlite:{self.folder / name}.db", "warehouse": f"s3://{bucket}/{name}"}
        merged = {**self.properties, **own, **properties}
        return IcebergCatalog(self.jvm.gateway, "p", {key: value for key, value in merged.items() if value}, {})

    def write(self, properties: Mapping[str, str], bucket: str = "lake") -> Written:
        """A table with one batch, as a driver and a task write it."""
        catalog = self.catalog(properties, bucket)
        self.proxy.requests.clear()
        state = catalog.create("shop.orders", COLUMNS, {}, 2)
        writer = FileWriter(plain_target(state))
        writer.write(pa.table({"id": range(ROWS)}, schema=writer._target.arrow_schema))
        files = writer.finish()
        progress = Progress({"orders": {0: ROWS}}, {"orders": "id"}, "c", new_id(), Writer(1, "run"))
        catalog.commit(Commit("shop.orders", tuple(files), progress, state.progress))
        return Written(catalog, state, files[0], list(self.proxy.requests))

    def described(self, location: str) -> dict[str, Any]:
        """What the store knows of an object that its writers decide."""
        bucket, _, key = location.removeprefix("s3://").partition("/")
        client = self.store.client()
        head = client.head_object(Bucket=bucket, Key=key)
        tags = client.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
        names = ("ServerSideEncryption", "SSEKMSKeyId", "StorageClass")
        return {name: head.get(name) for name in names} | {"tags": {one["Key"]: one["Value"] for one in tags}}


@pytest.fixture
def lake(jvm: LightJvm, tmp_path: Path, store: ObjectStore, proxy: StoreProxy) -> Lake:
    return Lake(jvm, tmp_path, store, proxy)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {}),
        ({"s3.sse.type": "s3"}, {"ServerSideEncryption": "AES256"}),
        ({"s3.sse.type": "kms", "s3.sse.key": KMS_KEY}, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KMS_KEY}),
        ({"s3.sse.type": "dsse-kms", "s3.sse.key": KMS_KEY}, {"ServerSideEncryption": "aws:kms:dsse"}),
        (
            {"s3.write.tags.team": "the lake", "s3.write.tags.tier": "raw"},
            {"tags": {"team": "the lake", "tier": "raw"}},
        ),
        ({"s3.write.storage-class": "INTELLIGENT_TIERING"}, {"StorageClass": "INTELLIGENT_TIERING"}),
        ({"s3.checksum-enabled": "true"}, {}),
    ],
    ids=["plain", "sse-s3", "sse-kms", "dsse-kms", "tags", "storage class", "checksums"],
)
def test_a_data_file_carries_what_a_metadata_file_does(
    lake: Lake, properties: dict[str, str], expected: dict[str, Any]
) -> None:
    written = lake.write(properties)
    java = written.catalog.java_table("shop.orders")
    metadata = lake.described(str(java.operations().current().metadataFileLocation()))
    assert lake.described(written.file.path) == metadata
    assert {name: metadata[name] for name in expected} == expected
    with file_io(plain_target(written.state)).new_input(written.file.path).open() as stream:
        assert pq.read_table(stream).num_rows == ROWS


def test_a_key_of_the_customer_goes_with_every_request_of_both_clients(lake: Lake) -> None:
    digest = base64.b64encode(bytes.fromhex(_md5(CUSTOMER_KEY))).decode()
    written = lake.write({"s3.sse.type": "custom", "s3.sse.key": CUSTOMER_KEY, "s3.sse.md5": digest})
    with file_io(plain_target(written.state)).new_input(written.file.path).open() as stream:
        assert pq.read_table(stream).num_rows == ROWS
    names = ("algorithm", "key", "key-md5")
    wanted = ["AES256", CUSTOMER_KEY, digest]
    objects = [one for one in lake.proxy.requests if "shop/orders" in one.path and one.method in ("PUT", "GET")]
    assert {one.method for one in objects} == {"PUT", "GET"}
    for request in objects:
        sent = [request.headers.get(f"x-amz-server-side-encryption-customer-{name}") for name in names]
        assert sent == wanted, request


def _md5(key: str) -> str:
    return hashlib.md5(base64.b64decode(key)).hexdigest()


def test_driver_and_tasks_write_by_the_role_that_is_assumed(lake: Lake) -> None:
    """With an external id and tags, of which Python clients know nothing."""
    system = lake.jvm.gateway.jvm.java.lang.System
    settings = {
        "aws.endpointUrlSts": lake.proxy.url,
        "aws.accessKeyId": "AKBASE",
        "aws.secretAccessKey": "base-secret",
        "aws.region": "us-east-1",
    }
    for name, value in settings.items():
        system.setProperty(name, value)
    try:
        written = lake.write(
            {
                "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
                "client.assume-role.arn": ROLE,
                "client.assume-role.region": "us-east-1",
                "client.assume-role.external-id": "frazil",
                "client.assume-role.tags.team": "lake",
                "client.assume-role.timeout-sec": "900",
            }
        )
    finally:
        for name in settings:
            system.clearProperty(name)
    [java] = {one.access_key for one in written.puts(".metadata.json")}
    [task] = {one.access_key for one in written.puts(".parquet")}
    assert task == java
    assert task not in ("AKBASE", lake.store.key)
    assert all(one.headers.get("x-amz-security-token") for one in written.puts(".parquet"))
    assert written.state.credentials_end_ms is not None
    assert "x-amz-security-token" not in json.dumps(dict(written.state.properties))


@pytest.mark.parametrize("io", ["aws.s3.S3FileIO", "io.ResolvingFileIO"])
def test_keys_that_only_the_driver_has_reach_tasks(lake: Lake, io: str) -> None:
    """Here those of the machine, as Java finds them: a task on another machine would find others."""
    system = lake.jvm.gateway.jvm.java.lang.System
    settings = {"aws.accessKeyId": "AKMACHINE", "aws.secretAccessKey": "s3cret", "aws.sessionToken": "session"}
    for name, value in settings.items():
        system.setProperty(name, value)
    try:
        keys = {"s3.access-key-id": "", "s3.secret-access-key": ""}
        written = lake.write({**keys, "io-impl": f"org.apache.iceberg.{io}"})
    finally:
        for name in settings:
            system.clearProperty(name)
    for suffix in (".metadata.json", ".parquet"):
        assert {one.access_key for one in written.puts(suffix)} == {"AKMACHINE"}
        assert {one.headers.get("x-amz-security-token") for one in written.puts(suffix)} == {"session"}


@contextmanager
def machine_with(jvm: LightJvm, settings: Mapping[str, str]) -> Iterator[None]:
    """What Amazon's client finds on the driver's machine alone: as system properties, which it reads like the variables."""
    system = jvm.gateway.jvm.java.lang.System
    for name, value in settings.items():
        system.setProperty(name, value)
    _forget()
    try:
        yield
    finally:
        for name in settings:
            system.clearProperty(name)
        _forget()


def _forget() -> None:
    place_of.cache_clear()
    proxy_to.cache_clear()


def test_a_file_beside_the_tables_is_read_by_the_keys_that_only_the_driver_has(lake: Lake) -> None:
    """Such as one of a lookup, before the first table is there."""
    keys = {"aws.accessKeyId": "AKMACHINE", "aws.secretAccessKey": "s3cret"}
    lake.store.client().put_object(Bucket="lake", Key="countries.csv", Body=b"id,name")
    with machine_with(lake.jvm, keys):
        catalog = lake.catalog(dict.fromkeys(KEYS, ""))
        access = StoreIO(catalog.store_properties("s3://lake/countries.csv"))
    with access.new_input("s3://lake/countries.csv").open() as stream:
        assert stream.read() == b"id,name"
    assert lake.proxy.requests[-1].access_key == "AKMACHINE"


def test_a_file_in_another_store_is_reached_before_there_is_a_catalog(jvm: LightJvm, tmp_path: Path) -> None:
    properties = {**dict.fromkeys(KEYS, "k"), "s3.endpoint": "http://127.0.0.1:9"}
    catalog = {"uri": f"jdbc:sqlite:{tmp_path}/c.db", "warehouse": str(tmp_path), "properties": properties}
    document = {"pipeline": "p", "kafka": {"bootstrap.servers": "h:1"}, "tables": {"a.t": {"topic": "t"}}}
    (tmp_path / "p.yaml").write_text(json.dumps(document | {"catalog": catalog}))
    unmade = unmade_catalog(load_spec(tmp_path / "p.yaml"), jvm)
    assert unmade.store_properties("s3://lake/countries.csv").items() >= properties.items()
    assert unmade.store_properties("/srv/countries.csv").items() >= properties.items()
    found = properties_of_file(jvm.gateway, {"dfs.replication": "2"}, {}, "hdfs://name-node:8020/countries.csv")
    assert (found[f"{DRIVERS_HADOOP}dfs.replication"], f"{DRIVERS_HADOOP}{HADOOP_USER}" in found) == ("2", True)


def signed_for(requests: list[Request]) -> set[str]:
    """The regions that requests were signed for."""
    return {one.headers["authorization"].split("/")[2] for one in requests}


@pytest.mark.parametrize("io", ["aws.s3.S3FileIO", "io.ResolvingFileIO"])
def test_with_keys_of_the_file_region_and_address_are_those_of_the_drivers_machine(
    lake: Lake, tmp_path: Path, io: str
) -> None:
    (tmp_path / "config").write_text(
        f"[default]\nregion = us-west-1\n[profile lake]\nregion = eu-central-1\nendpoint_url = {lake.proxy.url}\n"
    )
    profile = {"aws.configFile": str(tmp_path / "config"), "aws.profile": "lake"}
    with machine_with(lake.jvm, profile):
        written = lake.write({"client.region": "", "s3.endpoint": "", "io-impl": f"org.apache.iceberg.{io}"})
    for suffix in (".metadata.json", ".parquet"):
        assert signed_for(written.puts(suffix)) == {"eu-central-1"}
    with machine_with(lake.jvm, {"aws.region": "eu-north-1", "aws.endpointUrlS3": "http://elsewhere.example"}):
        written = lake.write({"io-impl": f"org.apache.iceberg.{io}"})
    for suffix in (".metadata.json", ".parquet"):
        assert signed_for(written.puts(suffix)) == {"us-east-1"}, "the file's own win"


def test_tasks_take_the_fips_address_where_the_drivers_machine_asks_for_it(jvm: LightJvm) -> None:
    io = jvm.gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO(S3_IO, {"client.region": "us-east-2"}, None)
    keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "client.region": "us-east-2"}
    with machine_with(jvm, {"aws.useFipsEndpoint": "true"}):
        found = identity_of(jvm.gateway, io, "s3://lake/x", keys)
    assert found["s3.endpoint"] == "https://s3-fips.us-east-2.amazonaws.com"
    assert "s3.endpoint" not in identity_of(jvm.gateway, io, "s3://lake/x", keys)


def test_driver_and_tasks_take_the_proxy_of_the_drivers_machine(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def anew(connections: int) -> dict[str, str]:
        """Settings that no other client of this JVM has: Iceberg shares connections among those with the same."""
        return {"http-client.apache.max-connections": str(connections)}

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):  # Of an executor: nobody is there.
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert lake.write({}).puts(".parquet")
    proxy = {"http.proxyHost": "127.0.0.1", "http.proxyPort": str(lake.proxy.port)}
    with machine_with(lake.jvm, proxy):
        written = lake.write({"s3.endpoint": "http://s3.us-east-1.amazonaws.com", **anew(51)})
    for suffix in (".metadata.json", ".parquet"):
        assert {one.headers["host"] for one in written.puts(suffix)} == {"s3.us-east-1.amazonaws.com"}
    with machine_with(lake.jvm, {**proxy, "http.proxyPort": "9", "http.nonProxyHosts": "localhost|127.*"}):
        assert lake.write(anew(52)).puts(".parquet")
    with machine_with(lake.jvm, {"https.proxyHost": "proxy", "https.proxyPort": "8", "http.nonProxyHosts": "*.inside"}):
        for own, found in (({}, "http://proxy:8"), ({"gcs.service.host": "https://b.inside"}, "")):
            assert identity_of(lake.jvm.gateway, None, "gs://a/t", {"gcs.no-auth": "true", **own}) == {PROXY: found}


@pytest.mark.parametrize("secret", ["", "kept"])
def test_empty_keys_are_none_to_both_clients(lake: Lake, secret: str) -> None:
    keys = {"aws.accessKeyId": "AKMACHINE", "aws.secretAccessKey": "s3cret"}
    io = lake.jvm.gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO
    own = {**lake.properties, "s3.access-key-id": "", "s3.secret-access-key": secret, "s3.session-token": "old"}
    with machine_with(lake.jvm, keys):
        found = identity_of(lake.jvm.gateway, io(S3_IO, own, None), "s3://lake/x", own)
    assert [found[f"s3.{name}"] for name in ("access-key-id", "secret-access-key", "session-token")] == [
        *keys.values(),
        "",
    ]


@pytest.mark.parametrize(
    ("missing", "found", "remedy"),
    [
        ("client.region", "Unable to load region", "write `client.region` under `catalog.properties`"),
        ("s3.access-key-id", "Unable to load credentials", "write `s3.access-key-id` and `s3.secret-access-key` under"),
    ],
)
def test_settings_missing_in_the_file_and_on_the_drivers_machine_are_named(
    lake: Lake, missing: str, found: str, remedy: str
) -> None:
    nothing = {"aws.disableEc2Metadata": "true", "aws.configFile": "/none", "aws.sharedCredentialsFile": "/none"}
    own = {**lake.properties, missing: ""}
    properties = {name: value for name, value in own.items() if value and not (missing in KEYS and name in KEYS)}
    with machine_with(lake.jvm, nothing):
        for given in (properties, {name: value for name, value in properties.items() if name != "s3.endpoint"}):
            with pytest.raises(UnavailableError, match=found) as raised:
                probe_store(lake.jvm.gateway, {}, given, "s3://lake/x")
            assert raised.value.remedy.startswith(remedy)


def _open(store: ObjectStore, bucket: str) -> None:
    """Makes a bucket for everyone."""
    store.make_bucket(bucket)
    anyone = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*"}
    store.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [anyone]}))


def test_without_credentials_neither_client_signs(lake: Lake) -> None:
    _open(lake.store, "open")
    provider = "software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider"
    keys = {"s3.access-key-id": "", "s3.secret-access-key": "", "client.credentials-provider": provider}
    written = lake.write(keys, bucket="open")
    assert {one.access_key for one in written.requests if "shop/orders" in one.path} == {""}
    assert written.puts(".parquet")


def test_an_access_point_takes_the_place_of_its_bucket(lake: Lake) -> None:
    lake.store.make_bucket("point-s3alias")
    written = lake.write({"s3.access-points.lake": "point-s3alias"})
    for suffix in (".metadata.json", ".parquet"):
        assert [one.path.split("/")[1] for one in written.puts(suffix)] == ["point-s3alias"] * len(written.puts(suffix))
    assert written.file.path.startswith("s3://lake/")


@pytest.mark.parametrize("properties", [{"s3.delete-enabled": "false"}, {"s3.delete.tags.gone": "yes"}, {}])
def test_a_task_deletes_only_what_it_may(lake: Lake, properties: dict[str, str]) -> None:
    state = lake.catalog(properties).create("shop.orders", COLUMNS, {}, 2)
    writer = FileWriter(plain_target(state))
    writer.write(pa.table({"id": range(ROWS)}, schema=writer._target.arrow_schema))
    [file] = writer.finish()
    writer.abandon()
    assert StoreIO(state.io_properties).new_input(file.path).exists() == bool(properties)


def test_keys_with_odd_characters_are_those_that_java_writes(lake: Lake) -> None:
    odd = "s3://lake/with spaces/é+%2F=&"
    written = lake.write({"warehouse": odd})
    java = written.catalog.java_table("shop.orders")
    assert java.io().newInputFile(written.file.path).getLength() == written.file.size_bytes
    metadata = java.operations().current().metadataFileLocation()
    with file_io(plain_target(written.state)).new_input(metadata).open() as file:
        assert json.loads(file.read())["location"].startswith(odd)


def test_requests_to_google_carry_the_token_the_key_and_the_project(store: ObjectStore, proxy: StoreProxy) -> None:
    """Its store takes the requests of S3, which this one answers."""
    _open(store, "google")
    digest = base64.b64encode(hashlib.sha256(base64.b64decode(CUSTOMER_KEY)).digest()).decode()
    access = StoreIO(
        {
            "gcs.service.host": proxy.url,
            "gcs.oauth2.token": "a-token",
            "gcs.encryption-key": CUSTOMER_KEY,
            "gcs.decryption-key": CUSTOMER_KEY,
            "gcs.user-project": "payer",
        }
    )
    for content in (b"small", bytes(12_000_000)):
        with access.new_output("gs://google/with spaces/é%2F").create(overwrite=True) as stream:
            stream.write(content)
        with access.new_input("gs://google/with spaces/é%2F").open() as stream:
            assert stream.read() == content
    access.delete("gs://google/with spaces/é%2F")
    assert {one.method for one in proxy.requests} == {"PUT", "POST", "HEAD", "GET", "DELETE"}
    for request in proxy.requests:
        assert request.headers["authorization"] == "Bearer a-token"
        assert request.headers["x-goog-encryption-key"] == CUSTOMER_KEY
        assert request.headers["x-goog-encryption-key-sha256"] == digest
        assert request.headers["x-goog-user-project"] == "payer"


def test_an_object_whose_upload_failed_is_not_there_and_nothing_else_is_written(lake: Lake) -> None:
    access = StoreIO({**lake.properties, "s3.retry.num-retries": "0"})
    lake.proxy.share = 1.0
    stream = access.new_output("s3://lake/failed").create(overwrite=True)
    with pytest.raises(OSError, match=r"s3://lake/failed"):  # noqa: PT012
        stream.write(bytes(30_000_000))
        stream.close()
    lake.proxy.share = 0.0
    stream.close()
    assert not access.new_input("s3://lake/failed").exists()
    assert {one.path.partition("?")[0] for one in lake.proxy.requests} == {"/lake/failed"}


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_driver_and_tasks_write_to_one_local_folder_whatever_its_name(lake: Lake, prefix: str) -> None:
    odd = lake.folder / "with spaces" / "a%20b#c?d" / "é 日本"
    local = {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "warehouse": f"{prefix}{odd}"}
    written = lake.write(local)
    java = written.catalog.java_table("shop.orders")
    assert java.io().newInputFile(written.file.path).getLength() == written.file.size_bytes
    with file_io(plain_target(written.state)).new_input(written.file.path).open() as stream:
        assert pq.read_table(stream).num_rows == ROWS
    assert (odd / "shop" / "orders" / "metadata").is_dir()
    assert [path.parent for path in odd.rglob("*.parquet") if not path.name.startswith(".")] == [
        odd / "shop/orders/data"
    ]


def test_a_table_that_tasks_would_write_in_clear_is_refused(lake: Lake) -> None:
    catalog = lake.catalog({})
    with pytest.raises(SpecError, match=r"encryption\.key-id"):
        catalog.create("shop.orders", COLUMNS, {"encryption.key-id": "k1"}, 3)


def test_an_object_store_behind_hadoop_is_refused(lake: Lake) -> None:
    local = {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "warehouse": str(lake.folder / "files")}
    catalog = lake.catalog(local)
    catalog.create("shop.orders", COLUMNS, {}, 2)
    catalog.java_table("shop.orders").updateProperties().set("write.data.path", "s3://lake/x").commit()
    with pytest.raises(SpecError, match="Hadoop") as raised:
        catalog.load("shop.orders")
    assert "io-impl: org.apache.iceberg.aws.s3.S3FileIO" in raised.value.remedy


@pytest.mark.parametrize(
    ("properties", "missing"),
    [
        ({"io-impl": "org.example.Files"}, "org.example.Files"),
        ({"io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO"}, "com/azure/"),
        ({"client.factory": "org.example.Clients"}, "org.example.Clients"),
        ({"client.credentials-provider": "org.example.Keys"}, "org.example.Keys"),
    ],
)
def test_a_class_that_is_not_on_the_class_path_is_named_and_not_waited_for(
    lake: Lake, properties: dict[str, str], missing: str
) -> None:
    for ask in (
        lambda: lake.catalog(properties).create("shop.orders", COLUMNS, {}, 2),
        lambda: probe_store(lake.jvm.gateway, {}, {**lake.properties, **properties}, "s3://lake/x"),
    ):
        with pytest.raises(SpecError, match=missing) as raised:
            ask()
        assert raised.value.remedy.startswith("name the jar that has the class under `catalog: {jars: […]}`")


def test_a_table_of_a_newer_format_is_refused_and_not_waited_for(lake: Lake) -> None:
    """In a catalog of folders: others read the metadata again for a minute and a half first."""
    io = "org.apache.iceberg.hadoop.HadoopFileIO"
    own = {"type": "hadoop", "uri": "", "io-impl": io, "warehouse": str(lake.folder / "files")}
    lake.catalog(own).create("shop.orders", COLUMNS, {}, 2)
    [metadata] = lake.folder.glob("files/shop/orders/metadata/v1.metadata.json")
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "format-version": 9}))
    metadata.with_name(f".{metadata.name}.crc").unlink()
    with pytest.raises(SpecError, match=r"a newer format than this Frazil reads: .*unsupported version 9") as raised:
        lake.catalog(own).load("shop.orders")
    assert raised.value.remedy.startswith("install a newer Frazil")
