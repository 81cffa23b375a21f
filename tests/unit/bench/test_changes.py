"""The benchmark of change data reads what it means to read."""

from __future__ import annotations

import pytest

from bench.changes import Form, forms, records_of, table_of
from frazil.ingest.tasks.task import read_records


@pytest.mark.parametrize("form", list(forms()), ids=lambda form: form.name)
def test_every_record_is_a_change_and_none_a_bad_one(form: Form) -> None:
    changes = read_records(table_of(form), "t", records_of(form, 5))
    assert (changes.decoded.mismatches, changes.decoded.requested_fields) == ([], {})
    assert changes.records[-1] == 4
    assert changes.columns[0].to_pylist()[-1] == 4
