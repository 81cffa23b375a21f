"""Properties of Iceberg's Java FileIO classes that tasks obey, or that they cannot obey, and those of tables.

Java and Python clients have different names for the same thing, and both ignore unknown names. Any other property reaches
Java's client alone; `frazil check` names those that its classes do not have, and an unknown name that has to do with
encryption is an error, as files would be written in clear.

Iceberg keeps any text as the value of a table's property, and a writer finds out only when it begins a file; so the values
that files are written with are compared here, in the pipeline file and in tables that others have made.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from frazil.errors import SpecError

Treatment = Literal["honoured", "translated", "ignored", "refused"]
"""honoured: it has the same effect in tasks. translated: tasks get the same effect by other means. ignored: it has no
effect on files. refused: an error.
"""


@dataclass(frozen=True)
class StoreProperty:
    """One property, or all whose names begin with `name` where it ends with a dot."""

    name: str
    treatment: Treatment
    #: How it is honoured or translated, why it is ignored, or the remedy.
    note: str
    #: Values of a refused property that have no effect, in lower case.
    harmless: frozenset[str] = frozenset()

    def matches(self, name: str) -> bool:
        """Whether it describes the property `name`."""
        return name.startswith(self.name) if self.name.endswith(".") else name == self.name


def _of(treatment: Treatment, note: str, *names: str, harmless: Iterable[str] = ()) -> tuple[StoreProperty, ...]:
    return tuple(StoreProperty(name, treatment, note, frozenset(harmless)) for name in names)


S3 = (
    *_of("honoured", "the store's address", "s3.endpoint"),
    *_of("translated", "the bucket is in the path; otherwise in the host name", "s3.path-style-access"),
    *_of("honoured", "the region that requests are signed for", "client.region"),
    *_of("honoured", "the keys", "s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
    *_of("honoured", "no batch begins shortly before", "s3.session-token-expires-at-ms"),
    *_of("honoured", "the encryption of every object", "s3.sse.type", "s3.sse.key"),
    *_of("translated", "computed from the key", "s3.sse.md5"),
    *_of("refused", "grant access by a bucket policy, and turn access lists of the bucket off", "s3.acl"),
    *_of("honoured", "the tags of every object", "s3.write.tags."),
    *_of("honoured", "the storage class of every object", "s3.write.storage-class"),
    *_of("honoured", "with `false` tasks delete nothing either", "s3.delete-enabled"),
    *_of("translated", "tasks leave files to the removal of orphans, which tags them", "s3.delete.tags."),
    *_of("translated", "the alias takes the bucket's place; an ARN is refused", "s3.access-points."),
    *_of("translated", "another address", "s3.acceleration-enabled", "s3.dualstack-enabled"),
    *_of("translated", "SHA-256 of every object and part, which the store verifies", "s3.checksum-enabled"),
    *_of("translated", "retries and their pauses", "s3.retry.num-retries", "s3.retry.min-wait-ms"),
    *_of("translated", "retries and their pauses", "s3.retry.max-wait-ms"),
    *_of(
        "translated",
        "time-outs",
        "http-client.apache.connection-timeout-ms",
        "http-client.apache.socket-timeout-ms",
        "http-client.urlconnection.connection-timeout-ms",
        "http-client.urlconnection.socket-timeout-ms",
    ),
    *_of("translated", "the client whose time-outs apply", "http-client.type"),
    *_of("honoured", "the proxy", "http-client.proxy-endpoint"),
    *_of(
        "refused",
        "unset HTTP_PROXY where Frazil starts instead",
        "http-client.proxy-use-environment-variable-values",
        harmless=("true",),
    ),
    *_of(
        "refused",
        "name the proxy in `http-client.proxy-endpoint`",
        "http-client.proxy-use-system-property-values",
        harmless=("false",),
    ),
    *_of(
        "refused",
        "let the catalog vend credentials: tasks cannot ask it to sign requests",
        "s3.remote-signing-enabled",
        harmless=("false",),
    ),
    *_of("refused", "use a role or vended credentials", "s3.access-grants.enabled", harmless=("false",)),
    *_of(
        "refused", "name the bucket's region in `client.region`", "s3.cross-region-access-enabled", harmless=("false",)
    ),
)

GCS = (
    *_of("honoured", "the token", "gcs.oauth2.token"),
    *_of("honoured", "no batch begins shortly before", "gcs.oauth2.token-expires-at"),
    *_of("translated", "requests are not signed", "gcs.no-auth"),
    *_of("honoured", "the encryption of every object", "gcs.encryption-key"),
    *_of("honoured", "the same key: another one is refused", "gcs.decryption-key"),
    *_of("honoured", "the project that pays for requests", "gcs.user-project"),
    *_of("honoured", "the store's address", "gcs.service.host"),
)

ADLS = (
    *_of("honoured", "the SAS token of the account, which is named by its host", "adls.sas-token."),
    *_of("honoured", "no batch begins shortly before", "adls.sas-token-expires-at-ms."),
    *_of(
        "translated",
        "the account's address, as an URL, which Java takes it for; a SAS token where it has a query",
        "adls.connection-string.",
    ),
    *_of("honoured", "the account's key", "adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"),
    *_of("honoured", "the token", "adls.token"),
    *_of(
        "refused",
        "use a SAS token, a shared key, `adls.token`, or the identity of the machine",
        "adls.token-credential-provider",
        "adls.token-credential-provider.",
    ),
)

OSS = (
    *_of("honoured", "the store's address", "oss.endpoint"),
    *_of("honoured", "the keys", "client.access-key-id", "client.access-key-secret", "client.security-token"),
    *_of("refused", "write `client.access-key-id` and `client.access-key-secret`", "client.factory-impl"),
)

HADOOP = (
    *_of(
        "refused",
        "Hadoop's settings are Spark's: write `spark: {conf: {spark.hadoop.NAME: …}}`; for an object store Iceberg's own"
        " properties are needed",
        "fs.",
        "dfs.",
        "hadoop.",
    ),
)

OBJECT_STORES_OF_HADOOP = (
    "fs.s3a.", "fs.s3.", "fs.s3n.", "fs.gs.", "google.cloud.", "fs.azure.", "fs.adl.", "fs.oss.", "fs.cosn.", "fs.obs.",
)  # fmt: skip
"""What settings of Hadoop's own clients of object stores begin with: tables are reached by Iceberg's."""
DRIVERS_HADOOP = "frazil.hadoop."
"""What Hadoop's settings begin with where the driver sends them to tasks: a catalog has none of this name."""
HADOOP_USER = "user"
"""Beside Hadoop's settings that tasks get: whom the cluster takes the driver for."""
PROXY = "frazil.proxy"
"""The proxy by which the driver reaches S3, for tasks; empty for none."""

