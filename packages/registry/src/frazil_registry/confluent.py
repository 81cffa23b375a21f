"""The schema registry on the network, through Confluent's API, which Apicurio, Karapace and others implement too."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.common._httpx_compat import httpx  # The module that the client uses.
from confluent_kafka.schema_registry.error import OAuthTokenError

from frazil.clock import Clock, SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.refusals import Settings, refusal_remedy
from frazil.registry.port import NO_ID, RegisteredSchema, SchemaKind, UnusableSchema
from frazil.spec.connections import RegistrySpec
from frazil_registry.references import Gathering, Reference, Version, context_of, qualified

MAX_ANSWER_BYTES = 4 * 1024 * 1024
# Subjects, versions and schemas that do not exist or are deleted. A 404 without such a code comes from another server.
_GONE = range(40401, 40407)
_TROUBLES = (httpx.HTTPError, httpx.InvalidURL, OAuthTokenError, OSError, ValueError, RuntimeError)
_SETTINGS = Settings("registry.tls.ca", "`registry.tls`: certificate and key", "`registry.auth`")
_Result = TypeVar("_Result")
_TIMEOUT_S = 10.0
_LATEST_S = 60.0
_MAX_ID = 2**31 - 1
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KINDS: Mapping[str, SchemaKind] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


class RegistryClient:
    """Requests data from the servers of `spec`, one after another until one answers. Thread-safe. timeout_s: for one
    question in total.

    Raises: SpecError for settings that the client refuses.
    """

    def __init__(self, spec: RegistrySpec, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._hosts = ", ".join(urlsplit(url).netloc for url in spec.urls)
        self._settings = _settings(spec, timeout_s)
        self._idle: list[SchemaRegistryClient] = [_connect(self._settings)]
        self._mine = threading.local()

    def within_time(self, what: str, question: Callable[[], _Result]) -> _Result:
        """Returns, or raises, the outcome of `question`, which requests `what`.

        Raises: UnavailableError where it takes too long.
        """
        future: Future[_Result] = Future()
        # A client of its own: abandoning one question closes no other question's connection.
        client = self._take()

        def run() -> None:
            self._mine.client = client
            try:
                future.set_result(question())
            except Exception as error:  # noqa: BLE001  (raised where the result is waited for)
                future.set_exception(error)

        threading.Thread(target=run, name="registry", daemon=True).start()
        if not wait([future], self._timeout_s).done:
            client.close()  # The thread ends at its next byte, because its connection is closed.
            raise self.outage(what, f"no answer within {self._timeout_s:g} s")
        self._idle.append(client)
        return future.result()

    def _take(self) -> SchemaRegistryClient:
        try:
            return self._idle.pop()
        except IndexError:
            return _connect(self._settings)

    def get(self, what: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Returns the JSON of the response; None where the registry reports that it does not exist. To be called by a
        question of `within_time`.

        Raises: UnavailableError.
        """
        try:
            answer = self._mine.client._rest_client.get(path, dict(query or {}))
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in _GONE:
                return None
            raise self.outage(what, f"{error.http_status_code} {_words(error)}", error.http_status_code) from None
        except _TROUBLES as error:
            raise self.outage(what, _reason(error)) from None
        if answer is None:
            raise self.outage(what, "the answer is empty")
        return answer

    def register(self, subject: str, avro: str) -> int:
        """Returns the id of an Avro schema that the subject has from now on. To be called by a question of `within_time`.

        Raises: SpecError where the registry refuses the schema; UnavailableError.
        """
        what = f"an id for a schema of subject {subject}"
        try:
            schema_id: int = self._mine.client.register_schema(subject, Schema(avro, "AVRO"))
            return schema_id
        except SchemaRegistryError as error:
            if error.http_status_code in (409, 422):
                raise SpecError(
                    f"the schema registry refuses a schema: {_words(error)}",
                    remedy="write to a topic whose subjects have no other schema, or change their compatibility",
                    where=f"subject {subject}",
                ) from None
            raise self.outage(what, f"{error.http_status_code} {_words(error)}", error.http_status_code) from None
        except _TROUBLES as error:
            raise self.outage(what, _reason(error)) from None

    def outage(self, what: str, reason: str, status: int = 0) -> UnavailableError:
        """Returns the error without a response, with its remedy. status: the HTTP status, if any."""
        message = f"the schema registry does not return {what}: {reason}"
        return UnavailableError(message, remedy=_remedy(status, reason), where=self._hosts)

    def close(self) -> None:
        """Closes the connections."""
        while self._idle:
            self._idle.pop().close()


