"""Java collections, file access and exceptions from Python.

Iceberg's exceptions are distinguished by the names of their classes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from frazil.errors import ConflictError, FrazilError, SpecError, UnavailableError
from frazil.refusals import BUCKET_REMEDY, NO_BUCKET, Settings, refusal_remedy
from frazil.types import MAIN

# Not Iceberg's NotFoundException: it means a file missing in the store, of a table that the catalog knows.
_NOT_THERE = ("NoSuchTableException", "NoSuchNamespaceException")
FORBIDDEN = "ForbiddenException"
_UNREADABLE = ("NotFoundException", "FileNotFoundException", "NoSuchFileException")
# The messages of `TableMetadata` for a change more than a minute older than the newest one in the table.
_OLDER_THAN_THE_TABLE = (
    "Invalid update timestamp",
    "Expected sorted snapshot log",
    "Expected sorted previous metadata",
)
_CLASS_REMEDY = "name the jar that has the class under `catalog: {jars: […]}`, or correct `catalog`"
# Java's errors about a class of a jar that was compiled for another Java, or with other versions of the jars beside it.
_OF_ANOTHER_BUILD = (
    "UnsupportedClassVersionError", "ClassFormatError", "IncompatibleClassChangeError", "AbstractMethodError",
    "NoSuchMethodError", "NoSuchFieldError", "VerifyError",
)  # fmt: skip
_BUILD_REMEDY = (
    "name a jar under `catalog: {jars: […]}` that was built for the Java that `frazil doctor` shows, and for the Iceberg of"
    " this Frazil"
)
_VALUE_REMEDY = "correct the setting that has this value, under `catalog` or `catalog.properties`"
_NOT_USABLE = re.compile(r"Cannot initialize \w+( implementation|, missing|, \S+ does not implement)")
# What Iceberg, Hadoop and Amazon's client throw for a value that they cannot use, before they ask anybody.
_OF_VALUES = (
    "IllegalArgumentException", "NumberFormatException", "DateTimeParseException", "PatternSyntaxException",
    "URISyntaxException", "InvalidPathException",
)  # fmt: skip
# The same, of methods that read settings; others throw these for an answer or a file that makes no sense, too.
_OF_SETTINGS = (
    *_OF_VALUES, "IllegalStateException", "NullPointerException", "ValidationException", "NoSuchMethodException",
    "ClassCastException",
)  # fmt: skip
_LEFT_OUT = re.compile(r"NullPointerException: [\w ]+ must not be (null|empty|blank)")
_READS_SETTINGS = re.compile(r"(Properties|PropertyUtil|ClientFactory|ClientFactories|AuthManagers)\.[\w<]")
# PostgreSQL's driver throws its own exception for them.
_REFUSED_BY_DRIVER = re.compile(r"Invalid \w+ value: |parameter value must be ")
_WORKERS = 4
_BUCKET_NAME = re.compile(r"<BucketName>([^<]+)</BucketName>")
_ADVICE = "If you are using a StorageSharedKeyCredential"
_SETTINGS = Settings(
    trust="the JVM's trust store (`spark: {conf: {spark.driver.extraJavaOptions: -Djavax.net.ssl.trustStore=…}}`), or of"
    " PostgreSQL in jdbc.sslrootcert",
    certificate="the certificate and the key under `catalog.properties`",
    login="the credentials under `catalog.properties`",
)
# Of Amazon's client, which has looked for them in the environment, in files, and at the machine's own service.
_NOT_FOUND = {
    "Unable to load region": "write `client.region` under `catalog.properties`, or set AWS_REGION where Frazil starts",
    "Unable to load credentials": "write `s3.access-key-id` and `s3.secret-access-key` under `catalog.properties`, or"
    " set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where Frazil starts; Frazil retries with back-off",
}
# What a server reports of itself, in messages that may name classes of its own.
_ANSWERS = (
    "RESTException", "ServiceFailureException", "ServiceUnavailableException", "BadRequestException",
    "NotAuthorizedException",
    "ForbiddenException", "MetaException", "TApplicationException", "NessieServiceException", "HttpClientException",
    "NessieInternalServerException", "NessieBadRequestException", "NessieBackendThrottledException",
)  # fmt: skip
_NAME_REMEDIES = {
    # A path that has the word is none of these.
    re.compile(
        r"NoSuchWarehouse|\bwarehouse:? ['\"`]?[\w.-]+['\"`]? (does not exist|(was |is )?not found|is unknown)"
        r"|warehouse does not exist|(unknown|no such|find|resolve) warehouse\b",
        re.I,
    ): ("correct `catalog.warehouse`: the catalog has none of this name; Frazil retries with back-off"),
    re.compile(r"Named reference .* not found|NessieReferenceNotFound", re.I): (
        "correct `ref` under `catalog.properties`: Nessie has no branch of this name; Frazil retries with back-off"
    ),
    re.compile(
        r"Unable to create database path|Failed to create (database|external) path"
        r"|MetaException.{0,200}(mkdirs|ParentNotDirectoryException|AccessControlException)",
        re.I,
    ): (
        "let the user of Hive's metastore make this folder, or write `catalog.warehouse` as a place where it may; Frazil"
        " retries with back-off"
    ),
}
"""What to correct, by what a catalog reports of a name or a place that it has from the pipeline file."""
_OTHER_SERVERS = (
    "Unable to process (code: 404", "No route for request", "Could not parse error object", "HTTP status code 40",
    "UnknownHostException", "TTransportException", "Invalid method name", "no such column: catalog_name",
    'column "catalog_name" does not exist',
)  # fmt: skip
"""Parts of the classes and messages of exceptions where a server of another kind or version, or none, is at the address."""

_UNREACHED = re.compile(r"(UnknownHost|HttpHostConnect|Connect|ConnectTimeout|NoRouteToHost)Exception")
# The same in the messages of Amazon's client, without the names of the causes.
_UNREACHED_WORDS = re.compile(r"UnknownHostException|Connect to \S+ .*(failed|timed out)|Connection refused")
_IN_S3 = re.compile(r"\.services\.s3\.|iceberg\.aws\.s3\.")
_IN_S3A = "hadoop.fs.s3a."
_S3_REMEDY = (
    "check that the store is running at `s3.endpoint` under `catalog.properties`, or without it in the region of"
    " `client.region`; Frazil retries with back-off"
)
# Only Amazon has a use for it, and it pushes the cause out of the message.
_REQUEST = re.compile(r", Extended Request ID: [^,)]*| \(SDK Attempt Count: \d+\)")


@lru_cache(maxsize=1)
def maintenance_workers(gateway: Any) -> Any:
    """Returns the threads of the JVM behind py4j's `gateway` that read manifests for table maintenance. In Iceberg's own
    pool, of a thread for each core, every commit of a batch would wait until an expiry has read those of all snapshots.
    """
    return gateway.jvm.org.apache.iceberg.util.ThreadPools.newExitingWorkerPool("frazil-maintenance", _WORKERS)


def java_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Returns the classes of all Java exceptions: py4j's, and PySpark's where PySpark is imported; importing it for
    this would cost time. more: further classes to be caught.
    """
    captured = sys.modules.get("pyspark.errors.exceptions.captured")
    return (Py4JJavaError, *more) if captured is None else (Py4JJavaError, captured.CapturedException, *more)


