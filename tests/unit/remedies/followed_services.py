"""Which test follows each remedy of what is around tables: elections, other tools, the HTTP service. As `followed.py`."""

from __future__ import annotations

from collections.abc import Mapping

_SECURE_KAFKA = "integration/test_secure_kafka.py::test_"
_IMPORTS = "packages/migrate/tests/unit/test_import_commands.py::test_"
_ELECTOR = "packages/ha/tests/contracts/test_elector.py::test_"
_MIGRATE = "packages/migrate/tests/unit"
_ADOPT, _RELEASE = f"{_MIGRATE}/adopt/test_adopt.py::test_", f"{_MIGRATE}/adopt/test_release.py::test_"
_ROWS = f"{_MIGRATE}/adopt/test_rows.py::test_"
_REPLAY = "packages/replay/tests/unit/test_command.py::test_each_refused_argument_is_accepted_once_its_remedy_is_done"
_INIT = "packages/start/tests/unit/test_init.py::test_each_refusal_ends_once_its_remedy_is_done"

_OUTAGES = "packages/cluster/tests/acceptance/test_spark_outages.py::test_"
_MASTERS = "packages/cluster/tests/integration/test_spark_master.py::test_"
SERVICES: Mapping[str, str] = {
    "install `frazil[…]` with pip from where Frazil was installed, or remove the address": (
        "packages/telemetry/tests/unit/test_sender.py::test_without_an_extra_a_declared_address_is_an_error_and_a_variable_a_warning"
    ),
    "check that the service runs at its address; the pipeline is not affected": (
        "packages/telemetry/tests/unit/test_sender.py::test_a_service_that_refuses_is_logged_once_and_its_batches_are_counted"
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
        ("delete the row; a leader claims again", "delete the lease; a leader claims again"),
        f"{_ELECTOR}a_register_with_what_is_no_claim_elects_again_once_that_is_deleted",
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
        "packages/ha/tests/unit/test_elected.py::test_a_process_of_another_pipeline_with_the_same_name_is_refused_with_both_named"
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
    "run `frazil publish …`, and repeat the command; the pipeline commits no more": (
        f"{_RELEASE}a_table_is_released_once_its_branch_is_published"
    ),
    "write another table of the same topics without `emit: closed`, and release that one once it has caught up": (
        f"{_RELEASE}a_table_of_closed_windows_is_refused_and_another_one_of_its_topics_is_released"
    ),
    **dict.fromkeys(
        ("name a table that it has written", "run `frazil adopt` before it is released again"),
        f"{_RELEASE}a_release_that_was_interrupted_is_repeated_until_the_tool_has_continued",
    ),
    "give --bootstrap-servers HOST:PORT": _INIT,
    "create it, or name another with -f": _INIT,
    "name another with -f": _INIT,
    "write --kafka 'NAME=${env:VARIABLE}'": _INIT,
    "write it so, such as --kafka security.protocol=SSL": _INIT,
    "produce some records first, or name the registry with --registry": _INIT,
    "add `registry`, or write JSON": _REPLAY,
    "create it, with as many partitions as its readers need": _REPLAY,
    "write NAME=VALUE": _REPLAY,
    "write records a second, such as 5000/s": _REPLAY,
    "write to another topic": _REPLAY,
    "run the same command again: it continues after the last record": (
        "packages/replay/tests/acceptance/test_replay.py::test_a_replay_killed_at_any_step_writes_every_row_once"
    ),
    # Offsets published for tools that measure lag.
    "end that consumer, or write `publish_offsets: false`; then start the pipeline again": (
        "integration/test_published_offsets.py::test_a_group_is_written_once_it_may_be_and_kafkas_command_shows_the_lag"
    ),
    "allow it: `kafka-acls --add --allow-principal User:NAME --operation READ --group …`, or write `publish_offsets:"
    " false`": f"{_SECURE_KAFKA}a_pipeline_names_a_missing_right_and_continues_when_it_is_granted",
    "run `frazil verify …`, which shows such rows, and look for another writer": (
        "packages/verify/tests/integration/test_verify_schedule.py"
        "::test_lost_doubled_and_changed_rows_are_found_and_deleted_records_are_not_a_fault"
    ),
    # Imports of other tools' configurations.
    **dict.fromkeys(
        (
            "close the quotation mark",
            "correct the JSON",
            "correct the SQL",
            "correct the YAML",
            "give a configuration of it, in a form that `frazil import … --help` names",
            "give a mapping of settings to values",
            "give each topic once: a pipeline reads one cluster",
            "give one of them alone",
            "give one of them: a pipeline file is made of one connector",
            "give one of …, or the settings alone",
            "give the configuration of the sink",
            "give the configuration of a table topic; --topic names the topic of plain properties",
            "correct it, or give the file that has the flow",
            "give the file that has `CREATE FLOW … AS AUTO CDC INTO`, or `create_auto_cdc_flow(…)`",
            "give one of …, or application.properties",
            "write `FROM` and the source of the changes, and import again",
            "write `KEYS` and the columns that identify a row, and import again",
            "write `SEQUENCE BY` and the column that orders the changes of a row, and import again",
            "give the script with the CREATE TABLE and INSERT INTO statements",
            "keep one of them: tools take the last",
            "write it as a mapping, such as `{source-table: db.orders}`",
            "write settings as `key=value`, or as JSON",
        ),
        f"{_IMPORTS}a_configuration_that_cannot_be_read_is_refused_until_its_remedy_is_done",
    ),
    "write the records' fields and their types under `columns`, and what is made of them as `select`": (
        "packages/migrate/tests/unit/imports/test_auto_cdc_service.py"
        "::test_records_that_a_view_parses_are_read_as_json_or_as_the_remedy_says"
    ),
    **dict.fromkeys(
        ("give one of FILE and --url", "give FILE, or --bootstrap", "name a file in UTF-8 that can be read"),
        f"{_IMPORTS}where_the_configuration_comes_from_is_named_once",
    ),
    "name an address that answers": f"{_IMPORTS}a_live_connector_is_read_and_one_that_is_not_there_refused",
    "name a broker that answers": f"{_IMPORTS}a_live_cluster_is_read",
    # The HTTP service.
    **dict.fromkeys(
        (
            "end the other process, or write another address under `http.listen`",
            "write an address under `http: {listen: …}`, or `http: false`",
            "name a certificate and its key, both as PEM and without a password",
        ),
        "packages/http/tests/unit/test_server.py::test_an_address_or_a_certificate_that_cannot_be_used_is_named_with_its_remedy",
    ),
    "renew the files of `http.tls`, or set this machine's clock": (
        "packages/http/tests/unit/test_server.py::test_a_certificate_out_of_date_is_logged_and_a_problem_of_check"
    ),
    "ask again in a few seconds": "packages/http/tests/unit/test_api.py::test_a_pipeline_that_starts_answers_soon",
    **dict.fromkeys(
        ("begin it again", "see /openapi.json"),
        "packages/http/tests/unit/test_api.py::test_what_does_not_exist_is_named_with_what_to_do",
    ),
    **dict.fromkeys(
        ("keep one of them", "correct it", "the parameters here: …", "the parameters here: none"),
        "packages/http/tests/unit/test_api.py::test_a_wrong_parameter_is_named",
    ),
    **dict.fromkeys(
        ("run `frazil pause …` first", "wait for its first commit"),
        "unit/ingest/loop/test_requests.py::test_a_table_begins_again_and_the_dry_run_reports_what_is_read_twice",
    ),
    "send the command to that process; `frazil status` shows it": (
        "unit/ingest/test_standby.py::test_commands_on_a_table_are_refused_by_a_standby"
    ),
    "look at that process with `frazil status`": (
        "unit/ingest/test_catching_up_beside.py::test_a_run_waits_at_most_its_limit_for_a_leader_that_commits_nothing"
    ),
    "start one, and wait until `frazil status` shows it warm": (
        "unit/ingest/test_standby.py::test_stand_down_is_refused_until_another_process_is_warm"
    ),
    "set `ha: {elect: kafka}`, and start two processes": (
        "unit/ingest/test_standby.py::test_stand_down_needs_an_election"
    ),
    "write another address under `ha.listen`": (
        "packages/ha/tests/unit/test_electing.py::test_an_address_that_another_process_has_is_refused_until_another_is_written"
    ),
    "stop the pipeline, drop the table, and start the pipeline again": (
        "unit/ingest/loop/test_requests.py::test_a_table_whose_progress_is_more_than_offsets_is_refused"
    ),
    "ask again later": "packages/http/tests/unit/test_api.py::test_too_much_work_is_refused_until_some_is_done",
    "free the disk, or delete the file: it holds the console's charts alone": (
        "packages/console/tests/unit/test_history.py::test_a_file_that_cannot_be_used_is_one_warning_and_the_past_continues_in_memory"
    ),
    **dict.fromkeys(
        ("leave it out", "see the list of tables"),
        "packages/console/tests/unit/test_console.py::test_problems_are_pages_for_people_and_json_for_programs",
    ),
    "write the parameters behind the path, such as `?dry_run=true`, and send no body": (
        "packages/http/tests/unit/test_api.py::test_a_command_with_a_body_is_refused"
    ),
    "send a token": "packages/console/tests/unit/test_console.py::test_a_browser_logs_in_with_a_token",
    "choose tables in the list": "packages/console/tests/unit/test_console.py::test_several_tables_are_paused_at_once",
    "close some, or refresh the page": (
        "packages/console/tests/unit/test_console_tables.py::test_an_idle_stream_sends_a_comment_and_fifty_are_enough"
    ),
    "look at the state of the table, and ask again": (
        "packages/http/tests/unit/test_api.py::test_a_loop_that_does_not_answer_is_named"
    ),
    "look at the log of the process for `http_request_failed`": (
        "packages/http/tests/unit/test_api.py::test_an_unforeseen_failure_is_logged_and_not_shown"
    ),
    "run `frazil resume …`": "packages/http/tests/unit/test_api.py::test_a_table_is_paused_and_resumed",
    **dict.fromkeys(
        ("send `Authorization: Bearer TOKEN`", "use a token of `http.tokens.operate`"),
        "packages/http/tests/unit/test_security.py::test_tokens_separate_reading_from_acting",
    ),
    "name the service localhost; a proxy in front of it sets `Host: localhost`": (
        "packages/http/tests/unit/test_security.py::test_another_host_is_refused_on_loopback"
    ),
    "act on a page of the service itself": "packages/http/tests/unit/test_security.py::test_pages_of_other_sites_do_not_act",
    **dict.fromkeys(
        (
            "remove `http: false`, and start the pipeline again",
            "give each pipeline an address of its own: `http: {listen: …}`",
            "start `frazil run`, on this machine and with this pipeline file",
        ),
        "packages/http/tests/unit/test_commands.py::test_a_command_that_reaches_no_process_of_the_pipeline_reports_what_to_do",
    ),
    "run `frazil …` in bash, zsh or fish": (
        "unit/cli/test_completion.py::test_another_shell_than_the_one_that_asks_is_refused"
    ),
    "give the records per second, such as 500": "packages/start/tests/unit/test_size.py::test_an_impossible_load_is_refused",
    "free space, or let this user write the folder; nothing was changed": (
        "unit/ops/test_audit.py::test_a_change_that_cannot_be_written_down_is_not_made"
    ),
    "add until_caught_up=True": "unit/api/test_pipeline.py::test_a_time_limit_is_only_for_a_run_that_catches_up",
    "wait until it has ended, or run the pipeline in a process of its own": (
        "unit/api/test_pipeline.py::test_a_second_run_in_a_process_is_refused_while_the_first_has_the_jvm"
    ),
    "run `frazil --version` alone": "unit/cli/test_main.py::test_the_version_goes_with_no_other_words",
    "leave one of the two out": "unit/cli/test_commands.py::test_setup_takes_one_bundle_at_a_time",
    "start the master, or correct `spark.master`": _OUTAGES + "a_cluster_that_is_restarted_is_used_again",
    "Frazil starts another application; look at the master's log": (
        _OUTAGES + "a_master_that_is_restarted_under_its_workers_costs_no_row"
    ),
    "start workers, or free cores and memory of those that run; if there are some, read the executors' log": (
        _OUTAGES + "workers_that_are_gone_for_a_while_are_named_and_used_again"
    ),
    "correct the property under `spark.conf`": _OUTAGES
    + "a_property_that_spark_cannot_use_is_named_without_a_stack_trace",
    "start workers": _MASTERS + "a_master_without_workers_is_no_cluster",
    "lower spark.executor.cores or spark.executor.memory under `spark.conf`, or start larger workers": (
        _MASTERS + "workers_that_are_too_small_are_named"
    ),
    **dict.fromkeys(
        (
            "give both the same spark.authenticate.secret and spark.authenticate, or correct `spark.master`",
            'write `spark: {master: "spark://HOST:PORT"}`',
        ),
        _MASTERS + "a_master_that_is_away_or_refuses_this_driver_is_said_in_a_sentence",
    ),
    "write `spark: {master: …}` as spark://HOST:PORT, yarn, k8s://https://HOST:PORT or local[*]": (
        "packages/cluster/tests/unit/test_master_check.py::test_what_is_no_master_is_said_with_what_one_is"
    ),
    **dict.fromkeys(
        (
            "name its folder in HADOOP_CONF_DIR",
            "copy the cluster's yarn-site.xml into the folder that HADOOP_CONF_DIR names",
        ),
        "packages/cluster/tests/unit/test_master_check.py::test_one_of_yarns_resource_managers_must_listen",
    ),
    "run the command again, with a longer --timeout": (
        "packages/cluster/tests/unit/test_ship.py::test_a_limit_ends_what_is_built_and_the_wait_for_another"
    ),
}
