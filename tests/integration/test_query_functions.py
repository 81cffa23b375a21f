"""Python functions in queries, as their user runs them: a module beside the pipeline file, called in Spark's workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from frazil.errors import SpecError
from frazil.plugins.functions import Function
from frazil.queries.analysis import analyse
from frazil.queries.catalyst import Catalyst
from frazil.runtime.jvm import Jvm
from tests.integration.queries import with_metadata

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
MODULE = """
from decimal import Decimal

import frazil
import pyarrow as pa
import pyarrow.compute as pc


@frazil.udf(returns="string")
def clean(email):
    if any(one is not None and "@" not in one for one in email.to_pylist()):
        raise ValueError("no @ in it")
    return pc.utf8_lower(email)


@frazil.udf(returns="decimal(12,2)")
def price(cents, factor):
    return pa.array([Decimal(one).scaleb(-2) for one in pc.multiply(cents, factor).to_pylist()], pa.decimal128(12, 2))


@frazil.udf(returns="long")
def short(cents):
    return cents.slice(1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("functions")
    (made / "shop_functions.py").write_text(MODULE)
    return made


@pytest.fixture(scope="module")
def catalyst(jvm: Jvm, folder: Path) -> Catalyst:
    functions = [Function(f"shop_functions.{name}", str(folder), kind) for name, kind in TYPES.items()]
    return Catalyst(jvm.gateway.jvm, functions)


TYPES = {"clean": "string", "price": "decimal(12,2)", "short": "long"}
RECORDS = with_metadata(Schema(NestedField(1, "email", StringType()), NestedField(2, "cents", LongType())))


def test_spark_types_what_is_made_of_a_function(catalyst: Catalyst) -> None:
    query = analyse(catalyst, "select Clean(email) as e, price(cents, 2) + 1 as p from records", RECORDS)
    assert [(one.name, str(one.type)) for one in query.columns] == [("e", "string"), ("p", "decimal(13, 2)")]
    assert [sorted(one.sources) for one in query.columns] == [[("email",)], [("cents",)]]
    assert query.program is not None
    assert query.program.spark_part is None


@pytest.mark.parametrize(
    ("query", "message", "corrected"),
    [
        ("clean()", "`clean()`: missing a required argument: 'email'", "clean(email)"),
        ("clean(email, 1)", "`clean(email, 1)`: too many positional arguments", "clean(email)"),
        ("clena(email)", "the function `clena` is unknown", "clean(email)"),
        # What Spark makes may be an argument.
        (
            "soundex(clean(email))",
            "Spark would compute `soundex(clean(email))`, and cannot call `clean`",
            "upper(clean(soundex(email)))",
        ),
    ],
)
def test_what_cannot_be_called_is_refused_until_its_remedy_is_done(
    catalyst: Catalyst, query: str, message: str, corrected: str
) -> None:
    with pytest.raises(SpecError) as refused:
        analyse(catalyst, f"select {query} as x from records", RECORDS)
    assert message in refused.value.message
    assert analyse(catalyst, f"select {corrected} as x from records", RECORDS).outside is None


def test_a_function_with_the_name_of_one_of_sparks_is_refused_until_it_has_another(jvm: Jvm, folder: Path) -> None:
    with pytest.raises(SpecError, match="`udf` names a function `Lower`, which Spark has too"):
        Catalyst(jvm.gateway.jvm, [Function("m.Lower", str(folder), "string")])
    assert "small" in Catalyst(jvm.gateway.jvm, [Function("m.small", str(folder), "string")]).functions