def unavailable(what: str, error: Exception, where: str) -> FrazilError:
    """Returns an UnavailableError with the innermost cause; a clock that was set back and a missing file have remedies
    of their own.
    """
    if is_clock_behind(error):
        return UnavailableError(
            f"{what}: this machine's clock was set back: it is more than a minute behind the newest change of the"
            f" table ({message_of(error)})",
            remedy="correct the clock; Frazil retries with back-off and succeeds once the clock is past that change",
            where=where,
        )
    if is_named(error, *_UNREADABLE) and not is_not_there(error) and not _name_remedy(_text_of(error)):
        return UnavailableError(
            f"{what}: a file of it is not in the store: {cause_of(error)}",
            remedy="mount the warehouse again or restore the file; Frazil retries with back-off",
            where=where,
        )
    bucket = _bucket_of(error)
    missing = f"the bucket `{bucket}` does not exist: " if bucket else ""
    return UnavailableError(f"{what}: {missing}{cause_of(error)}", remedy=_remedy_of(error), where=where)


def _bucket_of(error: Exception) -> str:
    """Returns the bucket of which a store answers that it does not exist; empty where its answer does not name one."""
    if not NO_BUCKET.search(_text_of(error)):
        return ""
    for cause in causes_of(error):
        with suppress(Py4JError):  # A method that only exceptions of Amazon's client have.
            answer = cause.awsErrorDetails().rawResponse()  # Null of an answer without a body.
            named = _BUCKET_NAME.search(str(answer.asUtf8String())) if answer is not None else None
            if named is not None:
                return named[1]
    return ""


