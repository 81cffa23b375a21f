"""What the user declares: the pipeline file, read, checked and described. The only place that knows YAML.

Its names are imported when they are first used: the rooms of stages declare their keys with `spec.syntax`, and `models` has
these keys.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.spec.connections import AuthSpec as AuthSpec
    from frazil.spec.connections import CatalogSpec as CatalogSpec
    from frazil.spec.connections import RegistrySpec as RegistrySpec
    from frazil.spec.connections import SparkSpec as SparkSpec
    from frazil.spec.connections import TlsSpec as TlsSpec
    from frazil.spec.load import load_spec as load_spec
    from frazil.spec.models import PipelineSpec as PipelineSpec
    from frazil.spec.models import Start as Start
    from frazil.spec.models import TableSpec as TableSpec
    from frazil.spec.models import TopicSelector as TopicSelector
    from frazil.spec.schema_json import json_schema as json_schema
    from frazil.spec.settings import METADATA_COLUMNS as METADATA_COLUMNS
    from frazil.spec.settings import ColumnSpec as ColumnSpec
    from frazil.spec.settings import CommitSpec as CommitSpec
    from frazil.spec.settings import DeadLettersSpec as DeadLettersSpec
    from frazil.spec.settings import LimitsSpec as LimitsSpec
    from frazil.spec.settings import MetadataField as MetadataField
    from frazil.spec.settings import ValueSpec as ValueSpec
else:
    _MODULES = {
        "connections": ("AuthSpec", "CatalogSpec", "RegistrySpec", "SparkSpec", "TlsSpec"),
        "load": ("load_spec",),
        "models": ("PipelineSpec", "Start", "TableSpec", "TopicSelector"),
        "schema_json": ("json_schema",),
        "settings": (
            "METADATA_COLUMNS", "ColumnSpec", "CommitSpec", "DeadLettersSpec", "LimitsSpec", "MetadataField", "ValueSpec",
        ),
    }  # fmt: skip
    _BY_NAME = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in _BY_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_BY_NAME[name]}"), name)
