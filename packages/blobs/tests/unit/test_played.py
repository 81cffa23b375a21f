"""Cases of a pipeline with objects: their packs are in the folder of the case, and never in the store of the pipeline."""

from __future__ import annotations

from pathlib import Path

from frazil_blobs.settings import BlobSettings
from frazil_testing.play import played_spec
from tests.unit.spec.conftest import load as load
from tests.unit.spec.conftest import working_directory as working_directory
from tests.unit.spec.pipeline_file import Load, with_table

BLOBS = 'blobs: {columns: [image], store: "s3://lake/objects", above: 1KiB}'


def test_packs_of_a_case_are_in_its_folder(load: Load, tmp_path: Path) -> None:
    spec = load(with_table(BLOBS))
    topic = spec.tables[0].source.topics[0].literal
    assert topic is not None
    [table] = played_spec(spec, [topic], tmp_path, "case").tables
    [(name, settings)] = table.stages
    expected = BlobSettings(columns=("image",), store=f"{tmp_path.as_uri()}/beside", above=1024)
    assert (name, settings) == ("blobs", expected)