@contextmanager
def answering(what: str, where: str) -> Iterator[None]:
    """Turns Java exceptions in its block into UnavailableError, as `unavailable`."""
    try:
        yield
    except java_errors() as error:
        raise unavailable(what, error, where) from None


def unreadable_metadata(words: str, file: str, table: str) -> UnavailableError:
    """Returns the error of a table whose metadata file `file` cannot be read. words: what reading it failed with."""
    is_unreached = file.startswith("s3:") and _UNREACHED_WORDS.search(words)
    remedy = _S3_REMEDY if is_unreached else "make the file readable for this user, or restore it from a copy"
    remedy = BUCKET_REMEDY if NO_BUCKET.search(words) else refusal_remedy(words, _SETTINGS) or remedy
    message = f"the table cannot be loaded: its metadata file {file} cannot be read: {_REQUEST.sub('', words)}"
    return UnavailableError(message, remedy=remedy, where=table)


def mistake_of(what: str, error: Exception, where: str, *, is_opening: bool = False) -> SpecError | None:
    """Returns the error of a mistake in the pipeline file, which no waiting corrects: a class that is not on the class
    path or cannot be used, or a value that a setting cannot have; None for another exception, also for a class that
    could not be initialized. is_opening: whether `error` was thrown while a catalog was opened, from settings alone.
    """
    text = _text_of(error, of_servers=False)
    is_missing = "NoClassDefFoundError" in text and "Could not initialize class" not in text
    if is_missing or "ClassNotFoundException" in text:
        return SpecError(f"{what}: {cause_of(error)}", remedy=_CLASS_REMEDY, where=where)
    if any(name in text for name in _OF_ANOTHER_BUILD):
        return SpecError(f"{what}: {cause_of(error)}", remedy=_BUILD_REMEDY, where=where)
    if _NOT_USABLE.search(text):
        return SpecError(f"{what}: {_refusal_of(error)}", remedy=_CLASS_REMEDY, where=where)
    if _is_refused_value(error, is_opening):
        return SpecError(f"{what}: {_refusal_of(error)}", remedy=_VALUE_REMEDY, where=where)
    return None


def _is_refused_value(error: Exception, is_opening: bool) -> bool:
    """Returns whether the exception in the JVM is about a value of a setting, as the innermost cause shows. A server's
    answer that cannot be parsed is none; nor is a host without an address, which Hadoop throws as a value's cause.
    """
    causes = causes_of(error)
    if not causes:
        return False
    kind, text = causes[-1].getClass().getSimpleName(), cause_of(error)
    if is_opening and (kind in _OF_VALUES or _LEFT_OUT.search(text)) and "Cannot parse" not in text:
        return True
    reads_settings = any(_READS_SETTINGS.search(str(method)) for method in causes[-1].getStackTrace())
    return bool((kind in _OF_SETTINGS and reads_settings) or _REFUSED_BY_DRIVER.search(text))


def _refusal_of(error: Exception) -> str:
    """Returns the words of the method that refuses a value or a class, on one line: a cause of its exception has others."""
    causes = causes_of(error)
    return _words(next((cause for cause in causes if cause.getClass().getSimpleName() in _OF_SETTINGS), causes[-1]))


def _text_of(error: Exception, *, of_servers: bool = True) -> str:
    """Returns the names of the classes and the messages of the exception in the JVM and its causes. of_servers: also
    messages that a server has written.
    """
    named = ((cause.getClass().getName(), cause.getMessage()) for cause in causes_of(error))
    return " ".join(f"{name} {words}" if of_servers or not name.endswith(_ANSWERS) else name for name, words in named)


def _remedy_of(error: Exception) -> str:
    """Returns what to do about an exception of a service; empty where nothing better is known than to look at it."""
    text = _text_of(error)
    if remedy := _name_remedy(text):
        return remedy
    if remedy := refusal_remedy(text, _SETTINGS):
        return remedy
    if NO_BUCKET.search(text):
        return BUCKET_REMEDY
    if remedy := next((remedy for words, remedy in _NOT_FOUND.items() if words in text), ""):
        return remedy
    if _UNREACHED.search(text) and _is_of_s3(error):
        return _S3_REMEDY
    is_other = any(part in text for part in _OTHER_SERVERS)
    other = "check that `catalog.uri` is the address of a catalog of this type; Frazil retries with back-off"
    return other if is_other else ""


