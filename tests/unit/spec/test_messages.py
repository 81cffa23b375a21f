"""What is said of each key of the pipeline file that is misspelt or has another kind of value, as `messages.txt` has it.

`FRAZIL_WRITE_MESSAGES=1` writes the file anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.needs import needs_all
from tests.unit.spec.pipeline_file import Load, message_of
from tests.unit.spec.variations import ENVIRONMENT, EVERY_KEY, VALUES, every_key, misspell, put_into

MESSAGES = Path(__file__).with_name("messages.txt")


def message_of_document(load: Load, document: object) -> str:
    """See message_of."""
    return message_of(load, yaml.safe_dump(document, sort_keys=False, width=1000), ENVIRONMENT)


def messages(load: Load) -> str:
    """What is said of each of them, the values that are told the same together."""
    document = every_key()
    lines: dict[tuple[str, str], list[str]] = {}
    for path, changed in misspell(document):
        lines.setdefault((path, message_of_document(load, changed)), []).append("misspelt")
    for written, value in VALUES.items():
        for path, changed in put_into(document, value):
            lines.setdefault((path, message_of_document(load, changed)), []).append(written)
    by_path: dict[str, list[str]] = {}
    for (path, message), values in lines.items():
        by_path.setdefault(path, []).append(f"  {', '.join(values)} -> {message}\n")
    return "".join(f"{path}\n{''.join(by_path[path])}" for path in sorted(by_path))


@needs_all()
def test_every_key_of_the_file_is_taken(load: Load) -> None:
    assert load(EVERY_KEY, ENVIRONMENT).tables


@pytest.mark.slow
@needs_all()
def test_each_key_that_is_wrong_has_the_message_that_it_had(load: Load) -> None:
    said = messages(load)
    if os.environ.get("FRAZIL_WRITE_MESSAGES"):
        MESSAGES.write_text(said, encoding="utf-8")
    assert said == MESSAGES.read_text(encoding="utf-8")
