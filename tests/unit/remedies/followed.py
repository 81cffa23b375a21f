"""Which test follows each remedy that is not of the pipeline file alone, and which remedies are for people.

The keys are the remedies as `docs.remedies` reads them from the source, `…` for what is put in.
"""

from __future__ import annotations

from collections.abc import Mapping

from docs.remedies import Remedy

TABLES = "unit/remedies/test_tables.py::test_a_table_continues_once_its_remedy_is_done"
CHANGES = "unit/remedies/test_tables.py::test_a_change_that_is_refused_is_followed_once_its_remedy_is_done"
STOPS = "unit/remedies/test_stops.py::test_"
COMMANDS = "unit/remedies/test_commands.py::test_"
_FILES = "unit/remedies/test_pipeline_files.py::test_what_the_remedy_reports_makes_it_a_file"
_CAPABILITIES = "integration/test_capabilities.py::test_"
_PACKAGES = "unit/contributing/test_registration.py::test_"
_ATOMIC = "unit/ingest/test_atomic_service.py::test_"
_NAMES = "unit/schema/test_reserved_names.py::test_a_field_with_a_reserved_name_gets_no_column_and_the_remedies_work"

_STORES = "unit/store/test_addresses.py::test_"
_SECURE_KAFKA = "integration/test_secure_kafka.py::test_"
_DEAD_LETTERS = "dead_letters_are_written_with_the_least_rights_and_a_missing_one_is_named"

_QUERIES = "integration/test_queries.py::test_a_refused_query_is_accepted_once_its_remedy_is_done"
_STEPS = "unit/process/test_steps.py::test_steps_that_contradict_each_other_are_refused_until_the_remedy_is_done"
_EXPECT = "unit/ingest/test_expectations.py::test_"

_IMPORTS = "unit/cli/test_imports.py::test_"

_TOPICS = "unit/ingest/test_topic_tables.py::test_"

_LOOKUPS = "unit/ingest/test_lookups.py::test_"

_ELECTOR = "contracts/test_elector.py::test_"

_ADOPT, _RELEASE = "unit/adopt/test_adopt.py::test_", "unit/adopt/test_release.py::test_"

_ROWS = "unit/adopt/test_rows.py::test_"

_FUNCTIONS = "integration/test_query_functions.py::test_"

_REPLAY = "unit/cli/test_replay.py::test_each_refused_argument_is_accepted_once_its_remedy_is_done"
_INIT = "unit/cli/test_init.py::test_each_refusal_ends_once_its_remedy_is_done"

