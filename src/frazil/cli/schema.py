"""`frazil schema`: prints the JSON Schema of the pipeline file, for editors and other programs."""

from __future__ import annotations

import json

from frazil.cli.output import Output
from frazil.spec import json_schema


def command(output: Output) -> None:
    """Print the JSON Schema of the pipeline file."""
    schema = json_schema()
    output.result(schema, json.dumps(schema, indent=2))
