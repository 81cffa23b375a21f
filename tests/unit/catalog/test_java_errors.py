"""What exceptions of Java mean, by the names of their classes and their words, in whatever they are wrapped."""

from __future__ import annotations

import pytest

from frazil.catalog.iceberg.java import (
    cause_of,
    is_another_table,
    is_not_there,
    mistake_of,
    unavailable,
    unreadable_metadata,
)
from frazil.catalog.iceberg.opening import is_unmade, refused_catalog
from frazil.errors import SpecError, UnavailableError
from tests.fixtures.thrown import ICEBERG, Raised, Thrown

JDBC = "jdbc:postgresql://db/lake"


@pytest.mark.parametrize(
    ("thrown", "message", "remedy"),
    [
        (
            Thrown("java.sql.SQLException", "No suitable driver found for jdbc:postgresql://db/lake"),
            "Frazil has no JDBC driver for `jdbc:postgresql:`",
            "name its jar, as `catalog: {jars: [/path/to/driver.jar]}`, or correct `catalog.uri`",
        ),
        (
            Thrown(
                f"{ICEBERG}.RESTException", "failed", Thrown("java.lang.ClassNotFoundException", "org.example.Driver")
            ),
            "the catalog cannot be opened: ClassNotFoundException: org.example.Driver",
            "name the jar that has the class under `catalog: {jars: […]}`, or correct `catalog`",
        ),
        (
            Thrown("java.lang.IllegalArgumentException", "Cannot initialize Catalog implementation a.B: missing"),
            "the catalog cannot be opened: IllegalArgumentException: Cannot initialize Catalog implementation a.B:"
            " missing",
            "name the jar that has the class under `catalog: {jars: […]}`, or correct `catalog`",
        ),
    ],
)
def test_a_catalog_that_no_waiting_makes_usable_is_a_mistake_of_the_file(
    thrown: Thrown, message: str, remedy: str
) -> None:
    error = refused_catalog(Raised(thrown), JDBC)
    assert (type(error), error.message, error.remedy, error.where) == (SpecError, message, remedy, JDBC)


@pytest.mark.parametrize(
    ("thrown", "message"),
    [
        (
            Thrown(f"{ICEBERG}.UncheckedSQLException", "Failed", Thrown("java.net.ConnectException", "refused\n here")),
            "the catalog: ConnectException: refused here",
        ),
        (
            Thrown("org.postgresql.util.PSQLException", "FATAL: too many connections"),
            "the catalog: PSQLException: FATAL: too many connections",
        ),
        (
            Thrown("org.sqlite.SQLiteException", "[SQLITE_BUSY] The database file is locked"),
            "the catalog: SQLiteException: [SQLITE_BUSY] The database file is locked",
        ),
        (Thrown("java.net.SocketTimeoutException"), "the catalog: SocketTimeoutException"),
        (
            Thrown("org.postgresql.util.PSQLException", 'ERROR: relation "iceberg_tables" does not exist'),
            "the database has no tables of the catalog, and `jdbc.init-catalog-tables` is false: PSQLException: ERROR:"
            ' relation "iceberg_tables" does not exist',
        ),
    ],
)
def test_all_else_is_an_outage_and_waited_for(thrown: Thrown, message: str) -> None:
    error = refused_catalog(Raised(thrown), JDBC)
    assert (type(error), error.message, error.where) == (UnavailableError, message, JDBC)


def test_a_database_without_the_catalogs_tables_is_empty_for_commands_that_read() -> None:
    lacking = Raised(Thrown("org.sqlite.SQLiteException", "[SQLITE_ERROR] SQL error (no such table: iceberg_tables)"))
    assert is_unmade({"jdbc.init-catalog-tables": "false"}, lacking)
    assert not is_unmade({}, lacking)
    assert "remove `jdbc.init-catalog-tables: false`" in refused_catalog(lacking, JDBC).remedy


