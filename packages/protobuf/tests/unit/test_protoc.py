"""The compiler of .proto texts: what it makes, and what it refuses."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import frazil_protobuf
from frazil.errors import UnavailableError
from frazil.registry.port import UnusableSchema
from frazil_protobuf.protoc import compile_proto

_KNOWN = Path(frazil_protobuf.__file__).parent / "protos"
_SIMPLE = 'syntax = "proto3"; message A { int32 x = 1; }'


def _set(descriptors: bytes) -> list[descriptor_pb2.FileDescriptorProto]:
    return list(descriptor_pb2.FileDescriptorSet.FromString(descriptors).file)


def _files(descriptors: bytes) -> list[str]:
    return [file.name for file in _set(descriptors)]


def test_a_text_alone_is_one_file() -> None:
    assert _files(compile_proto(_SIMPLE)) == ["schema.proto"]


def test_imports_are_the_references_and_what_comes_with_protobuf() -> None:
    text = """
        syntax = "proto3";
        import "a/b.proto";
        import "google/protobuf/timestamp.proto";
        message M { B b = 1; google.protobuf.Timestamp t = 2; }
    """
    references = (("c.proto", 'syntax = "proto2"; message C {}'),
                  ("a/b.proto", 'syntax = "proto3"; import "c.proto"; message B { C c = 1; }'))  # fmt: skip
    assert sorted(_files(compile_proto(text, references))) == [
        "a/b.proto", "c.proto", "google/protobuf/timestamp.proto", "schema.proto",
    ]  # fmt: skip
    assert _files(compile_proto(text, references))[-1] == "schema.proto"


def test_imports_that_clients_take_for_granted_need_not_be_references() -> None:
    text = """
        syntax = "proto3";
        import "confluent/meta.proto";
        import "confluent/type/decimal.proto";
        import "google/type/date.proto";
        message M {
          confluent.type.Decimal price = 1 [(confluent.field_meta) = { params: [{ key: "scale", value: "2" }] }];
          google.type.Date day = 2;
        }
    """
    assert set(_files(compile_proto(text))) >= {
        "confluent/type/decimal.proto",
        "google/type/date.proto",
        "schema.proto",
    }
    own = 'syntax = "proto3"; package google.type; message Date { string text = 1; }'
    (date,) = (file for file in _set(compile_proto(text, (("google/type/date.proto", own),))) if "date" in file.name)
    assert [field.name for field in date.message_type[0].field] == ["text"], "a reference comes first"


def test_all_of_them_can_be_imported() -> None:
    names = sorted(file.relative_to(_KNOWN).as_posix() for file in _KNOWN.rglob("*.proto"))
    imports = " ".join(f'import "{name}";' for name in names)
    assert len(names) == 21
    assert set(_files(compile_proto(f'syntax = "proto3"; {imports} message M {{}}'))) >= set(names)


def _encoded(text: str, references: tuple[tuple[str, str], ...] = ()) -> str:
    """The schema as clients in Python and .NET register it."""
    return base64.b64encode(_set(compile_proto(text, references))[-1].SerializeToString()).decode()


def test_a_schema_may_be_base64_of_its_descriptor() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }'
    assert compile_proto(_encoded(text)) == compile_proto(text)


@pytest.mark.parametrize("is_encoded", [(True, True), (True, False), (False, True)])
def test_schemas_in_text_and_in_base64_may_refer_to_each_other(is_encoded: tuple[bool, bool]) -> None:
    text, reference = 'syntax = "proto3"; import "a/b.proto"; message M { B b = 1; }', 'syntax = "proto3"; message B {}'
    encoded = (_encoded(text, (("a/b.proto", reference),)), _encoded(reference))
    own, other = (
        code if wants else plain for code, plain, wants in zip(encoded, (text, reference), is_encoded, strict=True)
    )
    assert _files(compile_proto(own, (("a/b.proto", other),))) == ["a/b.proto", "schema.proto"]
    if is_encoded[0]:
        with pytest.raises(UnusableSchema, match=r"protoc refuses it.*a/b\.proto"):
            compile_proto(own)


def test_base64_of_anything_else_is_refused_as_a_text() -> None:
    with pytest.raises(UnusableSchema, match="protoc refuses it"):
        compile_proto(base64.b64encode(b"abc").decode())


def test_a_reference_may_have_the_name_that_the_schema_would_get() -> None:
    text = 'syntax = "proto3"; import "schema.proto"; message M { A a = 1; }'
    assert _files(compile_proto(text, (("schema.proto", _SIMPLE),))) == ["schema.proto", "the_schema.proto"]


def test_what_protoc_reports_is_in_the_error_without_the_place_it_was_run_in() -> None:
    with pytest.raises(UnusableSchema) as caught:
        compile_proto('syntax = "proto3";\nmessage A { int33 x = 1; }')
    assert str(caught.value) == 'protoc refuses it: schema.proto:2:13: "int33" is not defined.'


def test_warnings_are_no_errors() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/any.proto"; message A {}'
    assert _files(compile_proto(text))[-1] == "schema.proto"


@pytest.mark.parametrize(
    "name", ["../x.proto", "/etc/x.proto", "a/../x.proto", "a\\x.proto", "./x.proto", "a//x.proto", "", "x\n.proto"]
)
def test_references_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(UnusableSchema, match="is not an import name"):
        compile_proto(_SIMPLE, ((name, _SIMPLE),))


@pytest.mark.parametrize(
    "name", ["../../../../../etc/hostname", "/etc/hostname", "x/../../y.proto", "\\\\\\\\host\\\\x"]
)
def test_imports_that_lead_elsewhere_find_nothing(name: str) -> None:
    with pytest.raises(UnusableSchema, match="protoc refuses it"):
        compile_proto(f'syntax = "proto3"; import "{name}"; message A {{}}')


@pytest.mark.parametrize(
    "references",
    [
        (("a.proto", _SIMPLE), ("a.proto", _SIMPLE + " ")),
        (("a", _SIMPLE), ("a/b.proto", _SIMPLE)),
        (("x" * 300 + ".proto", _SIMPLE),),
        (("a.proto", "\ud800"),),
    ],
)
def test_references_that_no_directory_holds_are_refused(references: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(UnusableSchema, match=r"two different texts|cannot be given to protoc"):
        compile_proto(_SIMPLE, references)


def test_a_reference_is_never_run_as_python() -> None:
    text = "raise SystemExit('run')"
    assert _files(compile_proto(_SIMPLE, (("grpc_tools/protoc.py", text),))) == ["schema.proto"]


def test_a_huge_text_is_refused_before_protoc_sees_it() -> None:
    with pytest.raises(UnusableSchema, match="larger than 4194304 bytes"):
        compile_proto(_SIMPLE + " " * 2**22)


def test_a_text_nested_without_end_ends_in_an_error() -> None:
    text = 'syntax = "proto3"; ' + "".join(f"message M{n} {{" for n in range(20_000))
    with pytest.raises(UnusableSchema, match="protoc refuses it"):
        compile_proto(text)


def test_imports_in_a_circle_are_refused() -> None:
    with pytest.raises(UnusableSchema, match="recursively imports itself"):
        compile_proto(
            'syntax = "proto3"; import "a.proto"; message M {}',
            (
                ("a.proto", 'syntax = "proto3"; import "b.proto"; '),
                ("b.proto", 'syntax = "proto3"; import "a.proto"; '),
            ),
        )


def test_a_machine_without_time_for_protoc_is_an_outage_and_no_fault_of_the_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frazil_protobuf.protoc.COMPILE_TIMEOUT_S", 0)
    with pytest.raises(UnavailableError, match="protoc has not read a schema within 0 s"):
        compile_proto(_SIMPLE)


@pytest.mark.parametrize("name", ["INT", "TERM", "KILL", "SEGV"])
def test_a_schema_is_not_at_fault_where_others_end_protoc(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nkill -{name} $$\n")
    program.chmod(0o700)
    monkeypatch.setattr("frazil_protobuf.protoc.sys.executable", str(program))
    with pytest.raises(UnusableSchema if name == "SEGV" else UnavailableError):
        compile_proto(_SIMPLE)
