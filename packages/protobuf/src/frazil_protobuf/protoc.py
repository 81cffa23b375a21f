"""Compiles .proto files to descriptors with protoc, in the driver; tasks receive the descriptors.

The text of a schema is untrusted: protoc reads only the given texts, in a directory of their own, the files shipped
with Protobuf, and those in `protos`, which clients of a registry take for granted too.
"""

from __future__ import annotations

import base64
import binascii
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from frazil.errors import UnavailableError
from frazil.files import temporary_folder
from frazil.registry.port import UnusableSchema

MAX_TEXT_BYTES = 4 * 1024 * 1024
COMPILE_TIMEOUT_S = 30
_ENDED_BY_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
"""Signals that a program does not get for what it reads: from a terminal, an operator, or a machine without memory."""
_MAX_MESSAGE = 2000
_KNOWN_PROTOS = Path(__file__).parent / "protos"


def compile_proto(text: str, references: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Returns the serialized FileDescriptorSet of one schema: everything that it imports, then the schema.

    text: a .proto file (proto2, proto3 or an edition), or base64 of its FileDescriptorProto, which some clients
    register. references: pairs of an import name and its text. google/protobuf/*.proto and the files in `protos` are
    known.

    Raises: UnusableSchema for a text that protoc refuses, for names that lead out of a directory, and for more than
    MAX_TEXT_BYTES in total; UnavailableError after COMPILE_TIMEOUT_S, and where others end protoc.
    """
    files = dict(references)
    _check_references(references, files)
    if sum(len(part.encode("utf-8", "surrogatepass")) for part in (text, *files.values())) > MAX_TEXT_BYTES:
        raise UnusableSchema(f"the schema and what it refers to are larger than {MAX_TEXT_BYTES} bytes together")
    own_name = "schema.proto"
    while own_name in files:
        own_name = f"the_{own_name}"
    with temporary_folder("frazil-proto-") as place:
        sources, target = Path(place, "sources"), Path(place, "descriptors")
        sources.mkdir()
        texts = {**files, own_name: text}
        described = _described(texts)
        _write(sources, {name: text for name, text in texts.items() if name not in described})
        _run_protoc(sources, target, own_name, _put_down(str(place), described))
        return target.read_bytes()


def _described(texts: Mapping[str, str]) -> dict[str, FileDescriptorProto]:
    """Returns the files given as base64 of their descriptors, by their import names."""
    files = {}
    for name, text in texts.items():
        try:
            raw = base64.b64decode(text, validate=True)
            described = FileDescriptorProto.FromString(raw)
        except (ValueError, binascii.Error, DecodeError):
            continue  # It is a .proto text, which contains blanks, brackets or semicolons.
        if raw:
            described.name = name
            files[name] = described
    return files


def _put_down(place: str, described: Mapping[str, FileDescriptorProto]) -> Path | None:
    """Writes descriptors to a file for protoc; returns its path, None without descriptors."""
    if not described:
        return None
    path = Path(place, "described")
    path.write_bytes(FileDescriptorSet(file=described.values()).SerializeToString())
    return path


def _check_references(references: tuple[tuple[str, str], ...], files: dict[str, str]) -> None:
    for name, text in references:
        if "\\" in name or not name.isprintable() or any(part in ("", ".", "..") for part in name.split("/")):
            raise UnusableSchema(
                f"the reference {name!r} is not an import name; a name such as folder/file.proto is, without .. and not "
                "from the root"
            )
        if files[name] != text:
            raise UnusableSchema(f"the reference {name!r} stands for two different texts")


def _write(sources: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = sources / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except (OSError, UnicodeEncodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UnusableSchema(f"the file {name!r} cannot be given to protoc: {reason}") from None


def _run_protoc(sources: Path, target: Path, own_name: str, described: Path | None) -> None:
    # -P: Python must not import modules from the working directory.
    command = [
        sys.executable, "-P", "-m", "grpc_tools.protoc", f"--proto_path={sources}", f"--proto_path={_KNOWN_PROTOS}",
        "--include_imports", f"--descriptor_set_out={target}", own_name,
    ]  # fmt: skip
    if described is not None:
        command.insert(-1, f"--descriptor_set_in={described}")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
            start_new_session=True,  # Ctrl-C in the terminal does not reach it.
        )
    except subprocess.TimeoutExpired:
        # protoc takes milliseconds: the machine is overloaded, and the schema is not at fault.
        raise UnavailableError(f"protoc has not read a schema within {COMPILE_TIMEOUT_S} s", where="protoc") from None
    if -done.returncode in _ENDED_BY_OTHERS:
        raise UnavailableError(f"protoc was ended by signal {-done.returncode}", where="protoc")
    if done.returncode or not target.exists():
        # The message is without warnings and without protoc's directory.
        words = done.stderr.decode("utf-8", "replace").replace(f"{sources}/", "").replace(str(sources), "")
        lines = [line.strip() for line in words.splitlines() if line.strip() and "warning:" not in line]
        raise UnusableSchema(
            f"protoc refuses it: {'; '.join(lines)[:_MAX_MESSAGE] or f'it ended with code {done.returncode}'}"
        )
