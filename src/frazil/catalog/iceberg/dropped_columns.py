"""Files of partition specs whose column the table has dropped.

Iceberg forgets the type of such a partition field (`PartitionSpec.resultType`): it still reads the values, and writes null
in their place whenever it writes a manifest again. A delete file must have the partition of its data file, or no reader
opens the table (`DeleteFileIndex.validatePartitionMatch`). So the values are removed from all manifests at once, by one
commit, before anything else of these specs is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from frazil.catalog.iceberg.commits import Refresh, send_once
from frazil.catalog.iceberg.data_files import Dropped, MethodHandles, dropped_fields
from frazil.catalog.iceberg.java import array_of, each, head_of, remove, summary_of
from frazil.clock import new_id
from frazil.errors import ConflictError, SpecError
from frazil.types import MAIN

_READER = "org.apache.iceberg.ManifestReader"
_WRITER = "org.apache.iceberg.ManifestWriter"
_ENTRY = "org.apache.iceberg.ManifestEntry"
_FILE = "org.apache.iceberg.ContentFile"
_ROW = "org.apache.iceberg.StructLike"
_CONSUMER = "java.util.function.Consumer"


def forget_dropped_values(gateway: Any, pipeline: str, java: Any, table: str, branch: str, refresh: Refresh) -> None:
    """Writes the manifests of the Java table again, in one commit, that have partition values of dropped columns; commits
    nothing where there are none, as in nearly all tables.

    Raises: SpecError where equality deletes apply by such values, or where a branch other than main has such manifests,
    as Iceberg rewrites manifests of the main branch only; ConflictError after a conflicting commit; one of
    `lost_answers`, or what `refresh` raises, where the outcome is unknown.
    """
    dropped = dropped_fields(java.specs())
    snapshot = head_of(java, branch) if dropped else None
    if snapshot is None:
        return
    manifests = [manifest for manifest in each(snapshot.allManifests(java.io())) if _has_values(manifest, dropped)]
    if not manifests:
        return
    if branch != MAIN:
        place = f"{table}.`branch_{branch}`"
        raise SpecError(
            f"the branch `{branch}` has files partitioned by a column that the table has dropped, and Iceberg can replace"
            " manifests of the main branch only",
            remedy=f"write the rows again in one commit, such as `INSERT OVERWRITE {place} SELECT * FROM {place}` in Spark",
            where=table,
        )
    rewriter = _Rewriter(gateway, java, dropped)
    may_have_equality_deletes = summary_of(snapshot).get("total-equality-deletes") != "0"
    if may_have_equality_deletes and any(rewriter.has_equality_deletes(manifest) for manifest in manifests):
        raise SpecError(
            "another writer's equality deletes are partitioned by a column that the table has dropped: Iceberg would"
            " lose them with the next change of these files",
            remedy=f"write the rows again in one commit, such as `INSERT OVERWRITE {table} SELECT * FROM {table}` in Spark",
            where=table,
        )
    update, written = java.rewriteManifests(), []
    for manifest in manifests:
        new = rewriter.rewrite(manifest)
        written.append(str(new.path()))
        update.deleteManifest(manifest)
        update.addManifest(new)
    if not send_once(pipeline, update, java, int(snapshot.snapshotId()), refresh):
        remove(java, written)
        raise ConflictError("another writer has changed the table's manifests in the meantime", where=table)


def _has_values(manifest: Any, dropped: Dropped) -> bool:
    """Returns whether the manifest may have partition values of dropped columns, or where Iceberg has written null for them
    and noted that no value is null: it would not find such a file again.
    """
    places = dropped.get(manifest.partitionSpecId(), ())
    if not places or not (manifest.hasAddedFiles() or manifest.hasExistingFiles()):
        return False
    summaries = manifest.partitions()  # Writers need not note them (Iceberg spec "Manifest Lists").
    noted = [summaries.get(place) for place in places] if summaries is not None else []
    return not noted or any(summary.lowerBound() is not None or not summary.containsNull() for summary in noted)


class _Rewriter:
    """Writes manifests of the Java table again, entry by entry inside of the JVM."""

    def __init__(self, gateway: Any, java: Any, dropped: Dropped) -> None:
        self._dropped = dropped
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._java = java
        self._handles = MethodHandles(gateway)
        self._operations = java.operations()

    def has_equality_deletes(self, manifest: Any) -> bool:
        """Returns whether a live file of the manifest has equality deletes."""
        if str(manifest.content()) != "DELETES":
            return False
        reader = self._opened(manifest)
        try:
            return any(str(file.content()) == "EQUALITY_DELETES" for file in each(reader))
        finally:
            reader.close()

    def rewrite(self, manifest: Any) -> Any:
        """Returns a new manifest with the same live files."""
        files, spec = self._jvm.org.apache.iceberg.ManifestFiles, self._java.specs().get(manifest.partitionSpecId())
        target = self._java.io().newOutputFile(self._operations.metadataFileLocation(f"{new_id()}-m0.avro"))
        write = files.write if str(manifest.content()) == "DATA" else files.writeDeleteManifest
        reader, writer = self._opened(manifest), write(self._operations.current().formatVersion(), spec, target, None)
        places = self._dropped[spec.specId()]
        try:
            entries = self._hidden(_READER, "liveEntries").invoke(reader, self._array(self._jvm.java.lang.Object))
            # By reflection: py4j does not find a method that only the interface has.
            each_one = self._handles.class_of("java.lang.Iterable").getMethod("forEach", self._classes(_CONSUMER))
            each_one.invoke(entries, self._array(self._jvm.java.lang.Object, self._adding_to(writer, places)))
        finally:
            reader.close()
            writer.close()
        return writer.toManifestFile()

    def _opened(self, manifest: Any) -> Any:
        files = self._jvm.org.apache.iceberg.ManifestFiles
        read = files.read if str(manifest.content()) == "DATA" else files.readDeleteManifest
        return read(manifest, self._java.io(), self._java.specs()).select(self._jvm.java.util.List.of("*"))

    def _adding_to(self, writer: Any, places: Iterable[int]) -> Any:
        """Returns the java.util.function.Consumer of entries that sets the partition values at these places to null, and
        calls writer.existing(entry).
        """
        handles, class_of = self._handles, self._handles.class_of
        adding = handles.unreflected(self._hidden(_WRITER, "existing", _ENTRY)).bindTo(writer)
        entry, file, row = (class_of(name) for name in (_ENTRY, _FILE, _ROW))
        partition = handles.virtual(file, "partition", row)
        of_entry = handles.nested(partition, 0, handles.unreflected(self._hidden(_ENTRY, "file")))
        lang = self._jvm.java.lang
        setting = handles.virtual(row, "set", lang.Void.TYPE, lang.Integer.TYPE, class_of("java.lang.Object"))
        for place in places:
            to_null = handles.nested(handles.bound(setting, 1, place, None), 0, of_entry)
            adding = handles.after(to_null.asType(handles.type_of(lang.Void.TYPE, entry)), adding)
        return handles.instance(handles.consumer, adding)

    def _hidden(self, owner: str, name: str, *parameters: str) -> Any:
        """Returns a method of a class of Iceberg's that is not public."""
        method = self._handles.class_of(owner).getDeclaredMethod(name, self._classes(*parameters))
        method.setAccessible(True)
        return method

    def _classes(self, *names: str) -> Any:
        return self._array(self._jvm.java.lang.Class, *map(self._handles.class_of, names))

    def _array(self, kind: Any, *members: Any) -> Any:
        return array_of(self._gateway, kind, *members)
