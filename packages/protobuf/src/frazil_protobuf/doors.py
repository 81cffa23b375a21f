"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.formats import MessageFormat

PROTOBUF = MessageFormat("frazil_protobuf.messages:ProtobufSchemas")