def _is_of_s3(error: Exception) -> bool:
    """Returns whether Iceberg's client of S3 has thrown an exception. Hadoop's client has other settings."""
    methods = " ".join(str(method) for cause in causes_of(error) for method in cause.getStackTrace())
    return _IN_S3.search(methods) is not None and _IN_S3A not in methods


def _name_remedy(text: str) -> str:
    return next((remedy for words, remedy in _NAME_REMEDIES.items() if words.search(text)), "")


def is_clock_behind(error: Exception) -> bool:
    """Returns whether Iceberg refuses a change because the table has a change that is more than a minute younger."""
    return any(words in message_of(error) for words in _OLDER_THAN_THE_TABLE)


def is_not_there(error: Exception) -> bool:
    """Returns whether the catalog reports that the table does not exist."""
    return is_named(error, *_NOT_THERE)


def is_another_table(error: Exception) -> bool:
    """Returns whether a loaded table was deleted and recreated under its name, or may have been, so that it must be
    loaded again. Catalogs with one pointer per name, such as JDBC, find out on refresh. A Hadoop catalog looks for the
    version that it knows, which is gone after many commits of other processes, too.
    """
    is_recreated = is_named(error, "IllegalStateException") and "Table UUID does not match" in cause_of(error)
    return is_recreated or (is_named(error, "ValidationException") and "Metadata file for version" in cause_of(error))


def is_named(error: Exception, *names: str) -> bool:
    """Returns whether it is a Java exception with one of these names in the name of its class."""
    thrown = _thrown(error)
    return thrown is not None and any(name in thrown.getClass().getName() for name in names)


def message_of(error: Exception) -> str:
    """Returns the message of the exception itself, without causes, on one line; empty for another exception."""
    thrown = _thrown(error)
    return " ".join(str(thrown.getMessage() or "").split())[:400] if thrown is not None else ""