@pytest.mark.parametrize(
    ("thrown", "words", "remedy"),
    [
        (
            Thrown(f"{ICEBERG}.NotFoundException", "Failed to open input stream for file: s3://b/m.json"),
            "the table cannot be loaded: a file of it is not in the store: NotFoundException",
            "mount the warehouse again or restore the file",
        ),
        (
            Thrown(f"{ICEBERG}.ValidationException", "Invalid update timestamp 5: before last snapshot timestamp 9"),
            "the table cannot be loaded: this machine's clock was set back: it is more than a minute behind",
            "correct the clock",
        ),
        (
            Thrown("org.postgresql.util.PSQLException", 'FATAL: password authentication failed for user "u"'),
            "the table cannot be loaded: PSQLException: FATAL: password authentication failed",
            "check the credentials under `catalog.properties`",
        ),
        (
            Thrown(
                "software.amazon.awssdk.services.glue.model.AccessDeniedException", "not authorized to glue:GetTable"
            ),
            "the table cannot be loaded: AccessDeniedException: not authorized",
            "grant this user the right that is named here",
        ),
        (
            Thrown(f"{ICEBERG}.RESTException", "Unable to process (code: 404, type: null): <html>"),
            "the table cannot be loaded: RESTException: Unable to process",
            "check that `catalog.uri` is the address of a catalog of this type",
        ),
        (
            Thrown(
                "org.projectnessie.client.rest.NessieServiceException",
                "Not Found (HTTP/404): Could not parse error object",
            ),
            "the table cannot be loaded: NessieServiceException: Not Found",
            "check that `catalog.uri` is the address of a catalog of this type",
        ),
        (
            Thrown("org.sqlite.SQLiteException", "[SQLITE_ERROR] SQL error (no such column: catalog_name)"),
            "the table cannot be loaded: SQLiteException: [SQLITE_ERROR] SQL error",
            "check that `catalog.uri` is the address of a catalog of this type",
        ),
        (
            Thrown("org.apache.thrift.TApplicationException", "Invalid method name: 'get_table'"),
            "the table cannot be loaded: TApplicationException: Invalid method name",
            "check that `catalog.uri` is the address of a catalog of this type",
        ),
        (
            Thrown(f"{ICEBERG}.NotFoundException", "Warehouse does not exist: NoSuchWarehouseException: w"),
            "the table cannot be loaded: ",
            "correct `catalog.warehouse`",
        ),
        (
            Thrown(f"{ICEBERG}.RESTException", "NoSuchWarehouseException: A warehouse 'w' does not exist"),
            "the table cannot be loaded: RESTException",
            "correct `catalog.warehouse`",
        ),
        (
            Thrown(f"{ICEBERG}.RESTException", "NotFoundException: Unable to find warehouse w"),
            "the table cannot be loaded: RESTException",
            "correct `catalog.warehouse`",
        ),
        (
            Thrown(
                f"{ICEBERG}.NotFoundException",
                "File does not exist: /data/warehouse/n/t/1.metadata.json does not exist",
            ),
            "the table cannot be loaded: a file of it is not in the store",
            "mount the warehouse again",
        ),
        (
            Thrown("org.projectnessie.error.NessieReferenceNotFoundException", "Named reference 'nobranch' not found"),
            "the table cannot be loaded: NessieReferenceNotFoundException",
            "correct `ref` under `catalog.properties`",
        ),
        (
            Thrown(
                "org.apache.hadoop.hive.metastore.api.MetaException",
                "Unable to create database path file:/w/n.db, failed to create database n",
            ),
            "the table cannot be loaded: MetaException: Unable to create database path file:/w/n.db",
            "let the user of Hive's metastore make this folder",
        ),
        (
            Thrown(
                "software.amazon.awssdk.services.glue.model.GlueException",
                "The security token included in the request is invalid. (Service: Glue, Status Code: 400)",
            ),
            "the table cannot be loaded: GlueException: The security token",
            "check the credentials under `catalog.properties`",
        ),
        (
            Thrown("java.io.IOException", "No space left on device"),
            "the table cannot be loaded: IOException: No space left on device",
            UnavailableError().remedy,
        ),
    ],
)
def test_a_missing_file_and_a_clock_that_was_set_back_have_their_own_remedies(
    thrown: Thrown, words: str, remedy: str
) -> None:
    error = unavailable("the table cannot be loaded", Raised(thrown), "a.b")
    assert isinstance(error, UnavailableError)
    assert (error.message.startswith(words), error.remedy.startswith(remedy), error.where) == (True, True, "a.b")


_ARGUMENT = "java.lang.IllegalArgumentException"
_HTTP_CLIENT = (
    "org.apache.iceberg.aws.HttpClientProperties.applyHttpClientConfigurations(HttpClientProperties.java:255)",
)
_PARSER = ("org.apache.iceberg.util.JsonUtil.get(JsonUtil.java:105)", "org.apache.iceberg.TableMetadataParser.fromJson")
_JAR, _BUILD, _VALUE = "name the jar", "name a jar", "correct the setting"


