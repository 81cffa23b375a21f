"""What `frazil setup` does: once, what a first start would otherwise wait for, and the offline bundle.

It compiles the decoder's loops, which are kept, and runs a small pipeline on a broker of its own, and a command that
looks at it, so that the three JVMs record the classes they load (see `gateway`).

The bundle is a tar file from which a machine without a network gets Frazil as it is installed here: a wheel of Frazil, of
its installed extras and of every package that these require, made from the installed files, so that their versions are those
of this machine; the jars of every use; and the SHA-256 sum of each file. The wheels are for this platform and this version
of Python. Commands of other packages, outside their library folder, are not part of it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import frazil
from frazil.errors import UnavailableError
from frazil.files import temporary_folder
from frazil.plugins.extras import installed_extras
from frazil.runtime.broker import EmbeddedBroker, broker_archive
from frazil.runtime.gateway import RECORD_VARIABLE, class_archive
from frazil.runtime.jars import USES, Use, install_jars, jars, jars_directory, own_jars
from frazil.runtime.java import find_java, why_unrecorded
from frazil.runtime.jvm import JVM_OPTIONS
from frazil.runtime.light_jvm import archive_of_small_jvm

_REQUIRED = re.compile(r"[\w.-]+(?=(?P<extra>.*\bextra\s*==)?)")
_FOLDER = "frazil-bundle"
_OF_THIS_INSTALLATION = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_EPOCH = (1980, 1, 1, 0, 0, 0)
_FASTEST = 1
_README = """\
Frazil {version} for Python {python} on {platform}. To install it without a network, in this folder:

    sha256sum --check SHA256SUMS
    python{python} -m venv /opt/frazil
    /opt/frazil/bin/pip install --no-index --find-links wheels {names}
    /opt/frazil/bin/frazil setup --from ../{file}
    /opt/frazil/bin/frazil doctor

{file} is the bundle itself, which was unpacked beside it. Java 17 or 21 is not part of it.
"""


def write_bundle(file: Path) -> list[str]:
    """Writes the bundle, and nothing where it fails; returns the names of its files.

    Raises: UnavailableError where the file cannot be written, jars cannot be fetched, or a package cannot be packed.
    """
    try:
        with temporary_folder(".frazil-bundle-", file.absolute().parent) as folder:
            packed = folder / "bundle.tar"
            names = _pack(packed, file.name)
            packed.replace(file)
    except OSError as error:
        raise UnavailableError(
            f"the bundle cannot be written: {error.strerror or error}",
            remedy="free disk space and make the folder writable, or name another file",
            where=str(file),
        ) from error
    return names


def install_bundle(file: Path) -> None:
    """Puts the jars of the bundle into the cache, where it lacks them.

    Raises: UnavailableError where the bundle cannot be read or is of another version, or jars cannot be stored.
    """
    try:
        with tarfile.open(file, "r:") as bundle:
            for use in USES:
                _install(use, bundle, file)
    except (OSError, tarfile.TarError) as error:
        raise UnavailableError(
            f"the bundle cannot be read: {getattr(error, 'strerror', None) or error}",
            remedy="name a file that frazil setup --bundle has written, and compare its size with the original's",
            where=str(file),
        ) from error


def _install(use: Use, bundle: tarfile.TarFile, file: Path) -> None:
    prefix = PurePosixPath(_FOLDER, "jars", jars_directory(use).name)
    members = [member for member in bundle if member.isfile() and PurePosixPath(member.name).parent == prefix]
    if not members:
        raise UnavailableError(
            f"the bundle does not have the jars that Frazil {frazil.__version__} needs: use={use}",
            remedy="install Frazil from the wheels of the bundle, or make a bundle with this version",
            where=str(file),
        )

    def copy(folder: Path, _lock: IO[str]) -> None:
        for member in members:
            read = bundle.extractfile(member)
            assert read is not None  # It is a file.
            with read, (folder / PurePosixPath(member.name).name).open("wb") as target:
                shutil.copyfileobj(read, target)

    install_jars(use, copy)


def _pack(target: Path, name: str) -> list[str]:
    sums: dict[str, str] = {}
    with tarfile.open(target, "w") as archive:
        for inside, path in _files(target.parent):
            with path.open("rb") as file:
                sums[inside] = hashlib.file_digest(file, "sha256").hexdigest()
                _add(archive, inside, file)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        names = " ".join(_own_modules())
        about = {"version": frazil.__version__, "python": python, "platform": platform.machine()}
        readme = _README.format(**about, names=names, file=name)
        listed = "".join(f"{digest}  {inside}\n" for inside, digest in sums.items())
        _add(archive, "README", io.BytesIO(readme.encode()))
        _add(archive, "SHA256SUMS", io.BytesIO(listed.encode()))
    return list(sums)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields the files of the bundle. A wheel is deleted once the next file is wanted."""
    own_modules = _own_modules()
    distributions = closure(own_modules, with_extras=own_modules)
    check_recorded(distribution for distribution in distributions if distribution.name not in own_modules)
    for distribution in distributions:
        wheel = _wheel(distribution, folder)
        yield f"wheels/{wheel.name}", wheel
        wheel.unlink()
    for use in USES:
        for jar in jars(use):
            yield f"jars/{jar.parent.name}/{jar.name}", jar


