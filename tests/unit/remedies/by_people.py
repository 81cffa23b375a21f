"""Which remedies no test follows, and why: they are for people. The keys are as in `followed.py`."""

from __future__ import annotations

from collections.abc import Mapping

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
_HISTORY = "somebody who knows the table's history has to decide; test_replay.py of packages/deadletters shows the stop"
_BUG = "it should not happen, and asks for a report"

_ARGUMENT = "what to write is an argument, and the command is given again"

BY_PEOPLE: Mapping[str, str] = {
    "name a field that records have, or declare it under `columns` where `field` names another one": _FILE,
    "restore the pack from a copy of the store; `frazil blobs verify` lists every damaged object": _SERVICE,
    "wait until a batch is committed": _WAIT,
    "install `frazil-blobs[lance]` with pip from where Frazil was installed": _INSTALL,
    "install `frazil-blobs[media]` with pip from where Frazil was installed, or take"
    " `extract` and `thumbnails` out of `blobs`": _INSTALL,
    "install `frazil-blobs[models]` with pip from where Frazil was installed, or take `model` out of"
    " `blobs.embeddings`": _INSTALL,
    "add --foreign FILE, or leave --group out": _ARGUMENT,
    "write one with `frazil verify … --independent --report FILE`": _ARGUMENT,
    "write its rows by another way, such as `frazil reset`": _HISTORY,
    "upgrade it: set its property format-version to 2": _OTHERS,
    "mend it by the tool that fills it": _OTHERS,
    **dict.fromkeys(
        (
            "add --ledger, which needs no topic",
            "add --independent and --from with the first offset that it has read",
            "add --independent in place of --rows",
            "add --from with the first offset that it has read",
            "leave --from out",
            "leave --sample out",
            "run it without --rows, or write `metadata: [partition, offset]` for rows from now on",
            "verify the table again, and repair it from the new report",
        ),
        _ARGUMENT,
    ),
    "mend what the reason names, and run it again; --ledger needs no copy": _SERVICE,
    "mend what the reason names, and run it again; --ledger needs neither records nor rows": _SERVICE,
    "repeat the command; if batches are committed meanwhile each time, stop the pipeline first": _WAIT,
    "restore them from a copy of the store; `frazil verify --independent` names them": _SERVICE,
    "run the pipeline first": _WAIT,
    "name an older snapshot of the same history; `<table>.snapshots` shows them": _ARGUMENT,
    "name one that the table has; `<table>.snapshots` shows them": _ARGUMENT,
    "write it otherwise, with Spark's functions of single rows": _ARGUMENT,
    "write it so that it is defined for every row, for example with `try_cast` or `try_divide`": _ARGUMENT,
    "write one of --override, --discard and --to": _ARGUMENT,
    "write the rows again in one commit, such as `INSERT OVERWRITE ….`branch_…` SELECT * FROM ….`branch_…`` in Spark": (
        _OTHERS
    ),
    "produce records first": _WAIT,
    "make the file writable": _SERVICE,
    "use Kafka 2.1 or newer": _INSTALL,
    "start `frazil run`; if it was started, its log has why it ended before the first commit": _LOG,
    "wait until its producer commits or aborts it, or Kafka does after `transaction.timeout.ms`; if it stays, find and end"
    " it with `kafka-transactions.sh find-hanging` and `abort`": (
        "unit/ingest/test_open_transactions.py::test_the_records_are_read_once_the_transaction_ends"
    ),
    "allow this client to create topics and to write to `…`, or create it with `kafka-topics --create --partitions 1"
    " --config cleanup.policy=compact`": _SERVICE,
    "write to a topic whose subjects have no other schema, or change their compatibility": _SERVICE,
    "route by another field, or take this one out of `protect`": _FILE,
    "make one, such as by `openssl rand -hex 32`, keep it in a file, and write `protect_key: ${file:PATH}`": _FILE,
    "take it out of `protect`, or order by another column": _FILE,
    "keep one of the two rules": _FILE,
    "write `action: …`, or another one": _FILE,
    "write `hash`: different keys stay different": _FILE,
    "write `_…` in its place": _FILE,
    "write a regular expression for the name, between slashes": (
        "packages/protect/tests/unit/test_settings.py::test_a_name_that_begins_with_a_slash_is_written_as_a_regular_expression"
    ),
    "allow this user to DESCRIBE the cluster": _SERVICE,
    "name a listener of the broker with SASL in `bootstrap.servers`, or leave SASL out of `security.protocol`": _SERVICE,
    "check ssl.key.location (or ssl.key.pem) and ssl.key.password": _FILE,
    "convert it with `keytool -importkeystore -deststoretype PKCS12`, and write `ssl.keystore.type: PKCS12`": _FILE,
    "leave it out, or use one of …": _FILE,
    "leave it out: only one of the two Kafka clients has it; restrict it on the brokers": _FILE,
    "leave it out: the driver's Kafka client runs no Java classes; log in with a client certificate, PLAIN, SCRAM,"
    " OAUTHBEARER by OIDC, or GSSAPI": _FILE,
    "name another mechanism in sasl.mechanism, or install a confluent-kafka that is built with libsasl2": _INSTALL,
    "write `sasl.oauthbearer.method: oidc`, sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url: both"
    " Kafka clients can do that": _FILE,
    "write both ssl.certificate.location and ssl.key.location; they may name one file": _FILE,
    "write its certificates as PEM (keytool -exportcert -rfc) and name the file in ssl.ca.location": _FILE,
    "check ssl.keystore.location and ssl.keystore.password": _FILE,
    "check that the certificate, the key and the ciphers are what OpenSSL takes, and belong together": _FILE,
    "check that security.protocol is that of the listener at this address": _FILE,
    "give it certificates in PEM, as `openssl x509` writes them": _FILE,
    "give this machine, and those that tasks run on, AWS credentials that may connect to the cluster": _SERVICE,
    "install gssapi here and where tasks run, or name another mechanism in sasl.mechanism": _INSTALL,
    "name another mechanism in sasl.mechanism, or install a confluent-kafka that is built with libsasl2, and gssapi here"
    " and where tasks run": _INSTALL,
    "install `frazil[avro-files]` with pip from where Frazil was installed, here and where tasks run": _INSTALL,
    "install `frazil[msk]` with pip from where Frazil was installed, here and where tasks run": _INSTALL,
    "put it in a profile of the AWS configuration, and name that in awsProfileName": _FILE,
    "set AWS_REGION in the environment of this process": _INSTALL,
    "write … under `kafka`": _FILE,
    "write … in place of `sasl.jaas.config`": _FILE,
    "check …; Frazil retries with back-off": _SERVICE,
    "correct `catalog.warehouse`: the catalog has none of this name; Frazil retries with back-off": _FILE,
    "correct `ref` under `catalog.properties`: Nessie has no branch of this name; Frazil retries with back-off": _FILE,
    "let the user of Hive's metastore make this folder, or write `catalog.warehouse` as a place where it may; Frazil"
    " retries with back-off": _SERVICE,
    "if that is not meant, write the former address of the catalog again": (
        "unit/cli/test_wiring.py::test_a_run_with_another_catalog_reports_it_until_the_address_is_the_former"
    ),
    "issue the certificate again without this fault, which Python 3.13 refuses, or run Frazil with Python 3.12": _SERVICE,
    "name the authority of the service's certificate in …": _SERVICE,
    "renew the service's certificate, or set this machine's clock; Frazil retries with back-off": _SERVICE,
    "the service refuses the certificate of this client, or wants one: check …": _SERVICE,
    "use a host name that the service's certificate has, or give it a certificate with this name": _SERVICE,
    "correct `catalog.uri`: some services have another address for writers, and some have none": _SERVICE,
    "check that `catalog.uri` is the address of a catalog of this type; Frazil retries with back-off": _SERVICE,
    "check that the catalog and the store answer this machine: a refused load ends within seconds, and a silent service is"
    " waited for until its timeout": _SERVICE,
    "check that both answer this machine at their addresses in the pipeline file": _SERVICE,
    "check that the store is running at `s3.endpoint` under `catalog.properties`, or without it in the region of"
    " `client.region`; Frazil retries with back-off": _SERVICE,
    "name a catalog that takes new tables, or create the table by the tool that the catalog has for it": _SERVICE,
    "drop the column, or name another table in the pipeline file": _OTHERS,
    "set the table's property `write.format.default` to `parquet`, and rewrite the table's files": _OTHERS,
    "`ALTER TABLE … SET TBLPROPERTIES ('write.format.default' = 'parquet')`: the files of one table may have several"
    " formats": _OTHERS,
    "write the rows again in one commit, such as `INSERT OVERWRITE … SELECT * FROM …` in Spark": _OTHERS,
    "upgrade the table to format version 2 or 3": "as in test_stops.py::test_a_table_of_format_version_1",
    "wait for table maintenance, or run `frazil maintain`: either applies the deletes permanently": (
        "tests/acceptance/test_other_writers.py"
    ),
    "rewrite the data files of the dead-letter table there, so that no delete file remains, or use `frazil"
    " dead-letters drop` from now on": _OTHERS,
    "correct the name, or wait until records have brought the column": _FILE,
    "name a column that is not a list, map or struct, or one inside it, such as `a.b`": _FILE,
    "name columns of numbers, text, bytes or times; or wait until records have brought the column": _FILE,
    "leave `maintenance.statistics` out for this table": _FILE,
    "name a table that `frazil status` shows": _FILE,
    "did you mean `…`?": _FILE,
    "see the tables in the pipeline file": _FILE,
    "name another with --dir": _FILE,
    "end it, or name another folder with --dir": _FILE,
    "end the process that listens there, or name another port with --port": _FILE,
    "correct it or remove it": _FILE,
    "rename one of the columns": _FILE,
    "write a value of the type …": _FILE,
    "write a time of the years 1 to 9999": _FILE,
    "write string, boolean, int, long, float, double, decimal(p,s), date, timestamp or timestamptz as its type": _FILE,
    "write `…: {format: …}`, or correct the subject": _FILE,
    "write `key: {format: text}` and name another column for the key, or fix the producer": _FILE,
    "declare the column … with a type that holds the values, or fix the producer": _FILE,
    "use the schema id in the record, or write `naming: topic`": _FILE,
    "write it as the stage `…` needs it": _FILE,
    "name its jar, as `catalog: {jars: [/path/to/driver.jar]}`, or correct `catalog.uri`": _INSTALL,
    "remove `jdbc.init-catalog-tables: false`, or let its owner make them; Frazil retries with back-off": _SERVICE,
    "name the jar that has the class under `catalog: {jars: […]}`, or correct `catalog`": _INSTALL,
    "name a jar under `catalog: {jars: […]}` that was built for the Java that `frazil doctor` shows, and for the Iceberg of"
    " this Frazil": _INSTALL,
    "install a newer Frazil, or give the table another name in the pipeline file": _INSTALL,
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
    "read the pipeline's log; if it shows no error, the machine is busy: start the demo again": _LOG,
    "see the tables above": _LOG,
    "find out who dropped the table": _LOG,
    "if this is Hive's metastore and has no tables for locks, write `spark: {conf:"
    ' {spark.hadoop.iceberg.engine.hive.lock-enabled: "false"}}`, as for all other writers': _SERVICE,
    "find out who dropped the table; `frazil run` creates it again": _LOG,
    "check the table's store": _SERVICE,
    "free disk space; Frazil retries with back-off": _SERVICE,
    "mount or restore it, or correct `catalog.uri`; to begin again without those tables, delete …": (
        "unit/cli/test_wiring.py::test_a_missing_catalog_file_is_not_created_again_where_the_last_run_had_tables"
    ),
    "free space where standard output is written, or redirect it, and run the command again": _SERVICE,
    "raise the topic's max.message.bytes": _SERVICE,
    "create the topic, or correct its name; Frazil retries with back-off": _SERVICE,
    "check that a broker listens at `bootstrap.servers`, that `security.protocol` is that of this listener, and that the"
    " broker accepts this client": _SERVICE,
    "correct the name of the host in `bootstrap.servers`, or let this machine resolve it": _SERVICE,
    "check whether it is stopped (SIGSTOP) or starved; if it hangs, end it and start `frazil run` again": _SERVICE,
    "check that the named service is running and accepts this machine; `frazil check` checks all services": _SERVICE,
    "wait for its election, or name all masters, as spark://HOST:PORT,HOST:PORT": _SERVICE,
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
    "create it: `kafka-topics --create --topic … --partitions 1 --config cleanup.policy=compact`, or write"
    " `ha: {elect: none}`": _SERVICE,
    "create the topic, correct its name, or let this client describe it": _CHECK,
    "create the topic, or correct its name in the pipeline file": _CHECK,
    "did you mean `…`? otherwise create the topic, correct its name, or let this client describe it": _CHECK,
    "make the folder writable for this user, or name another place": _CHECK,
    "move it, or name another place": _CHECK,
    "name another place": _CHECK,
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
    "let no other writer change the table's sketches, or create the table again from its topic": _AGAIN,
    "create the table again from a topic of one partition; or, unless `merge` subtracts rows, with `metadata:"
    " [source_order]` and `order_by: _source_order`": _AGAIN,
    "replay fewer at a time, by --topic, --partition and --offset": _WAIT,
    "replay again when they have finished": _WAIT,
    "then run the command again, or give it longer with --timeout": _WAIT,
    "…; then run the command again, or give it longer with --timeout": _WAIT,
    "leave the field out with `exclude`, or declare a column for it or for the field that contains it, and report"
    " this error": _BUG,
}
"""Why no test follows each of these."""
