"""What an operator does to a table by hand, through Iceberg's own Java API: restores and expires snapshots, commits
without Frazil, runs a second job that appends.

The JVM is a plain one with Iceberg in it, so that nothing of the product is in the way.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from frazil.clock import new_id
from frazil.runtime.jars import jars
from frazil.runtime.java import find_java

_OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
_NEEDED = ("hadoop-client", "slf4j-api", "commons-", "jackson", "log4j")


class Operator:
    """Iceberg's Java API in a JVM of its own."""

    def __init__(self, temporary: Path) -> None:
        own = Path(pyspark.__file__).parent / "jars"
        needed = [path for path in own.glob("*.jar") if path.name.startswith(_NEEDED)]
        port, self._process = launch_gateway(
            classpath=":".join(str(path) for path in [*jars("spark"), *needed]),
            javaopts=[*_OPTIONS, f"-Djava.io.tmpdir={temporary}"],
            java_path=str(find_java().path),
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))

    def close(self) -> None:
        """Ends the JVM."""
        self._gateway.shutdown()
        self._process.stdin.close()
        self._process.wait(20)

    def open(self, folder: Path, table: str) -> Table:
        """A table of the local catalog under `folder`."""
        jvm = self._gateway.jvm
        return Table(jvm, self._catalog(folder).loadTable(jvm.org.apache.iceberg.catalog.TableIdentifier.parse(table)))

    def create(
        self,
        folder: Path,
        table: str,
        columns: Mapping[str, Any],
        format_version: int = 2,
        required: Collection[str] = (),
    ) -> None:
        """Makes a table with these columns: names to types, a struct as a dictionary, a list as a list of one. required:
        those that no row may be without.
        """
        iceberg = self._gateway.jvm.org.apache.iceberg
        catalog = self._catalog(folder)
        identifier = iceberg.catalog.TableIdentifier.parse(table)
        if not catalog.namespaceExists(identifier.namespace()):
            catalog.createNamespace(identifier.namespace())
        struct = _struct(columns, itertools.count(1))
        for field in struct["fields"]:
            field["required"] = field["name"] in required
        schema = json.dumps({**struct, "schema-id": 0})
        builder = catalog.buildTable(identifier, iceberg.SchemaParser.fromJson(schema))
        builder.withProperty("format-version", str(format_version)).create()

    def drop(self, folder: Path, table: str) -> None:
        """Removes a table with its files."""
        identifier = self._gateway.jvm.org.apache.iceberg.catalog.TableIdentifier.parse(table)
        assert self._catalog(folder).dropTable(identifier, True)

    def rename(self, folder: Path, table: str, name: str) -> None:
        """Renames a table of a pipeline's local catalog."""
        parse = self._gateway.jvm.org.apache.iceberg.catalog.TableIdentifier.parse
        self._catalog(folder).renameTable(parse(table), parse(name))

    def _catalog(self, folder: Path) -> Any:
        jvm = self._gateway.jvm
        local = folder / "frazil-data"
        local.mkdir(exist_ok=True)
        properties = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{local / 'catalog.db'}",
            "warehouse": str(local / "warehouse"),
            "jdbc.schema-version": "V1",
            "jdbc.busy_timeout": "60000",
        }
        java_properties = jvm.java.util.HashMap()
        for name, value in properties.items():
            java_properties.put(name, value)
        return jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            "frazil", java_properties, jvm.org.apache.hadoop.conf.Configuration()
        )


