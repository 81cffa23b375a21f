"""Every property of Iceberg's Java FileIO classes, and what Frazil does with it where Python writes.

Java and Python clients have different names for the same thing, and both ignore unknown names. Files would then be
written in clear or by another identity, so an unknown name of a store is an error here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from frazil.errors import SpecError

Treatment = Literal["honoured", "translated", "driver", "ignored", "refused", "python-only"]
"""honoured: it has the same effect in tasks. translated: tasks get the same effect by other means. driver: the driver
obeys it, and tasks get the result. ignored: it has no effect on objects. refused: an error. python-only: Java does not
read it, so the pipeline file may not have it, and it is ignored where a catalog sends it.
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


_DRIVER = "the driver's Iceberg client uses it, and tasks get the resulting keys"
_RELOAD = "the driver loads the table again before credentials expire"
_TUNING = "tunes Java's client; no effect on objects"
_AT = "write the account's address as `adls.connection-string.<host>`"
_PYTHON = "a name of Python clients, which Iceberg's Java client does not read"

S3 = (
    *_of("honoured", "the store's address", "s3.endpoint"),
    *_of("translated", "the bucket is in the path; otherwise in the host name", "s3.path-style-access"),
    *_of("honoured", "the region that requests are signed for", "client.region"),
    *_of("honoured", "the keys", "s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
    *_of("honoured", "no batch begins shortly before", "s3.session-token-expires-at-ms"),
    *_of("driver", _RELOAD, "client.refresh-credentials-endpoint", "client.refresh-credentials-enabled"),
    *_of("driver", _DRIVER, "client.credentials-provider", "client.credentials-provider."),
    *_of("driver", _DRIVER, "client.factory", "s3.client-factory-impl"),
    *_of("driver", _DRIVER, "client.assume-role.arn", "client.assume-role.region"),
    *_of("driver", _DRIVER, "client.assume-role.external-id", "client.assume-role.session-name"),
    *_of("driver", _DRIVER, "client.assume-role.timeout-sec", "client.assume-role.tags."),
    *_of("honoured", "the encryption of every object", "s3.sse.type", "s3.sse.key"),
    *_of("translated", "computed from the key", "s3.sse.md5"),
    *_of("refused", "grant access by a bucket policy, and turn access lists of the bucket off", "s3.acl"),
    *_of("honoured", "the tags of every object", "s3.write.tags."),
    *_of("honoured", "the storage class of every object", "s3.write.storage-class"),
    *_of(
        "driver",
        "Glue's catalog turns it into `s3.write.tags.`",
        "s3.write.table-tag-enabled",
        "s3.write.namespace-tag-enabled",
    ),
    *_of("honoured", "with `false` tasks delete nothing either", "s3.delete-enabled"),
    *_of("translated", "tasks leave files to the removal of orphans, which tags them", "s3.delete.tags."),
    *_of("ignored", "tasks delete objects one by one", "s3.delete.batch-size", "s3.delete.num-threads"),
    *_of("translated", "the alias takes the bucket's place; an ARN is refused", "s3.access-points."),
    *_of("ignored", "only for ARNs, which are refused", "s3.use-arn-region-enabled"),
    *_of("translated", "another address", "s3.acceleration-enabled", "s3.dualstack-enabled"),
    *_of("translated", "SHA-256 of every object and part, which the store verifies", "s3.checksum-enabled"),
    *_of("ignored", "tasks send neither chunked bodies nor MD5", "s3.chunked-encoding-enabled"),
    *_of("ignored", "tasks send no checksum without `s3.checksum-enabled`", "client.legacy-md5-plugin-enabled"),
    *_of(
        "ignored",
        "tasks send parts of 5 MiB",
        "s3.multipart.num-threads",
        "s3.multipart.part-size-bytes",
        "s3.multipart.threshold",
    ),
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
    *_of("ignored", _TUNING, "http-client.apache.connection-acquisition-timeout-ms"),
    *_of("ignored", _TUNING, "http-client.apache.connection-max-idle-time-ms"),
    *_of("ignored", _TUNING, "http-client.apache.connection-time-to-live-ms"),
    *_of("ignored", _TUNING, "http-client.apache.expect-continue-enabled", "http-client.apache.max-connections"),
    *_of("ignored", _TUNING, "http-client.apache.tcp-keep-alive-enabled"),
    *_of("ignored", _TUNING, "http-client.apache.use-idle-connection-reaper-enabled"),
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
    *_of("ignored", "only for remote signing, which is refused", "s3.signer.", "signer.uri", "signer.endpoint"),
    *_of("ignored", "only for remote signing, which is refused", "rest.remote-signing."),
    *_of("refused", "use a role or vended credentials", "s3.access-grants.enabled", harmless=("false",)),
    *_of("ignored", "only with S3 Access Grants, which are refused", "s3.access-grants.fallback-to-iam"),
    *_of(
        "refused", "name the bucket's region in `client.region`", "s3.cross-region-access-enabled", harmless=("false",)
    ),
    *_of("ignored", "tasks list no objects", "s3.directory-bucket.list-prefix-as-directory"),
    *_of("ignored", _TUNING, "s3.staging-dir", "s3.preload-client-enabled", "s3.crt.", "s3.analytics-accelerator."),
    *_of("python-only", "write `client.region`", "s3.region"),
    *_of("python-only", "write `s3.secret-access-key`", "client.secret-access-key"),
    *_of("python-only", "write `s3.session-token`", "client.session-token"),
    *_of(
        "python-only",
        "write `client.credentials-provider:"
        " software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider`, with AWS_PROFILE",
        "client.profile-name",
        "s3.profile-name",
    ),
    *_of(
        "python-only",
        "write `client.credentials-provider: software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider`",
        "s3.anonymous",
    ),
    *_of("python-only", "write `client.factory` and `client.assume-role.arn`", "s3.role-arn", "client.role-arn"),
    *_of("python-only", "write `client.assume-role.session-name`", "s3.role-session-name", "client.role-session-name"),
    *_of("python-only", "write `http-client.apache.connection-timeout-ms`", "s3.connect-timeout"),
    *_of("python-only", "write `http-client.apache.socket-timeout-ms`", "s3.request-timeout"),
    *_of("python-only", "write `http-client.proxy-endpoint`", "s3.proxy-uri"),
    *_of("python-only", "write `s3.path-style-access`", "s3.force-virtual-addressing"),
    *_of("python-only", "write `client.region`", "s3.resolve-region"),
    *_of("python-only", "write `s3.retry.num-retries`", "s3.retry-strategy-impl"),
    *_of("python-only", "write `s3.sse.type`", "s3.server-side-encryption"),
    *_of("python-only", "write `s3.sse.key`", "s3.sse-kms-key-id"),
    *_of("python-only", "let the catalog vend credentials", "s3.signer"),
)

GCS = (
    *_of("honoured", "the token", "gcs.oauth2.token"),
    *_of("honoured", "no batch begins shortly before", "gcs.oauth2.token-expires-at"),
    *_of(
        "driver",
        _RELOAD,
        "gcs.oauth2.refresh-credentials-endpoint",
        "gcs.oauth2.refresh-credentials-enabled",
    ),
    *_of("translated", "requests are not signed", "gcs.no-auth"),
    *_of(
        "driver",
        _DRIVER,
        "gcs.impersonate.service-account",
        "gcs.impersonate.delegates",
        "gcs.impersonate.scopes",
        "gcs.impersonate.lifetime-seconds",
    ),
    *_of("honoured", "the encryption of every object", "gcs.encryption-key"),
    *_of("honoured", "the same key: another one is refused", "gcs.decryption-key"),
    *_of("honoured", "the project that pays for requests", "gcs.user-project"),
    *_of("honoured", "the store's address", "gcs.service.host"),
    *_of("ignored", "only for buckets, which Frazil does not create", "gcs.project-id"),
    *_of("ignored", _TUNING, "gcs.channel.read.chunk-size-bytes", "gcs.channel.write.chunk-size-bytes"),
    *_of("ignored", _TUNING, "gcs.delete.batch-size", "gcs.client-lib-token", "gcs.analytics-core."),
    *_of("python-only", "write `gcs.user-project`", "gcs.requester-pays"),
    *_of("python-only", "write `gcs.service.host`", "gcs.endpoint"),
    *_of("python-only", _PYTHON, "gcs.consistency", "gcs.cache-timeout", "gcs.session-kwargs", "gcs.version-aware"),
    *_of("python-only", _PYTHON, "gcs.default-bucket-location"),
)

ADLS = (
    *_of("honoured", "the SAS token of the account, which is named by its host", "adls.sas-token."),
    *_of("honoured", "no batch begins shortly before", "adls.sas-token-expires-at-ms."),
    *_of("driver", _RELOAD, "adls.refresh-credentials-endpoint", "adls.refresh-credentials-enabled"),
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
    *_of("ignored", _TUNING, "adls.read.block-size-bytes", "adls.write.block-size-bytes"),
    *_of("ignored", "only for table encryption, which is refused", "azure.keyvault."),
    *_of(
        "python-only",
        "set AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID where Frazil starts",
        "adls.client-id",
        "adls.client-secret",
        "adls.tenant-id",
    ),
    *_of("python-only", "write `adls.auth.shared-key.account.name`", "adls.account-name"),
    *_of("python-only", "write `adls.auth.shared-key.account.key`", "adls.account-key"),
    *_of("python-only", "write `adls.sas-token.<host>`, the account's host", "adls.sas-token"),
    *_of("python-only", _AT, "adls.connection-string", "adls.account-host"),
    *_of("python-only", _AT, "adls.blob-storage-authority", "adls.dfs-storage-authority"),
    *_of("python-only", _AT, "adls.blob-storage-scheme", "adls.dfs-storage-scheme"),
    *_of("python-only", _PYTHON, "adls.anon", "adls.credential"),
)

OSS = (
    *_of("honoured", "the store's address", "oss.endpoint"),
    *_of("honoured", "the keys", "client.access-key-id", "client.access-key-secret", "client.security-token"),
    *_of("refused", "write `client.access-key-id` and `client.access-key-secret`", "client.factory-impl"),
    *_of("ignored", _TUNING, "oss.staging-dir"),
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
    *_of("python-only", "name the cluster in `catalog.warehouse`, as hdfs://HOST:PORT/PATH", "hdfs."),
)

OBJECT_STORES_OF_HADOOP = (
    "fs.s3a.", "fs.s3.", "fs.s3n.", "fs.gs.", "google.cloud.", "fs.azure.", "fs.adl.", "fs.oss.", "fs.cosn.", "fs.obs.",
)  # fmt: skip
"""What settings of Hadoop's own clients of object stores begin with: tables are reached by Iceberg's."""
DRIVERS_HADOOP = "frazil.hadoop."
"""What Hadoop's settings begin with where the driver sends them to tasks: a catalog has none of this name."""
PROXY = "frazil.proxy"
"""The proxy by which the driver reaches S3, for tasks; empty for none."""

_TUNING_OF_HDFS = (
    "dfs.client-write-packet-size", "dfs.client.block.reader.", "dfs.client.block.write.", "dfs.client.cache.",
    "dfs.client.cached.", "dfs.client.congestion.", "dfs.client.context", "dfs.client.datanode-restart.",
    "dfs.client.deadnode.", "dfs.client.domain.", "dfs.client.failover.", "dfs.client.hedged.", "dfs.client.mark.",
    "dfs.client.max.", "dfs.client.mmap.", "dfs.client.output.", "dfs.client.pipeline.", "dfs.client.rbf.",
    "dfs.client.read.", "dfs.client.refresh.", "dfs.client.replica.", "dfs.client.retry.", "dfs.client.server-defaults.",
    "dfs.client.short.", "dfs.client.slow.", "dfs.client.socket.", "dfs.client.socketcache.", "dfs.client.test.",
    "dfs.client.use.legacy.", "dfs.client.write.", "dfs.datanode.hostname", "dfs.datanode.readahead.bytes",
    "dfs.datanode.socket.", "dfs.domain.socket.", "dfs.namenode.lease-hard-limit-sec",
    "dfs.namenode.snapshot.capture.openfiles", "dfs.provided.aliasmap.", "dfs.short.circuit.",
)  # fmt: skip
HDFS = (
    *_of("honoured", "the cluster's name nodes", "dfs.ha.namenodes.", "dfs.namenode.rpc-address."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.proxy.provider."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.random.order."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.resolve-needed."),
    *_of("honoured", "how the active name node is found", "dfs.client.failover.resolver.useFQDN."),
    *_of("honoured", "data nodes are reached by their names", "dfs.client.use.datanode.hostname"),
    *_of(
        "honoured",
        "how often, and with which pauses, name nodes are asked",
        "dfs.client.failover.max.attempts",
        "dfs.client.failover.sleep.base.millis",
        "dfs.client.failover.sleep.max.millis",
    ),
    *_of("honoured", "how long a data node is waited for", "dfs.client.socket-timeout"),
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
        "remove it, and keep tables outside of encryption zones",
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
    *_of(
        "ignored",
        "tasks write CRC-32C over as many bytes as the name node names; no effect on a file's bytes",
        "dfs.bytes-per-checksum",
        "dfs.checksum.",
    ),
    *_of(
        "ignored",
        "a task that cannot write to enough data nodes loses its batch, which is planned again",
        "dfs.client.block.write.replace-datanode-on-failure.min-replication",
    ),
    *_of("ignored", "tasks bind to no interface", "dfs.client.local.interfaces"),
    *_of(
        "ignored",
        "only for encrypted connections and zones, which are refused",
        "dfs.client.https.",
        "dfs.client.ignore.",
        "dfs.client.key.",
        "dfs.data.transfer.",
        "dfs.encrypt.data.",
        "dfs.trustedchannel.resolver.class",
    ),
    *_of("ignored", "only for Kerberos, which is refused", "dfs.datanode.kerberos.principal"),
    *_of("ignored", "only for Kerberos, which is refused", "dfs.namenode.kerberos.principal"),
    *_of("ignored", "only for logins, keys and servers", "hadoop.security."),
    *_of("ignored", "only for `webhdfs:`", "dfs.http.client.", "dfs.webhdfs."),
    *_of("ignored", "only for `webhdfs:` and Hadoop's commands", "dfs.client.fsck.", "dfs.namenode.http-address"),
    *_of(
        "ignored", "only for `webhdfs:` and Hadoop's commands", "dfs.namenode.https-address", "dfs.user.home.dir.prefix"
    ),
    *_of("ignored", "the names of all name services; tasks get those of the one that a path names", "dfs.nameservices"),
    *_of("ignored", "tunes Java's client; no effect on files", *_TUNING_OF_HDFS),
)
"""Hadoop's settings that its client of HDFS reads: the first that matches a name describes it. Others are of servers."""

FILE_IO = (
    *_of("ignored", "a property of Hive's catalog", "client.pool.cache.eviction-interval-ms"),
    *_of("python-only", "remove it: tasks reach a store by Iceberg's own properties of the store", "py-io-impl"),
)

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
    "Other": FILE_IO,
}
"""The properties of catalogs, by store."""

_PREFIXES = (
    "s3.",
    "client.",
    "http-client.",
    "signer.",
    "gcs.",
    "adls.",
    "azure.",
    "oss.",
    "fs.",
    "dfs.",
    "hadoop.",
    "hdfs.",
    "frazil.",
)
_OF_HOSTS = ("adls.sas-token.", "adls.sas-token-expires-at-ms.", "adls.connection-string.")
_MAY_BE_EMPTY = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", ".tags.")
_KNOWN = tuple(store_property for store in STORES.values() for store_property in store)
_EXACT = {store_property.name: store_property for store_property in _KNOWN if not store_property.name.endswith(".")}
_FAMILIES = tuple(store_property for store_property in _KNOWN if store_property.name.endswith("."))


def property_of(name: str) -> StoreProperty | None:
    """Returns the description of a property; None for one that concerns no store, or is unknown."""
    return _EXACT.get(name) or next((family for family in _FAMILIES if family.matches(name)), None)


def check_property(name: str, value: str, *, is_sent: bool = False) -> None:
    """Checks a property of a catalog. is_sent: it is not from the pipeline file, but the catalog sends it.

    Raises: SpecError for a property that tasks cannot obey, and for an unknown one of a store.
    """
    store_property = property_of(name)
    if store_property is None:
        if name.strip().lower().startswith(_PREFIXES):
            raise SpecError(f"`{name}` is not a property of a store that Frazil knows", remedy=_advice(name))
        return
    if store_property.treatment == "refused" and value.lower() not in store_property.harmless:
        raise refusal(store_property, name)
    if is_sent:
        return
    if not value.strip() and not store_property.name.endswith(_MAY_BE_EMPTY):
        raise SpecError(f"`{name}` is empty", remedy="write its value, or remove it")
    if store_property.treatment == "python-only":
        raise SpecError(f"`{name}` is not one of Iceberg's properties", remedy=store_property.note)
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


def _advice(name: str) -> str:
    close = difflib.get_close_matches(name.strip().lower(), _EXACT, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else "remove it: no store has it"