class _Limited(httpx.SyncByteStream):
    """The body of a response; raises where it grows too long."""

    def __init__(self, stream: Any, is_good: bool) -> None:
        self._stream = stream
        self._is_good = is_good

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                message = f"the registry's answer is longer than {MAX_ANSWER_BYTES // 2**20} MiB"
                raise UnusableSchema(message) if self._is_good else RuntimeError(message)
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _connect(settings: dict[str, Any]) -> SchemaRegistryClient:
    try:
        client = SchemaRegistryClient(settings)
    except OSError as error:  # OpenSSL's errors about certificates are OSErrors.
        remedy = "check `registry.tls`: certificate, key and key_password must belong together"
        raise SpecError(f"the registry's TLS files cannot be used: {error}", remedy=remedy) from None
    except (TypeError, ValueError) as error:
        message = f"the registry's client refuses its settings: {error}"
        raise SpecError(message, remedy="see `registry.properties`") from None
    session = client._rest_client.session
    # Questions are rare: a kept connection would mostly have been closed by the server.
    session.headers.update({"Accept-Encoding": "identity", "Connection": "close"})
    session.event_hooks = {"request": [_drop_empty_cluster], "response": [_limit]}
    return client


def _limit(response: Any) -> None:
    """Bounds a response before it is read. A compressed one, which was not requested, could grow without end."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise RuntimeError("the answer is compressed, which was not requested")
    response.stream = _Limited(response.stream, response.is_success)


def _drop_empty_cluster(request: Any) -> None:
    """Removes Confluent Cloud's cluster header, which the client requires with every bearer token, where there is no
    cluster.
    """
    if request.headers.get("target-sr-cluster") == "":
        del request.headers["target-sr-cluster"]


def _settings(spec: RegistrySpec, timeout_s: float) -> dict[str, Any]:
    """Returns the client's settings. Its time-out applies to one step of one request to one server: every server gets a
    share.
    """
    settings: dict[str, Any] = {
        "url": ",".join(spec.urls),
        "timeout": 0.9 * timeout_s / len(spec.urls),
        "max.retries": 0,  # Frazil retries itself, with back-off.
        **spec.properties,
    }
    if spec.auth.username is not None:
        settings["basic.auth.user.info"] = f"{spec.auth.username}:{spec.auth.password}"
    if spec.auth.token is not None:
        settings["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        settings["bearer.auth.token"] = spec.auth.token
        settings.setdefault("bearer.auth.logical.cluster", "")
    for name, path in {"ca": spec.tls.ca, "certificate": spec.tls.certificate, "key": spec.tls.key}.items():
        if path is not None:
            _check_file(name, path)
            settings[f"ssl.{name}.location"] = path
    if spec.tls.key_password is not None:
        settings["ssl.key.password"] = spec.tls.key_password
    return settings


def _check_file(name: str, path: str) -> None:
    try:
        if not (name == "ca" and Path(path).is_dir()):
            Path(path).open("rb").close()
    except OSError as error:
        raise SpecError(
            f"the file of `registry.tls.{name}` cannot be read: {error.strerror}",
            remedy="correct its path, or let this user read it",
            where=path,
        ) from None


def _words(error: SchemaRegistryError) -> str:
    """Returns the registry's message of a refusal; other servers in front of it answer with whole pages."""
    if error.error_code == SchemaRegistryError.UNKNOWN:
        return "without a word of a registry"
    return " ".join(str(error.error_message or "").split())[:200]


def _reason(error: Exception) -> str:
    """Returns the client's error in readable words."""
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    words = " ".join(str(error).split())[:200] or type(error).__name__
    return f"the answer is not JSON: {words}" if isinstance(error, ValueError) else words


def _remedy(status: int, reason: str) -> str:
    if status in (401, 403):
        return "check `registry.auth`: the registry rejects this user"
    if 300 <= status < 400 or status in (404, 405):
        return (
            "check that `registry.url` is the address of the Confluent API itself: https://registry:8081, or"
            " https://registry/apis/ccompat/v7 of an Apicurio"
        )
    if "CERTIFICATE" in reason.upper() or "SSL" in reason:
        words = "this machine and the registry do not trust each other's certificates"
        return refusal_remedy(reason, _SETTINGS) or f"check `registry.tls`: {words}"
    return "Frazil retries with back-off; check that the registry is running at `registry.url`"


