"""Conditions that tasks cannot compute are refused, each with what can be written instead."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType

from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.settings import query_columns
from frazil.schema.evolve import new_schema
from frazil.spec import TableSpec
from frazil.spec.models import TopicSelector
from frazil.stages.expect_settings import ExpectationSpec, ExpectSpec
from frazil.stages.stage import RowCondition
from frazil_expect.stage import ExpectStage


@pytest.mark.parametrize(
    ("that", "reason", "remedy"),
    [
        ("email rlike '^a'", "RLike is not a proven function", "make it a column"),
        ("exists(tags, t -> t = 'a')", "ArrayExists is not a proven function", "make it a column"),
        ("email", "is not a boolean", "cast the value"),
        ("emial = 'a'", "unknown column `emial`", "did you mean `email`"),
        ("_Offset > 5", "unknown column `_Offset`", "select it: `select *, _Offset from records`"),
    ],
)
def test_an_expectation_that_cannot_be_computed_is_named_with_what_can(
    queries: SparkQueries, that: str, reason: str, remedy: str
) -> None:
    tags = ListType(3, StringType(), element_required=False)
    records = Schema(NestedField(1, "email", StringType()), NestedField(2, "tags", tags))
    spec = TableSpec(name="n.a", topics=(TopicSelector(literal="a"),), select="select email, tags from records")

    def conditions_of(expectation: ExpectationSpec) -> Sequence[RowCondition]:
        stage = ExpectStage.make("expect", ExpectSpec(expect=(expectation,)))
        assert stage is not None
        return stage.conditions()

    wrong = ExpectationSpec(name="good", that=that, action="drop")
    with pytest.raises(SpecError) as caught:
        queries.conditions(spec, records, conditions_of(wrong))
    assert reason in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.where.startswith("n.a, expect.good")
    if "make it a column" in remedy:
        select, named = f"select *, {that} as ok from records", wrong.model_copy(update={"that": "ok"})
        followed = spec.model_copy(update={"select": select})
        made = new_schema(query_columns(queries.analyse(followed, records)).items())
        assert [name for name, _ in queries.conditions(followed, made, conditions_of(named))] == ["good"]
    if remedy.startswith("select it"):
        followed = spec.model_copy(update={"select": remedy.split("`")[1]})
        made = new_schema(
            query_columns(
                queries.analyse(followed, Schema(*records.fields, NestedField(9, "_offset", LongType())))
            ).items()
        )
        assert [name for name, _ in queries.conditions(followed, made, conditions_of(wrong))] == ["good"]
