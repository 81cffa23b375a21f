"""The names of tables for a shell that completes a command line: without Kafka, as somebody waits for the next character."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from frazil.errors import FrazilError
from frazil.secrets import Secrets
from frazil.spec import PipelineSpec, load_spec

_MOST_BYTES = 64 * 1024 * 1024


def complete_table(file: Path, incomplete: str) -> list[str]:
    """Returns the tables that the pipeline file declares and that the last run from this folder has recorded, as far as
    their names begin like this. Of a file that is wrong or is not there nothing is completed.
    """
    try:
        # The shell in which somebody types need not have the secrets of the process.
        spec = load_spec(file, secrets=Secrets(os.environ, has_placeholders=True))
    except (FrazilError, OSError):
        return []
    names = {table.name for table in spec.tables}
    names |= {f"{spec.selected.namespace}.{topic.literal}" for topic in spec.selected.topics if topic.literal}
    return sorted(name for name in names | _recorded(spec) if name.startswith(incomplete))


def _recorded(spec: PipelineSpec) -> set[str]:
    """Returns the tables in the state file. It is read here as plain JSON: what reads it for other commands takes a
    second to import.
    """
    file = spec.file.state_dir / f"{spec.pipeline}.json"
    with suppress(OSError, ValueError):
        if file.stat().st_size <= _MOST_BYTES:
            document: Any = json.loads(file.read_text(encoding="utf-8"))
            return {*document["tables"]} if isinstance(document.get("tables"), dict) else set()
    return set()
