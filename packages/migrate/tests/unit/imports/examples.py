"""Configurations of other tools, as their users write them: the files in `configurations`, by tool.

Beside each is the pipeline file that it becomes, `NAME.frazil.yaml`. Together they have every setting that is carried over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECRET = "hushhush"
_FOLDER = Path(__file__).with_name("configurations")
_DRAFT = ".frazil.yaml"
EXAMPLES: Mapping[str, Mapping[str, str]] = {
    tool.name: {
        path.stem: path.read_text(encoding="utf-8") for path in sorted(tool.iterdir()) if not path.name.endswith(_DRAFT)
    }
    for tool in sorted(_FOLDER.iterdir())
}


def draft_of(tool: str, name: str) -> Path:
    """The pipeline file that an example becomes."""
    return _FOLDER / tool / f"{name}{_DRAFT}"


def _connector(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(EXAMPLES["kafka-connect"][name])
    return settings


CONNECTOR, UNWRAPPED, CHANGES, BY_TOPIC = map(_connector, ("connector", "unwrapped", "changes", "by_topic"))
TOPICS = EXAMPLES["automq"]["topics"]
FLINK_CDC = EXAMPLES["flink-cdc"]["shop"]
FLINK_SQL = EXAMPLES["flink-sql"]["orders"]
CAPTURED = EXAMPLES["debezium-server"]["captured"]
AUTO_CDC = EXAMPLES["auto-cdc"]["users"]
