"""Which test follows each remedy of queries, their functions and their look-ups; as `followed.py`."""

from __future__ import annotations

from collections.abc import Mapping

_RULES = "a query is one `select … from records` with Spark's functions of single records"
_QUERIES = "integration/test_query_refusals.py::test_a_refused_query_is_accepted_once_its_remedy_is_done"
_STEPS = "unit/process/test_steps.py::test_steps_that_contradict_each_other_are_refused_until_the_remedy_is_done"
_WAITS = "unit/ingest/tables/test_queries.py::test_a_table_whose_first_records_have_no_field_for_it_waits_for_others"
_NUMBERS = "unit/ingest/test_numbers_as_text.py::test_the_step_converts_texts_and_numbers_of_one_column"
_LOOKUPS = "packages/lookup/tests/unit/test_lookups.py::test_"
_FUNCTIONS = "integration/test_query_functions.py::test_"

QUERIES: Mapping[str, str] = {
    # Python functions of queries.
    "name it `module.function`, and put the module beside the pipeline file, or install its package": (
        "unit/spec/test_functions.py::test_a_function_is_found_once_its_module_is_beside_the_file"
    ),
    "correct the function, and start again": (
        "unit/process/test_functions.py::test_a_result_that_is_no_column_stops_the_table_until_the_function_is_corrected"
    ),
    "give the function another name": (
        f"{_FUNCTIONS}a_function_with_the_name_of_one_of_sparks_is_refused_until_it_has_another"
    ),
    **dict.fromkeys(
        (
            "give the function the arguments that it takes",
            f"use functions that tasks compute themselves around it; {_RULES}",
        ),
        f"{_FUNCTIONS}what_cannot_be_called_is_refused_until_its_remedy_is_done",
    ),
    "…, with `columns: {…: {type: string, coerce: true}}` if other records have numbers": _NUMBERS,
    "…; or declare what most records have, `columns: {…: TYPE}`": (
        "unit/ingest/test_first_values.py::test_a_query_that_no_record_suits_stops_until_the_field_is_declared"
    ),
    # Tables with a query.
    **dict.fromkeys(
        (
            "add `…` to `select`",
            "add the column to the table, or take it out of `select`",
            "name the column otherwise in `select`",
            "name the column otherwise with `rename`",
            "write `cast(… as …)` in `select`, or name the column otherwise",
            "name another column, `metadata: {…: NAME}`",
            "take `…` out of `add_fields`, and write `cast(… as …) as …` in `select`",
            "take `…` out of `add_fields`, and write `unix_millis(…) as …` in `select`",
            "take `…` out of `metadata`, and write `unix_millis(_…) as …` in `select`",
            "take `…` out of `metadata`, and write `unix_millis(_…) as …` in a query, `select: select *, … from records`",
            "write `cast: {…: …}`, or name the column otherwise with `rename`",
            "write `unix_millis(…) as …` in `select`",
            f"write it otherwise; {_RULES}",
            f"make `…` of functions that tasks compute themselves; {_RULES}",
        ),
        "unit/ingest/test_stopped_queries.py::test_a_query_that_the_table_cannot_have_stops_it_until_the_remedy_is_followed",
    ),
    **dict.fromkeys(
        (
            "write `…` under `…`",
            "take it out of `drop_fields`",
            "add it to `keep_fields`",
            "add `…` to `select`, or keep it in the steps",
        ),
        "unit/ingest/test_stopped_queries.py::"
        "test_a_table_whose_query_makes_no_key_stops_before_a_row_is_written_until_the_remedy_is_followed",
    ),
    **dict.fromkeys(
        (
            "correct it (did you mean `…`?); Frazil looks at further records",
            "correct it (write one of: …); Frazil looks at further records",
        ),
        "unit/ingest/test_stopped_queries.py::test_a_key_column_that_no_record_has_had_yet_is_waited_for_with_the_nearest_name",
    ),
    "let Spark compute it: make it a column, `select *, … as NAME from records`, and expect that": (
        "unit/ingest/test_stopped_queries.py::test_an_expectation_that_cannot_be_computed_is_named_with_what_can"
    ),
    "write one condition in Spark's SQL, such as `amount > 0`; a name with other signs needs back-quotes": (
        "unit/ingest/test_stopped_queries.py::test_a_condition_that_is_none_is_named_with_the_place_in_it"
    ),
    "select it: `select *, … from …`": (
        "unit/ingest/test_stopped_queries.py::test_an_expectation_that_cannot_be_computed_is_named_with_what_can"
    ),
    "declare its type under `columns`, or correct it (…); Frazil looks at further records": (
        "unit/ingest/test_stopped_queries.py::test_a_field_that_no_record_has_had_yet_is_waited_for"
    ),
    # Lookups.
    **dict.fromkeys(
        (
            "create it, or correct `table` of the lookup",
            "leave one row for each key, or compare further columns in `on`",
            "take fewer columns, or make a smaller table of the rows that are looked up",
        ),
        f"{_LOOKUPS}a_reference_table_that_cannot_be_joined_is_waited_for",
    ),
    **dict.fromkeys(
        (
            "put the file in place, or correct it; Frazil retries with back-off",
            "Frazil reads it again",
            "give each column of the file a name of its own; Frazil retries with back-off",
        ),
        f"{_LOOKUPS}a_file_that_cannot_be_joined_is_waited_for",
    ),
    **dict.fromkeys(
        (
            "compare values of one type, and no floating-point numbers: declare the type of the field under `columns`, or"
            " add a column of its type to the reference table",
            "leave it out of `take`, or store it as a string",
            "name a field inside of a struct",
            "name the lookup otherwise",
            "write the condition as `filter`, or in `select`",
            "write one of: …",
        ),
        f"{_LOOKUPS}a_lookup_that_cannot_be_stops_the_table_until_it_is_corrected",
    ),
    "take another column, or store it as text, a number, a boolean, a date or a time": (
        "packages/lookup/tests/unit/test_lookup_files.py::test_a_column_of_a_file_whose_type_cannot_be_taken_is_named"
    ),
    "name a column of the record's own fields": f"{_LOOKUPS}a_key_column_of_an_upsert_table_is_not_looked_up",
    # Queries before the table.
    "compute it before: `explode(transform(items, item -> …))`": (
        "integration/test_queries.py::test_an_expression_of_sparks_needs_a_record_of_its_own"
    ),
    f"use functions that tasks compute themselves; {_RULES}": (
        "unit/ingest/test_stopped_queries.py::test_rows_of_one_message_are_not_sparks"
    ),
    **dict.fromkeys(
        (
            "a row is made of one record: use `merge` in an upsert table, or aggregate what is in the table",
            "cast it to another type, or take a member with `get_json_object`",
            "cast the value to the type that is wanted",
            "compute a part of it in a sub-query in FROM",
            f"convert the value by a function, or cast it to another type before; {_RULES}",
            f"correct the query; {_RULES}",
            "give it a name: `as NAME`",
            "give it a shorter name: `as NAME`",
            "give it a type: `cast(null as string)`",
            "make a list of structs, `array(struct(key, value))`, or a map of JSON: `from_json(…, 'map<…>')`",
            "name a field of the records: …",
            "name it otherwise: `as NAME`",
            "name one of them otherwise, such as `named_struct('NAME', value)`",
            "name one of them otherwise: `as NAME`",
            "select the field as it is, or declare it as string",
            "select the field as it is, or declare it as string or binary",
            "take its length as a number: `timestampdiff(second, a, b)`, or `datediff(b, a)` of dates",
            "use `_timestamp`, the time of the record",
            "use `_topic`, `_kafka_partition` and `_offset`",
            "use `explode`, and select the members of its elements",
            "use `get_json_object`",
            "use a hash of the record, such as `hash(_kafka_partition, _offset)`",
            f"use another function; {_RULES}",
            "use columns, literals and functions alone",
            "write `from …`, the only relation",
            "write `select … from …`",
            "write `… as NAME`",
            "write `… as (POSITION, NAME)`",
            "write a number up to …",
            "write one `select … from records` in Spark's SQL; a name with other signs needs back-quotes",
            "write the condition after WHERE",
            "write the list out, `array(1, 2, 3)`",
            "correct it; SQL's texts have a backslash twice, `'\\\\d'`, but for those behind an r, `r'\\d'`",
            "correct it, as in `yyyy-MM-dd HH:mm:ss.SSS`: `y` is the year, and Spark has neither `Y` nor `w`",
            "name one such as `Europe/Zurich`, or an offset such as `+02:00`",
        ),
        _QUERIES,
    ),
    "write the rule for the field, `protect: {…}`: fields are protected before the query": (
        "packages/protect/tests/unit/test_names.py::"
        "test_a_rule_for_a_name_that_the_query_makes_stops_the_table_until_it_names_the_field"
    ),
    "install the system's package `tzdata`, also where Spark's executors run; where PYTHONTZPATH is set, let it name the"
    " folder of that package": "unit/test_zones.py::test_with_the_package_all_of_it_works",
    "write an expression, such as `amount > 0`": (
        "integration/test_query_refusals.py::test_a_refused_condition_is_accepted_once_its_remedy_is_done"
    ),
    "choose another name, or drop one of them": _STEPS,
    "declare the column, `columns: {NAME: {type: …}}`": _STEPS,
    "keep one with `keep_fields`, or drop fewer": _STEPS,
    **dict.fromkeys(
        (
            "leave it out with `exclude`, whose paths lead into lists by `element` and into maps by `value`",
            "keep all of `…`; of what it has inside, leave it out with `exclude`, whose paths lead into lists by `element`"
            " and into maps by `value`",
        ),
        "unit/rows/test_shaped_tasks.py::test_what_is_left_out_is_nowhere_and_no_reason_to_refuse_a_record",
    ),
    "change all of `…` in `select`, by Spark's `transform` or `transform_values`": (
        "integration/test_queries.py::test_columns_and_their_types_are_those_of_a_session"
    ),
    "drop fewer": _WAITS,
    "…; Frazil looks at further records": _WAITS,
}
