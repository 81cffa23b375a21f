"""Which test follows each remedy of packages that add keys of tables, `frazil verify` or `frazil test`; as `followed.py`."""

from __future__ import annotations

from collections.abc import Mapping

_BLOBS = "packages/blobs/tests/unit/test_packs.py::test_"
_EXPECT = "packages/expect/tests/unit/test_service.py::test_"
_TESTING = "packages/testing/tests/unit"
_CASES, _RECORDING = f"{_TESTING}/test_cases.py::test_", f"{_TESTING}/test_recording.py::test_"
_REFUSED = f"{_TESTING}/test_refused_cases.py::test_"
_CASE_COMMANDS = f"{_TESTING}/test_commands.py::test_"

PACKAGED: Mapping[str, str] = {
    # Cases.
    "begin the case with a record that becomes a row, or declare `columns`: then a bad record is a dead letter": (
        f"{_CASES}bad_records_alone_are_shown_with_their_class_and_reason"
    ),
    # Tables compared with their topics.
    "write one with `frazil verify TABLE --independent --report report.json`": (
        "packages/verify/tests/unit/test_report.py::test_a_changed_report_is_refused"
    ),
    "choose one level, or run the command twice": (
        "packages/verify/tests/unit/test_levels.py::test_two_levels_at_once_are_refused_and_one_is_taken"
    ),
    **dict.fromkeys(
        (
            "add --rows, or leave --digests out",
            "leave --scratch out: this level makes no copy",
            "leave --scratch out, and set TMPDIR to a folder with the space of a copy",
        ),
        "packages/verify/tests/unit/test_levels.py::test_options_of_another_level_are_refused_with_what_to_do",
    ),
    "add --independent or --rows, or leave --from, --to and --sample out": (
        "packages/verify/tests/unit/test_levels.py::test_a_copy_has_no_bounds_and_other_levels_have"
    ),
    **dict.fromkeys(
        (
            "run it without --independent: a copy of the table is made and compared",
            "add --independent, which reads the topic and makes no copy",
            "add --independent, which reads the table without Spark",
            "add --rows or --ledger, which find lost and doubled records by their offsets",
            "add --rows or --ledger in its place, which find lost and doubled records by their offsets",
        ),
        "packages/verify/tests/integration/test_kinds.py::test_every_kind_of_table_is_judged_or_refused_with_a_remedy",
    ),
    "leave --from and --to out": (
        "packages/verify/tests/unit/test_planted_faults.py"
        "::test_of_a_part_of_the_offsets_later_changes_count_and_other_rows_do_not"
    ),
    "write a share above 0 and up to 100%, as 0.5%": (
        "packages/verify/tests/unit/test_levels.py::test_a_share_is_written_as_the_remedy_names_it"
    ),
    "write an offset as 1200 or, of partition 3, 3:1200, or a time as 2026-01-31T00:00:00Z": (
        "packages/verify/tests/unit/test_levels.py::test_a_bound_is_a_time_in_a_form_that_the_remedy_names"
    ),
    # Large objects.
    **dict.fromkeys(
        (
            "write a number and a unit, such as `64KiB`",
            "write days or a duration, such as `30d` or `12h`",
            "write `model` with the path of a file and `of` with the column of its pictures, or neither",
            "write one with its scheme and a slash at its end, such as s3://uploads/",
            "write `columns: [image]`, or `references`",
            "add `…` to `columns`, which has: …",
            "write an address, such as s3://bucket/objects or file:///objects",
            "write one such as image/png or image/*",
            "write `…: …` below `…`",
            "write at least one entry",
            "write … or more",
            "write … or less",
        ),
        "packages/blobs/tests/unit/test_settings.py::test_a_wrong_setting_is_named_until_its_remedy_is_done",
    ),
    "write another folder as `blobs.store`, outside of …": (
        f"{_BLOBS}packs_inside_of_the_table_are_refused_until_they_are_elsewhere"
    ),
    **dict.fromkeys(
        (
            "declare it, `columns: {…: binary}`, or take it out of `blobs`",
            "declare it, `columns: {…: string}`, or take it out of `blobs`",
            "name a column of bytes, or one in structs alone",
        ),
        f"{_BLOBS}a_column_without_bytes_is_refused_until_it_is_declared",
    ),
    **dict.fromkeys(
        (
            "declare it, `columns: {…: list<float>}`",
            "declare their number under `blobs.embeddings`, and correct the rows",
        ),
        f"{_BLOBS}vectors_that_are_not_those_of_the_model_are_bad_records",
    ),
    "choose another name under `…`": (
        "packages/blobs/tests/unit/test_extract.py::test_what_headers_contain_is_a_column_of_the_table"
    ),
    **dict.fromkeys(
        ("make it by the model that has made those of the column", "name a column of lists of floats"),
        "packages/blobs/tests/unit/test_vectors.py::test_a_vector_of_another_model_is_refused_until_it_is_one_of_the_columns",
    ),
    "name columns that the snapshot has": (
        "packages/blobs/tests/unit/test_vectors.py::test_columns_that_are_not_vectors_and_columns_that_do_not_exist_are_named"
    ),
    "write the path of a model that all tasks can read, as `model` of `blobs.embeddings`": (
        "packages/blobs/tests/unit/test_pictures.py::test_a_model_that_is_none_stops_the_table_until_another_is_named"
    ),
    "write the old number, and put vectors of another model into a new column": (
        f"{_BLOBS}another_dimension_of_vectors_is_refused_until_it_is_the_old_one"
    ),
    # Cases of pipelines.
    **dict.fromkeys(
        (
            "write `- value: {…}`",
            "write `name: value` pairs",
            "write `records: [{value: {…}}]`",
            "write a list of them, such as `…: [{…}]`",
            "write one of: …; `value: null` is a tombstone",
            "write text",
        ),
        f"{_REFUSED}a_file_of_cases_that_cannot_be_read",
    ),
    **dict.fromkeys(
        (
            "begin with a line such as `table: shop.orders`, and write each case by its name below `cases:`",
            "divide its cases among several files",
            "write `table: NAME`, and below it `cases: {NAME: {records: [{value: {…}}], rows: [{…}]}}`",
            "write the value of the record as `json`, which is text",
            "write `table: NAME`, below it `cases: {NAME: {records: […]}}`, and each line as one of the records,"
            " `- json: '{…}'`; `frazil try TABLE --input FILE.jsonl` shows what becomes of the lines as they are",
        ),
        f"{_REFUSED}a_file_that_is_not_a_file_of_cases",
    ),
    **dict.fromkeys(
        (
            "begin with a line `records:`, and write the records below it, or let the file's name end in .jsonl",
            "name a file with fewer records",
            "let the file's name end in .jsonl",
        ),
        f"{_RECORDING}yaml_that_is_not_a_file_of_records",
    ),
    **dict.fromkeys(
        (
            "write `- {COLUMN: VALUE}` for each; `[]` for none",
            "write `dropped: {where: 1}`",
            "write a part of the reason",
            "correct the path, or write the file",
            "correct the record",
            "write a whole number from 0 on",
            "write the path of a schema",
        ),
        f"{_REFUSED}a_case_that_cannot_be_played",
    ),
    **dict.fromkeys(
        (
            "write `table: NAME` at the top of the file, or `rows: {TABLE: […]}`",
            "write `topic: NAME` at the top of the file, or in the record",
        ),
        f"{_REFUSED}a_case_whose_table_or_topic_is_not_known",
    ),
    r"write a regular expression between the slashes, such as `/a \(b\)/`, or no slashes": (
        f"{_CASES}dead_letters_are_expected_by_their_columns_and_a_message_by_a_part_of_it"
    ),
    "write the case in lines of its own, `records:` and what it expects below each other": (
        f"{_REFUSED}answers_have_no_place_in_a_case_in_braces"
    ),
    **dict.fromkeys(
        ("name another file", "name a file in a folder that exists and can be written"),
        f"{_RECORDING}a_recording_replaces_no_file",
    ),
    "write the case by hand, with the schema in a file beside it": f"{_RECORDING}avro_is_recorded_with_its_schema",
    **dict.fromkeys(
        ("name a file of values, one in each line, or YAML with `records`", "write a value into each line"),
        f"{_RECORDING}a_file_of_records_that_cannot_be_read",
    ),
    "name a part of a case's name with --case": f"{_CASE_COMMANDS}cases_are_chosen_by_a_part_of_their_name",
    "leave out --input, or --record": f"{_CASE_COMMANDS}records_of_a_file_are_tried",
    **dict.fromkeys(
        (
            "name a file or a folder of cases, or let `frazil try TABLE --record FILE` write a first one",
            "write `cases: {NAME: {records: […]}}`",
            "write one, such as orders.yaml",
        ),
        f"{_CASE_COMMANDS}a_case_that_cannot_be_played_ends_with_1_and_a_wrong_file_with_2",
    ),
    # Publishing.
    **{
        remedy: f"packages/publish/tests/unit/test_publisher.py::test_{test}"
        for remedy, test in {
            "let other writers commit to the branch; `frazil publish … --to SNAPSHOT` abandons what main has": (
                "another_writers_commit_to_main_is_not_undone_until_somebody_decides"
            ),
            "publish it by `frazil publish … --override`, or give its rows up by `ALTER TABLE … DROP BRANCH …` in Spark,"
            " after which the branch begins again at main": "rows_that_no_record_brings_back_are_not_discarded",
            "run `frazil publish …` to continue": "main_that_was_set_back_stays_there_until_somebody_publishes",
            "choose one of its snapshots, such as by `SELECT * FROM ….snapshots` in Spark": (
                "a_snapshot_of_another_branch_is_refused_and_one_of_this_branch_taken"
            ),
            "start `frazil run`, which creates it": (
                "a_table_that_does_not_exist_is_reported_until_the_pipeline_has_made_it"
            ),
            "write `branch: ingest` for the table": "a_table_without_a_branch_has_nothing_to_publish",
        }.items()
    },
    "`frazil run` publishes its next moment; `frazil publish … --override` publishes these snapshots": (
        "packages/publish/tests/unit/test_groups.py::test_by_hand_nothing_is_published_that_no_audit_compares"
    ),
    "set `provide.transaction.metadata` to true at Debezium's connector, or remove `transaction_topic`": (
        "packages/publish/tests/unit/test_transactions.py"
        "::test_changes_without_their_transaction_are_named_until_the_source_writes_it"
    ),
    "correct `publish.audits.…`: a query that fails keeps the table from its readers": (
        "unit/cli/test_check_offline.py::test_an_audit_is_parsed_until_it_is_corrected"
    ),
    "take it out of `readers`, or let the pipeline fill another table with `format_version: …`": (
        "unit/ops/test_check_and_plan.py::test_a_table_that_a_reader_cannot_read_is_refused_until_it_is_taken_out"
    ),
    "take it out of `readers`, or publish the table with `delete_mode: copy_on_write`": (
        "unit/ops/test_check_and_plan.py::test_a_format_version_that_a_reader_cannot_read_has_the_remedy_that_helps"
    ),
    "name another branch, or remove the tag": (
        "packages/publish/tests/contracts/test_branches.py::test_a_tag_is_not_taken_for_a_branch_until_another_one_is_named"
    ),
    # Expectations.
    "correct the condition, or write another `else`: `dead_letter` keeps such records aside, `drop` leaves them out,"
    " `warn` only counts them": (
        f"{_EXPECT}with_stop_nothing_of_the_batch_is_committed_until_the_consequence_is_another"
    ),
    "correct the condition, or write `else: warn`": (
        f"{_EXPECT}a_share_of_recent_records_may_be_otherwise_and_a_greater_one_stops_the_table"
    ),
    # The key of `protect`.
    **dict.fromkeys(
        ("write that `protect_key` until they are replayed", "replay with the old `protect_key`"),
        "packages/protect/tests/unit/test_dead_letters.py::test_a_replay_without_the_key_is_refused_and_changes_nothing",
    ),
    "give it the old `protect_key`, or the table a new name": "packages/protect/tests/unit/test_dead_letters.py::"
    "test_a_protected_table_has_its_keys_id_and_with_hashed_keys_takes_no_other",
    "drop this dead letter": (
        "packages/protect/tests/unit/test_rules.py::test_a_sealed_value_opens_in_its_place_with_its_key_alone"
    ),
}
