"""What the user declares: the pipeline file, read, checked and described. The only place that knows YAML."""

from frazil.spec.load import load_spec as load_spec
from frazil.spec.models import METADATA_COLUMNS as METADATA_COLUMNS
from frazil.spec.models import AuthSpec as AuthSpec
from frazil.spec.models import CatalogSpec as CatalogSpec
from frazil.spec.models import ColumnSpec as ColumnSpec
from frazil.spec.models import CommitSpec as CommitSpec
from frazil.spec.models import DeadLettersSpec as DeadLettersSpec
from frazil.spec.models import LimitsSpec as LimitsSpec
from frazil.spec.models import MetadataField as MetadataField
from frazil.spec.models import PipelineSpec as PipelineSpec
from frazil.spec.models import RegistrySpec as RegistrySpec
from frazil.spec.models import SparkSpec as SparkSpec
from frazil.spec.models import Start as Start
from frazil.spec.models import TableSpec as TableSpec
from frazil.spec.models import TlsSpec as TlsSpec
from frazil.spec.models import TopicSelector as TopicSelector
from frazil.spec.models import ValueSpec as ValueSpec
from frazil.spec.schema_json import json_schema as json_schema
