"""The page of limits reports what the code does: every number of its tables is a constant."""

from __future__ import annotations

import re

from docs.generate import REFERENCE
from frazil.column_names import MAX_NAME_BYTES
from frazil.decode import limits
from frazil.decode.avro import numbers
from frazil.decode.avro import schema as avro
from frazil.decode.json import grammar, infer, tree
from frazil.ingest.tasks import task_job, task_limits
from frazil.schema import parts
from frazil.spec.settings import LimitsSpec
from frazil_jsonschema import kinds, refs
from frazil_jsonschema import types as json_schema
from frazil_lookup import references
from frazil_protobuf import json as protobuf_json
from frazil_protobuf import layout, wire
from frazil_protobuf import schema as protobuf

DEFAULTS = LimitsSpec()
LIMITS = {
    "bytes of a record's value": f"`limits: {{record_size: …}}`, {DEFAULTS.record_bytes // 2**20} MiB",
    "bytes of a value that is read, whatever `record_size` allows": f"{task_job.MOST_VALUE_BYTES:,}",
    "bytes of a value in a dead letter, if no table of its topic allows the value": f"{task_job.FLOOR_BYTES:,}",
    "cells of one record, every format": f"{limits.MAX_RECORD_CELLS:,} plus one per byte of the record",
    "cells of one decoding chunk, every format": f"{limits.MAX_BATCH_CELLS:,}",
    "cells of the array and map items of an Avro record": (
        f"{numbers.FREE_CELLS:,} plus {numbers.CELLS_PER_BYTE} per byte of the record"
    ),
    "items of one Avro array or map": f"{numbers.MAX_ITEMS:,}",
    "array items without bytes (null, empty records) of an Avro record": f"{numbers.MAX_EMPTY_ITEMS:,}",
    "characters of names in an Avro value that becomes JSON": f"{numbers.MAX_JSON_CHARACTERS:,}",
    "cells of the list and map items of a Protobuf record": f"{layout.MAX_CELLS:,} plus 8 per byte of the record",
    "values of a Protobuf message that becomes JSON": f"{protobuf_json.MAX_JSON_VALUES:,}",
    "levels of JSON below the record": f"{grammar.MAX_DEPTH}",
    "levels of JSON from which a column is inferred": f"{infer.MAX_INFERRED_DEPTH}",
    "levels of a column in Parquet, where a list or a map is two": f"{parts.MAX_LEVELS}",
    "levels of Avro values and schemas": f"{avro.MAX_LEVELS}",
    "levels of Protobuf messages": f"{layout.MAX_DEPTH}, and 100 inside a value that becomes JSON",
    "levels of a Protobuf schema": f"{protobuf.MAX_LEVELS}",
    "levels of a JSON Schema": f"{json_schema.MAX_DEPTH}",
    "bytes of a column's name in UTF-8, at every depth": f"{MAX_NAME_BYTES}",
    "new fields, and fields to rescue, per decoding chunk, at all depths": (
        f"{limits.MAX_NEW_FIELDS:,}, or the columns that `limits: {{columns: …}}` leaves, if more"
    ),
    "columns of a table, at all depths": f"`limits: {{columns: …}}`, {DEFAULTS.columns:,}",
    "fields of an Avro schema": f"{avro.MAX_FIELDS:,}",
    "fields of a Protobuf schema": f"{protobuf.MAX_FIELDS:,}",
    "fields of a JSON Schema": f"{kinds.MAX_FIELDS:,}",
    "bytes of an Avro schema with its references": f"{avro.MAX_TEXT_BYTES:,}",
    "bytes of a JSON Schema with its references": f"{refs.MAX_BYTES:,}",
    "message indexes of a Protobuf record": f"{wire.MAX_INDEXES}",
    "the number of a Protobuf field": f"{layout.MAX_NUMBER:,}",
    "processor time of a worker for one decoding chunk (at most 20,000 records, 64 MB)": (
        f"{task_limits.CPU_SECONDS:.0f} s"
    ),
    "additional memory of a worker for one task": f"{task_limits.MEMORY_BYTES // 2**30} GiB",
    "rows of a reference table of [`lookup`](../guides/lookup.md)": f"{references.MOST_ROWS:,}",
    "size in memory of the columns that a lookup names": f"{references.MOST_BYTES // 2**20} MiB",
    "numbers in Avro, varints and lengths in Protobuf": "10 bytes and 64 bits",
}


def test_every_limit_on_the_page_is_the_one_in_the_code() -> None:
    page = (REFERENCE / "limits.md").read_text()
    table = page[: page.index("## Memory and time")]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \| [^|]+ \|$", table, re.MULTILINE)
    assert {quantity: limit for quantity, limit in rows if limit not in ("limit", "---")} == LIMITS
    assert f"more than {tree.MAX_UNINDEXED_FIELDS} fields" in page