HDFS = (
    *_of("honoured", "the cluster's name nodes", "dfs.ha.namenodes.", "dfs.namenode.rpc-address."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.proxy.provider."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.random.order."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.resolve-needed."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.resolver.useFQDN."),
    *_of("honoured", "data nodes are reached by their names", "dfs.client.use.datanode.hostname"),
    *_of(
        "honoured",
        "how often, and with which pauses, a task calls name nodes",
        "dfs.client.failover.max.attempts",
        "dfs.client.failover.sleep.base.millis",
        "dfs.client.failover.sleep.max.millis",
    ),
    *_of("honoured", "how long a task waits for a data node", "dfs.client.socket-timeout"),
    *_of(
        "honoured",
        "whether a lost data node is replaced",
        "dfs.client.block.write.replace-datanode-on-failure.best-effort",
        "dfs.client.block.write.replace-datanode-on-failure.enable",
        "dfs.client.block.write.replace-datanode-on-failure.policy",
    ),
    *_of("translated", "the replicas of every file", "dfs.replication"),
    *_of("translated", "the size of every file's blocks", "dfs.blocksize"),
    *_of("translated", "the permissions of every file", "fs.permissions.umask-mode"),
    *_of(
        "refused",
        "keep tables in a cluster without Kerberos, or in an object store: tasks have no tickets",
        "hadoop.security.authentication",
        harmless=("simple",),
    ),
    *_of(
        "refused",
        "keep tables in a cluster without encrypted connections, or in an object store",
        "dfs.encrypt.data.transfer",
        harmless=("false",),
    ),
    *_of(
        "refused",
        "keep tables in a cluster without encrypted connections, or in an object store",
        "dfs.data.transfer.protection",
    ),
    *_of(
        "refused",
        "keep tables in a cluster without encrypted connections, or in an object store",
        "hadoop.rpc.protection",
        harmless=("authentication",),
    ),
    *_of(
        "refused",
        "remove it, and keep tables outside encryption zones",
        "hadoop.security.key.provider.path",
        "dfs.encryption.key.provider.uri",
    ),
    *_of("refused", "remove it: tasks connect directly", "hadoop.rpc.socket.factory.class."),
    *_of(
        "refused",
        "remove it: tasks ask DNS for name nodes",
        "dfs.client.failover.resolver.impl",
        harmless=("org.apache.hadoop.net.dnsdomainnameresolver",),
    ),
    *_of(
        "refused",
        "remove it: tasks reach `hdfs:` by HDFS's own protocol",
        "fs.hdfs.impl",
        harmless=("org.apache.hadoop.hdfs.distributedfilesystem",),
    ),
    *_of("ignored", "the names of all name services; tasks get those of the one that a path names", "dfs.nameservices"),
)
"""Hadoop's settings that decide something about files: the first that matches a name describes it. Tasks get no other."""

