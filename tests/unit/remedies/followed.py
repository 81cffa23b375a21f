"""Which test follows each remedy that is not of the pipeline file alone.

The keys are the remedies as `docs.remedies` reads them from the source, `…` for what is put in.
"""

from __future__ import annotations

from collections.abc import Mapping

from docs.remedies import Remedy
from tests.unit.remedies.followed_packages import PACKAGED
from tests.unit.remedies.followed_queries import QUERIES
from tests.unit.remedies.followed_services import SERVICES

TABLES = "unit/remedies/test_tables.py::test_a_table_continues_once_its_remedy_is_done"
CHANGES = "unit/remedies/test_tables.py::test_a_change_that_is_refused_is_followed_once_its_remedy_is_done"
STOPS = "unit/remedies/test_stops.py::test_"
COMMANDS = "unit/remedies/test_commands.py::test_"
_FILES = "unit/remedies/test_pipeline_files.py::test_what_the_remedy_reports_makes_it_a_file"
_CAPABILITIES = "integration/test_capabilities.py::test_"
_PACKAGES = "unit/contributing/test_registration.py::test_"
_ATOMIC = "packages/transactions/tests/unit/test_atomic_service.py::test_"
_NAMES = "unit/schema/test_reserved_names.py::test_a_field_with_a_reserved_name_gets_no_column_and_the_remedies_work"
_STORES = "unit/store/test_addresses.py::test_"
_SECURE_KAFKA = "integration/test_secure_kafka.py::test_"
_DEAD_LETTERS = "dead_letters_are_written_with_the_least_rights_and_a_missing_one_is_named"
_ENCODINGS = "unit/rows/test_encodings_service.py::test_the_remedy_of_a_refused_change_gives_later_values_a_place"
_TOPICS, _LOOKUPS = "unit/ingest/test_topic_tables.py::test_", "packages/lookup/tests/unit/test_lookups.py::test_"
_UNUSABLE = "integration/test_unusable_catalogs.py::test_"
_COUNTS = "packages/state/tests/unit/merge/test_counts.py::test_"
_GROUPS = "packages/state/tests/unit/grouping/test_grouping_service.py::test_"
_HISTORY = "packages/state/tests/unit/history/test_history_service.py::test_"
_MERGES = "packages/state/tests/unit/merge/test_merge_service.py::test_"

_ENVIRONMENTS = "unit/spec/test_environments.py::test_"

