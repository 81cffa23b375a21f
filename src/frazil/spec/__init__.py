"""What the user declares: the pipeline file, read, checked and described. The only place that knows YAML."""

from frazil.spec.load import load_spec
from frazil.spec.models import (
    METADATA_COLUMNS,
    AuthSpec,
    CatalogSpec,
    ColumnSpec,
    CommitSpec,
    DeadLettersSpec,
    LimitsSpec,
    MetadataField,
    PipelineSpec,
    RegistrySpec,
    SparkSpec,
    Start,
    TableSpec,
    TlsSpec,
    TopicSelector,
    ValueSpec,
)
from frazil.spec.schema_json import json_schema

__all__ = [
    "METADATA_COLUMNS",
    "AuthSpec",
    "CatalogSpec",
    "ColumnSpec",
    "CommitSpec",
    "DeadLettersSpec",
    "LimitsSpec",
    "MetadataField",
    "PipelineSpec",
    "RegistrySpec",
    "SparkSpec",
    "Start",
    "TableSpec",
    "TlsSpec",
    "TopicSelector",
    "ValueSpec",
    "json_schema",
    "load_spec",
]
