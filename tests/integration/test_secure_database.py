"""A catalog in a real PostgreSQL that wants TLS, a client certificate and a password, and grants the least."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from pyiceberg.types import StringType

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.errors import UnavailableError
from frazil.runtime.light_jvm import LightJvm
from frazil.schema.evolve import extend_schema
from tests.contracts.tables import SCHEMA, TABLE, commit_of, create, load
from tests.fixtures.certificates import EXPIRED, Authority
from tests.fixtures.fetching import installed
from tests.fixtures.jvms import light_jvm
from tests.fixtures.postgres import DATABASE, PostgresServer
from tests.integration.servers import HOST

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]
_DRIVER = Path(__file__).parent.parent / "fixtures/connect-ivy.xml"
USER, PASSWORD = "frazil", "p-ass;word"
#: The least rights on the catalog's tables, once they exist.
LEAST = {
    f"{right} on {table}"
    for table, rights in {
        "iceberg_tables": ("select", "insert", "update"),
        "iceberg_namespace_properties": ("select", "insert"),
    }.items()
    for right in rights
}


class SecureDatabase:
    """A server that lets in the user alone, over TLS with a certificate and a password."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.stranger = Authority(folder), Authority(folder, "stranger")
        self.server = PostgresServer()
        self._folder = folder
        self._client = self.authority.make(USER)
        #: PostgreSQL's driver reads a key as DER.
        self._key = folder / "client.pk8"
        key = load_pem_private_key(self._client.key.read_bytes(), None)
        self._key.touch(0o600)
        self._key.write_bytes(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))

    def start(self) -> None:
        self.server.start()
        with self.server.connected() as admin:
            admin.run(f"create role {USER} login password '{PASSWORD}'")
            admin.run(f"revoke all on database {DATABASE} from public")
            admin.run("revoke all on schema public from public")
            admin.run(f"grant connect on database {DATABASE} to {USER}")
            admin.run(f"grant usage, create on schema public to {USER}")
        rule = f"hostssl {DATABASE} {USER} {HOST}/32 scram-sha-256 clientcert=verify-full"
        self.server.secure(self.authority.make("server"), self.authority.file, [rule, f"host all {USER} all reject"])

    def connect(self, jvm: LightJvm, **changed: str | None) -> IcebergCatalog:
        """The catalog. changed: other values of properties of the driver; None for one that is left out."""
        address = f"jdbc:postgresql://{changed.pop('host', HOST)}:{self.server.port}/{DATABASE}"
        driver = {
            "user": USER,
            "password": PASSWORD,
            "sslmode": "verify-full",
            "sslrootcert": str(self.authority.file),
            "sslcert": str(self._client.certificate),
            "sslkey": str(self._key),
            **changed,
        }
        settings = {"type": "jdbc", "uri": address, "warehouse": str(self._folder), "jdbc.schema-version": "V1"}
        settings |= {f"jdbc.{name}": value for name, value in driver.items() if value is not None}
        return IcebergCatalog(jvm.gateway, "p", settings, {})

    def own_tables(self) -> None:
        """The catalog's tables belong to the administrator from now on, and the user may create none."""
        with self.server.connected() as admin:
            admin.run(f"revoke create on schema public from {USER}")
            for table in ("iceberg_tables", "iceberg_namespace_properties"):
                admin.run(f"alter table {table} owner to postgres")

    def grant(self, rights: set[str]) -> None:
        """The user has these rights alone."""
        with self.server.connected() as admin:
            admin.run(f"revoke all on iceberg_tables, iceberg_namespace_properties from {USER}")
            for right in rights:
                admin.run(f"grant {right} to {USER}")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureDatabase]:
    made = SecureDatabase(tmp_path_factory.mktemp("database"))
    try:
        made.start()
        yield made
    finally:
        made.server.close()


@pytest.fixture(scope="module")
def jvm() -> Iterator[LightJvm]:
    """A JVM with PostgreSQL's driver."""
    driver = next(installed(_DRIVER).rglob("postgresql-*.jar"))
    with light_jvm(conf={"spark.jars": str(driver)}) as running:
        running.listen()
        yield running


def work(catalog: IcebergCatalog, name: str) -> None:
    """Whatever Frazil does in a catalog: creates namespaces and tables, commits, changes columns."""
    table = f"lake.{name}.t"
    state = catalog.create(table, SCHEMA, {}, 2)
    del state
    first = load(catalog)
    catalog.commit(commit_of(first, first.progress.offsets.get("a", {}).get(0, 0) + 5))
    catalog.evolve(TABLE, lambda schema: extend_schema(schema, {(): {name: StringType()}}))


def test_a_login_and_the_least_rights_suffice_and_everything_less_is_named(
    database: SecureDatabase, jvm: LightJvm
) -> None:
    create(database.connect(jvm))  # Creates the catalog's tables too.
    database.own_tables()
    database.grant(LEAST)
    work(database.connect(jvm), "whole")
    for number, missing in enumerate(sorted(LEAST)):
        database.grant(LEAST - {missing})
        with pytest.raises(UnavailableError) as caught:
            work(database.connect(jvm), f"without{number}")
        assert "permission denied for table " + missing.partition(" on ")[2] in caught.value.message
        assert caught.value.remedy.startswith("grant this user the right"), missing
    database.grant({"select on iceberg_tables"})
    assert database.connect(jvm, **{"init-catalog-tables": "false"}).load(TABLE) is not None


@pytest.mark.parametrize(
    ("changed", "words", "remedy"),
    [
        ({"password": "wrong"}, "password authentication failed", "check the credentials under `catalog.properties`"),
        ({"sslrootcert": "stranger"}, "unable to find valid certification", "name the authority of the"),
        ({"sslcert": None, "sslkey": None}, "requires a valid client certificate", "the service refuses the certificate"),
        ({"sslmode": "disable"}, "pg_hba.conf rejects connection", "check the credentials under `catalog.properties`"),
        ({"host": "localhost"}, "The hostname localhost could not be verified", "use a host name that the service's"),
    ],
)  # fmt: skip
def test_a_refused_login_or_certificate_is_named_with_its_remedy(
    database: SecureDatabase, jvm: LightJvm, changed: dict[str, str | None], words: str, remedy: str
) -> None:
    with pytest.raises(UnavailableError) as caught:
        database.connect(
            jvm,
            **{n: str(database.stranger.file) if v == "stranger" else v for n, v in changed.items()},
        )
    assert words in caught.value.message
    assert caught.value.remedy.startswith(remedy), caught.value
    assert PASSWORD not in str(caught.value)


def test_an_expired_certificate_of_the_database_is_named(database: SecureDatabase, jvm: LightJvm) -> None:
    server = database.server
    server.secure(database.authority.make("expired", until=EXPIRED), database.authority.file, [])
    try:
        with pytest.raises(UnavailableError) as caught:
            database.connect(jvm)
    finally:
        server.secure(database.authority.make("renewed"), database.authority.file, [])
    assert caught.value.remedy.startswith("renew the service's certificate")
