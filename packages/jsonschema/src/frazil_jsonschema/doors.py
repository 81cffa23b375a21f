"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.formats import MessageFormat

JSON_SCHEMA = MessageFormat("frazil_jsonschema.texts:JsonSchemas")