TABLE = (
    *_of("honoured", "where data files are", "write.data.path"),
    *_of("honoured", "the names of data files", "write.object-storage.enabled"),
    *_of("honoured", "the names of data files", "write.object-storage.partitioned-paths"),
    *_of("refused", "write `write.data.path`", "write.object-storage.path", "write.folder-storage.path"),
    *_of("refused", "remove it: tasks cannot ask a Java class for the names of files", "write.location-provider.impl"),
    *_of("refused", "remove it: only PyIceberg asks a Python class for them", "write.py-location-provider.impl"),
    *_of("refused", "use the store's encryption: tasks would write files in clear", "encryption.key-id"),
)
"""Properties of tables that concern the store."""

STORES: Mapping[str, tuple[StoreProperty, ...]] = {
    "S3": S3,
    "Google Cloud Storage": GCS,
    "Azure Data Lake Storage": ADLS,
    "Alibaba Cloud OSS": OSS,
    "HDFS and Hadoop's file systems": HADOOP,
}
"""The properties of catalogs, by store."""

_OF_JAVA = (
    "client.credentials-provider", "client.factory", "client.assume-role.", "client.refresh-credentials-",
    "client.legacy-md5-plugin-enabled", "client.pool.cache.eviction-interval-ms", "s3.client-factory-impl",
    "s3.write.table-tag-enabled", "s3.write.namespace-tag-enabled", "s3.delete.", "s3.use-arn-region-enabled",
    "s3.chunked-encoding-enabled", "s3.multipart.", "http-client.apache.", "s3.signer.", "signer.uri", "signer.endpoint",
    "s3.access-grants.", "s3.directory-bucket.", "s3.staging-dir", "s3.preload-client-enabled", "s3.crt.",
    "s3.analytics-accelerator.", "gcs.oauth2.refresh-credentials-", "gcs.impersonate.", "gcs.project-id", "gcs.channel.",
    "gcs.delete.", "gcs.client-lib-token", "gcs.analytics-core.", "adls.refresh-credentials-", "adls.read.block-size-bytes",
    "adls.write.block-size-bytes", "azure.keyvault.", "oss.staging-dir",
)  # fmt: skip
"""What the names of properties begin with that the driver's client obeys, tasks getting the result, or that only tune it."""
_PREFIXES = (
    "s3.", "client.", "http-client.", "signer.", "gcs.", "adls.", "azure.", "oss.", "fs.", "dfs.", "hadoop.", "hdfs.",
    "frazil.",
)  # fmt: skip
_NEVER_UNKNOWN = re.compile(r"^frazil\.|(?<![a-z])(?:sse|acl)(?![a-z])|crypt|kms")
"""What names have that are refused where they are unknown: of encryption, and Frazil's own, which tasks would obey."""
_OF_HOSTS = ("adls.sas-token.", "adls.sas-token-expires-at-ms.", "adls.connection-string.")
_MAY_BE_EMPTY = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", ".tags.")
_KNOWN = tuple(store_property for store in STORES.values() for store_property in store)
_EXACT = {store_property.name: store_property for store_property in _KNOWN if not store_property.name.endswith(".")}
_FAMILIES = tuple(store_property for store_property in _KNOWN if store_property.name.endswith("."))


