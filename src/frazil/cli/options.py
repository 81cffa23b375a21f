"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_FILE = Path("frazil.yaml")
SpecFile = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The pipeline file.")]