FOLLOWED: Mapping[str, str] = {
    "install them with `pip install 'frazil[…]'`, or remove the address": (
        "unit/telemetry/test_sender.py::test_without_an_extra_a_declared_address_is_an_error_and_a_variable_a_warning"
    ),
    "check that the service runs at its address; the pipeline is not affected": (
        "unit/telemetry/test_sender.py::test_a_service_that_refuses_is_logged_once_and_its_batches_are_counted"
    ),
    # Elections.
    "delete it while no process runs, and create it with one partition: `kafka-topics --create --topic … --partitions 1"
    " --config cleanup.policy=compact`": f"{_ELECTOR}a_control_topic_of_several_partitions_is_refused_until_it_has_one",
    **dict.fromkeys(
        (
            "correct `ha.uri`",
            "let an administrator create the table frazil_leader, and grant select, insert, update on it",
        ),
        f"{_ELECTOR}a_user_that_may_not_create_the_table_is_refused_until_it_exists",
    ),
    **dict.fromkeys(
        (
            "bind a role with get, create and update on leases of coordination.k8s.io to the service account",
            "run it in a pod with a service account, or elect by `kafka`",
        ),
        f"{_ELECTOR}a_lease_needs_a_cluster_and_a_role",
    ),
    "allow Read, Write and Describe on topic …, Read on group …, Write on transactional id …": (
        "integration/test_secure_kafka.py::test_a_leader_is_elected_with_the_least_rights_and_a_missing_one_is_named"
    ),
    "name one of them otherwise under `pipeline`, before its first run, or write `ha: {elect: none}` there": (
        "unit/ha/test_elected.py::test_a_process_of_another_pipeline_with_the_same_name_is_refused_with_both_named"
    ),
    # Tables that change hands.
    **dict.fromkeys(
        (
            "create it, or correct its name",
            "give --checkpoint, or --offsets",
            "give --group, or --offsets",
            "name the group of one of them with --group",
            "name the tool's group with --group, or give --offsets",
        ),
        f"{_ADOPT}what_is_not_named_is_asked_for",
    ),
    **dict.fromkeys(
        (
            "name another tool with --from, such as group with the sink's --group",
            "start Debezium on Kafka Connect from the offset that Debezium Server has stored: its topic begins where the"
            " table ends, and `frazil run` reads all of it",
            "stop the job with a savepoint; where the table has the partition and the offset of its records, name these"
            " columns with --columns, such as part,pos; else give --offsets with what Flink's State Processor API reads from"
            " the savepoint",
            'write the next offset of every partition as JSON: {"TOPIC": {"0": 1200}}',
        ),
        f"{_ADOPT}a_tool_whose_offsets_cannot_be_found_needs_a_file",
    ),
    **dict.fromkeys(
        (
            "name a folder of this machine with the query's metadata, offsets and commits, or give --offsets",
            "name the checkpoint of the query that writes the table by `format(iceberg)`, or give --offsets",
        ),
        f"{_ADOPT}a_checkpoint_of_another_query_is_refused",
    ),
    "name the columns of the record's partition and offset with --columns, such as part,pos; or give --offsets": (
        f"{_ROWS}a_table_without_such_columns_or_rows_is_refused_until_its_columns_are_named"
    ),
    "name its column as well, --columns TOPIC,PARTITION,OFFSET; or give --offsets": (
        f"{_ROWS}rows_of_several_topics_need_the_column_of_their_topic"
    ),
    "write --columns PARTITION,OFFSET or TOPIC,PARTITION,OFFSET": f"{_ROWS}columns_are_two_or_three_names",
    "give it an entry of its own under `tables`, with `where`": f"{_ADOPT}tables_of_a_route_share_their_progress",
    "remove it from the pipeline file, or take it over again with `frazil adopt`": (
        f"{_ADOPT}a_released_table_stops_until_it_is_removed_or_adopted"
    ),
    "start the connector, PUT /connectors/NAME/pause, wait for its next commit, and stop it": (
        f"{_ADOPT}files_that_the_sink_has_not_committed_are_waited_for"
    ),
    "correct the table's topic, or name what has read it": (
        f"{_ADOPT}a_tool_that_has_read_other_topics_is_refused_until_the_topic_is_corrected"
    ),
    "wait until its broker is back, and run the command again": (
        f"{_ADOPT}a_control_topic_without_a_leader_is_waited_for"
    ),
    "adopt that table again, run `frazil run --until-caught-up`, and release both while no pipeline runs": (
        f"{_RELEASE}tables_of_one_topic_are_released_at_equal_offsets"
    ),
    "let one of the two end": "contracts/test_outbox.py::test_an_earlier_writer_is_refused",
    "stop the tool, and run the same command again": (
        f"{_ADOPT}the_table_must_not_move_between_the_look_and_the_commit"
    ),
    "stop it, and wait until its group is empty; Kafka Connect: PUT /connectors/NAME/stop": (
        f"{_ADOPT}a_tool_that_still_runs_is_refused"
    ),
    **dict.fromkeys(
        (
            "give --checkpoint with a folder of this machine, and copy it to the store before the query starts",
            "give --checkpoint with a folder that is empty",
            "give --group; Kafka Connect's is connect-CONNECTOR",
            "release the table to a group; Flink starts from it with `scan.startup.mode` = `group-offsets`",
        ),
        f"{_RELEASE}what_cannot_be_given_offsets_is_refused",
    ),
    **dict.fromkeys(
        ("name a table that it has written", "run `frazil adopt` before it is released again"),
        f"{_RELEASE}a_release_that_was_interrupted_is_repeated_until_the_tool_has_continued",
    ),
    "give --bootstrap-servers HOST:PORT": _INIT,
    "name another with -f": _INIT,
    "write --kafka 'NAME=${env:VARIABLE}'": _INIT,
    "produce some records first, or name the registry with --registry": _INIT,
    "add `registry`, or write JSON": _REPLAY,
    "create it, with as many partitions as its readers need": _REPLAY,
    "write NAME=VALUE": _REPLAY,
    "write records a second, such as 5000/s": _REPLAY,
    "write to another topic": _REPLAY,
    "run the same command again: it continues after the last record": (
        "acceptance/test_replay.py::test_a_replay_killed_at_any_step_writes_every_row_once"
    ),
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
            "use functions that tasks compute themselves around it; the rules of queries are in docs/reference/queries.md",
        ),
        f"{_FUNCTIONS}what_cannot_be_called_is_refused_until_its_remedy_is_done",
    ),
    # Offsets published for tools that measure lag.
    "end that consumer, or write `publish_offsets: false`; then start the pipeline again": (
        "integration/test_published_offsets.py::test_kafkas_own_command_shows_the_lag_until_a_consumer_joins_the_group"
    ),
    "allow it: `kafka-acls --add --allow-principal User:NAME --operation READ --group …`, or write `publish_offsets:"
    " false`": f"{_SECURE_KAFKA}a_pipeline_runs_with_the_least_rights_names_a_missing_one_and_continues_when_it_is_granted",
    "run `frazil verify …`, which shows such rows, and look for another writer": (
        "integration/test_verify_schedule.py::test_lost_doubled_and_changed_rows_are_found_and_records_that_are_gone_are"
        "_no_fault"
    ),
    # Imports of other tools' configurations.
    **dict.fromkeys(
        (
            "correct the JSON",
            "correct the SQL",
            "correct the YAML",
            "give a mapping of settings to values",
            "give the configuration of a table topic; --topic names the topic of plain properties",
            "give the script with the CREATE TABLE and INSERT INTO statements",
            "write settings as `key=value`, or as JSON",
        ),
        f"{_IMPORTS}a_configuration_that_cannot_be_read_is_refused_until_its_remedy_is_done",
    ),
    **dict.fromkeys(
        ("give one of FILE and --url", "give FILE, or --bootstrap", "name a file in UTF-8 that can be read"),
        f"{_IMPORTS}where_the_configuration_comes_from_is_named_once",
    ),
    "name an address that answers": f"{_IMPORTS}a_live_connector_is_read_and_one_that_is_not_there_refused",
    "name a broker that answers": f"{_IMPORTS}a_live_cluster_is_read",
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
    # The HTTP service.
    **dict.fromkeys(
        (
            "end the other process, or write another address under `http.listen`",
            "write an address under `http: {listen: …}`, or `http: false`",
            "name a certificate and its key, both as PEM and without a password",
        ),
        "unit/http/test_server.py::test_an_address_or_a_certificate_that_cannot_be_used_is_named_with_its_remedy",
    ),
    "ask again in a few seconds": "unit/http/test_api.py::test_a_pipeline_that_starts_answers_soon",
    **dict.fromkeys(
        ("begin it again", "see /openapi.json"),
        "unit/http/test_api.py::test_what_does_not_exist_is_named_with_what_to_do",
    ),
    **dict.fromkeys(
        ("keep one of them", "correct it", "the parameters here: …", "the parameters here: none"),
        "unit/http/test_api.py::test_a_wrong_parameter_is_named",
    ),
    **dict.fromkeys(
        ("run `frazil pause …` first", "wait for its first commit"),
        "unit/ingest/test_requests.py::test_a_table_begins_again_and_the_dry_run_reports_what_is_read_twice",
    ),
    "send the command to that process; `frazil status` shows it": (
        "unit/ingest/test_standby.py::test_commands_on_a_table_are_refused_by_a_standby"
    ),
    "look at that process with `frazil status`": (
        "unit/ingest/test_catching_up_beside.py::"
        "test_it_waits_no_longer_than_its_limit_for_a_leader_that_commits_nothing"
    ),
    "start one, and wait until `frazil status` shows it warm": (
        "unit/ingest/test_standby.py::test_stand_down_is_refused_until_another_process_is_warm"
    ),
    "set `ha: {elect: kafka}`, and start two processes": (
        "unit/ingest/test_standby.py::test_stand_down_needs_an_election"
    ),
    "write another address under `ha.listen`": (
        "unit/cli/test_leadership.py::test_an_address_that_another_process_has_is_refused_until_another_is_written"
    ),
    "stop the pipeline, drop the table, and start the pipeline again": (
        "unit/ingest/test_requests.py::test_a_table_whose_progress_is_more_than_offsets_is_refused"
    ),
    "ask again later": "unit/http/test_api.py::test_too_much_work_is_refused_until_some_is_done",
    "free the disk, or delete the file: it holds the console's charts alone": (
        "unit/ops/test_history.py::test_a_file_that_cannot_be_used_is_one_warning_and_the_past_continues_in_memory"
    ),
    **dict.fromkeys(
        ("leave it out", "see the list of tables"),
        "unit/http/test_console.py::test_problems_are_pages_for_people_and_json_for_programs",
    ),
    "send a token": "unit/http/test_console.py::test_a_browser_logs_in_with_a_token",
    "close some, or refresh the page": (
        "unit/http/test_console_tables.py::test_an_idle_stream_sends_a_comment_and_fifty_are_enough"
    ),
    "look at the state of the table, and ask again": "unit/http/test_api.py::test_a_loop_that_does_not_answer_is_named",
    "look at the log of the process for `http_request_failed`": (
        "unit/http/test_api.py::test_an_unforeseen_failure_is_logged_and_not_shown"
    ),
    "run `frazil resume …`": "unit/http/test_api.py::test_a_table_is_paused_and_resumed",
    **dict.fromkeys(
        ("send `Authorization: Bearer TOKEN`", "use a token of `http.tokens.operate`"),
        "unit/http/test_security.py::test_tokens_separate_reading_from_acting",
    ),
    "name the service localhost; a proxy in front of it sets `Host: localhost`": (
        "unit/http/test_security.py::test_another_host_is_refused_on_loopback"
    ),
    "act on a page of the service itself": "unit/http/test_security.py::test_pages_of_other_sites_do_not_act",
    **dict.fromkeys(
        (
            "remove `http: false`, and start the pipeline again",
            "give each pipeline an address of its own: `http: {listen: …}`",
            "start `frazil run`, on this machine and with this pipeline file",
        ),
        "unit/cli/test_operate.py::test_a_command_that_reaches_no_process_of_the_pipeline_reports_what_to_do",
    ),
    "leave one of the two out": "unit/cli/test_commands.py::test_setup_takes_one_bundle_at_a_time",
    # Tables with a query.
    **dict.fromkeys(
        (
            "add `…` to `select`",
            "add the column to the table, or take it out of `select`",
            "name the column otherwise in `select`",
            "name the column otherwise with `rename`",
            "write `cast(… as …)` in `select`, or name the column otherwise",
            "write it otherwise; the rules of queries are in docs/reference/queries.md",
            "make `…` of functions that tasks compute themselves; the rules of queries are in docs/reference/queries.md",
        ),
        "unit/ingest/test_queries.py::test_a_query_that_the_table_cannot_have_stops_it_until_the_remedy_is_followed",
    ),
    "declare its type under `columns`, or correct it (…); Frazil looks at further records": (
        "unit/ingest/test_queries.py::test_a_field_that_no_record_has_had_yet_is_waited_for"
    ),
    # Expectations.
    "correct the condition, or write another `else`: `dead_letter` keeps such records aside, `drop` leaves them out,"
    " `warn` only counts them": (
        f"{_EXPECT}with_stop_nothing_of_the_batch_is_committed_until_the_consequence_is_another"
    ),
    "correct the condition, or write `else: warn`": (
        f"{_EXPECT}a_share_of_recent_records_may_be_otherwise_and_a_greater_one_stops_the_table"
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
        ("put the file in place, or correct it; Frazil retries with back-off", "Frazil reads it again"),
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
    "name a column of the record's own fields": f"{_LOOKUPS}a_key_column_of_an_upsert_table_is_not_looked_up",
    # The key of `protect`.
    **dict.fromkeys(
        ("write that `protect_key` until they are replayed", "replay with the old `protect_key`"),
        "unit/dead_letters/test_protected.py::test_a_replay_without_the_key_is_refused_and_changes_nothing",
    ),
    "give it the old `protect_key`, or the table a new name": "unit/dead_letters/test_protected.py::"
    "test_the_table_names_its_key_by_an_id_and_an_upsert_table_with_hashed_keys_takes_no_other",
    "drop this dead letter": "unit/process/test_protect.py::test_a_sealed_value_opens_in_its_place_with_its_key_alone",
    # Queries before the table.
    "compute it before: `explode(transform(items, item -> …))`": (
        "integration/test_queries.py::test_an_expression_of_sparks_needs_a_record_of_its_own"
    ),
    "use functions that tasks compute themselves; the rules of queries are in docs/reference/queries.md": (
        "unit/ingest/test_queries.py::test_rows_of_one_message_are_not_sparks"
    ),
    **dict.fromkeys(
        (
            "a row is made of one record: leave it out, and aggregate what is in the table",
            "cast it to another type, or take a member with `get_json_object`",
            "cast the value to the type that is wanted",
            "compute a part of it in a sub-query in FROM",
            "correct the query; the rules of queries are in docs/reference/queries.md",
            "give it a shorter name: `as NAME`",
            "give it a type: `cast(null as string)`",
            "make a list of structs, `array(struct(key, value))`, or a map of JSON: `from_json(…, 'map<…>')`",
            "name a field of the records: …",
            "name it otherwise: `as NAME`",
            "name one of them otherwise, such as `named_struct('NAME', value)`",
            "name one of them otherwise: `as NAME`",
            "select the field as it is, or declare it as string or binary",
            "take its length as a number: `timestampdiff(second, a, b)`, or `datediff(b, a)` of dates",
            "use `_timestamp`, the time of the record",
            "use `_topic`, `_partition` and `_offset`",
            "use `explode`, and select the members of its elements",
            "use `get_json_object`",
            "use a hash of the record, such as `hash(_partition, _offset)`",
            "use another function; the rules of queries are in docs/reference/queries.md",
            "use columns, literals and functions alone",
            "write `from …`, the only relation",
            "write `select … from …`",
            "write `… as NAME`",
            "write a number up to …",
            "write one `select … from records` in Spark's SQL; a name with other signs needs back-quotes",
            "write the condition after WHERE",
            "write the list out, `array(1, 2, 3)`",
        ),
        _QUERIES,
    ),
    "leave the field out: `exclude: […]`": (
        "integration/test_queries.py::test_a_field_with_the_name_of_a_piece_of_metadata_is_refused"
    ),
    "write an expression, such as `amount > 0`": (
        "integration/test_queries.py::test_a_refused_condition_is_accepted_once_its_remedy_is_done"
    ),
    "choose another name, or drop one of them": _STEPS,
    "declare the column, `columns: {NAME: {type: …}}`": _STEPS,
    "keep one with `keep_fields`, or drop fewer": _STEPS,
    # Rights that a service lacks.
    "allow it: `kafka-acls --add --allow-principal User:NAME --operation … --topic …`": (
        f"{_SECURE_KAFKA}a_pipeline_runs_with_the_least_rights_names_a_missing_one_and_continues_when_it_is_granted"
    ),
    "allow this user to DESCRIBE and READ the topic, and to READ and WRITE a topic of dead letters": (
        f"{_SECURE_KAFKA}a_pipeline_runs_with_the_least_rights_names_a_missing_one_and_continues_when_it_is_granted"
    ),
    "allow this user to READ groups with the prefix `frazil-`": f"{_SECURE_KAFKA}{_DEAD_LETTERS}",
    "allow this user to WRITE with transactional ids of the prefix `frazil-`": f"{_SECURE_KAFKA}{_DEAD_LETTERS}",
    "grant this user the right; the reference lists all that Frazil needs (docs/reference/privileges.md)": (
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
    "write its alias": f"{_STORES}an_access_point_that_is_named_by_its_arn_is_refused",
    "remove it; docs/reference/stores.md lists all properties": (
        "unit/store/test_properties.py::test_an_unknown_property_of_a_store_is_refused_with_the_nearest_name"
    ),
    "correct what the catalog names: the table's name, `properties`, `format_version` or `location`": (
        f"{_CAPABILITIES}a_refused_table_stops_with_the_words_of_the_catalog_until_the_file_is_corrected"
    ),
    # Tables that stop or wait.
    "correct `start`: partitions are counted from 0": TABLES,
    "correct the expression; the nearest topic is `…`": f"{STOPS}a_pattern_that_matches_nothing",
    "correct the expression; there are no topics": f"{STOPS}a_pattern_that_matches_nothing",
    "correct the expression; topics are …": f"{STOPS}a_pattern_that_matches_nothing",
    "create the topic, or correct its name": f"{STOPS}a_topic_that_does_not_exist",
    "declare a column whose objects have names that vary as map<string, …>, leave fields out with `exclude`, or raise"
    " `limits.columns`": TABLES,
    "declare it under `columns`, or correct the name: did you mean `…`?": TABLES,
    "declare it under `columns`, or correct the name: write one of: …": TABLES,
    "fix the producer or the declared columns; `dead_letters: {stop_above: …}` tolerates more": TABLES,
    "give one of them another name, such as `…_2: {type: …, field: …}`": TABLES,
    "leave its topic out of `topics`, and give it a table under `tables`": f"{STOPS}topics_whose_tables_are_taken",
    "leave its topic out of `topics`, or give one of the two a table of its own under `tables`": (
        f"{STOPS}topics_whose_tables_are_taken"
    ),
    "leave it out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: …}}`": (
        f"{STOPS}a_partition_field_of_the_same_name"
    ),
    "leave one of the fields out with `exclude`, or give it a column: `columns: {NAME: {type: …, field: PATH}}`": TABLES,
    "let that run continue, or stop it and start this one again": (
        "unit/ingest/test_fenced_service.py::test_a_run_that_is_taken_over_begins_nothing_while_another_table_is_in_hand"
    ),
    "name another one: `dead_letters: {table: …}`": f"{STOPS}a_dead_letter_table_that_is_something_else",
    "name the `key_columns`, or read the topic into a table with `mode: append`: rows of a source table without a"
    " primary key cannot be identified": TABLES,
    "name the columns inside it, or another one": f"{STOPS}a_key_that_is_a_struct",
    "name other columns under `key_columns`, or read the topic into a table with `mode: append`: a list or map cannot"
    " identify rows": f"{STOPS}a_key_that_is_a_list",
    "name another column under `order_by`, such as one that `columns` makes of a field inside it, or remove it to apply"
    " changes in the order of their offsets": f"{STOPS}an_order_that_is_no_plain_value",
    "point `bootstrap.servers` at that cluster, or use another `pipeline` name for this one": f"{STOPS}another_cluster",
    "produce records with fields, or declare `columns`": TABLES,
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
    "say what its numbers count since …, such as `columns: {…: {type: …, field: …}}`": CHANGES,
    "say what its numbers count since …, such as `columns: {…: …}`": CHANGES,
    "give the field another column with wider keys, which Iceberg does not widen: `columns: {NAME: {type:"
    ' "map<KEY, VALUE>", field: PATH}}`': (
        "unit/remedies/test_tables.py::test_keys_that_got_wider_go_to_another_column"
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
    "leave the field out with `exclude`; a replay can leave dead letters out by --offset or --error-class": (
        "unit/dead_letters/test_replay.py::test_a_field_that_the_table_cannot_have_keeps_its_dead_letters_back_and_no_others"
    ),
    "start `frazil run`, which creates the table": (
        "unit/dead_letters/test_replay.py::test_a_table_that_is_not_there_takes_no_dead_letters"
    ),
    "check that the brokers of the partition are running; other partitions are still read": (
        "unit/ingest/test_leaderless.py::test_a_run_to_the_ends_waits_for_a_partition_without_a_leader"
    ),
    "mount the warehouse again or restore the file; Frazil retries with back-off": (
        "integration/test_outages.py::"
        "test_a_store_that_lacks_a_tables_metadata_is_an_outage_of_every_command_and_never_a_dropped_table"
    ),
    "correct the clock; Frazil retries with back-off and succeeds once the clock is past that change": (
        "integration/test_outages.py::"
        "test_a_clock_that_went_back_is_named_and_waited_for_and_the_table_continues_by_itself"
    ),
    "give `spark.driver.memory` more under `spark: {conf: …}` and delete the file named here, or delete the records"
    " with kafka-delete-records and set `on_data_loss: skip`; the file: …": (
        "unit/ingest/test_crash_suspects.py::test_a_table_that_the_jvm_dies_of_stops_after_restarts_and_the_others_flow"
    ),
    "…; files are not rewritten until then": (
        "unit/ops/test_check.py::test_an_order_of_rows_that_a_table_cannot_have_is_a_problem"
    ),
    # Packages.
    "correct or reinstall the package …": f"{_PACKAGES}an_object_of_another_class_is_refused_until_it_is_corrected",
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
    "name the table, such as `….…`, under `tables`": (
        "unit/spec/test_catalogs.py::test_a_name_that_hive_would_change_is_refused_with_one_that_it_keeps"
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
        "unit/ingest/test_crash_suspects.py::test_a_table_is_no_suspect_any_more_once_it_was_read"
    ),
}
"""The test that shows each message, does what it reports and sees it work."""

_SERVICE = "somebody has to mend a service or a machine; that Frazil continues afterwards, tests of outages show"
_LOG = "it leads to a log, which people read"
_FILE = "what to write is one of the settings that test_pipeline_files.py follows, or the same correction of a name"
_INSTALL = "it installs software, or needs the network; tests/unit/runtime has what is checked"
_CHECK = (
    "check only looks; what it reports is followed where a run reports the same, or by rights of a folder or client"
)
_OTHERS = "another engine has to rewrite a table that it has written"
_AGAIN = "the table is dropped, as in test_stops.py::test_progress_that_was_expired"
_WAIT = "the command is given again"
_HISTORY = "somebody who knows the table's history has to decide; tests/unit/dead_letters/test_replay.py shows the stop"
_BUG = "it should not happen, and asks for a report"

_ARGUMENT = "what to write is an argument, and the command is given again"

BY_PEOPLE: Mapping[str, str] = {
    "name an older snapshot of the same history; `<table>.snapshots` shows them": _ARGUMENT,
    "name one that the table has; `<table>.snapshots` shows them": _ARGUMENT,
    "write it otherwise; docs/reference/queries.md lists what is computed": _ARGUMENT,
    "write it so that it is defined for every row, for example with `try_cast` or `try_divide`": _ARGUMENT,
    "run the pipeline first": _WAIT,
    "allow this client to create topics and to write to `…`, or create it with `kafka-topics --create --partitions 1"
    " --config cleanup.policy=compact`": _SERVICE,
    "write to a topic whose subjects have no other schema, or change their compatibility": _SERVICE,
    "route by another field, or take this one out of `protect`": _FILE,
    "make one, such as by `openssl rand -hex 32`, keep it in a file, and write `protect_key: ${file:PATH}`": _FILE,
    "take it out of `protect`, or order by another column": _FILE,
    "write `action: …`, or another one": _FILE,
    "write `hash`: different keys stay different": _FILE,
    "write `protect: {email: hash}`": _FILE,
    "write a regular expression for the name, between slashes": (
        "unit/spec/test_protect.py::test_a_name_that_begins_with_a_slash_is_written_as_a_regular_expression"
    ),
    "allow this user to DESCRIBE the cluster": _SERVICE,
    "check ssl.key.location (or ssl.key.pem) and ssl.key.password": _FILE,
    "convert it with `keytool -importkeystore -deststoretype PKCS12`, and write `ssl.keystore.type: PKCS12`": _FILE,
    "leave it out, or use one of …": _FILE,
    "leave it out: only one of the two Kafka clients has it; restrict it on the brokers": _FILE,
    "leave it out: the driver's Kafka client runs no Java classes; log in with a client certificate, PLAIN, SCRAM,"
    " OAUTHBEARER by OIDC, or GSSAPI": _FILE,
    "leave it out: the two Kafka clients name ciphers differently; restrict them on the brokers": _FILE,
    "name another mechanism in sasl.mechanism, or install a confluent-kafka that is built with libsasl2": _INSTALL,
    "name the authority in ssl.ca.location; `ssl.endpoint.identification.algorithm: none` skips the host's name": _FILE,
    "write `sasl.oauthbearer.method: oidc`, sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url: both"
    " Kafka clients can do that": _FILE,
    "write both ssl.certificate.location and ssl.key.location; they may name one file": _FILE,
    "write its certificates as PEM (keytool -exportcert -rfc) and name the file in ssl.ca.location": _FILE,
    "write the certificates to a file, and name it in https.ca.location": _FILE,
    "write … in place of `sasl.jaas.config`": _FILE,
    "check …; Frazil retries with back-off": _SERVICE,
    "name the authority of the service's certificate in …": _SERVICE,
    "renew the service's certificate, or set this machine's clock; Frazil retries with back-off": _SERVICE,
    "the service refuses the certificate of this client, or wants one: check …": _SERVICE,
    "use a host name that the service's certificate has, or give it a certificate with this name": _SERVICE,
    "correct `catalog.uri`: some services have another address for writers, and some have none": _SERVICE,
    "check that `catalog.uri` is the address of a catalog of this type; Frazil retries with back-off": _SERVICE,
    "name a catalog that takes new tables, or create the table by the tool that the catalog has for it": _SERVICE,
    "drop the column, or name another table in the pipeline file": _OTHERS,
    "set the table's property `write.format.default` to `parquet`, and rewrite the table's files": _OTHERS,
    "`ALTER TABLE … SET TBLPROPERTIES ('write.format.default' = 'parquet')`: the files of one table may have several"
    " formats": _OTHERS,
    "upgrade the table to format version 2 or 3": "as in test_stops.py::test_a_table_of_format_version_1",
    "wait for table maintenance, or run `frazil maintain`: either applies the deletes permanently": (
        "tests/acceptance/test_other_writers.py"
    ),
    "rewrite the data files of the dead-letter table there, so that no delete file remains, or use `frazil"
    " dead-letters drop` from now on": _OTHERS,
    "correct the name, or wait until records have brought the column": _FILE,
    "name a column that is no list, map or struct, or one inside it, such as `a.b`": _FILE,
    "name columns of numbers, text, bytes or times; or wait until records have brought the column": _FILE,
    "leave `maintenance.statistics` out for this table": _FILE,
    "name a table that `frazil status` shows": _FILE,
    "did you mean `…`?": _FILE,
    "see the tables in the pipeline file": _FILE,
    "name another with --dir": _FILE,
    "end it, or name another folder with --dir": _FILE,
    "correct it or remove it": _FILE,
    "rename one of the columns": _FILE,
    "write a value that a … can hold": _FILE,
    "write a time of the years 1 to 9999": _FILE,
    "write string, boolean, int, long, float, double, decimal(p,s), date, timestamp or timestamptz as its type": _FILE,
    "write `…: {format: …}`, or correct the subject": _FILE,
    "write `key: {format: text}` and name another column for the key, or fix the producer": _FILE,
    "declare the column … with a type that holds the values, or fix the producer": _FILE,
    "use the schema id in the record, or write `naming: topic`": _FILE,
    "name its jar, as `catalog: {jars: [/path/to/driver.jar]}`, or correct `catalog.uri`": _INSTALL,
    "name the jar that has the class under `catalog: {jars: […]}`, or correct `catalog`": _INSTALL,
    "name a Python ….… that every executor has in spark.conf, as spark.pyspark.python": _INSTALL,
    "install Frazil's requirements": _INSTALL,
    "install openjdk-17-jre-headless or set JAVA_HOME to a Java 17 or 21": _INSTALL,
    "let this machine reach Maven Central, or name a mirror's Ivy settings in FRAZIL_IVY_SETTINGS, then run frazil"
    " setup; without a network run frazil setup --from a bundle": _INSTALL,
    "free disk space and make the folder writable, or name another file": _INSTALL,
    "install Frazil from the wheels of the bundle, or make a bundle with this version": _INSTALL,
    "name a file that frazil setup --bundle has written, and compare its size with the original's": _INSTALL,
    "free disk space and make the folder writable, or name another in FRAZIL_CACHE": _INSTALL,
    "remove the folder … and run frazil setup; if the error returns, check what answers in place of the"
    " repository, or what FRAZIL_IVY_SETTINGS names": _INSTALL,
    "run frazil doctor: the machine may lack memory": _INSTALL,
    "raise the limit: `ulimit -n …` in the shell, or LimitNOFILE= of a systemd service": _INSTALL,
    "read what it printed above; `frazil doctor` looks at Java and memory": _LOG,
    "read its log": _LOG,
    "read the broker's log": _LOG,
    "read the pipeline's log": _LOG,
    "see the tables above": _LOG,
    "find out who dropped the table": _LOG,
    "if this is Hive's metastore and has no tables for locks, write `spark: {conf:"
    ' {spark.hadoop.iceberg.engine.hive.lock-enabled: "false"}}`, as for all other writers': _SERVICE,
    "find out who dropped the table; `frazil run` creates it again": _LOG,
    "check the table's store": _SERVICE,
    "free disk space; Frazil retries with back-off": _SERVICE,
    "mount or restore it; to begin again without those tables, delete …": (
        "unit/cli/test_wiring.py::test_a_catalog_whose_file_is_gone_is_not_made_again_while_the_last_run_had_tables_in_it"
    ),
    "free space where standard output is written, or redirect it, and run the command again": _SERVICE,
    "raise the topic's max.message.bytes": _SERVICE,
    "create the topic, or correct its name; Frazil retries with back-off": _SERVICE,
    "check that a broker is running at bootstrap.servers, for `security.protocol`, and accepts this client": _SERVICE,
    "check whether it is stopped (SIGSTOP) or starved; if it hangs, end it and start `frazil run` again": _SERVICE,
    "check that the named service is running and accepts this machine; `frazil check` checks all services": _SERVICE,
    "check that the master is running, has workers, and reaches this machine at spark.driver.host": _SERVICE,
    "Frazil retries with back-off; check that the registry is running at `registry.url`": _SERVICE,
    "correct its path, or let this user read it": _SERVICE,
    "check `registry.auth`: the registry rejects this user": _SERVICE,
    "see `registry.properties`": _SERVICE,
    "check `registry.tls`: certificate, key and key_password must belong together": _SERVICE,
    "check `registry.tls`: this machine and the registry do not trust each other's certificates": _SERVICE,
    "check that `registry.url` is the address of the Confluent API itself: https://registry:8081, or"
    " https://registry/apis/ccompat/v7 of an Apicurio": _SERVICE,
    "start it first": _SERVICE,
    "Frazil retries; look at the API server of the cluster": _SERVICE,
    "Frazil retries; look at the brokers, and at the rights of this client": _SERVICE,
    "Frazil retries; look at the database of `ha.uri`": _SERVICE,
    "delete the row; a leader claims again": _SERVICE,
    "create it: `kafka-topics --create --topic … --partitions 1 --config cleanup.policy=compact`, or write"
    " `ha: {elect: none}`": _SERVICE,
    "create the topic, correct its name, or let this client describe it": _CHECK,
    "create the topic, or correct its name in the pipeline file": _CHECK,
    "did you mean `…`? otherwise create the topic, correct its name, or let this client describe it": _CHECK,
    "make the folder writable for this user, or name another place": _CHECK,
    "move it, or name another place": _CHECK,
    "register a version that records can be read with": _CHECK,
    "a run skips such records and counts them; `on_bad_record: dead_letter` would keep them": _CHECK,
    "a run writes such records to the dead-letter table; `on_bad_record: stop` would stop instead": _CHECK,
    "write `security.protocol: SASL_SSL`": _CHECK,
    "write `spark: {conf: {…}}`, with spark.authenticate.secret where the master is standalone": _CHECK,
    "write https:// in `catalog.uri`": _CHECK,
    "write https:// in `registry.url`": _CHECK,
    "move one of the tables, or remove the files of a dropped table": _HISTORY,
    "restore it: the summary of the table's newest snapshot names the files of the dead letters": _HISTORY,
    "restore the table; or, to abandon these rows, remove the property that ends in replaying.…": _HISTORY,
    "check whether their rows are in the table, add the files if they are not, and then remove the property that ends"
    " in replaying.… from the dead-letter table": _HISTORY,
    "check whether their rows are in the table, drop the dead letters if they are, and then remove the property that"
    " ends in replaying.… from the dead-letter table": _HISTORY,
    "inspect the records of this range; to continue behind them write `start` with the offset of each partition and"
    " give the table a new name": "as in test_stops.py::test_a_topic_that_ends_early",
    "create the table again": _AGAIN,
    "create the table again, with `metadata: [source_order]` and `order_by: _source_order`, or from a topic of one"
    " partition": _AGAIN,
    "leave the topic out if it has no other records, produce records with fields, or declare `columns`": _AGAIN,
    "replay fewer at a time, by --topic, --partition and --offset": _WAIT,
    "replay again when they have finished": _WAIT,
    "then run the command again, or give it longer with --timeout": _WAIT,
    "…; then run the command again, or give it longer with --timeout": _WAIT,
    "leave the field out with `exclude`, or declare a column for it or for the field that contains it, and report"
    " this error": _BUG,
}
"""Why no test follows each of these."""


def is_told(text: str, shown: str) -> bool:
    """Whether a remedy that was shown is this one."""
    return Remedy("", text).matches(shown)