def property_of(name: str) -> StoreProperty | None:
    """Returns the description of a property; None for one that concerns no store, or that tasks do not follow."""
    return _EXACT.get(name) or next((family for family in _FAMILIES if family.matches(name)), None)


def is_of_store(name: str) -> bool:
    """Whether the name is like that of a property of a store."""
    return name.strip().lower().startswith(_PREFIXES)


def is_known(name: str) -> bool:
    """Whether the property is one that tasks, or the driver's client, follow or refuse."""
    return property_of(name) is not None or name.startswith(_OF_JAVA)


def check_property(name: str, value: str, *, is_sent: bool = False) -> None:
    """Checks a property of a catalog. is_sent: it is not from the pipeline file, but the catalog sends it.

    Raises: SpecError for a property that tasks cannot obey, and for an unknown one of a store's encryption.
    """
    store_property = property_of(name)
    if store_property is None:
        if is_of_store(name) and not is_known(name) and _NEVER_UNKNOWN.search(name.strip().lower()):
            raise SpecError(f"`{name}` is not a property of a store that Frazil knows", remedy=nearest_property(name))
        return
    if store_property.treatment == "refused" and value.lower() not in store_property.harmless:
        raise refusal(store_property, name)
    if is_sent:
        return
    if not value.strip() and not store_property.name.endswith(_MAY_BE_EMPTY):
        raise SpecError(f"`{name}` is empty", remedy="write its value, or remove it")
    if store_property.name in _OF_HOSTS and "." not in name.removeprefix(store_property.name):
        raise SpecError(
            f"`{name}` names an account, where Iceberg's Java client looks for its host",
            remedy=f"write `{name}.dfs.core.windows.net`",
        )


def check_sent(io_properties: Mapping[str, str], properties: Mapping[str, str], table: str) -> None:
    """Checks what the catalog returned for a table: the properties of its file access, and its own.

    Raises: SpecError, as `check_property` and `check_table_properties`.
    """
    try:
        for name, value in sorted(io_properties.items()):
            check_property(name, value, is_sent=True)
        check_table_properties(properties)
    except SpecError as error:
        raise SpecError(error.message, remedy=error.remedy, where=table) from None


def check_table_properties(properties: Mapping[str, str]) -> None:
    """Checks properties of a table.

    Raises: SpecError for a property that tasks cannot obey.
    """
    for store_property in TABLE:
        if store_property.treatment == "refused" and store_property.name in properties:
            raise refusal(store_property, store_property.name)


def task_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that tasks need to reach the store; the catalog's own secrets are not among them."""
    return {name: value for name, value in properties.items() if _is_for_tasks(name)}


def credentials_end_ms(properties: Mapping[str, str]) -> int | None:
    """Returns when the first of the credentials in `properties` expires, in milliseconds of the epoch; None: never."""
    names = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at")
    ends = [
        int(value)
        for name, value in properties.items()
        if (name in names or name.startswith("adls.sas-token-expires-at-ms.")) and value.isdecimal()
    ]
    return min(ends, default=None)


