"""How the JVM writes local files: without checksum files, and without a process for each file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frazil.runtime.jvm import prepare_local_files
from frazil.runtime.light_jvm import LightJvm


def test_a_local_file_is_written_without_a_process_with_the_umasks_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, programs, file = tmp_path / "called", tmp_path / "programs", tmp_path / "a" / "b" / "file"
    programs.mkdir()
    (programs / "chmod").write_text(f'#!/bin/sh\necho "$2" >> "{called}"\nexec /bin/chmod "$@"\n')
    (programs / "chmod").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    umask = os.umask(0o027)
    jvm = LightJvm({}, needs_spark_jars=True)
    try:
        prepare_local_files(jvm.gateway)
        hadoop = jvm.gateway.jvm.org.apache.hadoop
        path = hadoop.fs.Path(str(file))
        stream = path.getFileSystem(hadoop.conf.Configuration()).create(path, False)
        stream.write(7)
        stream.close()
    finally:
        jvm.close()
        os.umask(umask)
    assert file.read_bytes() == b"\x07"
    assert [one.name for one in file.parent.iterdir()] == ["file"], "no checksum file lies beside it"
    assert not called.exists(), "Hadoop has called chmod"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o640, 0o750)
