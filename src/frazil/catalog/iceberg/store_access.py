"""What tasks need to reach a table's store, as Iceberg's own client in the JVM has it, and whether both reach it.

Java and Python find keys, regions and roles in different places. So the driver asks Iceberg's client for the keys that it
uses, whatever provider, role or machine they come from, and tasks get these, with the time at which they expire. It asks
Hadoop for the settings of HDFS likewise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError

from frazil.catalog.iceberg.java import configuration_of, java_errors, mistake_of, unavailable
from frazil.clock import new_id
from frazil.errors import FrazilError, SpecError, UnavailableError
from frazil.plugins.catalogs import STORES
from frazil.refusals import OF_TASKS, refusal_remedy
from frazil.store.addresses import address_of
from frazil.store.clients import adls_host, adls_identity, gcs_endpoint, s3_host
from frazil.store.file_io import store_of
from frazil.store.properties import DRIVERS_HADOOP, HADOOP_USER, PROXY, hadoop_settings_of_tasks, task_properties

IO_OF = {
    "s3": "org.apache.iceberg.aws.s3.S3FileIO",
    "gcs": "org.apache.iceberg.gcp.gcs.GCSFileIO",
    "adls": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
    "oss": "org.apache.iceberg.aliyun.oss.OSSFileIO",
}
HADOOP_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
_WITH_TOKEN = "software.amazon.awssdk.identity.spi.AwsSessionCredentialsIdentity"
# Of Hadoop's client, in HdfsClientConfigKeys: PySpark's jars lack hdfs-default.xml.
_BLOCK_BYTES, _REPLICAS = 128 * 1024 * 1024, 3
_OWN_PROVIDERS = ("client.factory", "s3.client-factory-impl", "client.credentials-provider")
_KEYS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_PLACE = ("client.region", "s3.endpoint")
_BUCKET = "any-bucket"
_OF_AZURE = "https://storage.azure.com/.default"


def build_client(gateway: Any, properties: Mapping[str, str]) -> None:
    """Builds the client of S3 by the properties of a catalog, and closes it: nobody is asked. A client is built when the
    first metadata file is read, and Iceberg tries that 20 times, for 90 seconds, also where a property is refused.

    Raises: the Java exception of a property that is refused.
    """
    if properties.get("io-impl") == IO_OF["s3"]:
        io = gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO(IO_OF["s3"], dict(properties), None)
        try:
            io.client()
        finally:
            io.close()


def refuse_hadoop(gateway: Any, io: Any, location: str, table: str) -> None:
    """Raises SpecError for an object store that is reached by Hadoop's file systems: tasks do not read their settings."""
    kind = address_of(location).kind
    if kind in IO_OF and is_instance_of(gateway, io, HADOOP_IO):
        scheme = urlsplit(location).scheme
        raise SpecError(
            f"the catalog reaches `{scheme}:` by Hadoop's file system, whose settings tasks do not have",
            remedy=f"write `io-impl: {IO_OF[kind]}` under `catalog.properties`, with Iceberg's properties of the store",
            where=table,
        )


def vended_for(credentials: Iterable[tuple[str, Mapping[str, str]]], location: str) -> dict[str, str]:
    """Returns the properties of the credentials whose prefix of `location` is the longest; empty without any.
    credentials: prefixes with properties.
    """
    matching = [credential for credential in credentials if location.startswith(credential[0])]
    return dict(max(matching, key=lambda credential: len(credential[0]))[1]) if matching else {}