def _thrown(error: Exception) -> Any:
    """Returns the exception in the JVM; None for another exception. PySpark keeps it too, unless Python code raised it."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def causes_of(error: Exception) -> list[Any]:
    """Returns the exception in the JVM and its causes, the innermost last; empty for another exception."""
    thrown = _thrown(error)
    causes = [thrown] if thrown is not None else []
    while causes and (inner := causes[-1].getCause()) is not None and len(causes) <= 10:
        causes.append(inner)
    return causes


def cause_of(error: Exception) -> str:
    """Returns the innermost cause as text, on one line."""
    causes = causes_of(error)
    return _words(causes[-1]) if causes else str(error)


def _words(cause: Any) -> str:
    message = str(cause.getMessage() or "").partition("\n\tat ")[0]  # HDFS puts a trace of the server behind it.
    text = _REQUEST.sub("", " ".join(message.split()))
    if text.startswith(_ADVICE):  # Azure's client puts half a page of it before the store's answer.
        text = "".join(text.partition("Status code")[1:]) or text
    return f"{cause.getClass().getSimpleName()}: {text}".rstrip(": ")[:400]


def each(iterable: Any) -> Iterator[Any]:
    """Yields the members of a Java collection by its own iterator: py4j's ends with a Java exception, whose class
    PySpark changes.
    """
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def head_of(java: Any, branch: str) -> Any:
    """Returns the newest snapshot of the branch of a Java table; None without a snapshot. A branch that the table does not
    have yet begins at the main branch, as Iceberg creates it with its first commit.

    Raises: SpecError where the table has a tag of this name.
    """
    ref = None if branch == MAIN else java.refs().get(branch)
    if ref is None:
        return java.currentSnapshot()
    if ref.isTag():
        raise SpecError(
            f"`branch: {branch}` is the name of a tag of the table, and commits need a branch",
            remedy="name another branch, or remove the tag",
            where=str(java.name()),
        )
    return java.snapshot(ref.snapshotId())


def on_branch(update: Any, branch: str) -> Any:
    """Returns the uncommitted update of a Java table, which will be committed to the branch."""
    return update if branch == MAIN else update.toBranch(branch)


def ancestors_of(java: Any, branch: str) -> Iterator[Any]:
    """Yields the snapshots of the branch of a Java table, the newest first, as far as they are not expired."""
    snapshot = head_of(java, branch)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = java.snapshot(parent) if parent is not None else None


def newest_snapshot(java: Any, table: str, branch: str = MAIN) -> Any:
    """Returns the newest snapshot of the branch of the Java table.

    Raises: ConflictError without one, such as of a table that was deleted and recreated since it was planned for.
    """
    snapshot = head_of(java, branch)
    if snapshot is None:
        raise ConflictError("the table no longer has a snapshot", where=table)
    return snapshot


def summary_of(snapshot: Any) -> Any:
    """Returns the summary of a Java snapshot as a map, empty without one: format version 1 does not require it (Iceberg
    spec "Snapshots").
    """
    summary = snapshot.summary()
    return {} if summary is None else summary


def length(iterable: Any) -> int:
    """Returns the number of members of a Java collection."""
    size = getattr(iterable, "size", None)
    return int(size()) if size is not None else sum(1 for _ in iterable)


def array_of(gateway: Any, kind: Any, *members: Any) -> Any:
    """Returns a Java array of the class `kind`."""
    array = gateway.new_array(kind, len(members))
    for place, member in enumerate(members):
        array[place] = member
    return array


def strings(gateway: Any, words: Sequence[str]) -> Any:
    """Returns a Java array of strings."""
    return array_of(gateway, gateway.jvm.java.lang.String, *words)


def make_hidden(gateway: Any, java: Any, name: str, *arguments: Any) -> Any:
    """Returns an object of a class that is not public and has one constructor. java: an object of Iceberg."""
    kind = gateway.jvm.java.lang.Class.forName(name, True, java.getClass().getClassLoader())
    (constructor,) = kind.getDeclaredConstructors()
    constructor.setAccessible(True)
    return constructor.newInstance(array_of(gateway, gateway.jvm.java.lang.Object, *arguments))


def forget_readers(gateway: Any) -> None:
    """Lets the JVM collect what Iceberg's vectorized readers leave: an allocator of half a kilobyte of each file that Spark
    has read stays in a list for good (apache/iceberg#11277). The list serves Arrow's debugging; no reader needs it.
    """
    root = gateway.jvm.org.apache.iceberg.arrow.ArrowAllocation.rootAllocator()
    children = root.getClass().getSuperclass().getDeclaredField("childAllocators")
    children.setAccessible(True)
    children.get(root).clear()


class Collector:
    """java.util.function.Consumer: collects the strings that it receives, such as paths of files."""

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("java.util.function.Consumer",)

    def __init__(self) -> None:
        self.paths: list[str] = []

    def accept(self, path: str) -> None:
        """Called by the JVM for each string."""
        self.paths.append(path)


@contextmanager
def lent(java: Any, *objects: object) -> Iterator[None]:
    """While the block lasts Java may call these objects of Python's; py4j would keep them for good, as a JVM with a session
    has no connection to Python on which it could return them. java: any object of Java's.
    """
    pool = java._gateway_client.gateway_property.pool
    try:
        yield
    finally:
        with pool.lock:
            for name in [
                name for name, lent_object in pool.dict.items() if any(lent_object is other for other in objects)
            ]:
                del pool.dict[name]


def make_namespaces(gateway: Any, catalog: Any, namespace: Any) -> None:
    """Creates a namespace of a Java catalog and its parents, where they do not exist."""
    for depth in range(1, namespace.length() + 1):
        levels = [namespace.level(level) for level in range(depth)]
        part = gateway.jvm.org.apache.iceberg.catalog.Namespace.of(strings(gateway, levels))
        try:
            if not _is_namespace(catalog, part):
                catalog.createNamespace(part)
        except java_errors() as error:
            # Another thread or process was faster; a database catalog reports it by a constraint of its own.
            if not is_named(error, "AlreadyExistsException") and not _is_namespace(catalog, part):
                raise


def _is_namespace(catalog: Any, namespace: Any) -> bool:
    """Returns whether the namespace exists and may be seen."""
    try:
        return bool(catalog.namespaceExists(namespace))
    except java_errors() as error:
        if not is_named(error, FORBIDDEN):
            raise
        return False


def remove(java: Any, paths: Iterable[str]) -> None:
    """Deletes files that no snapshot names, as far as possible: an orphan costs space only."""
    for path in set(paths):
        with suppress(*java_errors()):
            java.io().deleteFile(path)


def configuration_of(gateway: Any, hadoop: Mapping[str, str]) -> Any:
    """Returns Hadoop's Java configuration with these settings, beside those of its files."""
    configuration = gateway.jvm.org.apache.hadoop.conf.Configuration()
    for name, value in hadoop.items():
        configuration.set(name, value)
    return configuration
