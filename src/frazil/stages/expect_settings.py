"""The keys of `expect`: conditions that the rows of a table, its commits and its age are to meet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from frazil.spec.settings import OTHER_DROPS
from frazil.spec.syntax import forms
from frazil.spec.syntax.keys import Declared, named, not_a_key, section
from frazil.spec.syntax.problems import LABEL, Mistake
from frazil.spec.syntax.reading import Rules
from frazil.stages.settings import StageSettings

if TYPE_CHECKING:
    from frazil.spec.models import TableSpec

_EXPECTATION_KINDS = {"that": "that", "min_rows": "min_rows", "max_age": "max_age_s"}
_EXPECTATION_NAME = re.compile("[A-Za-z][A-Za-z0-9_]{0,99}")


class ExpectationSpec(
    Declared, json_schema_extra={"oneOf": [{"required": [key]} for key in ("that", "min_rows", "max_age")]}
):
    """What the rows of a table, or of a commit, are expected to meet."""

    #: Counts and messages name it.
    name: Annotated[str, not_a_key("name")]
    that: Annotated[str, forms.TEXT] = ""
    """The condition, in Spark SQL, over the table's columns: `amount >= 0`. A row for which it is null does not meet it."""
    #: 0 to 1; None: none of them, where anything but `warn` follows.
    at_most: Annotated[float | None, forms.share("5%", "1%")] = None
    """For `that`: the share of recent records that need not meet it, counted from 100 records on, with `warn` or
    `stop`: `{that: email is not null, at_most: 5%}`."""
    min_rows: Annotated[int | None, forms.count(1000)] = None
    """The least number of rows, or of changes of an upsert table, in a commit that has read records; with `warn` or
    `stop`."""
    max_age_s: Annotated[float | None, forms.DURATION, named("max_age")] = None
    """The age of the newest record in the table above which `status` warns."""
    action: Annotated[Literal["warn", "drop", "dead_letter", "stop"], named("else")] = "warn"
    """The consequence for a record with a row that does not meet it: it is only counted (warn), makes no row (drop),
    becomes a dead letter, or stops the table before the commit."""

    @property
    def is_of_rows(self) -> bool:
        """Whether single rows are judged."""
        return bool(self.that)

    @property
    def is_of_batch(self) -> bool:
        """Whether a batch is judged as a whole, before its commit."""
        return self.at_most is not None or self.min_rows is not None


def _check_expectation(expectation: ExpectationSpec) -> Iterator[Mistake]:
    """Yields a name that no expectation can have, and settings that do not go together."""
    name, written = expectation.name, expectation.model_fields_set
    if name in OTHER_DROPS:
        message = f"an expectation cannot have the name `{name}`, which other dropped records are counted as"
        yield Mistake((), message, "name it after its condition, such as `amount_not_negative`")
    elif _EXPECTATION_NAME.fullmatch(name) is None:
        message = f"`{name}` is not a name of an expectation"
        yield Mistake((), message, "write a to z, digits and `_`, such as `amount_not_negative`")
    kinds = [key for key, field in _EXPECTATION_KINDS.items() if field in written]
    if len(kinds) != 1:
        what = f"has `{'` and `'.join(kinds)}`" if kinds else "expects nothing"
        remedy = "keep one of them, and give the other a name of its own" if kinds else 'write `that: "amount >= 0"`'
        yield Mistake((), f"`{LABEL}` {what}", remedy)
        return
    if "at_most" in written and not expectation.is_of_rows:
        yield Mistake("at_most", f"`{LABEL}` is for `that`", "remove it")
    if expectation.is_of_batch and expectation.action in ("drop", "dead_letter"):
        message = f"`expect.{name}` is of a whole commit, and `else` is {expectation.action}"
        yield Mistake("else", message, "write `else: warn` or `else: stop`")
    if expectation.max_age_s is not None and "action" in written:
        yield Mistake("else", f"`expect.{name}` only warns, in `status`", "remove it")


class ExpectSpec(StageSettings):
    """What the rows of a table are expected to meet."""

    sections: ClassVar[Mapping[str, type[Declared]]] = {"expectation": ExpectationSpec}
    rules: ClassVar[Mapping[type[Declared], Rules]] = {ExpectationSpec: Rules(checks=(_check_expectation,))}

    expect: Annotated[
        tuple[ExpectationSpec, ...],
        forms.by_name(
            {"anyOf": [forms.TEXT.schema, section("expectation").schema]},
            '`expect: {amount_not_negative: "amount >= 0"}`',
            short="that",
        ),
    ] = ()
    """Conditions that rows are expected to meet, by name, with the consequence otherwise: `{positive: {that: "amount >=
    0", else: dead_letter}}`. A condition alone only warns."""

    @property
    def is_used(self) -> bool:
        """See StageSettings."""
        return bool(self.expect)

    @property
    def makes_rows(self) -> bool:
        """See StageSettings."""
        return any(expectation.is_of_rows for expectation in self.expect)

    @property
    def counted(self) -> tuple[str, ...]:
        """See StageSettings."""
        return tuple(expectation.name for expectation in self.expect)

    @property
    def withheld(self) -> dict[str, str]:
        """See StageSettings. Rows that do not meet another expectation are in no commit."""
        warning = (
            each.name for each in self.expect if each.is_of_rows and each.action == "warn" and each.at_most is None
        )
        return dict.fromkeys(warning, "records did not meet the expectation")

    def of_rest(self) -> Self:
        """See StageSettings."""
        return type(self)()

    def of_copy(self) -> Self:
        """See StageSettings."""
        expectations = tuple(expectation for expectation in self.expect if not expectation.is_of_batch)
        return self.model_copy(update={"expect": expectations})

    def outdated(self, age_s: float) -> tuple[str, ...]:
        """See StageSettings."""
        with_age = ((expectation.name, expectation.max_age_s) for expectation in self.expect)
        return tuple(name for name, max_age_s in with_age if max_age_s is not None and age_s > max_age_s)

    def check(self, table: TableSpec) -> Iterator[Mistake]:
        """Yields expectations that make dead letters of a table without them."""
        reaction = table.bad_records.on_bad_record
        for expectation in self.expect:
            if expectation.action == "dead_letter" and reaction != "dead_letter":
                message = f"`expect.{expectation.name}` makes dead letters, and `on_bad_record` is {reaction}"
                remedy = "write `on_bad_record: dead_letter`, or `else: warn`, `drop` or `stop`"
                yield Mistake("expect", message, remedy)