class Table:
    """One table in an operator's hands."""

    def __init__(self, jvm: Any, java: Any) -> None:
        self._jvm = jvm
        self._java = java

    @property
    def snapshot_ids(self) -> list[int]:
        """Every snapshot that is still there, oldest first."""
        self._java.refresh()
        return [snapshot.snapshotId() for snapshot in self._java.snapshots()]

    def roll_back(self, snapshot_id: int) -> None:
        """Makes an older snapshot the current one."""
        self._java.refresh()
        self._java.manageSnapshots().rollbackTo(snapshot_id).commit()

    def expire_all_but_newest(self) -> None:
        """Forgets every snapshot but the current one."""
        self._java.refresh()
        now_ms = self._jvm.java.lang.System.currentTimeMillis()
        self._java.expireSnapshots().expireOlderThan(now_ms + 1).retainLast(1).commit()

    def remove_property(self, name: str) -> None:
        """Forgets one of the table's properties."""
        self._java.refresh()
        self._java.updateProperties().remove(name).commit()

    def compact_two(self) -> bool:
        """A foreign compaction: two data files of one partition and schema become one. False where there are no two, or
        where somebody else was quicker.
        """
        self._java.refresh()
        tasks, groups = self._java.newScan().planFiles().iterator(), dict[str, list[Any]]()
        while tasks.hasNext():
            file = tasks.next().file().copy()
            alike = f"{file.partition()} {pq.read_schema(file.location()).to_string(show_field_metadata=True)}"
            groups.setdefault(alike, []).append(file)
        chosen = next((files[:2] for files in groups.values() if len(files) > 1), [])
        if not chosen:
            return False
        paths = [str(file.location()) for file in chosen]
        path = f"{self._java.location()}/data/{new_id()}.parquet"
        rows = pa.concat_tables([pq.read_table(one) for one in paths])
        pq.write_table(rows, path)
        builder = self._jvm.org.apache.iceberg.DataFiles.builder(self._java.spec()).withPath(path).withFormat("parquet")
        if self._java.spec().isPartitioned():
            builder = builder.withPartition(chosen[0].partition())
        builder = builder.withFileSizeInBytes(Path(path).stat().st_size).withRecordCount(rows.num_rows)
        rewrite = self._java.newRewrite().addFile(builder.build())
        for file in chosen:
            rewrite.deleteFile(file)
        with suppress(Py4JJavaError):
            rewrite.commit()
            return True
        return False

    def scatter_manifests(self) -> None:
        """Every data file gets a manifest of its own, in one commit."""
        self._java.refresh()
        iceberg, io, spec = self._jvm.org.apache.iceberg, self._java.io(), self._java.spec()
        rewrite = self._java.rewriteManifests()
        for manifest in list(self._java.currentSnapshot().dataManifests(io)):
            rewrite.deleteManifest(manifest)
            files = iceberg.ManifestFiles.read(manifest, io, self._java.specs()).iterator()
            while files.hasNext():
                file = files.next().copy()
                path = f"{self._java.location()}/metadata/{new_id()}.avro"
                writer = iceberg.ManifestFiles.write(2, spec, io.newOutputFile(path), None)
                writer.existing(file, manifest.snapshotId(), file.dataSequenceNumber(), file.fileSequenceNumber())
                writer.close()
                rewrite.addManifest(writer.toManifestFile())
        rewrite.commit()

    def repeat_deletes(self, times: int) -> None:
        """The table's one file of position deletes is there so many times more, which changes no row."""
        for _ in range(times):
            self._java.refresh()
            [task] = list(self._java.newScan().planFiles().iterator())
            delete = task.deletes()[0]
            old = Path(str(delete.location()).removeprefix("file:"))
            new = old.with_name(f"again-{new_id()}{old.suffix}")
            shutil.copy(old, new)
            builder = self._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(self._java.spec()).copy(delete)
            self._java.newRowDelta().addDeletes(builder.withPath(str(new)).build()).commit()

    def append_nothing(self) -> None:
        """A commit of another writer, without rows."""
        self._java.refresh()
        self._java.newFastAppend().commit()

    def rewrite_untouched_files(self) -> int:
        """What a compaction does: every data file without deletes is replaced by one with the same rows; how many were."""
        self._java.refresh()
        count = 0
        for task in list(self._java.newScan().includeColumnStats().planFiles().iterator()):
            file = task.file()
            if not task.deletes().isEmpty():
                continue
            old = Path(str(file.location()).removeprefix("file:"))
            new = old.with_name(f"rewritten-{count}-{old.name}")
            shutil.copy(old, new)
            builder = self._jvm.org.apache.iceberg.DataFiles.builder(self._java.spec()).copy(file)
            path = str(file.location()).replace(old.name, new.name)
            self._java.newRewrite().deleteFile(file).addFile(builder.withPath(path).build()).commit()
            self._java.refresh()
            count += 1
        return count

    def append_again(self, path: Path) -> None:
        """Adds a data file that is in the table already: what a commit made twice would do."""
        self._java.refresh()
        tasks = self._java.newScan().planFiles().iterator()
        while tasks.hasNext():
            file = tasks.next().file()
            if file.location().endswith(path.name):
                self._java.newAppend().appendFile(file).commit()
                return
        raise AssertionError(f"{path} is not in the table")


def _struct(columns: Mapping[str, Any], ids: Iterator[int]) -> dict[str, Any]:
    fields = [
        {"id": next(ids), "name": name, "required": False, "type": _type(kind, ids)} for name, kind in columns.items()
    ]
    return {"type": "struct", "fields": fields}


def _type(kind: Any, ids: Iterator[int]) -> Any:
    if isinstance(kind, dict):
        return _struct(kind, ids)
    if isinstance(kind, list):
        return {"type": "list", "element-id": next(ids), "element": _type(kind[0], ids), "element-required": False}
    return kind
