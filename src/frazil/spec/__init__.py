"""What the user declares: the pipeline file, read, checked and described. The only place that knows YAML."""

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