def _own_modules() -> dict[str, str]:
    """Returns the import packages of Frazil and of its installed extras, by the name of the distribution."""
    return {"frazil": "frazil"} | {extra.distribution: extra.module for extra in installed_extras()}


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(f"{_FOLDER}/{name}")
    member.size = content.seek(0, io.SEEK_END)
    content.seek(0)
    archive.addfile(member, content)


def _wheel(distribution: importlib.metadata.Distribution, folder: Path) -> Path:
    """Makes the wheel that a package was installed from (Python packaging, "Binary distribution format")."""
    files = _recorded(distribution)
    metadata = next(PurePosixPath(name).parent for name in files if name.endswith(".dist-info/METADATA"))
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ").split("-") for line in lines if line.startswith("Tag: ")]
    tag = "-".join(".".join(sorted(set(part))) for part in zip(*tags, strict=True))
    wheel = folder / f"{metadata.stem}-{tag}.whl"
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=_FASTEST) as archive:
        for name, path in files.items():
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f'"{name}",sha256={digest},{len(content)}\n')
            member = zipfile.ZipInfo(name, _EPOCH)
            member.external_attr = (path.stat().st_mode & 0xFFFF) << 16  # Some packages have programs.
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, _FASTEST)
        archive.writestr(zipfile.ZipInfo(f"{metadata}/RECORD", _EPOCH), "".join([*record, f"{metadata}/RECORD,,\n"]))
    return wheel


def _recorded(distribution: importlib.metadata.Distribution) -> dict[str, Path]:
    """Returns the files of a package by their names in a wheel; those of Frazil itself and of its extras also
    where they run from a checkout.
    """
    files = {path.as_posix(): Path(str(path.locate())) for path in distribution.files or () if _is_packed(path)}
    own_module = _own_modules().get(distribution.name)
    if own_module is not None:
        root = Path(str(importlib.import_module(own_module).__file__)).parent
        source_files = {f"{own_module}/{path.relative_to(root).as_posix()}": path for path in sorted(root.rglob("*"))}
        files = {name: path for name, path in files.items() if ".dist-info/" in name}
        files |= {
            name: path for name, path in source_files.items() if path.is_file() and _is_packed(PurePosixPath(name))
        }
    return files


def _is_packed(path: PurePosixPath) -> bool:
    is_of_this_installation = path.parent.suffix == ".dist-info" and path.name in _OF_THIS_INSTALLATION
    return not is_of_this_installation and not {"..", "__pycache__"}.intersection(path.parts)