def _is_for_tasks(name: str) -> bool:
    if name.startswith(DRIVERS_HADOOP) or name == PROXY:
        return True
    store_property = property_of(name)
    return store_property is not None and store_property.treatment in ("honoured", "translated")


def refusal(store_property: StoreProperty, name: str) -> SpecError:
    """Returns the error for a property or setting that tasks cannot obey."""
    return SpecError(f"`{name}` cannot be obeyed by the tasks that write data files", remedy=store_property.note)


def nearest_property(name: str) -> str:
    """Returns the remedy for a property of a store that is unknown."""
    close = difflib.get_close_matches(name.strip().lower(), _EXACT, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else "remove it: no store has it"


CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "lz4_raw", "uncompressed")
"""The values of `write.parquet.compression-codec`."""
CODEC = "write.parquet.compression-codec"
SIZES = (
    "write.target-file-size-bytes", "write.parquet.row-group-size-bytes", "write.parquet.page-size-bytes",
)  # fmt: skip
"""The properties with a number of bytes."""


@dataclass(frozen=True)
class WrongValue:
    """A value that no file can be written with."""

    name: str
    text: str
    #: The values that the property takes, in words.
    taken: str
    #: One of them.
    usual: str


@dataclass(frozen=True)
class _Values:
    """The values of a property, or of all whose names begin with `name` where it ends with a dot."""

    name: str
    takes: Callable[[str], bool]
    taken: str
    usual: str


def _matching(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE) is not None


def _is_probability(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False


_MODE = _matching(r"none|counts|full|truncate\([0-9]*[1-9][0-9]*\)")
_MODES = "none, counts, full or truncate(LENGTH)"
_VALUES = (
    *(_Values(name, _matching("[0-9]*[1-9][0-9]*"), "a number of bytes", "134217728") for name in SIZES[:2]),
    _Values(SIZES[2], _matching("[0-9]*[1-9][0-9]*"), "a number of bytes", "1048576"),
    _Values(CODEC, _matching("|".join(CODECS)), f"{', '.join(CODECS[:-1])} or {CODECS[-1]}", "zstd"),
    _Values("write.parquet.compression-level", _matching("-?[0-9]+|null|"), "a level, such as 3", "3"),
    _Values("write.parquet.bloom-filter-fpp.column.", _is_probability, "a share between 0 and 1", "0.01"),
    _Values("write.metadata.metrics.default", _MODE, _MODES, "truncate(16)"),
    _Values("write.metadata.metrics.column.", _MODE, _MODES, "truncate(16)"),
)
_EXACT_VALUES = {values.name: values for values in _VALUES if not values.name.endswith(".")}
_OF_COLUMNS = tuple(values for values in _VALUES if values.name.endswith("."))


def wrong_values(properties: Mapping[str, str]) -> Iterator[WrongValue]:
    """Yields the properties of a table that no file can be written with."""
    for name, text in properties.items():
        values = _EXACT_VALUES.get(name) or next(
            (column_values for column_values in _OF_COLUMNS if name.startswith(column_values.name)), None
        )
        if values is not None and not values.takes(text):
            yield WrongValue(name, text, values.taken, values.usual)


def hadoop_setting_of(name: str) -> StoreProperty | None:
    """Returns the description of one of Hadoop's settings; None for one that concerns no file of HDFS."""
    return next((setting for setting in HDFS if setting.matches(name)), None)


def hadoop_settings_of_tasks(settings: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the driver's Hadoop that decide something about files, under the names that tasks get.

    Raises: SpecError for a setting that tasks cannot obey.
    """
    sent = {}
    for name, value in settings.items():
        setting = hadoop_setting_of(name)
        if setting is None or value == defaults.get(name) or not value:
            continue
        if setting.treatment == "refused" and value.lower() not in setting.harmless:
            raise refusal(setting, name)
        if setting.treatment == "honoured":
            sent[f"{DRIVERS_HADOOP}{name}"] = value
    return sent