FOLLOWED: Mapping[str, str] = {
    **PACKAGED,
    **SERVICES,
    **QUERIES,
    # Tables that are their own state.
    "wait until its windows are complete, or read its branch, which has all of them": (
        "packages/state/tests/unit/grouping/test_closed_windows.py::test_windows_are_not_published_by_hand_and_are_all_in_the_branch"
    ),
    "write `emit: closed` and `branch` as before, if the branch is left; otherwise drop the table, so that it reads its"
    " topics again": (
        "packages/state/tests/unit/grouping/test_closed_windows.py::test_a_table_does_not_continue_from_complete_windows_alone"
    ),
    "drop the table, so that it reads its topics again, or remove `emit: closed`": (
        "packages/state/tests/unit/grouping/test_closed_windows.py::"
        "test_windows_that_were_emitted_at_once_are_not_closed_a_second_time"
    ),
    "name other columns under `dedupe`: a list or map cannot identify events; if only some records have one there, declare"
    " the column, `columns: {NAME: TYPE}`: they become dead letters": (
        "packages/testing/tests/unit/test_needed_fields.py::"
        "test_a_list_by_which_duplicates_are_dropped_stops_the_table_until_the_column_is_declared"
    ),
    "write `mode: append`, or `merge: {changes: count}`, with which each row is a change of its own": (
        "packages/testing/tests/unit/test_needed_fields.py::"
        "test_elements_of_a_list_identify_rows_only_where_each_row_is_a_change_of_its_own"
    ),
    "group by fewer columns, such as without the id of an event, or by a window of time, and create the table again; or"
    " write a greater number, `limits: {groups: …}`": (
        f"{_MERGES}a_table_with_more_groups_than_its_limit_stops_until_the_limit_is_raised"
    ),
    "make bytes of the value in a query, such as `cast(cast(… as string) as binary) as …`": (
        "packages/state/tests/unit/merge/test_sketches.py::test_a_sketch_is_of_bytes_which_a_query_makes"
    ),
    "make a list of the value in a query, such as `array(…) as …`": (
        "packages/state/tests/acceptance/test_state.py::test_a_merged_table_is_what_a_query_gives_after_kills_and_with_a_second_process"
    ),
    "write another function, or declare the column with another type, and create the table again": (
        f"{_MERGES}a_column_that_a_function_cannot_take_stops_the_table_until_it_has_another"
    ),
    "declare the column with a larger type, such as `columns: {{{}: decimal(38,0)}}`, and create the table again from the"
    " topic, or group by more columns": (
        f"{_MERGES}a_table_that_an_overflow_has_stopped_continues_once_the_remedy_is_done"
    ),
    **dict.fromkeys(
        (
            "give the value a larger type in the query, such as `cast(VALUE as decimal(38,0))`, and create the table again"
            " from the topic, or group by more columns",
            "write the average of doubles, such as `avg(cast(VALUE as double))`, and create the table again from the topic",
        ),
        f"{_GROUPS}an_aggregate_that_its_type_cannot_hold_stops_the_table_until_the_query_has_a_larger_one",
    ),
    "merge the column with another function, or group by more columns, such as the day": (
        f"{_MERGES}a_list_without_end_stops_the_table_until_its_column_has_another_function"
    ),
    "correct the name, or declare the column under `columns`": (
        "packages/state/tests/unit/dedupe/test_dedupe_service.py::test_a_stopped_table_continues_once_its_remedy_is_done"
    ),
    "write a time, such as `window(timestamp_millis(ts), '1 minute')` of milliseconds since 1970": (
        f"{_GROUPS}a_number_is_no_time_until_it_is_made_one"
    ),
    "write an average of numbers": f"{_GROUPS}an_average_is_of_numbers",
    "leave such records out with `where: TIME is not null`, or give them a time in the query, such as"
    " `window(coalesce(TIME, _timestamp), '1 minute')`; of change data a constant one, since what an update subtracts must"
    " have the time that it was added with": (f"{_GROUPS}records_without_a_time_are_left_out_or_get_one_by_the_query"),
    "write a longer time under `late`, or `else: drop`": (
        f"{_GROUPS}later_records_become_dead_letters_where_the_table_asks_for_it"
    ),
    "leave the field out with `exclude`, or give it a column of its own under `columns`": (
        "unit/ingest/test_taken_names.py::test_records_with_such_a_field_are_dead_letters_until_it_is_left_out"
    ),
    "give the count another name, leave `…` out of the query, or write `sum`": (
        f"{_COUNTS}a_count_of_a_column_that_the_query_makes_is_refused_until_it_has_another_name"
    ),
    **dict.fromkeys(
        (
            "give the count another name, leave `…` out of the steps, or write `sum`",
            "give the count another name, leave the field out with `drop_fields: […]`, or write `sum`",
            "give the count another name, take it out of `columns`, or write `sum`",
        ),
        f"{_COUNTS}a_table_whose_count_has_a_name_that_is_taken_continues_once_the_remedy_is_done",
    ),
    "declare the column, `columns: {…: timestamptz}`, and create the table again, or remove `order_by`": (
        f"{_HISTORY}a_table_whose_order_is_no_time_continues_once_the_remedy_is_done"
    ),
    "make a time of it in the query, such as `cast(… as timestamp) as …`; a table that has the column must be created"
    " again": f"{_HISTORY}a_text_that_orders_versions_is_refused_before_the_table_has_it",
    "give the history a table of its own, or drop the table, so that it is created again from the topic": (
        f"{_HISTORY}a_table_with_rows_that_are_no_versions_stops_and_a_table_of_its_own_has_them"
    ),
    "give the sessions a table of their own, or drop the table, so that it is created again from the topic": (
        "packages/state/tests/unit/grouping/test_sessions.py::test_a_table_with_rows_that_are_no_sessions_stops_until_it_is_made_again"
    ),
    # Environments of the pipeline file, and values of the command line.
    **dict.fromkeys(
        (
            "put the value in quotes, such as --set 'KEY=\"VALUE\"'",
            "remove them",
            "set the whole item",
            "take it out: `null` removes a key",
            'write --set KEY=VALUE, such as --set commit.interval=5s; quote a name with dots: tables."shop.a".mode',
            "write a number from 0 to …, or set the whole list",
            "write it under `environments`, such as `…: {…}`, or choose none",
            "write the settings that differ in it",
        ),
        f"{_ENVIRONMENTS}a_mistake_is_named_with_its_place_until_the_remedy_is_done",
    ),
    "write the value itself, or give the variable another name": (
        f"{_ENVIRONMENTS}a_variable_with_the_name_of_a_secret_is_in_no_setting_that_is_shown"
    ),
    # Catalogs.
    "correct the setting that has this value, under `catalog` or `catalog.properties`": (
        f"{_UNUSABLE}a_mistake_in_the_file_is_reported_at_once_until_it_is_corrected"
    ),
    "make the file readable for this user, or restore it from a copy": (
        f"{_UNUSABLE}an_unreadable_metadata_file_is_named_in_seconds_until_it_is_restored"
    ),
    # Topics that ask for tables.
    **dict.fromkeys(
        (
            "write none, flatten or flatten_debezium",
            "write none, invalid_data or all",
            "write none, schemaless or schema",
            "write one of …",
            "write one, such as 60000",
            "write the value itself",
            "write true or false",
            "write `registry.url` in the pipeline file",
        ),
        f"{_TOPICS}a_wrong_key_is_refused_with_its_topic_until_its_remedy_is_done",
    ),
    "set automq.table.topic.enable=false": f"{_TOPICS}a_topic_of_dead_letters_gets_no_table",
    "give one of them another automq.table.topic.namespace, or set automq.table.topic.enable=false": (
        f"{_TOPICS}the_dots_of_a_topic_make_no_namespaces_and_two_topics_share_no_table"
    ),
    "remove it from the file, or set automq.table.topic.enable=false": (
        f"{_TOPICS}a_table_of_the_file_is_not_the_topics_to_change"
    ),
    **dict.fromkeys(
        (
            "see `frazil topic show …`",
            "write `topics_from: topic_configuration` under `kafka`",
            "write a key of AutoMQ's table topics, such as automq.table.topic.enable",
            "write it as automq.table.topic.enable=true",
            "write it again: `frazil topic set … KEY=VALUE`",
        ),
        "integration/test_topic_keys.py::test_keys_in_the_control_topic_make_and_end_a_table",
    ),
    **dict.fromkeys(
        (
            "give the JSON of Tableflow's API, of `confluent tableflow topic describe -o json`, or of `terraform show"
            " -json`",
            "give the state that has one",
        ),
        "packages/migrate/tests/unit/imports/test_details.py::test_what_terraform_shows_whole_has_the_topics",
    ),
    "write `catalog: {name: …}`, or give the table another name": (
        "integration/test_catalog_names.py::test_a_table_of_another_name_is_found_by_it_and_refused_without"
    ),
    # Rights that a service lacks.
    "allow it: `kafka-acls --add --allow-principal User:NAME --operation … --topic …`": (
        f"{_SECURE_KAFKA}a_pipeline_names_a_missing_right_and_continues_when_it_is_granted"
    ),
    "allow this user to DESCRIBE and READ the topic, and to READ and WRITE a topic of dead letters": (
        f"{_SECURE_KAFKA}a_pipeline_names_a_missing_right_and_continues_when_it_is_granted"
    ),
    "allow this user to READ groups with the prefix `frazil-`": f"{_SECURE_KAFKA}{_DEAD_LETTERS}",
    "allow this user to WRITE with transactional ids of the prefix `frazil-`": f"{_SECURE_KAFKA}{_DEAD_LETTERS}",
    "grant this user the right that is named here, for the table or the place that is named": (
        "integration/test_secure_database.py::test_a_login_and_the_least_rights_suffice_and_everything_less_is_named"
    ),
    # Stores.
    "write `io-impl: …` under `catalog.properties`, with Iceberg's properties of the store": (
        "integration/test_stores.py::test_an_object_store_behind_hadoop_is_refused"
    ),
    "choose another location for the table": f"{_STORES}an_address_that_tasks_cannot_write_to_is_refused_with_a_remedy",
    "use one of …, or a local path": f"{_STORES}an_address_that_tasks_cannot_write_to_is_refused_with_a_remedy",
    "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH": f"{_STORES}a_container_without_its_account_is_refused",
    "write it under `catalog.properties`": f"{_STORES}a_value_that_cannot_be_obeyed_is_refused_until_its_remedy_is_done",
    "write one of none, …": f"{_STORES}a_value_that_cannot_be_obeyed_is_refused_until_its_remedy_is_done",
    "write the same key": f"{_STORES}a_value_that_cannot_be_obeyed_is_refused_until_its_remedy_is_done",
    "write https://…, and the account's key as `adls.auth.shared-key.account.name` and"
    " `adls.auth.shared-key.account.key`": (
        f"{_STORES}a_value_that_cannot_be_obeyed_is_refused_until_its_remedy_is_done"
    ),
    "write `….dfs.core.windows.net`": (
        "unit/store/test_properties.py::test_an_account_of_azure_is_named_by_its_host_except_in_what_a_catalog_sends"
    ),
    "create the bucket, or correct `catalog.warehouse`; Frazil retries with back-off": (
        "integration/test_signed_store.py::test_a_wrong_key_and_a_missing_bucket_are_named_with_a_remedy"
    ),
    "write a whole number, such as …": (
        "unit/store/test_properties.py::test_a_value_that_javas_client_cannot_have_or_leaves_out_is_refused"
    ),
    "write http://HOST:PORT, without a path, a user and a password": (
        "unit/store/test_properties.py::test_a_value_that_javas_client_cannot_have_or_leaves_out_is_refused"
    ),
    "write its value, or remove it": (
        "unit/store/test_properties.py::test_an_empty_value_is_refused_where_it_means_nothing"
    ),
    "write its alias": f"{_STORES}an_access_point_that_is_named_by_its_arn_is_refused",
    "remove it: no store has it": (
        "unit/store/test_properties.py::test_an_unknown_property_of_encryption_is_refused_with_the_nearest_name"
    ),
    "correct what the catalog names: the table's name, `properties`, `format_version` or `location`": (
        f"{_CAPABILITIES}a_refused_table_stops_with_the_catalogs_words_until_the_file_is_corrected"
    ),
    "renew the credentials under `catalog.properties`, or let the catalog do so; Frazil retries with back-off": (
        "integration/test_refused_store.py::test_a_refused_store_is_named_and_no_record_is_searched_for_until_it_takes_rows"
    ),
    **dict.fromkeys(
        (
            "let this user write to the folder, or correct `catalog.warehouse`; Frazil retries with back-off",
            "check the address of the store under `catalog.properties`, such as `s3.endpoint`, and that this machine reaches"
            " it; Frazil retries with back-off",
        ),
        "integration/test_refused_store.py::test_a_refused_store_is_named_and_no_record_is_searched_for_until_it_takes_rows",
    ),
    # Tables that stop or wait.
    "replace the broker's copy by another replica's; where all are damaged, delete the records up to the batch with"
    " `kafka-delete-records`, and write `on_data_loss: skip`": (
        "integration/test_damaged_batch.py::test_a_table_waits_for_a_damaged_batch_and_no_other_does"
    ),
    "correct `catalog.uri` and `catalog.warehouse`; to begin again without those tables, delete …": (
        "unit/cli/test_wiring.py::test_a_run_with_another_catalog_reports_it_until_the_address_is_the_former"
    ),
    "correct `start`: partitions are counted from 0": TABLES,
    "correct the expression; the nearest topic is `…`": f"{STOPS}a_pattern_that_matches_nothing",
    "correct the expression; there are no topics": f"{STOPS}a_pattern_that_matches_nothing",
    "correct the expression; topics are …": f"{STOPS}a_pattern_that_matches_nothing",
    "create the topic, or correct its name": f"{STOPS}a_topic_that_does_not_exist",
    "declare a field whose objects have names that vary as map<string, …>, under another column's name with `field` where"
    " the table has its column already; leave fields out with `exclude`; or raise `limits: {columns: …}`": TABLES,
    "declare it under `columns`, or correct the name: did you mean `…`?": TABLES,
    "declare it under `columns`, or correct the name: write one of: …": TABLES,
    "fix the producer or the declared columns; `dead_letters: {stop_above: …}` tolerates more": TABLES,
    "fix the producer, and write `on_bad_record: dead_letter`, which sets records aside that Kafka has already": TABLES,
    "give one of them another name, such as `…_2: {type: …, field: …}`": TABLES,
    "leave its topic out of `topics`, and give it a table under `tables`": f"{STOPS}topics_whose_tables_are_taken",
    "leave its topic out of `topics`, or give one of the two a table of its own under `tables`": (
        f"{STOPS}topics_whose_tables_are_taken"
    ),
    "leave it out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: …}}`": (
        f"{STOPS}a_partition_field_of_the_same_name"
    ),
    "leave one of the fields out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: PATH}}`": TABLES,
    "let that run continue, or stop it and start this one again; with `ha: {elect: kafka}` a second process stands by"
    " instead": (
        "unit/ingest/test_fenced_service.py::test_a_run_that_is_taken_over_begins_nothing_while_another_table_is_in_hand"
    ),
    "name another one: `dead_letters: {table: …}`": f"{STOPS}a_dead_letter_table_that_is_something_else",
    "name the `key_columns`, with `_source_table` among them where a topic has rows of several tables, or read the topic"
    " into a table with `mode: append`: rows of a source table without a primary key cannot be identified": TABLES,
    "name the columns inside it, or another one": f"{STOPS}a_key_that_is_a_struct",
    "name other columns under `key_columns`, or read the topic into a table with `mode: append`: a list or map cannot"
    " identify rows; if only some records have one there, declare the column, `columns: {NAME: TYPE}`: they become"
    " dead letters": f"{STOPS}a_key_that_is_a_list",
    "name another column under `order_by`, such as one that `columns` makes of a field inside it, or remove it to apply"
    " changes in the order of their offsets": f"{STOPS}an_order_that_is_no_plain_value",
    "point `bootstrap.servers` at that cluster, or use another `pipeline` name for this one": f"{STOPS}another_cluster",
    "produce records with fields, or declare `columns`": TABLES,
    "nothing, or leave the topic out where it has no other records": (
        "unit/ingest/test_whole_databases.py"
        "::test_records_that_change_no_row_are_read_once_and_the_row_behind_them_makes_the_table"
    ),
    "write the format of the topic's values under `value.format`, such as avro, json or text, or fix the producer": TABLES,
    "restore a snapshot with the summary key frazil.….offsets, or drop the table to load it again": (
        f"{STOPS}progress_that_was_expired"
    ),
    "set `on_data_loss: skip` on the table to continue from the first record that still exists": (
        f"{STOPS}records_that_are_gone"
    ),
    "take `…` out of `columns`, or write its type as the table has it; or declare the field under another name,"
    " `columns: {NAME: {type: …, field: …}}`": f"{STOPS}a_declared_column_of_another_type",
    "the topic lost records (an unclean leader election, or it was recreated): check that the table and the topic"
    " belong together, then set `start` for a new table": f"{STOPS}a_topic_that_ends_early",
    "to load the new topic, use another table, or another `pipeline` name for this one": (
        f"{STOPS}a_topic_that_was_made_again"
    ),
    "upgrade the table, in Spark: ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2')": (
        f"{STOPS}a_table_of_format_version_1"
    ),
    "write `schema_evolution: add_only`, or leave the field out with `exclude`": TABLES,
    "write `tombstones: ignore` where records without a value are expected, `tombstones: row` to keep them as rows, or"
    " `mode: upsert` where they delete rows": TABLES,
    "write `…` under `columns`, as the table has it": f"{STOPS}a_declared_column_that_differs_in_capitals",
    "write `partition_by` and `sort_by` with known transforms, or use another table": (
        "unit/ingest/test_arranged_service.py::"
        "test_a_transform_of_a_later_iceberg_stops_the_table_until_the_file_reports_another"
    ),
    # Changes of a table that are refused.
    "correct the schema, or give the field another name; a new table with `columns: {NAME: {type: string, coerce: true,"
    " field: PATH}}` keeps both as text": CHANGES,
    "give the field a column of bytes instead: `columns: {…_bytes: {type: binary, field: …}}`": _ENCODINGS,
    'give the field a column of its own: `columns: {…_…: {type: "…", field: …}}`': CHANGES,
    "to convert times with and without a zone, write `columns: {…: {type: …, zone: UTC}}`": _ENCODINGS,
    "to convert times with and without a zone, write `columns: {…: {type: …, zone: UTC, field: …}}`": _ENCODINGS,
    "say what its numbers count since …, such as `columns: {…: {type: …, field: …}}`": CHANGES,
    "say what its numbers count since …, such as `columns: {…: …}`": CHANGES,
    "give the field another column with wider keys, which Iceberg does not widen: `columns: {NAME: {type:"
    ' "map<KEY, VALUE>", field: PATH}}`': (
        "unit/remedies/test_tables.py::test_keys_that_got_wider_go_to_another_column"
    ),
    "to keep the text, give it a column: `columns: {…_text: {type: string, field: …}}`": CHANGES,
    "correct the schema; a new table with `key: {format: text}` keeps both as text": (
        "unit/remedies/test_tables.py::test_keys_that_are_structs_and_plain_values_are_kept_as_text"
    ),
    "to keep it as text, declare the column `…` with its type and `coerce: true`": CHANGES,
    "to keep it as text, write `columns: {…: {type: string, coerce: true}}`": CHANGES,
    "where its numbers are …, declare it: `columns: {…: …}`": CHANGES,
    "where its numbers are …, declare the column `…` with its type": CHANGES,
    "write `schema_evolution: evolve`, or widen the column yourself": CHANGES,
    "…, and here another column, `columns: {NAME: {type: double, field: …}}`": CHANGES,
    **dict.fromkeys(
        (
            "take `…` out of the declared type",
            "take `…` out of the declared type; the column `…_…: {type: …, field: …}` takes its values",
        ),
        "unit/ingest/test_declared_columns.py::test_declared_members_that_differ_in_capitals_alone_stop_the_table",
    ),
    "write `schema_evolution: add_only`, or add the column yourself; `exclude` leaves the field out": CHANGES,
    "give the field a column of its own under `columns`, or leave it out with `exclude`": (
        "unit/schema/test_name_case.py::test_a_record_with_both_is_refused_and_the_remedies_work"
    ),
    "leave it out with `exclude`, or give it a column of its own under `columns`": _NAMES,
    "leave one of them out with `exclude`, or give it a column of its own under `columns`": (
        "unit/schema/test_reserved_names.py::test_a_dotted_name_beside_a_nested_one_is_refused_and_the_remedies_work"
    ),
    # Commands.
    "see … --help": f"{COMMANDS}usage",
    "add --until-caught-up": f"{COMMANDS}a_bound_for_a_run_without_an_end",
    "change to a directory that exists, and start the command there": f"{COMMANDS}a_directory_that_was_deleted",
    "the column was made of a message or record without fields: give the field a column of its own, such as"
    ' `columns: {…_fields: {type: "…", field: …}}`': (
        "unit/rows/test_encodings.py::test_the_message_of_a_boolean_column_names_a_column_for_the_fields_that_came"
    ),
    "write `atomic: {transaction_topic: …}` with Debezium's topic, or use a topic of one partition": (
        f"{_ATOMIC}without_events_a_topic_of_several_partitions_stops_the_table"
    ),
    "set `provide.transaction.metadata` to true at Debezium's connector, or write `atomic: batch`": (
        f"{_ATOMIC}changes_that_say_nothing_of_their_transaction_stop_the_table"
    ),
    "write `atomic: batch`: `atomic: transaction` supports PostgreSQL, MySQL, MariaDB and SQL Server": (
        f"{_ATOMIC}changes_whose_order_is_not_known_stop_the_table"
    ),
    "write `atomic: batch` until the table has passed the transaction": (
        f"{_ATOMIC}a_transaction_that_no_batch_takes_stops_the_table"
    ),
    "set `provide.transaction.metadata` to true at Debezium's connector, or correct the name": (
        f"{_ATOMIC}a_topic_of_transactions_that_is_missing_is_waited_for"
    ),
    "take `…` out of `columns`, or write its type as the table has it; or declare the field under another name,"
    " `columns: {NAME: {type: …, coerce: true, field: …}}`": f"{STOPS}a_declared_column_of_another_type",
    "fix the producer, or give the field a column for any value, `columns: {NAME: {type: string, coerce: true, field:"
    " PATH}}`": TABLES,
    'write the expression so that it cannot fail, with `try_cast` or another `try_` function, or `on_error: "null"` for null'
    " in its place; or fix the producer": (
        "unit/ingest/test_stopped_queries.py::"
        "test_a_value_for_which_an_expression_fails_stops_the_table_until_the_expression_cannot"
    ),
    "let the source send whole rows, as with PostgreSQL's `replica identity full`, or let the query take such a field as it"
    " is, and have no condition over it": (
        "unit/ingest/test_stopped_queries.py::"
        "test_a_change_without_a_value_that_a_column_needs_stops_the_table_until_the_field_is_taken_as_it_is"
    ),
    'add the row to the reference table, or write `on_miss: "null"` or `on_miss: drop` for the lookup': (
        f"{_LOOKUPS}a_miss_stops_a_table_that_stops_at_bad_records_until_there_is_the_row"
    ),
    "leave the field out with `exclude`; a replay can leave dead letters out by --offset or --error-class": (
        "packages/deadletters/tests/unit/test_replay.py::test_a_field_that_the_table_cannot_have_retains_its_dead_letters_alone"
    ),
    "start `frazil run`, which creates the table": (
        "packages/deadletters/tests/unit/test_replay.py::test_a_table_that_is_not_there_takes_no_dead_letters"
    ),
    "check that the brokers of the partition are running; other partitions are still read": (
        "unit/ingest/test_leaderless.py::test_a_run_to_the_ends_waits_for_a_partition_without_a_leader"
    ),
    "mount the warehouse again or restore the file; Frazil retries with back-off": (
        "integration/test_outages.py::test_missing_metadata_of_a_table_is_an_outage_and_never_a_dropped_table"
    ),
    "correct the clock; Frazil retries with back-off and succeeds once the clock is past that change": (
        "integration/test_outages.py::test_a_clock_that_was_set_back_is_named_and_the_table_continues_by_itself"
    ),
    "look in its log at why it has ended, then run `frazil resume …`; or inspect the records of this range: to continue"
    " behind them write `start` with the offset of each partition and give the table a new name": (
        "unit/ingest/batches/test_crash_suspects.py::test_a_table_that_the_jvm_dies_of_stops_after_restarts_and_the_others_flow"
    ),
    "…; files are not rewritten until then": (
        "unit/ops/test_check.py::test_an_order_of_rows_that_a_table_cannot_have_is_a_problem"
    ),
    # Packages.
    "correct or reinstall the package …": f"{_PACKAGES}an_object_of_another_class_is_refused_until_it_is_corrected",
    "install it with `pip install 'frazil[…]'`": (
        "integration/test_wheel.py::test_a_command_of_an_extra_that_is_not_installed_names_what_to_install"
    ),
    "install the package that has it": (
        "unit/contributing/test_maintenance_action.py::test_a_pipeline_file_names_the_actions_of_packages"
    ),
    "uninstall all of them but one": f"{_PACKAGES}a_name_of_two_packages_is_refused_until_one_is_uninstalled",
    "install it from its wheel, and not as an editable package": (
        "unit/contributing/test_format.py::test_a_package_without_recorded_files_is_not_sent"
    ),
    "begin it with …": _FILES,
    'name its tables with values in `${…}`, such as `to: "shop.${type}"`': _FILES,
    "write `to: <namespace>.…`": _FILES,
    "write the path of a field, `header.NAME` or `topic`": _FILES,
    "raise `limit` of the route, or route by a value of which there are fewer": (
        "unit/ingest/test_routes.py::test_values_beyond_the_limit_get_tables_once_it_is_raised"
    ),
    "write `type: jdbc`, or set `lock-impl` under `catalog.properties` to a lock that all writers use, such as"
    " org.apache.iceberg.aws.dynamodb.DynamoDbLockManager with `lock.table`": _FILES,
    "remove `lock-impl` under `catalog.properties`, and from all other writers of the tables: without it the catalog itself"
    " compares versions": _FILES,
    "name the table, such as `….…`, under `tables`": (
        "unit/spec/test_catalogs.py::test_a_name_that_hive_would_change_is_refused_with_one_that_it_keeps"
    ),
    "select its topic by a route in place of `topics`, `routes: [{topics: /^…\\.(.*)$/, to: ….$1}]`, or leave its topic out"
    " of `topics`, and give it a table under `tables`": (
        "unit/ops/test_plan.py::test_topics_with_dots_get_tables_by_a_route_where_a_catalog_has_one_level"
    ),
    "give the table a shorter name under `tables`": (
        "unit/spec/test_catalogs.py::test_a_name_that_leaves_no_room_for_that_of_dead_letters_is_refused"
    ),
    "write `type: nessie`, with the address of its own API, such as https://nessie/api/v2": (
        "acceptance/test_catalogs.py::test_the_rest_endpoint_of_nessie_is_refused"
    ),
    "give the table another name, or drop it": "acceptance/test_catalogs.py::test_a_view_is_not_taken_for_a_table",
    "write it, as `catalog: {…: …}`": (
        "unit/contributing/test_catalog.py::test_a_pipeline_file_takes_the_catalog_of_a_package"
    ),
    "start `frazil run` again; its log has the cause": (
        "unit/ingest/batches/test_crash_suspects.py::test_a_table_is_no_suspect_any_more_once_it_was_read"
    ),
}
"""The test that shows each message, does what it reports and sees it work."""


def is_told(text: str, shown: str) -> bool:
    """Whether a remedy that was shown is this one."""
    return Remedy("", text).matches(shown)
