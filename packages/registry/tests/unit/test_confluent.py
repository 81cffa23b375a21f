"""The registry's client against servers that answer well, badly, or not at all."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from frazil.clock import Clock
from frazil.errors import SpecError, UnavailableError
from frazil.registry.port import NO_ID, RegisteredSchema, UnusableSchema
from frazil.spec import AuthSpec, RegistrySpec, TlsSpec
from frazil_registry.confluent import MAX_ANSWER_BYTES, ConfluentRegistry
from frazil_testing.twins import FakeClock
from packages.registry.tests.unit.server import (
    Answer,
    FakeRegistry,
    fake_registry,
    hang,
    missing,
    reference,
    schema,
    trickle,
    trouble,
)
from tests.fixtures.certificates import Authority

GUID = "0123abcd-0000-4000-8000-00000000000f"
Connect = Callable[..., ConfluentRegistry]


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def connect(server: FakeRegistry) -> Iterator[Connect]:
    with ExitStack() as stack:

        def make(timeout_s: float = 10.0, clock: Clock | None = None, **settings: Any) -> ConfluentRegistry:
            registry = ConfluentRegistry(RegistrySpec(**{"urls": (server.url,), **settings}), timeout_s, clock)
            stack.callback(registry.close)
            return registry

        yield make


def test_an_id_is_a_schema_and_is_asked_for_once(server: FakeRegistry, connect: Connect) -> None:
    server.answers["/schemas/ids/7"] = schema({"type": "long"})
    registry = connect()
    expected = RegisteredSchema(7, "avro", '{"type": "long"}', ())
    assert [registry.by_id(7), registry.by_id(7)] == [expected, expected]
    assert server.paths == ["/schemas/ids/7"]


@pytest.mark.parametrize(("word", "kind"), [("AVRO", "avro"), ("PROTOBUF", "protobuf"), ("JSON", "json_schema")])
def test_the_registry_reports_what_a_schema_is(server: FakeRegistry, connect: Connect, word: str, kind: str) -> None:
    server.answers["/schemas/ids/1"] = schema("text", word)
    found = connect().by_id(1)
    assert found
    assert (found.kind, found.text) == (kind, "text")


def test_metadata_and_rules_of_a_schema_are_no_trouble(server: FakeRegistry, connect: Connect) -> None:
    metadata = {"properties": {"owner": "me"}, "tags": {"a": ["PII"]}, "sensitive": ["a"]}
    rules = {"domainRules": [{"name": "r", "kind": "OF_TOMORROW", "mode": "WRITE", "type": "CEL", "expr": "true"}]}
    server.answers["/schemas/ids/1"] = schema("text", "JSON", metadata=metadata, ruleSet=rules, guid=GUID)
    assert connect().by_id(1) == RegisteredSchema(1, "json_schema", "text")


def test_an_id_that_nobody_knows_is_none_and_is_asked_for_again(server: FakeRegistry, connect: Connect) -> None:
    registry = connect()
    assert registry.by_id(7) is None
    server.answers["/schemas/ids/7"] = schema("x")
    assert registry.by_id(7) is not None


def test_whether_the_registry_answers_is_asked_without_a_schema_that_exists(
    server: FakeRegistry, connect: Connect
) -> None:
    connect(context="eu").reach()
    assert server.paths == ["/schemas/ids/2147483647?subject=%3A.eu%3A"]
    server.answers["*"] = lambda desk: desk.connection.close()
    with pytest.raises(UnavailableError) as caught:
        connect().reach()
    assert caught.value.message.startswith("the schema registry does not return schemas: ")
    assert caught.value.where == server.url.removeprefix("http://")


@pytest.mark.parametrize("schema_id", [0, -1, 2**31, 2**32 - 1, 2**63 - 1])
def test_a_number_that_no_id_can_be_is_not_asked_for(server: FakeRegistry, connect: Connect, schema_id: int) -> None:
    server.answers["*"] = trouble(500)
    assert connect().by_id(schema_id) is None
    assert server.asked == []


def test_a_guid_is_a_schema(server: FakeRegistry, connect: Connect) -> None:
    server.answers[f"/schemas/guids/{GUID}"] = schema("x", "JSON", guid=GUID)
    registry = connect()
    assert registry.by_guid(GUID) == registry.by_guid(GUID) == RegisteredSchema(NO_ID, "json_schema", "x")
    assert registry.by_guid(GUID.replace("f", "e")) is None
    assert registry.by_guid("../../config") is None
    assert len(server.asked) == 2


def test_subjects_are_those_of_the_context_without_its_name(server: FakeRegistry, connect: Connect) -> None:
    names = [":.eu:t-b", ":.eu:t-a", ":.eu:u-a", "t-c"]
    server.answers["/subjects"] = lambda desk: desk.send(200, json.dumps(names).encode())
    assert connect(context="eu").subjects("t-") == ("t-a", "t-b")
    assert connect().subjects("t-") == ("t-c",)
    server.answers["/subjects"] = lambda desk: desk.send(200, b'{"t-a": 1}')
    with pytest.raises(UnavailableError, match="the answer is not a list of names"):
        connect().subjects("t-")


def test_the_latest_of_a_subject_is_kept_for_a_minute(server: FakeRegistry, connect: Connect) -> None:
    path = "/subjects/a%2Fb-value/versions/latest"
    server.answers[path] = schema("x", id=3, subject="a/b-value", version=2)
    clock = FakeClock()
    registry = connect(clock=clock)
    assert registry.latest("a/b-value") == registry.latest("a/b-value") == RegisteredSchema(3, "avro", "x")
    assert len(server.asked) == 1
    server.answers[path] = schema("y", id=4, subject="a/b-value", version=3)
    clock.sleep(59.0)
    assert registry.latest("a/b-value") == RegisteredSchema(3, "avro", "x")
    clock.sleep(1.0)
    assert registry.latest("a/b-value") == RegisteredSchema(4, "avro", "y")
    server.answers[path] = missing(40401)
    clock.sleep(60.0)
    assert registry.latest("a/b-value") is None


@pytest.mark.parametrize("code", [40401, 40402, 40404])
def test_a_subject_that_is_not_there_or_deleted_is_none(server: FakeRegistry, connect: Connect, code: int) -> None:
    server.answers["*"] = missing(code)
    assert connect().latest("t-value") is None


# ---- contexts


def test_subjects_and_ids_are_those_of_the_context(server: FakeRegistry, connect: Connect) -> None:
    refers = [reference("r", "common")]
    server.answers["/schemas/ids/7?subject=%3A.eu%3A"] = schema("one", references=refers)
    server.answers["/schemas/ids/7?subject=%3A.eu%3At-value"] = schema("one")
    server.answers["/schemas/ids/7?subject=%3A.us%3At-value"] = schema("other", references=refers)
    server.answers["/subjects/%3A.eu%3At-value/versions/latest"] = schema("newest", id=8)
    server.answers["/subjects/%3A.eu%3Acommon/versions/1"] = schema("eu's")
    server.answers["/subjects/%3A.us%3Acommon/versions/1"] = schema("us's")
    registry = connect(context="eu")
    assert registry.by_id(7) == RegisteredSchema(7, "avro", "one", (("r", "eu's"),))
    assert registry.by_id(7, ":.us:t-value") == RegisteredSchema(7, "avro", "other", (("r", "us's"),))
    assert registry.by_id(7, "t-value") == registry.by_id(7)
    assert registry.latest("t-value") == RegisteredSchema(8, "avro", "newest")


# ---- references


def test_references_come_whole_and_dependencies_first(server: FakeRegistry, connect: Connect) -> None:
    server.answers["/schemas/ids/1"] = schema("top", references=[reference("b", "B"), reference("a", "A", 3)])
    server.answers["/subjects/B/versions/1"] = schema("b's", references=[reference("a", "A", 3), reference("c", "C")])
    server.answers["/subjects/A/versions/3"] = schema("a's", references=[reference("c", "C")])
    server.answers["/subjects/C/versions/1"] = schema("c's")
    found = connect().by_id(1)
    assert found
    assert found.references == (("c", "c's"), ("a", "a's"), ("b", "b's"))
    assert len(server.asked) == 4
    assert all("deleted=true" in path for path in server.paths[1:])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({}, "it refers to version 1 of subject `A`, which is not in the registry"),
        ({"A": schema("x", references=[reference("t", "A")])}, "its references are circular: A → A"),
        (
            {"A": schema("x", references=[reference("b", "B")]), "B": schema("y", references=[reference("a", "A")])},
            "its references are circular: A → B → A",
        ),
        (
            {"A": schema("x", references=[reference("a", "B")]), "B": schema("y")},
            "it refers to two different schemas by the name `a`",
        ),
    ],
)
def test_references_that_make_a_schema_useless(
    server: FakeRegistry, connect: Connect, answers: dict[str, Answer], reason: str
) -> None:
    server.answers["/schemas/ids/1"] = schema("top", references=[reference("a", "A")])
    server.answers |= {f"/subjects/{subject}/versions/1": answer for subject, answer in answers.items()}
    with pytest.raises(UnusableSchema) as caught:
        connect().by_id(1)
    assert str(caught.value) == reason


def test_references_without_end_are_cut_off(server: FakeRegistry, connect: Connect) -> None:
    def endless(desk: Any) -> None:
        subject = int(desk.path.split("/")[2]) + 1
        schema("x", references=[reference(str(subject), str(subject))])(desk)

    server.answers["/schemas/ids/1"] = schema("top", references=[reference("0", "0")])
    server.answers["*"] = endless
    with pytest.raises(UnusableSchema, match="it refers to more than 256 schemas"):
        connect(60.0).by_id(1)


def test_a_kind_of_schema_that_frazil_does_not_read_is_reported(server: FakeRegistry, connect: Connect) -> None:
    server.answers["/schemas/ids/1"] = schema("x", "THRIFT")
    with pytest.raises(UnusableSchema, match="it is of the kind THRIFT, which Frazil does not read"):
        connect().by_id(1)


def test_a_schema_beyond_all_measure_is_not_read(server: FakeRegistry, connect: Connect) -> None:
    server.answers["/schemas/ids/1"] = schema("x" * MAX_ANSWER_BYTES)
    with pytest.raises(UnusableSchema, match="the registry's answer is longer than 4 MiB"):
        connect().by_id(1)


# ---- logging in


def test_user_and_password_are_sent(server: FakeRegistry, connect: Connect) -> None:
    connect(auth=AuthSpec(username="réader", password="p:w")).by_id(1)
    assert server.asked[0][1]["authorization"] == "Basic " + base64.b64encode("réader:p:w".encode()).decode()


def test_a_token_is_sent_and_a_cluster_only_if_there_is_one(server: FakeRegistry, connect: Connect) -> None:
    connect(auth=AuthSpec(token="t0ken")).by_id(1)
    connect(auth=AuthSpec(token="t0ken"), properties={"bearer.auth.logical.cluster": "lsrc-1"}).by_id(1)
    (_, plain), (_, cloud) = server.asked
    assert (plain["authorization"], plain.get("target-sr-cluster")) == ("Bearer t0ken", None)
    assert (cloud["authorization"], cloud["target-sr-cluster"]) == ("Bearer t0ken", "lsrc-1")


def test_a_token_is_fetched_where_the_client_s_own_properties_say_so(server: FakeRegistry, connect: Connect) -> None:
    properties = {
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.client.id": "reader",
        "bearer.auth.client.secret": "hunter2",
        "bearer.auth.scope": "schemas",
        "bearer.auth.issuer.endpoint.url": f"{server.url}/token",
        "bearer.auth.logical.cluster": "lsrc-1",
    }
    server.answers["/token"] = trouble(500, b"hunter2 is wrong")
    registry = connect(properties=properties)
    with pytest.raises(UnavailableError) as caught:
        registry.by_id(1)
    assert "hunter2" not in str(caught.value)
    token = {"access_token": "t0ken", "token_type": "Bearer", "expires_in": 3600}
    server.answers["/token"] = trouble(200, json.dumps(token).encode(), {"Content-Type": "application/json"})
    assert registry.by_id(1) is None
    assert server.asked[-1][1]["authorization"] == "Bearer t0ken"


def test_tls_with_an_authority_and_a_certificate_of_one_s_own(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    ours, theirs = authority.make("client", "opens"), authority.make("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    client = {"certificate": str(ours.certificate), "key": str(ours.key), "key_password": "opens"}
    with fake_registry(context) as server:
        server.answers["*"] = schema("x")
        urls = (server.url.replace("http:", "https:"),)
        assert ConfluentRegistry(RegistrySpec(urls=urls, tls=TlsSpec(ca=str(authority.file), **client))).by_id(1)
        for tls in (TlsSpec(ca=str(stranger.file), **client), TlsSpec(ca=str(authority.file))):
            with pytest.raises(UnavailableError) as caught:
                ConfluentRegistry(RegistrySpec(urls=urls, tls=tls)).by_id(1)
            assert caught.value.where == urls[0].removeprefix("https://")


def test_a_server_that_this_machine_does_not_trust_is_told_from_one_that_is_away(tmp_path: Path) -> None:
    theirs = Authority(tmp_path).make("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(theirs.certificate, theirs.key)
    with fake_registry(context) as server:
        registry = ConfluentRegistry(RegistrySpec(urls=(server.url.replace("http:", "https:"),)))
        with pytest.raises(UnavailableError) as caught:
            registry.by_id(1)
    assert "CERTIFICATE_VERIFY_FAILED" in caught.value.message
    assert caught.value.remedy == "name the authority of the service's certificate in registry.tls.ca"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"properties": {"proxxy": "x"}},
            "the registry's client refuses its settings: Unrecognized properties: proxxy",
        ),
        (
            {"tls": TlsSpec(ca="/nowhere/ca.pem")},
            "the file of `registry.tls.ca` cannot be read: No such file or directory",
        ),
        ({"tls": TlsSpec(certificate=__file__)}, "the registry's TLS files cannot be used: "),
    ],
)
def test_settings_that_no_client_can_be_made_of(connect: Connect, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        connect(**settings)
    assert caught.value.message.startswith(message)


# ---- outages

OUTAGES: list[tuple[str, Answer, str, str]] = [
    ("unauthorized", trouble(401, b'{"error_code": 40101, "message": "Unauthorized"}'), "401 Unauthorized", "registry.auth"),
    ("forbidden", trouble(403, b'{"error_code": 40301, "message": "no"}'), "403 no", "registry.auth"),
    ("not this API", trouble(404, b"<html>nginx</html>"), "404 without a word of a registry", "Confluent API itself"),
    ("no such path", missing(404), "404 not found", "Confluent API itself"),
    ("timed out there", trouble(408), "408 ", "back-off"),
    ("too many", trouble(429), "429 ", "back-off"),
    ("broken", trouble(500, b'{"error_code": 50001, "message": "store\\n failed"}'), "500 store failed", "back-off"),
    ("busy", trouble(503), "503 ", "back-off"),
    ("a redirect", trouble(302, b"", {"Location": "http://127.0.0.1:1/x"}), "302 ", "Confluent API itself"),
    ("a page", trouble(200, b"<html>log in</html>"), "the answer is not JSON", "back-off"),
    ("nothing", trouble(200, b""), "the answer is empty", "back-off"),
    ("null", trouble(200, b"null"), "the answer is empty", "back-off"),
    ("a list", trouble(200, b"[]"), "the answer is not a schema", "back-off"),
    ("no schema", trouble(200, b"{}"), "the answer is not a schema", "back-off"),
    ("no text", trouble(200, b'{"schema": 5}'), "the answer is not a schema", "back-off"),
    ("an object as text", trouble(200, b'{"schema": {"type": "long"}}'), "the answer is not a schema", "back-off"),
    ("odd references", trouble(200, b'{"schema": "x", "references": "abc"}'), "references without name", "back-off"),
    ("half a reference", schema("x", references=[{"name": "b", "subject": "c"}]), "references without name", "back-off"),
    ("no version", schema("x", references=[reference("b", "c", None)]), "references without name", "back-off"),
    ("cut short", trouble(200, b"{", {"Content-Length": "10"}), "peer closed connection", "back-off"),
    ("compressed", trouble(200, b"x", {"Content-Encoding": "gzip"}), "the answer is compressed", "back-off"),
    ("a long refusal", trouble(500, b"x" * (MAX_ANSWER_BYTES + 1)), "answer is longer than 4 MiB", "back-off"),
    ("hung up", lambda desk: desk.connection.close(), "", "back-off"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "words", "remedy"), [case[1:] for case in OUTAGES], ids=[case[0] for case in OUTAGES]
)
def test_whatever_is_no_answer_is_an_outage_and_over_when_it_is_over(
    server: FakeRegistry, connect: Connect, answer: Answer, words: str, remedy: str
) -> None:
    server.answers["*"] = answer
    registry = connect()
    with pytest.raises(UnavailableError) as caught:
        registry.by_id(7)
    assert caught.value.message.startswith("the schema registry does not return schema 7: ")
    assert words in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.where == server.url.removeprefix("http://")
    server.answers["*"] = schema("x", id=7)
    assert registry.by_id(7) == RegisteredSchema(7, "avro", "x")
    assert registry.latest("t-value") == RegisteredSchema(7, "avro", "x")


def test_a_latest_without_its_id_is_an_outage_that_ends(server: FakeRegistry, connect: Connect) -> None:
    server.answers["*"] = schema("x")
    registry = connect()
    with pytest.raises(UnavailableError, match="the answer has no schema id"):
        registry.latest("t-value")
    server.answers["*"] = schema("x", id=7)
    assert registry.latest("t-value") == RegisteredSchema(7, "avro", "x")


def test_a_registry_that_is_not_there_is_an_outage() -> None:
    registry = ConfluentRegistry(RegistrySpec(urls=("http://127.0.0.1:1",)))
    with pytest.raises(UnavailableError, match="Connection refused") as caught:
        registry.latest("t-value")
    assert caught.value.where == "127.0.0.1:1"


@pytest.mark.parametrize("answer", [hang, trickle])
def test_a_server_that_takes_its_time_is_given_up(server: FakeRegistry, connect: Connect, answer: Answer) -> None:
    server.answers["*"] = answer
    registry = connect(0.6)
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="no answer"):
        registry.by_id(1)
    assert time.monotonic() - started < 2.0
    server.answers["*"] = schema("x")
    assert registry.by_id(1)


# ---- several servers


@pytest.mark.parametrize("answer", [trouble(500), trouble(503), trouble(200, b"<html>"), hang])
def test_the_next_server_is_asked_when_one_fails(server: FakeRegistry, answer: Answer) -> None:
    server.answers["*"] = answer
    with fake_registry() as second:
        second.answers["*"] = schema("x")
        registry = ConfluentRegistry(RegistrySpec(urls=("http://127.0.0.1:1", server.url, second.url)), 3.0)
        assert registry.by_id(1)
        assert (len(server.asked), len(second.asked)) == (1, 1)
        second.answers["*"] = missing(40403)
        assert registry.by_id(2) is None


def test_nothing_secret_is_in_an_outage(server: FakeRegistry, connect: Connect) -> None:
    server.answers["*"] = trouble(401, json.dumps({"error_code": 40101, "message": "who?"}).encode())
    with pytest.raises(UnavailableError) as caught:
        connect(auth=AuthSpec(username="reader", password="hunter2")).by_id(1)
    assert "hunter2" not in repr(caught.value) + str(caught.value)
    assert caught.value.__cause__ is None
