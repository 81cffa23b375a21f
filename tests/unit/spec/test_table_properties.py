"""Table properties that files are written with."""

from __future__ import annotations

import pytest

from tests.unit.spec.pipeline_file import Load, Refuse, with_table


@pytest.mark.parametrize(
    ("properties", "message", "remedy"),
    [
        ("write.format.default: orc", "`properties.write.format.default` is `orc`, and Frazil creates", "remove it"),
        (
            "write.target-file-size-bytes: 64MiB",
            "`properties.write.target-file-size-bytes` is `64MiB`, and Iceberg takes a number of bytes",
            "write `67108864`",
        ),
        (
            "write.parquet.row-group-size-bytes: 0",
            "`properties.write.parquet.row-group-size-bytes` is `0`, and Iceberg takes a number of bytes",
            "write `134217728`",
        ),
        (
            "write.parquet.compression-codec: zsdt",
            "`properties.write.parquet.compression-codec` is `zsdt`, and Iceberg takes zstd, snappy, gzip,",
            "did you mean `zstd`?",
        ),
        (
            "write.parquet.compression-level: best",
            "`properties.write.parquet.compression-level` is `best`, and Iceberg takes a level",
            "write `3`",
        ),
        (
            "write.metadata.metrics.column.id: truncate",
            "`properties.write.metadata.metrics.column.id` is `truncate`, and Iceberg takes none, counts, full or",
            "write `truncate(16)`",
        ),
        (
            "write.metadata.metrics.default: truncate(0)",
            "`properties.write.metadata.metrics.default` is `truncate(0)`, and Iceberg takes none, counts, full or",
            "write `truncate(16)`",
        ),
        (
            "write.parquet.bloom-filter-fpp.column.id: 5",
            "`properties.write.parquet.bloom-filter-fpp.column.id` is `5`, and Iceberg takes a share between 0 and 1",
            "write `0.01`",
        ),
    ],
)
def test_what_no_file_could_be_written_with_is_refused(
    refuse: Refuse, properties: str, message: str, remedy: str
) -> None:
    error = refuse(with_table(f"properties: {{{properties}}}"))
    assert error.message.startswith(message)
    assert (error.remedy, error.where) == (remedy, "pipeline.yaml:4")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.format.default", "Parquet"),
        ("write.target-file-size-bytes", "1048576"),
        ("write.parquet.compression-codec", "GZIP"),
        ("write.parquet.compression-level", "9"),
        ("write.parquet.compression-codec", "lz4_raw"),
        ("write.parquet.bloom-filter-fpp.column.id", "1e-3"),
        ("write.metadata.metrics.default", "Truncate(4)"),
        ("write.metadata.metrics.column.id", "none"),
        ("write.metadata.metrics.max-inferred-column-defaults", "7"),
        ("write.metadata.previous-versions-max", "7"),
        ("comment", "any text"),
    ],
)
def test_all_else_is_passed_on(load: Load, name: str, text: str) -> None:
    (table,) = load(with_table(f"properties: {{{name}: {text}}}")).tables
    assert table.layout.properties == {name: text}