@pytest.mark.parametrize(
    ("thrown", "remedy"),
    [
        (Thrown("java.lang.NoClassDefFoundError", "com/azure/A"), _JAR),
        (Thrown(_ARGUMENT, "Missing a.B [java.lang.ClassNotFoundException: a.B]"), _JAR),
        (Thrown("java.lang.RuntimeException", "x", Thrown("java.lang.ClassNotFoundException", "a.B")), _JAR),
        (Thrown(_ARGUMENT, "Cannot initialize FileIO, a.B does not implement FileIO."), _JAR),
        (Thrown(_ARGUMENT, "Cannot initialize FileIO implementation a.B: Cannot find constructor"), _JAR),
        (Thrown("java.lang.UnsupportedClassVersionError", "a/B has been compiled by a more recent version"), _BUILD),
        (Thrown("java.lang.RuntimeException", "x", Thrown("java.lang.NoSuchMethodError", "a.B.c()")), _BUILD),
        (Thrown(_ARGUMENT, "Unrecognized HTTP client type nope", frames=_HTTP_CLIENT), _VALUE),
        (
            Thrown(
                _ARGUMENT,
                "Cannot create credentials provider",
                Thrown("java.lang.NoSuchMethodException", "a.B.create()", frames=_HTTP_CLIENT),
            ),
            _VALUE,
        ),
        (Thrown("java.lang.NullPointerException", "scheme must not be null", frames=_HTTP_CLIENT), _VALUE),
        (Thrown("org.postgresql.util.PSQLException", "Invalid sslmode value: nope"), _VALUE),
        (Thrown("java.lang.NoClassDefFoundError", "Could not initialize class a.B"), None),
        (Thrown("java.io.IOException", "No space left on device"), None),
        (Thrown("java.io.IOException", "cannot read the key", frames=_HTTP_CLIENT), None),
        (Thrown(_ARGUMENT, "Cannot parse missing string: location", frames=_PARSER), None),
        (Thrown(_ARGUMENT, "Cannot find source column: 5", frames=_PARSER), None),
    ],
)
def test_a_mistake_in_the_file_is_told_from_what_heals_or_is_of_the_table(thrown: Thrown, remedy: str | None) -> None:
    error = mistake_of("the table cannot be loaded", Raised(thrown), "a.b")
    assert (error is not None) == (remedy is not None)
    assert error is None or remedy is None or error.remedy.startswith(remedy)
    assert error is None or not thrown.cause or thrown.name != _ARGUMENT or str(thrown.message) in error.message


def test_a_value_that_opening_a_catalog_refuses_is_a_mistake_of_the_file() -> None:
    for kind in (_ARGUMENT, "java.lang.NumberFormatException", "java.net.URISyntaxException"):
        refused = Thrown("java.lang.RuntimeException", "cannot open", Thrown(kind, "no enum constant NOPE"))
        assert isinstance(refused_catalog(Raised(refused), "x"), SpecError)
    without_address = Thrown(_ARGUMENT, "x", Thrown("java.net.UnknownHostException", "namenode"))
    other_server = Thrown(_ARGUMENT, "Cannot parse missing map: defaults")
    for waited_for in (without_address, other_server):
        assert isinstance(refused_catalog(Raised(waited_for), "x"), UnavailableError)


_REFUSED = Thrown(
    "org.apache.http.conn.HttpHostConnectException", "Connect to http://store:9000 failed: Connection refused"
)
_NO_HOST = Thrown("java.net.UnknownHostException", "store")


@pytest.mark.parametrize("cause", [_REFUSED, _NO_HOST])
@pytest.mark.parametrize(
    ("frames", "remedy"),
    [
        (("org.apache.iceberg.aws.s3.S3OutputStream.close(S3OutputStream.java:261)",), "`s3.endpoint`"),
        (
            ("software.amazon.awssdk.services.s3.DefaultS3Client.listObjectsV2(DefaultS3Client.java:1)",),
            "`s3.endpoint`",
        ),
        (
            (
                "software.amazon.awssdk.services.s3.DefaultS3Client.putObject(DefaultS3Client.java:1)",
                "org.apache.hadoop.fs.s3a.S3AFileSystem.create(S3AFileSystem.java:1)",
            ),
            "",
        ),
        (("software.amazon.awssdk.services.glue.DefaultGlueClient.getTable(DefaultGlueClient.java:1)",), ""),
    ],
)
def test_a_store_that_is_not_reached_is_not_taken_for_the_catalog(
    cause: Thrown, frames: tuple[str, ...], remedy: str
) -> None:
    thrown = Thrown("software.amazon.awssdk.core.exception.SdkClientException", "Unable", cause, frames)
    error = unavailable("the table cannot be created", Raised(thrown), "a.b")
    assert error.message.endswith(cause_of(Raised(cause)))
    assert ("`s3.endpoint` under `catalog.properties`" in error.remedy) == bool(remedy)
    assert "retries with back-off" in error.remedy


