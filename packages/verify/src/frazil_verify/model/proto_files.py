"""Texts of .proto files to descriptors, by protoc, which Protobuf's authors ship with grpc."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from frazil_verify.model.faults import NotRead
from frazil_verify.model.protobuf import Messages

_OWN = "frazil/verify/judged.proto"
"""A name that no schema imports."""
_TIMEOUT_S = 60


@cache
def messages_of(text: str, references: tuple[tuple[str, str], ...] = (), known: str = "") -> Messages:
    """Returns the messages of a schema. references: import names and texts. known: a folder with more files that schemas may
    import; google/protobuf/*.proto are always known.

    Raises: NotRead.
    """
    if find_spec("grpc_tools") is None:
        raise NotRead("its records are protobuf, and protoc is not installed")
    with tempfile.TemporaryDirectory(prefix="frazil-verify-proto-") as name:
        folder = Path(name)
        sources, target = folder / "sources", folder / "descriptors"
        for file, content in (*references, (_OWN, text)):
            path = sources / file
            if not path.resolve().is_relative_to(sources.resolve()):
                raise NotRead(f"a schema of its records imports the name {file}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8", errors="surrogatepass")
        return Messages(_compiled(sources, target, [known] if known else []))


def _compiled(sources: Path, target: Path, known: Sequence[str]) -> bytes:
    places = [f"--proto_path={place}" for place in (sources, *known)]
    # -P: Python must not import modules from the working directory.
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", *places, "--include_imports"]
    try:
        done = subprocess.run(
            [*command, f"--descriptor_set_out={target}", _OWN],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotRead(f"protoc needs more than {_TIMEOUT_S} s for a schema of its records") from None
    if done.returncode or not target.exists():
        raise NotRead("protoc refuses a schema of its records")
    return target.read_bytes()
