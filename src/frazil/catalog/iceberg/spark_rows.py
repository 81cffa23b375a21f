"""The rows of a table at one snapshot, as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.compaction import seen_as
from frazil.catalog.iceberg.java import each
from frazil.catalog.iceberg.rewriters import is_readable_by_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_SNAPSHOT = -1


class NotReadable(Exception):
    """Why Spark cannot read a table."""

    def __init__(self) -> None:
        super().__init__("Spark cannot read a type of its columns")


def rows_of(spark: SparkSession, catalog: IcebergCatalog, table: str, snapshot_id: int) -> DataFrame:
    """Returns the rows of a snapshot.

    Raises: NotReadable for types that Spark does not have.
    """
    travel = catalog.gateway.jvm.org.apache.iceberg.spark.TimeTravel.version(str(snapshot_id))
    return _rows(spark, catalog, table, None, travel)


def rows_at(spark: SparkSession, catalog: IcebergCatalog, table: str, snapshot_id: int | None) -> DataFrame:
    """Returns the rows of a snapshot in the present columns of the table; none for None.

    Raises: NotReadable for types that Spark does not have.
    """
    return _rows(spark, catalog, table, _NO_SNAPSHOT if snapshot_id is None else snapshot_id, None)


def _rows(spark: SparkSession, catalog: IcebergCatalog, table: str, head_id: int | None, travel: Any) -> DataFrame:
    """head_id: as of `seen_as`. travel: Iceberg's choice of a snapshot; None: the newest one."""
    from pyspark.sql import DataFrame  # noqa: PLC0415  (a third of a second that other commands need not pay)

    jvm: Any = spark.sparkContext._jvm
    java = catalog.java_table(table)
    if not is_readable_by_spark(jvm, java):
        raise NotReadable
    source = jvm.org.apache.iceberg.spark.source.SparkTable.create(seen_as(jvm, java, head_id=head_id), travel)
    none = jvm.scala.Option.empty()
    relation = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(source, none, none)
    rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)
    return rows.toDF(*(str(field.name()) for field in each(java.schema().columns())))
