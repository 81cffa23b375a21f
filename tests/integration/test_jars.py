"""The real jars: a warm call is quick, and each use has the classes it is there for."""

from __future__ import annotations

import re
import time
import zipfile
from pathlib import Path

import pytest

from frazil.cli.main import main
from frazil.runtime.broker import broker_archive
from frazil.runtime.gateway import class_archive
from frazil.runtime.jars import USES, Use, are_jars_present, jars, known_sums, own_jars
from frazil.runtime.java import find_java
from frazil.runtime.jvm import JVM_OPTIONS
from frazil.runtime.light_jvm import LightJvm, archive_of_small_jvm
from frazil.store.properties import is_known
from tests.fixtures.foreign_spark import foreign_archive
from tests.integration.servers import rest_archive

_CLASSES: dict[Use, tuple[str, ...]] = {
    "spark": (
        "org/apache/iceberg/spark/SparkCatalog.class",
        "org/sqlite/JDBC.class",
    ),
    "s3": ("software/amazon/awssdk/services/s3/S3Client.class",),
    "broker": ("kafka/Kafka.class", "kafka/tools/StorageTool.class"),
}

_PROPERTIES = (
    "aws/s3/S3FileIOProperties",
    "aws/AwsClientProperties",
    "aws/AwsProperties",
    "aws/HttpClientProperties",
    "gcp/GCPProperties",
    "azure/AzureProperties",
    "aliyun/AliyunProperties",
    "CatalogProperties",
)


@pytest.mark.parametrize("use", USES)
def test_each_use_has_its_classes(use: Use) -> None:
    held: set[str] = set()
    for jar in jars(use):
        with zipfile.ZipFile(jar) as archive:
            held.update(archive.namelist())
    assert [name for name in _CLASSES[use] if name not in held] == []


def test_the_list_of_sums_names_exactly_the_jars_of_every_use() -> None:
    assert {jar.name for use in USES for jar in jars(use)} == known_sums().keys()


def test_without_a_network_the_command_ends_soon_and_names_what_it_could_not_fetch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="closed"/><resolvers><ibiblio name="closed" m2compatible="true"'
        ' root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FRAZIL_IVY_SETTINGS", str(settings))
    assert main(["setup"]) == 1
    shown = capsys.readouterr().err
    assert "org.apache.iceberg#iceberg-spark-runtime-4.1_2.13;1.12.0" in shown
    assert "without a network run frazil setup --from a bundle" in shown


def test_a_warm_call_takes_milliseconds_and_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for use in USES:
        jars(use)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    started = time.perf_counter()
    for use in USES:
        assert are_jars_present(use)
        assert all(jar.exists() for jar in jars(use))
    assert time.perf_counter() - started < 0.5


def test_finding_java_takes_less_than_half_a_second() -> None:
    find_java()
    started = time.perf_counter()
    find_java()
    assert time.perf_counter() - started < 0.5


def test_the_set_up_has_kept_the_classes_that_every_start_loads() -> None:
    # Without the archives a start takes twice as much of the processor, and nothing else tells.
    assert class_archive(own_jars(needs_s3=False), JVM_OPTIONS).exists(), "run `frazil setup`"
    assert archive_of_small_jvm().exists(), "run `frazil setup`"
    assert broker_archive().exists(), "run `frazil setup`"
    assert foreign_archive([*jars("spark"), *jars("s3")]).exists(), "run `make test-setup`"
    assert rest_archive().exists(), "run `make test-setup`"


@pytest.mark.parametrize("needs_spark_jars", [False, True])
def test_the_small_jvm_takes_its_classes_from_an_archive_also_with_the_jars_for_s3(
    needs_spark_jars: bool, tmp_path: Path
) -> None:
    loaded = tmp_path / "classes"
    conf = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={loaded}"}
    running = LightJvm(conf, needs_s3=True, needs_spark_jars=needs_spark_jars)
    try:
        running.gateway.jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        if needs_spark_jars:
            running.gateway.jvm.org.apache.spark.sql.types.DataType.fromDDL("a int")
    finally:
        running.close()
    lines = [line for line in loaded.read_text().splitlines() if "org.apache.iceberg." in line]
    assert [line for line in lines if "shared objects file (top)" in line] == lines != []
    of_spark = [line for line in loaded.read_text().splitlines() if "org.apache.spark.sql.types.DataType " in line]
    assert ["shared objects file (top)" in line for line in of_spark] == [True] * needs_spark_jars


def test_the_small_jvm_starts_with_an_archive_that_does_not_fit_its_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.runtime.light_jvm.archive_of_small_jvm", broker_archive)
    running = LightJvm({})
    try:
        assert running.gateway.jvm.java.lang.Math.abs(-7) == 7
    finally:
        running.close()


def test_every_property_of_the_java_classes_is_known() -> None:
    """Read from the classes' constants: names have one form, and their length in front."""
    [runtime] = [jar for jar in jars("spark") if jar.name.startswith("iceberg-spark-runtime")]
    found = set()
    with zipfile.ZipFile(runtime) as archive:
        for name in _PROPERTIES:
            content = archive.read(f"org/apache/iceberg/{name}.class")
            for size, text in re.findall(
                rb"\x01\x00(.)((?:s3|client|http-client|gcs|adls|azure|oss)[.][a-z0-9.-]+)", content
            ):
                found.add(text[: size[0]].decode())
    assert len(found) > 100
    assert {name for name in found if not is_known(name)} == set()
