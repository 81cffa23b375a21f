"""The offline bundle: what a machine without a network needs, complete or refused."""

from __future__ import annotations

import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.errors import UnavailableError
from frazil.runtime import jars as jars_module
from frazil.runtime import setup as bundle_module
from frazil.runtime.jars import USES, are_jars_present, jars
from frazil.runtime.setup import install_bundle, write_bundle
from tests.acceptance.disks import full, small_disk

FakeJava = Callable[..., Path]


@pytest.fixture
def bundle(tmp_path: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle with Frazil and one of its packages, instead of all of them: those are half a minute's work. The cache is
    empty afterwards, and there is no Java.
    """
    fake_java()
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "first"))
    few = [importlib.metadata.distribution(name) for name in ("frazil", "frazil-demo", "structlog")]
    monkeypatch.setattr(bundle_module, "closure", lambda *_, **__: few)
    write_bundle(tmp_path / "bundle.tar")
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "second"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    return tmp_path / "bundle.tar"


def unpacked(bundle: Path) -> Path:
    with tarfile.open(bundle) as opened:
        opened.extractall(bundle.parent, filter="data")
    return bundle.parent / "frazil-bundle"


def run(*words: str, directory: Path) -> str:
    ended = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def with_member(bundle: Path, name: str, content: bytes) -> None:
    """Adds a file to the bundle; the last one of a name is the one that counts."""
    with tarfile.open(bundle, "a") as opened:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        opened.addfile(member, io.BytesIO(content))


def test_a_machine_without_a_network_gets_the_jars_from_the_bundle(bundle: Path) -> None:
    assert not any(are_jars_present(use) for use in USES)
    install_bundle(bundle)
    assert [jar.read_text() for use in USES for jar in jars(use)] == ["one", "three"] * len(USES)


def test_the_sums_of_the_bundle_can_be_checked_and_its_wheels_installed(bundle: Path, tmp_path: Path) -> None:
    folder = unpacked(bundle)
    run("sha256sum", "--check", "--strict", "SHA256SUMS", directory=folder)
    listed = {line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    held = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert held - listed == {"README", "SHA256SUMS"}
    [told] = re.findall(r"setup --from (\S+)", (folder / "README").read_text())
    assert (folder / told).resolve() == bundle.resolve()
    command = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path / "site")]
    names = ("frazil", "frazil-demo", "structlog")
    run(sys.executable, "-m", *command, "--find-links", str(folder / "wheels"), *names, directory=folder)
    code = "import frazil.cli, frazil_demo.command, structlog; print(frazil.__file__, frazil_demo.__file__)"
    found = run(sys.executable, "-c", code, directory=tmp_path / "site")
    assert found.split() == [str(tmp_path / "site" / name / "__init__.py") for name in ("frazil", "frazil_demo")]


def test_a_changed_jar_of_a_bundle_is_refused(bundle: Path) -> None:
    with_member(bundle, f"frazil-bundle/jars/{jars_module.jars_directory('s3').name}/second-2.jar", b"four")
    with pytest.raises(UnavailableError, match=r"the jar second-2\.jar is not the one that Frazil was built with"):
        install_bundle(bundle)
    assert [are_jars_present(use) for use in USES] == [True, False, False]


def test_a_bundle_of_another_version_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars_module, "_declaration", lambda: b"other jars")
    with pytest.raises(UnavailableError, match="the bundle does not have the jars that Frazil") as caught:
        install_bundle(bundle)
    assert caught.value.where == str(bundle)


@pytest.mark.parametrize("length", [0, 100, 10_000])
def test_a_bundle_cut_short_is_refused(bundle: Path, length: int) -> None:
    bundle.write_bytes(bundle.read_bytes()[:length])
    with pytest.raises(UnavailableError, match="the bundle"):
        install_bundle(bundle)
    assert not any(are_jars_present(use) for use in USES)


def test_what_a_killed_process_left_beside_the_bundle_is_removed(bundle: Path, tmp_path: Path) -> None:
    install_bundle(bundle)
    left = tmp_path / "target" / ".frazil-bundle-killed"
    left.mkdir(parents=True)
    (left / "bundle.tar").write_text("half")
    os.utime(left, (1, 1))
    write_bundle(left.parent / "bundle.tar")
    assert [path.name for path in left.parent.iterdir()] == ["bundle.tar"]


@pytest.mark.usefixtures("bundle")
def test_a_bundle_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder) as is_small:
        if not is_small:
            pytest.skip("this machine lets us mount no disk")
        with (
            full(folder),
            pytest.raises(UnavailableError, match="the bundle cannot be written: No space left on device"),
        ):
            write_bundle(folder / "bundle.tar")
        assert list(folder.iterdir()) == []


def test_a_full_disk_under_the_cache_is_named_and_the_next_try_succeeds(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setenv("FRAZIL_CACHE", str(folder))
    with small_disk(folder) as is_small:
        if not is_small:
            pytest.skip("this machine lets us mount no disk")
        with full(folder), pytest.raises(UnavailableError, match="the jars cannot be stored: No space left on device"):
            install_bundle(bundle)
        install_bundle(bundle)
        assert all(are_jars_present(use) for use in USES)
