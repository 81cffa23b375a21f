"""The SchemaRegistry port, on memory and on a real registry that speaks Confluent's API."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from frazil.clock import new_id
from frazil.decode.json.records import decode_json
from frazil.decode.wire_format import split_headers
from frazil.errors import UnavailableError
from frazil.registry.port import RegisteredSchema, SchemaKind
from frazil.spec import RegistrySpec
from frazil.spec.connections import AuthSpec, TlsSpec
from frazil_jsonschema.types import read_json_schema
from frazil_protobuf.protoc import compile_proto
from frazil_protobuf.reader import protobuf_reader
from frazil_registry.confluent import ConfluentRegistry
from tests.contracts.registries import Desk, MemoryDesk, RealDesk
from tests.fixtures.certificates import EXPIRED, Authority, Files
from tests.fixtures.registry import ApicurioRegistry
from tests.fixtures.tls_gate import gate


@pytest.fixture(params=["memory", pytest.param("apicurio", marks=pytest.mark.jvm)])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    made: Desk = MemoryDesk() if request.param == "memory" else RealDesk(request.getfixturevalue("apicurio"))
    yield made
    made.clean()


@pytest.fixture
def name() -> str:
    """Part of the names of subjects and types: a real registry gives one id to one content, wherever it is."""
    return f"t{new_id().replace('-', '')}"


def avro(name: str, *fields: str, kind: str = "long") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": f, "type": kind} for f in fields]})


def json_object(name: str, **properties: Any) -> str:
    return json.dumps({"$id": f"http://example.org/{name}.json", "type": "object", "properties": properties})


def protobuf(name: str, *lines: str, imports: str = "") -> str:
    needed = f'import "{imports}";\n' if imports else ""
    return f'syntax = "proto3";\n{needed}message {name} {{\n  {" ".join(lines)}\n}}\n'


def plain(schema: RegisteredSchema | None) -> tuple[int, str, object, list[tuple[str, object]]]:
    """A schema without its spelling: registries write texts again."""
    assert schema is not None
    return (schema.id, schema.kind, content(schema.text), [(name, content(text)) for name, text in schema.references])


def content(text: str) -> object:
    return json.loads(text) if text.startswith("{") else text.split()


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json_schema"])
def test_an_id_is_the_schema_that_was_registered(desk: Desk, name: str, kind: SchemaKind) -> None:
    texts = {"avro": avro(name, "a"), "protobuf": protobuf(name, "int64 a = 1;"), "json_schema": json_object(name)}
    schema_id = desk.register(f"{name}-value", kind, texts[kind])
    registry = desk.open()
    assert plain(registry.by_id(schema_id)) == (schema_id, kind, content(texts[kind]), [])
    assert plain(registry.by_id(schema_id, f"{name}-value")) == plain(registry.latest(f"{name}-value"))
    assert desk.register(f"{name}-value", kind, texts[kind]) == schema_id


def test_what_nobody_registered_is_none(desk: Desk, name: str) -> None:
    registry = desk.open()
    assert registry.by_id(2**31 - 1) is registry.by_id(0) is registry.by_id(-1) is registry.by_id(2**32) is None
    assert registry.latest(f"{name}-value") is None


def test_the_latest_of_a_subject_is_its_newest_version(desk: Desk, name: str) -> None:
    subject = f"{name}-value"
    first = desk.register(subject, "avro", avro(name))
    assert plain(desk.open().latest(subject))[0] == first
    text = json.dumps({"type": "record", "name": name, "fields": [{"name": "a", "type": "long", "default": 0}]})
    second = desk.register(subject, "avro", text)
    assert second != first
    assert plain(desk.open().latest(subject)) == (second, "avro", json.loads(text), [])
    assert plain(desk.open().by_id(first))[2] == json.loads(avro(name))


def test_one_schema_in_two_subjects_has_one_id(desk: Desk, name: str) -> None:
    assert desk.register(f"{name}-key", "avro", avro(name)) == desk.register(f"{name}-value", "avro", avro(name))


def test_references_come_with_what_they_need_first(desk: Desk, name: str) -> None:
    inner, middle = avro(f"{name}i", "x"), avro(f"{name}m", "i", kind=f"{name}i")
    desk.register(f"{name}-i", "avro", inner)
    desk.register(f"{name}-m", "avro", middle, [(f"{name}i", f"{name}-i")])
    schema_id = desk.register(f"{name}-value", "avro", avro(name, "m", kind=f"{name}m"), [(f"{name}m", f"{name}-m")])
    found = plain(desk.open().by_id(schema_id))
    assert found[3] == [(f"{name}i", json.loads(inner)), (f"{name}m", json.loads(middle))]
    assert plain(desk.open().latest(f"{name}-value")) == found


def test_references_of_protobuf_and_json_schema(desk: Desk, name: str) -> None:
    proto, other = protobuf(f"I{name}", "int64 x = 1;"), json_object(name, x={"type": "integer"})
    desk.register(f"{name}.proto", "protobuf", proto)
    desk.register(f"{name}.json", "json_schema", other)
    top = protobuf(name, f"I{name} i = 1;", imports=f"{name}.proto")
    first = desk.register(f"{name}-p", "protobuf", top, [(f"{name}.proto", f"{name}.proto")])
    address = f"http://example.org/{name}.json"
    refers = json_object(f"{name}-top", o={"$ref": address})
    second = desk.register(f"{name}-j", "json_schema", refers, [(address, f"{name}.json")])
    registry = desk.open()
    assert plain(registry.by_id(first))[3] == [(f"{name}.proto", content(proto))]
    found = registry.by_id(second)
    assert plain(found)[3] == [(address, json.loads(other))]
    assert found
    (field,) = read_json_schema(found.text, found.references).struct.fields
    assert (field.name, [part.name for part in field.field_type.fields]) == ("o", ["x"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_encoded", [False, True])
def test_protobuf_schemas_are_usable_as_confluent_s_clients_register_them(
    desk: Desk, name: str, is_encoded: bool
) -> None:
    text = f"""
        syntax = "proto3";
        import "confluent/type/decimal.proto";
        import "google/protobuf/timestamp.proto";
        import "google/type/date.proto";
        message {name} {{
          confluent.type.Decimal price = 1;
          google.protobuf.Timestamp at = 2;
          google.type.Date day = 3;
        }}
    """
    if is_encoded:  # As in Python and .NET: of the files that it imports only those that are nobody's own are left out.
        own = FileDescriptorSet.FromString(compile_proto(text)).file[-1]
        text = base64.b64encode(own.SerializeToString()).decode()
    schema_id = desk.register(f"{name}-value", "protobuf", text)
    for found in (desk.open().by_id(schema_id), desk.open().latest(f"{name}-value")):
        assert found
        fields = protobuf_reader(compile_proto(found.text, found.references), (0,)).struct.fields
        assert {one.name: str(one.field_type).split("<")[0] for one in fields} == {
            "price": "struct", "at": "timestamptz", "day": "struct",
        }  # fmt: skip


def test_subjects_are_found_by_how_they_begin(desk: Desk, name: str) -> None:
    for subject in (f"{name}-b", f"{name}-a", f"{name}x-c", f"other-{name}-d"):
        desk.register(subject, "avro", avro(name))
    desk.delete(f"{name}-b")
    assert desk.open().subjects(f"{name}-") == (f"{name}-a",)
    assert desk.open().subjects(f"{name}-nothing") == ()


def test_a_deleted_subject_is_gone_and_its_ids_are_not(desk: Desk, name: str) -> None:
    subject = f"{name}-value"
    schema_id = desk.register(subject, "avro", avro(name))
    desk.delete(subject)
    assert desk.open().latest(subject) is None
    assert plain(desk.open().by_id(schema_id))[0] == schema_id


def test_a_schema_deleted_for_good_is_gone_for_those_who_did_not_know_it(desk: Desk, name: str) -> None:
    schema_id = desk.register(f"{name}-value", "avro", avro(name))
    desk.delete(f"{name}-value", for_good=True)
    assert desk.open().by_id(schema_id) is None


def test_an_outage_is_no_answer_and_ends(desk: Desk, name: str) -> None:
    schema_id = desk.register(f"{name}-value", "avro", avro(name))
    registry = desk.open()
    with desk.outage():
        with pytest.raises(UnavailableError):
            registry.by_id(schema_id)
        with pytest.raises(UnavailableError):
            registry.latest(f"{name}-value")
    assert plain(registry.by_id(schema_id)) == plain(registry.latest(f"{name}-value"))


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_what_confluent_s_producers_write_leads_to_their_schema(
    apicurio: ApicurioRegistry, name: str, kind: str
) -> None:
    client = SchemaRegistryClient({"url": apicurio.api})
    context = SerializationContext(name, MessageField.VALUE)
    schema = json.loads(json_object(name, a={"type": "integer"})) | {"title": name}
    makers: dict[str, Any] = {"avro": lambda: AvroSerializer(client, avro(name, "a"))}
    makers["json_schema"] = lambda: JSONSerializer(json.dumps(schema), client)
    write = makers[kind]()
    split = split_headers(pa.array([write({"a": n}, context) for n in (1, 2)], pa.binary()), "confluent")
    assert not split.fault.any()
    found = ConfluentRegistry(RegistrySpec(urls=(apicurio.api,))).by_id(int(split.ids[0]))
    assert found
    assert found.kind == kind
    if kind == "json_schema":
        starts = zip(split.bodies.start.tolist(), split.bodies.end.tolist(), strict=True)
        bodies = pa.array([split.bodies.buffer[start:end].tobytes() for start, end in starts], pa.binary())
        decoded = decode_json(bodies, read_json_schema(found.text, found.references).struct.fields)
        assert decoded.columns[0].to_pylist() == [1, 2]
    client.close()
    apicurio.delete(f"{name}-value", for_good=True)


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("auth", "header"),
    [
        (AuthSpec(username="me", password="p:w"), f"Basic {base64.b64encode(b'me:p:w').decode()}"),
        (AuthSpec(token="t0ken"), "Bearer t0ken"),
    ],
    ids=["basic", "bearer"],
)
def test_a_registry_behind_tls_lets_in_who_has_the_certificate_and_the_login(
    apicurio: ApicurioRegistry, tmp_path: Path, name: str, auth: AuthSpec, header: str
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    ours = authority.make("me", "opens")
    mine = {"certificate": str(ours.certificate), "key": str(ours.key), "key_password": "opens"}
    tls = TlsSpec(ca=str(authority.file), **mine)
    schema_id = apicurio.register(f"{name}-value", "AVRO", avro(name))

    def asked(certificate: Files, auth: AuthSpec, tls: TlsSpec) -> Any:
        with gate(apicurio.port, certificate, header, authority.file) as way:
            url = apicurio.api.replace(apicurio.url, way.url)
            return ConfluentRegistry(RegistrySpec(urls=(url,), auth=auth, tls=tls)).by_id(schema_id)

    server = authority.make("server")
    assert plain(asked(server, auth, tls))[0] == schema_id
    expired = authority.make("expired", until=EXPIRED)
    misnamed = authority.make("misnamed", host="other.example")
    for certificate, login, files, remedy in (
        (server, AuthSpec(token="wrong"), tls, "check `registry.auth`"),
        (server, auth, TlsSpec(ca=str(stranger.file), **mine), "name the authority of the service's certificate in"),
        (server, auth, TlsSpec(ca=str(authority.file)), "the service refuses the certificate of this client, or"),
        (expired, auth, tls, "renew the service's certificate"),
        (misnamed, auth, tls, "use a host name that the service's certificate has"),
    ):
        with pytest.raises(UnavailableError) as caught:
            asked(certificate, login, files)
        assert caught.value.remedy.startswith(remedy), caught.value
        assert "p:w" not in str(caught.value)
    apicurio.delete(f"{name}-value", for_good=True)