def identity_of(gateway: Any, io: Any, location: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the keys, the region, the address and the proxy that Iceberg's client uses, where
    `properties` have none; empty for OSS, whose client does not show them. Of HDFS they are Hadoop's settings.

    Raises: SpecError for settings that tasks cannot obey; the Java exception of a client that finds none.
    """
    address = address_of(location)
    kind = address.kind
    if kind == "hdfs":
        STORES.get(kind)  # Otherwise the first task would say that its package is missing.
        return _hadoop_settings(gateway.jvm, io)
    if kind == "adls":
        identity = {} if adls_identity(properties, address) else _adls_identity(gateway, address.host)
        return {**identity, PROXY: _azure_proxy_to(gateway, adls_host(properties, address))}
    if kind == "gcs":
        proxy = {PROXY: _system_proxy_to(gateway, gcs_endpoint(properties))}
        if "gcs.oauth2.token" in properties or properties.get("gcs.no-auth", "").lower() == "true":
            return proxy
        with _of_kind(gateway, io, kind) as file_io:
            return proxy | _gcs_identity(file_io.client(location))
    if kind == "s3":
        identity = _s3_access(gateway, io, location, properties)
        host = s3_host({**properties, **identity}, address.bucket)
        return {**identity, PROXY: proxy_to(gateway, properties.get("http-client.proxy-endpoint"), host)}
    return {}


def _s3_access(gateway: Any, io: Any, location: str, properties: Mapping[str, str]) -> dict[str, str]:
    # Iceberg takes empty keys for none.
    is_named = properties.get("s3.access-key-id") and properties.get("s3.secret-access-key")
    if not is_named or any(name in properties for name in _OWN_PROVIDERS):
        with _of_kind(gateway, io, "s3") as file_io:
            return _s3_identity(gateway, file_io.client(location))
    if not all(map(properties.get, _PLACE)):
        return place_of(gateway, tuple((name, properties[name]) for name in _PLACE if name in properties))
    return {}


@lru_cache(maxsize=64)
def proxy_to(gateway: Any, named: str | None, host: str) -> str:
    """Returns the proxy by which Amazon's client reaches a host; empty for none. Without one that is named it looks in
    HTTP_PROXY, for https too, and always in NO_PROXY, whose names are whole ones to it.
    """
    jvm = gateway.jvm
    builder = jvm.software.amazon.awssdk.http.apache5.ProxyConfiguration.builder()
    proxy = (builder.endpoint(jvm.java.net.URI.create(named)) if named else builder).build()
    others = json.loads(jvm.org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(proxy.nonProxyHosts()))
    if not proxy.host() or any(jvm.java.util.regex.Pattern.matches(pattern, host) for pattern in others):
        return ""
    return f"{proxy.scheme()}://{_user(proxy.username(), proxy.password())}{proxy.host()}:{proxy.port() or 80}"


def _user(name: str | None, password: str | None) -> str:
    """Returns the part of a proxy's address that logs in."""
    return f"{quote(name, '')}:{quote(password or '', '')}@" if name else ""


def _azure_proxy_to(gateway: Any, host: str) -> str:
    """Returns the proxy by which Azure's client reaches a host; empty for none. It follows properties of Java's, and
    HTTPS_PROXY only where java.net.useSystemProxies is true.
    """
    jvm = gateway.jvm
    azure = jvm.com.azure.core
    proxy = azure.http.ProxyOptions.fromConfiguration(azure.util.Configuration.getGlobalConfiguration(), True)
    if proxy is None or jvm.java.util.regex.Pattern.matches(proxy.getNonProxyHosts() or "", host):
        return ""
    address = proxy.getAddress()
    return f"http://{_user(proxy.getUsername(), proxy.getPassword())}{address.getHostString()}:{address.getPort()}"


def _system_proxy_to(gateway: Any, url: str) -> str:
    """Returns the proxy by which Java itself, and Google's client with it, reaches an address; empty for none. It follows
    properties of Java's alone, such as https.proxyHost.
    """
    jvm = gateway.jvm
    kind, selector = jvm.java.lang.Class.forName("java.net.ProxySelector"), jvm.java.net.ProxySelector.getDefault()
    address = jvm.java.net.URI.create(url)
    # The selector's own class is not one that others may call.
    types, arguments = gateway.new_array(jvm.java.lang.Class, 1), gateway.new_array(jvm.java.lang.Object, 1)
    types[0], arguments[0] = address.getClass(), address
    for proxy in kind.getMethod("select", types).invoke(selector, arguments):
        if str(proxy.type()) == "HTTP":
            return f"http://{proxy.address().getHostString()}:{proxy.address().getPort()}"
    return ""


@contextmanager
def _of_kind(gateway: Any, io: Any, kind: str) -> Iterator[Any]:
    """Yields Iceberg's file access for this kind of store: `io`, or another one where `io` hides it."""
    if is_instance_of(gateway, io, IO_OF[kind]):
        yield io
        return
    file_io = gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO(IO_OF[kind], io.properties(), None)
    try:
        yield file_io
    finally:
        file_io.close()


def try_writing(gateway: Any, io: Any, location: str) -> None:
    """Raises the Java exception of a store that this client may not write to under `location`; leaves nothing there. In S3
    an upload in parts is begun as Iceberg begins one, and aborted; of HDFS the right is asked for. Other stores are not
    tried: they have no write that changes nothing.
    """
    kind = address_of(location).kind
    if kind == "s3":
        with _of_kind(gateway, io, kind) as file_io:
            stream = file_io.newOutputFile(f"{location.rstrip('/')}/{new_id()}").createOrOverwrite()
            _end_at_once(gateway, stream)
    elif kind == "hdfs":
        hadoop = gateway.jvm.org.apache.hadoop.fs
        path = hadoop.Path(location)
        files = path.getFileSystem(io.getConf())
        while not files.exists(path):
            path = path.getParent()
        files.access(path, hadoop.permission.FsAction.WRITE_EXECUTE)


def _end_at_once(gateway: Any, stream: Any) -> None:
    """Begins and aborts the upload of a new S3OutputStream, which would write an empty object when it is closed."""
    kind, new_array = stream.getClass(), gateway.new_array
    closed = kind.getDeclaredField("closed")
    closed.setAccessible(True)
    closed.setBoolean(stream, True)
    for name in ("initializeMultiPartUpload", "abortUpload"):
        step = kind.getDeclaredMethod(name, new_array(gateway.jvm.java.lang.Class, 0))
        step.setAccessible(True)
        step.invoke(stream, new_array(gateway.jvm.java.lang.Object, 0))


def _hadoop_settings(jvm: Any, io: Any) -> dict[str, str]:
    """Returns Hadoop's settings as the driver has them, out of the pipeline file and out of files of HADOOP_CONF_DIR."""
    hadoop = jvm.org.apache.hadoop
    # Makes Hadoop read its settings of HDFS, whose names older versions spelled otherwise.
    hadoop.hdfs.HdfsConfiguration.init()
    configuration, plain = io.getConf(), hadoop.conf.Configuration(False)
    plain.addResource("core-default.xml")
    plain.addResource("hdfs-default.xml")
    settings = hadoop_settings_of_tasks(_named(jvm, configuration), _named(jvm, plain))
    umask = hadoop.fs.permission.FsPermission.getUMask(configuration).toShort()
    client_settings = {
        "dfs.blocksize": configuration.getLongBytes("dfs.blocksize", _BLOCK_BYTES),
        "dfs.replication": configuration.getInt("dfs.replication", _REPLICAS),
        "fs.permissions.umask-mode": f"{umask:03o}",
        HADOOP_USER: hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName(),
    }
    return settings | {f"{DRIVERS_HADOOP}{name}": str(value) for name, value in client_settings.items()}


def _named(jvm: Any, configuration: Any) -> dict[str, str]:
    """Returns the settings of HDFS and of Hadoop's connections in a Java configuration, a call for each group."""
    mapper = jvm.org.apache.iceberg.util.JsonUtil.mapper()
    return {
        f"{group}{name}": value
        for group in ("dfs.", "hadoop.security.", "hadoop.rpc.", "fs.hdfs.")
        for name, value in json.loads(mapper.writeValueAsString(configuration.getPropsWithPrefix(group))).items()
    }


@lru_cache(maxsize=8)
def place_of(gateway: Any, named: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Returns the region and the address of S3 for Amazon's client, where properties name these, and the rest is this
    machine's, such as in AWS_REGION, in AWS_ENDPOINT_URL or in a profile.

    Raises: the Java exception of a client that finds no region.
    """
    client_properties = {"s3.access-key-id": "-", "s3.secret-access-key": "-", **dict(named)}
    io = gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO(IO_OF["s3"], client_properties, None)
    try:
        return _s3_place(gateway, io.client())
    finally:
        io.close()


def _s3_place(gateway: Any, client: Any) -> dict[str, str]:
    configuration = client.serviceClientConfiguration()
    place, endpoint = {"client.region": str(configuration.region().id())}, configuration.endpointOverride()
    if endpoint.isPresent():
        return {**place, "s3.endpoint": str(endpoint.get())}
    model = gateway.jvm.software.amazon.awssdk.services.s3.model
    url = str(client.utilities().getUrl(model.GetUrlRequest.builder().bucket(_BUCKET).key("x").build()))
    host = (urlsplit(url).hostname or "").removeprefix(f"{_BUCKET}.")
    return {**place, "s3.endpoint": f"https://{host}"} if host.startswith("s3-fips.") else place


def _s3_identity(gateway: Any, client: Any) -> dict[str, str]:
    """Returns the region, the address and the keys of the client; empty ones for none, as others may be in properties."""
    identity = {**_s3_place(gateway, client), **dict.fromkeys(_KEYS, "")}
    configuration = client.serviceClientConfiguration()
    keys = configuration.credentialsProvider().resolveCredentials()
    if keys.accessKeyId() is None:  # Anonymous.
        return identity
    identity |= {"s3.access-key-id": str(keys.accessKeyId()), "s3.secret-access-key": str(keys.secretAccessKey())}
    if is_instance_of(gateway, keys, _WITH_TOKEN):
        identity["s3.session-token"] = str(keys.sessionToken())
        if keys.expirationTime().isPresent():
            identity["s3.session-token-expires-at-ms"] = str(keys.expirationTime().get().toEpochMilli())
    return identity


def _gcs_identity(client: Any) -> dict[str, str]:
    # Google's library asks for the scopes of its store with each request: the key of a service account has none.
    credentials = client.getOptions().getScopedCredentials()
    credentials.refreshIfExpired()
    token = credentials.getAccessToken()
    identity = {"gcs.oauth2.token": str(token.getTokenValue())}
    ends = token.getExpirationTime()
    return {**identity, "gcs.oauth2.token-expires-at": str(ends.getTime())} if ends is not None else identity


@lru_cache(maxsize=1)
def _azure_credential(gateway: Any) -> Any:
    """Returns Azure's way to the identity of this machine, as Iceberg's client has it: it keeps tokens until they end."""
    return gateway.jvm.com.azure.identity.DefaultAzureCredentialBuilder().build()


def _adls_identity(gateway: Any, host: str) -> dict[str, str]:
    scopes = gateway.new_array(gateway.jvm.java.lang.String, 1)
    scopes[0] = _OF_AZURE
    request = gateway.jvm.com.azure.core.credential.TokenRequestContext().addScopes(scopes)
    token = _azure_credential(gateway).getTokenSync(request)
    ends_ms = token.getExpiresAt().toInstant().toEpochMilli()
    return {"adls.token": str(token.getToken()), f"adls.sas-token-expires-at-ms.{host}": str(ends_ms)}


_DENIED = "access denied"
_MAY_NOT_LIST = "it answers, but this client may not list it"
_RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"


def probe_store(gateway: Any, hadoop: Mapping[str, str], properties: Mapping[str, str], location: str) -> str:
    """Lists the first objects under `location`, by Iceberg's file access, which commits use too, and by the client of
    tasks, and tries to write there; returns a description of the result. properties: of the catalog or, better, of a
    table: a catalog may vend others than the pipeline file has.

    Raises: UnavailableError where that fails; SpecError for settings that tasks cannot obey.
    """
    jvm = gateway.jvm
    configuration = configuration_of(gateway, hadoop)
    try:
        io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
            properties.get("io-impl", _RESOLVING), dict(properties), configuration
        )
        try:
            result = _list(io, location)
            task_settings = {**properties, **identity_of(gateway, io, location, properties)}
            try:
                try_writing(gateway, io, location)
            except java_errors() as error:
                raise unavailable("the store cannot be written to", error, location) from None
        finally:
            _close(io)
    except java_errors() as error:
        raise _unreachable(error, location) from None
    except Py4JError:
        return "it answers"
    if result != _MAY_NOT_LIST:
        _probe_for_tasks(task_properties(task_settings), location)
    return result


def properties_of_file(
    gateway: Any, hadoop: Mapping[str, str], properties: Mapping[str, str], location: str
) -> dict[str, str]:
    """Returns what tasks need to reach a file that is not a table's, by the properties of a catalog.

    Raises: UnavailableError where the driver's client finds no identity; SpecError for settings that tasks cannot obey.
    """
    kept, kind = task_properties(properties), address_of(location).kind
    if kind in ("local", "oss"):
        return kept
    try:
        load = gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO
        io = load(IO_OF.get(kind, HADOOP_IO), dict(properties), configuration_of(gateway, hadoop))
        try:
            return {**kept, **identity_of(gateway, io, location, properties)}
        finally:
            _close(io)
    except java_errors() as error:
        raise _unreachable(error, location) from None


def _close(io: Any) -> None:
    """Closes file access of Iceberg's. HadoopFileIO has nothing to close: its method is its interface's, which py4j does
    not find.
    """
    with suppress(Py4JError):
        io.close()


def _list(io: Any, location: str) -> str:
    """Returns what listing the location shows. A folder of HDFS that does not exist yet is empty. Frazil reads and writes
    objects by name; many stores do not allow their clients to list.
    """
    try:
        is_there = io.listPrefix(location.rstrip("/") + "/").iterator().hasNext()
    except java_errors() as error:
        if _DENIED in _unreachable(error, location).message.lower():
            return _MAY_NOT_LIST
        if address_of(location).kind != "hdfs" or "FileNotFoundException" not in str(error):
            raise
        is_there = False
    return "it answers" if is_there else "it answers, and is empty"


def _unreachable(error: Exception, location: str) -> FrazilError:
    what = "the store cannot be reached"
    return mistake_of(what, error, location) or unavailable(what, error, location)


def _probe_for_tasks(properties: Mapping[str, str], location: str) -> None:
    try:
        store_of(tuple(sorted(properties.items()))).probe(location)
    except OSError as error:
        message = f"Iceberg's Java client reaches the store, and tasks do not: {error}"
        raise UnavailableError(message, remedy=refusal_remedy(str(error), OF_TASKS), where=location) from None