_FILE = """
pipeline: warm
kafka: {{bootstrap.servers: "{servers}"}}
catalog: {{type: jdbc, uri: "jdbc:sqlite:{folder}/catalog.db", warehouse: "{folder}/warehouse"}}
tables: {{warm.events: {{topic: events, metadata: [offset], columns: {{n: long, at: timestamptz}}}}}}
"""


def compile_all() -> str:
    """Compiles also the loops that few pipelines need, in a process of its own, which may import what this module may
    not. Returns why it failed; empty where it did not.
    """
    command = [sys.executable, "-c", "from frazil.ingest.tasks.warm_up import warm_up; warm_up(compiles_all=True)"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stderr if ended.returncode else ""


def record_start() -> str:
    """Runs the small pipeline, and the check of its file, unless the class archives of their JVMs and of the broker's
    exist. Returns why an archive is missing; empty where none is.
    """
    archives = {
        ("run", "--until-caught-up"): class_archive(own_jars(needs_s3=False), JVM_OPTIONS),
        ("check",): archive_of_small_jvm(),
    }
    of_broker = broker_archive()
    if all(archive.exists() for archive in (*archives.values(), of_broker)):
        return ""
    records = not of_broker.exists()
    with (
        temporary_folder("frazil-warm-") as folder,
        EmbeddedBroker(folder / "broker", records_classes=records) as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("events", 2, 1)])["events"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for n in range(1000):
            producer.produce("events", f'{{"n":{n},"x":{{"y":[{n}.5]}},"s":"a\\\\n{n}","at":"2026-01-01T00:00:00Z"}}')
        producer.flush()
        file = folder / "frazil.yaml"
        file.write_text(_FILE.format(servers=broker.bootstrap_servers, folder=folder))
        failures = [_record(words, file, archive) for words, archive in archives.items()]
    if not of_broker.exists():
        failures.append(f"the broker has written no {of_broker}")
    return next(filter(None, failures), "")


def _record(words: tuple[str, ...], file: Path, archive: Path) -> str:
    """Runs the command, whose JVM records its classes unless it has an archive. Returns why there is none."""
    command = [sys.executable, "-m", "frazil.cli.main", *words, "-f", str(file)]
    environment = os.environ if archive.exists() else {**os.environ, RECORD_VARIABLE: "1"}
    ended = subprocess.run(command, env=environment, cwd=file.parent, capture_output=True, text=True, check=False)
    if archive.exists():
        return ""
    return ended.stderr if ended.returncode else why_unrecorded(find_java()) or f"the JVM has written no {archive}"


def check_recorded(distributions: Iterable[importlib.metadata.Distribution]) -> None:
    """Checks that the files of each package are known.

    Raises: UnavailableError for an editable installation, and one that the operating system made.
    """
    for distribution in distributions:
        if not any(path.suffix in (".py", ".so") for path in distribution.files or ()):
            raise UnavailableError(
                f"the files of a package are not recorded, so it cannot be packed: package={distribution.name}",
                remedy="install it from its wheel, and not as an editable package",
            )


def closure(
    roots: Iterable[str], left_out: Collection[str] = (), with_extras: Collection[str] = ()
) -> list[importlib.metadata.Distribution]:
    """Returns the distributions of `roots` and everything they require here, by name, without those `left_out` and what
    only these require. with_extras: whose extras count too, as far as they are installed.

    Raises: UnavailableError for a root that is not installed.
    """
    named = set(roots)
    distributions: dict[str, importlib.metadata.Distribution] = {}
    waiting = sorted(named)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in distributions or name in left_out:
            continue
        try:
            distributions[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in named:
                remedy = "install Frazil's requirements"
                raise UnavailableError(f"a package is not installed: package={name}", remedy=remedy) from None
            continue  # Required on other platforms only.
        takes_extras = name in with_extras
        matches = filter(None, map(_REQUIRED.match, distributions[name].requires or ()))
        waiting += [match[0] for match in matches if takes_extras or not match["extra"]]
    return [distributions[name] for name in sorted(distributions)]