@pytest.mark.parametrize(
    ("file", "words", "remedy"),
    [
        (
            "s3://b/m.json",
            "Received an UnknownHostException when attempting to interact with a service.",
            "`s3.endpoint`",
        ),
        (
            "s3://b/m.json",
            "Unable to execute HTTP request: Connect to http://s:9 failed: Connection refused",
            "`s3.endpoint`",
        ),
        ("s3://b/m.json", "Unable to execute HTTP request: Connect to s:9 [s/10.0.0.1] timed out", "`s3.endpoint`"),
        ("s3://b/m.json", "The request signature we calculated does not match", "check the credentials"),
        ("s3://b/m.json", "The specified bucket does not exist (Service: S3, Status Code: 404)", "create the bucket"),
        ("s3://b/m.json", "The specified key does not exist.", "restore it from a copy"),
        ("file:/b/m.json", "Connection refused", "restore it from a copy"),
    ],
)
def test_a_metadata_file_is_not_blamed_for_a_store_that_is_not_reached(file: str, words: str, remedy: str) -> None:
    error = unreadable_metadata(f"{words} (SDK Attempt Count: 6)", file, "a.b")
    assert error.message == f"the table cannot be loaded: its metadata file {file} cannot be read: {words}"
    assert remedy in error.remedy


def test_what_only_amazon_can_use_is_left_out_of_messages() -> None:
    words = (
        "The specified bucket does not exist (Service: S3, Status Code: 404, Request ID: 7MID, Extended Request ID:"
        f" {'giAFT/4r=' * 50}) (SDK Attempt Count: 1)"
    )
    thrown = Thrown("software.amazon.awssdk.services.s3.model.NoSuchBucketException", words)
    assert cause_of(Raised(thrown)) == (
        "NoSuchBucketException: The specified bucket does not exist (Service: S3, Status Code: 404, Request ID: 7MID)"
    )


def test_a_table_that_does_not_exist_differs_from_a_file_that_the_store_lacks() -> None:
    names = ("NoSuchTableException", "NoSuchNamespaceException", "NotFoundException")
    assert [is_not_there(Raised(Thrown(f"{ICEBERG}.{name}"))) for name in names] == [True, True, False]
    assert not is_not_there(ValueError("NoSuchTableException"))  # None of Java.


def test_another_table_of_the_same_name_is_told_from_other_states() -> None:
    reported = ("Table UUID does not match: current=1 != refreshed=2", "closed")
    found = [is_another_table(Raised(Thrown("java.lang.IllegalStateException", words))) for words in reported]
    assert found == [True, False]
    skipped = Thrown(f"{ICEBERG}.ValidationException", "Metadata file for version 41 is missing under /w/a/t/metadata")
    assert is_another_table(Raised(skipped))


def test_the_innermost_cause_is_named_also_where_causes_never_end() -> None:
    endless = Thrown("a.Endless", "round and round")
    endless.cause = endless
    assert cause_of(Raised(endless)) == "Endless: round and round"
    assert cause_of(ValueError("of Python")) == "of Python"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (f"{ICEBERG}.ServiceFailureException", "Server error: NoClassDefFoundError: org/example/Lost"),
        (f"{ICEBERG}.RESTException", "Unable to process: ClassNotFoundException: org.example.Lost"),
        (f"{ICEBERG}.BadRequestException", "Malformed request: NoSuchMethodError: void a.B.c()"),
        ("org.apache.hadoop.hive.metastore.api.MetaException", "java.lang.NoClassDefFoundError: org/example/Lost"),
    ],
)
def test_a_class_that_a_server_lacks_is_the_servers_fault(kind: str, words: str) -> None:
    error = refused_catalog(Raised(Thrown(kind, words)), JDBC)
    assert (type(error), error.remedy) == (UnavailableError, UnavailableError().remedy)
    assert words in error.message


class _Answer:
    """The answer of a store that names a bucket, as Amazon's client keeps it."""

    def awsErrorDetails(self) -> _Answer:  # noqa: N802
        return self

    def rawResponse(self) -> _Answer:  # noqa: N802
        return self

    def asUtf8String(self) -> str:  # noqa: N802
        return "<Error><Code>NoSuchBucket</Code><BucketName>lake</BucketName></Error>"


class _NoBucket(_Answer, Thrown):
    """Amazon's exception for it."""


def test_a_bucket_that_does_not_exist_is_named() -> None:
    thrown = _NoBucket(
        "software.amazon.awssdk.services.s3.model.NoSuchBucketException", "The specified bucket does not exist"
    )
    error = unavailable("the table cannot be created", Raised(thrown), "a.b")
    assert error.message.startswith(
        "the table cannot be created: the bucket `lake` does not exist: NoSuchBucketException"
    )
    assert error.remedy.startswith("create the bucket")