class ConfluentRegistry:
    """Implements the port `SchemaRegistry`. timeout_s: for one question, referenced schemas included, whatever the
    servers do. Schemas are cached for good (an id never changes its meaning), the latest version of a subject for a
    minute.

    Raises: SpecError for settings that the client refuses.
    """

    def __init__(self, spec: RegistrySpec, timeout_s: float = _TIMEOUT_S, clock: Clock | None = None) -> None:
        self._context = spec.context
        self._clock = clock or SystemClock()
        self._client = RegistryClient(spec, timeout_s)
        self._schemas: dict[tuple[str, int | str], RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], Version] = {}
        self._latest: dict[str, tuple[float, RegisteredSchema]] = {}

    def reach(self) -> None:
        what, place = "schemas", qualified("", self._context)
        query = {"subject": place} if place else {}
        self._client.within_time(what, lambda: self._client.get(what, f"schemas/ids/{_MAX_ID}", query))

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema | None:
        if not 0 < schema_id <= _MAX_ID:
            return None  # A registry would refuse the request itself, which would look like an outage.
        context = context_of(subject, self._context)
        place = qualified(subject, context)
        return self._remember(
            (context, schema_id), f"schema {schema_id}", f"schemas/ids/{schema_id}", {"subject": place} if place else {}
        )

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        if not _GUID.fullmatch(guid):
            return None
        return self._remember((self._context, guid), f"the schema of GUID {guid}", f"schemas/guids/{guid}", {})

    def latest(self, subject: str) -> RegisteredSchema | None:
        name = qualified(subject, self._context)
        until, schema = self._latest.get(name, (0.0, None))
        if schema is None or self._clock.monotonic_s() >= until:
            what, path = f"the latest schema of subject {name}", f"subjects/{quote(name, safe='')}/versions/latest"
            schema = self._client.within_time(what, lambda: self._complete(what, path, {}, context_of(name)))
            self._latest.pop(name, None)
            if schema is not None:
                self._latest[name] = (self._clock.monotonic_s() + _LATEST_S, schema)
        return schema

    def subjects(self, prefix: str) -> tuple[str, ...]:
        what, full_prefix = f"the subjects that begin with {prefix}", qualified(prefix, self._context)
        answer = self._client.within_time(
            what, lambda: self._client.get(what, "subjects", {"subjectPrefix": full_prefix})
        )
        if not isinstance(answer, list) or not all(isinstance(name, str) for name in answer):
            raise self._client.outage(what, "the answer is not a list of names")
        cut = len(full_prefix) - len(prefix)
        return tuple(sorted(name[cut:] for name in answer if name.startswith(full_prefix)))

    def register(self, subject: str, avro: str) -> int:
        """Returns the id of an Avro schema, which becomes the subject's newest version unless the subject has it.

        Raises: SpecError where the registry refuses the schema; UnavailableError where it does not answer.
        """
        name = qualified(subject, self._context)
        return self._client.within_time(f"an id for a schema of {name}", lambda: self._client.register(name, avro))

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _remember(
        self, place: tuple[str, int | str], what: str, path: str, query: Mapping[str, str]
    ) -> RegisteredSchema | None:
        schema = self._schemas.get(place)
        if schema is None:
            schema = self._client.within_time(what, lambda: self._complete(what, path, query, place[0], place[1]))
            if schema is not None:
                self._schemas[place] = schema
        return schema

    def _complete(
        self, what: str, path: str, query: Mapping[str, str], context: str, key: int | str | None = None
    ) -> RegisteredSchema | None:
        """Returns the schema with everything it refers to. key: the requested id or GUID; None for the latest version."""
        answer = self._client.get(what, path, query)
        if answer is None:
            return None
        version = self._read(what, answer)
        word = answer.get("schemaType") or "AVRO"
        if not isinstance(word, str) or word not in _KINDS:
            raise UnusableSchema(f"it is of the kind {word}, which Frazil does not read")
        schema_id = key if isinstance(key, int) else answer.get("id", NO_ID)
        if not isinstance(schema_id, int) or (key is None and schema_id == NO_ID):
            raise self._client.outage(what, "the answer has no schema id")
        gathering = Gathering(lambda subject, version: self._version(qualified(subject, context), version))
        gathering.visit(version.references)
        return RegisteredSchema(schema_id, _KINDS[word], version.text, tuple(gathering.texts.items()))

    def _version(self, subject: str, number: int) -> Version | None:
        """Returns one version, also where it is soft-deleted: schemas that refer to it still need it."""
        version = self._versions.get((subject, number))
        if version is None:
            what, path = (
                f"version {number} of subject {subject}",
                f"subjects/{quote(subject, safe='')}/versions/{number}",
            )
            answer = self._client.get(what, path, {"deleted": "true"})
            if answer is None:
                return None
            version = self._versions[subject, number] = self._read(what, answer)
        return version

    def _read(self, what: str, answer: Any) -> Version:
        """Returns the schema in the response.

        Raises: UnavailableError where the response has none.
        """
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise self._client.outage(what, "the answer is not a schema")
        references = [_reference(held) for held in _list(answer.get("references"))]
        if None in references:
            raise self._client.outage(what, "the answer has references without name, subject or version")
        return Version(answer["schema"], tuple(held for held in references if held))


def _list(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held] if held else []


def _reference(held: Any) -> Reference | None:
    if not isinstance(held, dict):
        return None
    name, subject, version = held.get("name"), held.get("subject"), held.get("version")
    if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
        return None
    return Reference(name, subject, version)
