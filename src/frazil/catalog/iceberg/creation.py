"""How a table is created, also where the catalog loses its first metadata file.

Iceberg's clients of Hive's metastore and of Glue send a request again whose answer was lost. The second one finds the table
that the first one has made, is refused, and the client then deletes the metadata file that the table in the catalog names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyiceberg.schema import Schema

from frazil.catalog.iceberg.java import causes_of, is_named, java_errors
from frazil.catalog.layout import Layout, order_of, spec_of
from frazil.catalog.progress import CREATED_AT, key
from frazil.clock import new_id

# Where it is set, the table is not in the folder above that of its metadata files.
_METADATA_PATH = "write.metadata.path"
# The name of the file that a creation writes, at the end of the message of Iceberg's NotFoundException.
_FIRST_FILE = re.compile(r": (?P<file>\S.*/metadata/00000-[^/]+\.metadata\.json)$")


def creation_notes(jvm: Any, pipeline: str) -> dict[str, str]:
    """Returns the table properties that say that this pipeline creates a table, and when: maintenance need not note the
    time later, in one more commit to each new table.
    """
    notes = {"created": "true", CREATED_AT: str(jvm.System.currentTimeMillis())}
    return {key(pipeline, name): text for name, text in notes.items()}


class Creation:
    """A table that is to be created: `properties` are its properties, with `format-version` among them."""

    def __init__(
        self,
        jvm: Any,
        catalog: Any,
        identifier: Any,
        schema: Schema,
        properties: Mapping[str, str],
        layout: Layout,
        location: str | None,
    ) -> None:
        self._jvm = jvm
        self._catalog = catalog
        self._identifier = identifier
        self._properties = properties
        self._location = location
        name = str(identifier)
        iceberg = jvm.org.apache.iceberg
        self._schema = iceberg.SchemaParser.fromJson(schema.model_dump_json())
        spec, order = spec_of(layout.partition_by or (), schema, name), order_of(layout.sort_by or (), schema, name)
        self._spec = iceberg.PartitionSpecParser.fromJson(self._schema, spec.model_dump_json())
        self._order = iceberg.SortOrderParser.fromJson(self._schema, order.model_dump_json())

    def create(self) -> Any:
        """Creates the table and returns it, a Java table."""
        # Not in a transaction: several catalogs refuse to stage a table, as others refuse a location.
        return self._builder(self._identifier, self._location).create()

    def restore(self, error: Exception) -> bool:
        """Writes the first metadata file of this table again, if it is the file that `error`, of a load, misses; returns
        whether it was.

        Nothing can have been committed to such a table: it cannot be loaded.
        """
        lost = lost_file(error)
        if lost is None or _METADATA_PATH in self._properties:
            return False
        # Staged under a name that no table has, and never created: it has the catalog's own defaults, and the store.
        name = self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(self._identifier.namespace(), f"t{new_id()}")
        staged = self._builder(name, lost.rpartition("/metadata/")[0]).createTransaction().table().operations()
        try:
            parser = self._jvm.org.apache.iceberg.TableMetadataParser
            parser.write(staged.current(), staged.io().newOutputFile(lost))
        except java_errors() as failure:
            if not is_named(failure, "AlreadyExistsException"):  # Else another process was faster.
                raise
        return True

    def _builder(self, identifier: Any, location: str | None) -> Any:
        builder = self._catalog.buildTable(identifier, self._schema).withProperties(self._properties)
        builder = builder.withPartitionSpec(self._spec).withSortOrder(self._order)
        return builder.withLocation(location) if location else builder


def lost_file(error: Exception) -> str | None:
    """Returns the metadata file that a creation wrote and that `error`, of a load, misses; None for another error."""
    if not is_named(error, "NotFoundException"):
        return None
    match = _FIRST_FILE.search(str(causes_of(error)[0].getMessage()))
    return match["file"] if match else None
