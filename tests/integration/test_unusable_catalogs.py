"""Catalogs and tables that no waiting makes usable, with Iceberg's own classes: a mistake in the file is reported at once,
and a table that cannot be read in seconds.
"""

from __future__ import annotations

import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from frazil.api.check import _check_tables, findings_of
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.opening import settings_of_driver
from frazil.errors import SpecError, UnavailableError
from frazil.ops.store_check import check_driver_settings
from frazil.runtime.jars import own_jars
from frazil.runtime.light_jvm import LightJvm
from frazil.runtime.properties import catalog_properties
from frazil.schema.evolve import new_schema
from frazil.spec import load_spec
from tests.fixtures.jvms import light_jvm, quick_jvms
from tests.integration.servers import free_port

KEYS = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "client.region": "eu-west-1"}
GLUE = {"type": "glue", "warehouse": "s3://bucket/w"}
_NEW_CLASS = "org/apache/iceberg/inmemory/InMemoryCatalog"
"""A catalog in Iceberg's jar, which is put into another one as a class of a later Java."""
_LATER_JAVA = 99
_SECONDS = 10.0


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jar whose only class was compiled for a Java that nobody has yet."""
    iceberg = next(jar for jar in own_jars(needs_s3=False) if "iceberg-spark-runtime" in jar.name)
    later = tmp_path_factory.mktemp("jars") / "later.jar"
    with zipfile.ZipFile(iceberg) as found, zipfile.ZipFile(later, "w") as made:
        code = bytearray(found.read(f"{_NEW_CLASS}.class"))
        code[6:8] = _LATER_JAVA.to_bytes(2)
        made.writestr("org/example/LaterCatalog.class", bytes(code))
    return later


@pytest.fixture(scope="module")
def jvm(jars: Path) -> Iterator[LightJvm]:
    with light_jvm(needs_s3=True, conf={"spark.jars": str(jars)}) as running:
        yield running


@pytest.mark.parametrize(
    ("settings", "words", "remedy"),
    [
        ({"impl": "org.example.NoCatalog"}, "org.example.NoCatalog", "name the jar that has the class"),
        ({"impl": "java.lang.Integer"}, "java.lang.Integer", "name the jar that has the class"),
        (
            {"impl": "java.lang.Object"},
            "java.lang.Object does not implement Catalog",
            "name the jar that has the class",
        ),
        ({"impl": "org.example.LaterCatalog"}, "UnsupportedClassVersionError", "name a jar under"),
        ({"properties": {"io-impl": "org.example.NoFiles"}}, "org.example.NoFiles", "name the jar that has the class"),
        ({"properties": {"jdbc.busy_timeout": "soon"}}, '"soon"', "correct the setting"),
        ({"properties": {"clients": "many"}}, '"many"', "correct the setting"),
        ({**GLUE, "properties": {"glue.endpoint": "not an address"}}, "not an address", "correct the setting"),
        ({**GLUE, "properties": {"client.credentials-provider": "a.B"}}, "a.B", "name the jar"),
        ({"warehouse": "s3://b/w", "properties": {"s3.endpoint": "host:9000"}}, "scheme", "correct the setting"),
        ({"warehouse": "s3://b/w", "properties": {"s3.endpoint": "a b"}}, "a b", "correct the setting"),
        (
            {
                "type": "nessie",
                "uri": "http://127.0.0.1:1/api/v2",
                "warehouse": "w",
                "properties": {"nessie.authentication.type": "BEARER"},
            },
            "Token must not be null",
            "correct the setting",
        ),
        ({"type": "rest", "uri": "http://h", "properties": {"rest.auth.type": "nope"}}, "nope", "name the jar"),
    ],
    ids=str,
)
def test_a_mistake_in_the_file_is_reported_at_once_until_it_is_corrected(
    jvm: LightJvm, tmp_path: Path, settings: Mapping[str, object], words: str, remedy: str
) -> None:
    spec = _file(tmp_path, settings)
    began = time.monotonic()
    with pytest.raises(SpecError) as refused:
        IcebergCatalog(jvm.gateway, "p", catalog_properties(load_spec(spec)), {})
    assert (words in refused.value.message, refused.value.remedy.startswith(remedy)) == (True, True), refused.value
    assert time.monotonic() - began < _SECONDS
    if "catalog.db" in spec.read_text() and "s3:" not in spec.read_text():
        corrected = _file(
            tmp_path, {"properties": {"jdbc.journal_mode": "WAL", "jdbc.busy_timeout": "10", "clients": "1"}}
        )
        IcebergCatalog(jvm.gateway, "p", catalog_properties(load_spec(corrected)), {})


def test_check_reports_an_unusable_catalog_among_its_findings(jars: Path, tmp_path: Path) -> None:
    with quick_jvms():
        file = _file(tmp_path, {"impl": "org.example.LaterCatalog", "jars": [str(jars)]})
        found = {finding.name: finding for finding in findings_of(load_spec(file))}
    assert {name for name, finding in found.items() if not finding.is_ok} == {"kafka", "catalog"}
    assert "UnsupportedClassVersionError" in found["catalog"].found
    assert found["catalog"].remedy.startswith("name a jar under `catalog: {jars: […]}`")
    assert "store" in found, "the other checks were made"


class _OtherServer(BaseHTTPRequestHandler):
    """A server that is no catalog."""

    def answer(self) -> None:
        self.send_error(404)

    do_GET = do_HEAD = do_POST = answer  # noqa: N815  (the names that http.server calls)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Where nobody listens, or where another server does."""
    if request.param == "nobody":
        yield free_port()
        return
    with HTTPServer(("127.0.0.1", 0), _OtherServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("port", ["nobody", "another server"], indirect=True)
@pytest.mark.parametrize(
    "settings",
    [
        {"type": "hive", "uri": "thrift://127.0.0.1:{port}", "warehouse": "/w"},
        {"type": "nessie", "uri": "http://127.0.0.1:{port}/api/v2", "warehouse": "/w"},
        {"type": "rest", "uri": "http://127.0.0.1:{port}"},
        {"uri": "jdbc:postgresql://127.0.0.1:{port}/lake", "properties": {"jdbc.connectTimeout": "3"}},
        {**GLUE, "properties": {"glue.endpoint": "http://127.0.0.1:{port}"}},
    ],
    ids=lambda one: str(one.get("type", "jdbc")),
)
def test_check_calls_no_catalog_well_that_does_not_answer(
    jvm: LightJvm, tmp_path: Path, settings: Mapping[str, object], port: int
) -> None:
    file = _file(tmp_path, settings)
    file.write_text(file.read_text().replace("{port}", str(port)))
    found = list(_check_tables(jvm, load_spec(file), [], None, None, []))
    assert [(one.name, one.is_ok, bool(one.remedy)) for one in found] == [("catalog", False, True)], found


def test_a_catalog_that_answers_is_well_and_says_where_a_namespace_is(jvm: LightJvm, tmp_path: Path) -> None:
    spec = load_spec(_file(tmp_path, {}))
    catalog = IcebergCatalog(jvm.gateway, "p", catalog_properties(spec), {})
    assert catalog.ask("here", "n") == ""
    catalog.create("n.t", new_schema([]), {}, 2)
    assert catalog.ask("here", "n") in ("", f"{tmp_path}/w/n")
    assert [one.is_ok for one in _check_tables(jvm, spec, [], None, None, [])][:1] == [True]


def test_what_the_drivers_of_databases_leave_out_is_told(jvm: LightJvm, tmp_path: Path) -> None:
    wrong = {"jdbc.journal_mode": "NOPE", "jdbc.synchronouss": "FULL", "jdbc.busy_timeout": "10"}
    spec = load_spec(_file(tmp_path, {"properties": wrong}))
    found = list(check_driver_settings(spec, settings_of_driver(jvm.gateway, spec.catalog.uri or "")))
    assert [one.found.partition(",")[0] for one in found] == [
        "mind: `jdbc.journal_mode` is `NOPE`",
        "mind: the driver lists no `jdbc.synchronouss`; did you mean `jdbc.synchronous`?",
    ]
    assert {"sslmode", "user", "password"} <= settings_of_driver(jvm.gateway, "jdbc:postgresql://h/d").keys()
    assert settings_of_driver(jvm.gateway, "jdbc:none://h/d") == {}


@pytest.mark.parametrize("fault", ["missing", "garbage", "a folder"])
def test_an_unreadable_metadata_file_is_named_in_seconds_until_it_is_restored(
    jvm: LightJvm, tmp_path: Path, fault: str
) -> None:
    properties = catalog_properties(load_spec(_file(tmp_path, {})))
    writing = IcebergCatalog(jvm.gateway, "p", properties, {})
    for table in ("n.damaged", "n.whole"):
        writing.create(table, new_schema([]), {}, 2)
    [file] = (tmp_path / "w/n/damaged/metadata").glob("*.metadata.json")
    kept = file.read_bytes()
    file.unlink()
    if fault == "a folder":
        file.mkdir()
    elif fault == "garbage":
        file.write_text("{")
    began = time.monotonic()
    catalog = IcebergCatalog(jvm.gateway, "p", properties, {})
    for _ in range(3):  # As check does, which loads a table more than once.
        with pytest.raises(UnavailableError) as refused:
            catalog.load("n.damaged")
        assert (file.name in refused.value.message, bool(refused.value.remedy)) == (True, True), refused.value
        assert catalog.load("n.whole") is not None
    assert time.monotonic() - began < _SECONDS
    if fault == "a folder":
        file.rmdir()
    file.write_bytes(kept)
    assert catalog.load("n.damaged") is not None


def _file(folder: Path, settings: Mapping[str, object]) -> Path:
    catalog = {"uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/w"}
    if {"impl", "type"} & settings.keys():
        catalog = {}
    own = settings.get("properties", {})
    assert isinstance(own, dict)
    document = {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": f"localhost:{free_port()}"},
        "catalog": {**catalog, **settings, "properties": {**(KEYS if "s3:" in str(settings) else {}), **own}},
        "tables": {"n.t": {"topic": "t"}},
    }
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    return file
