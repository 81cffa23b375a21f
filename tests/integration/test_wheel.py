"""The wheels, in environments of their own and away from the checkout: all that Frazil needs is in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import frazil
from docs.scan import ROOT
from frazil.clock import new_id
from frazil.plugins.extras import EXTRAS
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.gateway import class_archive, sharing_options
from frazil.runtime.jars import own_jars
from frazil.runtime.jvm import JVM_OPTIONS
from tests.fixtures.image import copy_build_folder, wheel_command
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.processes import plain_environment


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of the core and of each package beside it, built as the image builds them: by the Dockerfile's command, in
    a folder with the files that its builder is sent.
    """
    folder = tmp_path_factory.mktemp("build")
    copy_build_folder(folder)
    run("sh", "-c", wheel_command(folder, f"{sys.executable} -m pip"), directory=folder, PIP_QUIET="1")
    return folder / "dist"


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment with all wheels."""
    return install(tmp_path_factory.mktemp("all"), [*wheels.glob("*.whl")])


@pytest.fixture(scope="module")
def core(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment with the wheel of the core alone."""
    return install(tmp_path_factory.mktemp("core"), [*wheels.glob("frazil-*.whl")])


@pytest.fixture(scope="module")
def typed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with all wheels and nothing that they require: the types of the API are their own, and a
    checker reads nothing else.
    """
    folder = tmp_path_factory.mktemp("typed")
    _install_wheels(folder, [*wheels.glob("*.whl")])
    return folder / "venv/bin/python"


def install(folder: Path, wheels: list[Path]) -> Path:
    """Installs the wheels; returns the folder of the programs. The packages that Frazil requires are those of the tests' own
    environment, as to install them takes minutes.
    """
    site = _install_wheels(folder, wheels)
    required = folder / "required"
    required.mkdir()
    for entry in Path(pytest.__file__).parent.parent.iterdir():
        if not entry.name.removeprefix("_").startswith("frazil"):
            (required / entry.name).symlink_to(entry)
    (site / "required.pth").write_text(f"{required}\n")
    _take_compiled(site / "frazil")
    return folder / "venv/bin"


def _install_wheels(folder: Path, wheels: list[Path]) -> Path:
    """Makes an environment with the wheels alone; returns the folder of its packages."""
    venv.create(folder / "venv", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv/bin/python")]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", *map(str, wheels), directory=folder)
    at = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    return Path(sysconfig.get_path("purelib", vars=at))


def _take_compiled(package: Path) -> None:
    """Spares the test the half minute of compiling: numba takes the checkout's compiled loops, where each source has the
    time of the one that they were compiled from.
    """
    checkout = Path(frazil.__file__).parent
    for source in package.rglob("*.py"):
        compiled = checkout / source.relative_to(package)
        os.utime(source, ns=(compiled.stat().st_atime_ns, compiled.stat().st_mtime_ns))
    for loop in checkout.rglob("*.nb[ic]"):
        copy = package / loop.relative_to(checkout)
        if not copy.parent.parent.exists():
            continue  # A room that has moved elsewhere leaves its loops in the checkout.
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(loop, copy)


def run(*words: str, directory: Path, **variables: str) -> str:
    environment = {**plain_environment(), "JDK_JAVA_OPTIONS": QUICK_JVM, **variables}
    ended = subprocess.run(
        words, cwd=directory, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_installed_command_is_the_wheels_own_and_misses_nothing(installed: Path, tmp_path: Path) -> None:
    where = run(str(installed / "python"), "-c", "import frazil; print(frazil.__file__)", directory=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(str(installed / "frazil"), "--version", directory=tmp_path).strip() == frazil.__version__
    assert json.loads(run(str(installed / "frazil"), "doctor", "--output", "json", directory=tmp_path))["ok"] is True


def test_the_image_has_a_wheel_of_the_core_and_of_every_package(wheels: Path) -> None:
    names = {wheel.name.partition("-")[0] for wheel in wheels.glob("*.whl")}
    assert names == {"frazil", *(extra.module for extra in EXTRAS)}


@pytest.mark.slow  # The demo itself is in packages/demo/tests, the commands of the wheel are above.
def test_the_demo_of_the_wheel_compares_its_tables_with_what_was_sent(installed: Path, tmp_path: Path) -> None:
    shown = run(str(installed / "frazil"), "demo", "--once", "--records", "2000", directory=tmp_path)
    assert "every record arrived once" in shown
    assert run(str(installed / "python"), "-m", "frazil_demo.samples", "shop", directory=tmp_path).startswith(
        "create table"
    )


def test_the_core_alone_reads_a_topic_into_a_table(core: Path, broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = f"wheel_{new_id()}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(300):
        producer.produce(topic, json.dumps({"id": number, "name": f"n{number}"}))
    producer.flush()
    (tmp_path / "frazil.yaml").write_text(
        f"pipeline: wheel\nkafka: {{bootstrap.servers: '{broker.bootstrap_servers}'}}\ntables: {{a.b: {{topic: {topic}}}}}\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service_manager:
        service_manager.bind(str(tmp_path / "notify"))
        # The wheel's archive of classes would be another one, which `frazil setup` has not made.
        java = [QUICK_JVM, *sharing_options(class_archive(own_jars(needs_s3=False), JVM_OPTIONS))]
        variables = {"NOTIFY_SOCKET": "notify", "JDK_JAVA_OPTIONS": " ".join(java)}
        answer = run(str(core / "frazil"), "run", "--until-caught-up", directory=tmp_path, **variables)
        assert service_manager.recv(100) == b"READY=1\nWATCHDOG=1"
    assert answer.strip() == "a.b: 300 rows, 0 records behind"


def test_the_wheel_and_the_source_say_what_they_are(tmp_path: Path) -> None:
    offline = ("--no-isolation", "--outdir", str(tmp_path))
    run(sys.executable, "-m", "build", *offline, str(ROOT), directory=tmp_path)
    [source], [wheel] = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        [name] = [entry for entry in opened.namelist() if entry.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(opened.read(name).decode())
        assert "frazil/py.typed" in opened.namelist()
        assert any(entry.endswith("/licenses/LICENSE") for entry in opened.namelist())
    assert (metadata["Name"], metadata["Version"]) == ("frazil", frazil.__version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", "<3.14,>=3.11")
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert "iceberg" in metadata["Keywords"]
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    urls = metadata.get_all("Project-URL", [])
    assert [url for url in urls if "example" in url] == [], "an address that does not answer"
    with tarfile.open(source) as opened_source:
        names = {entry.partition("/")[2] for entry in opened_source.getnames()}
    assert {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "SECURITY.md",
        "requirements/runtime.txt",
        "pyproject.toml",
    } <= names
    assert "src/frazil/py.typed" in names


def test_programs_that_use_the_installed_package_are_checked_by_its_types(typed: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from typing import assert_type\nimport frazil\n"
        "shop = frazil.load('frazil.yaml')\n"
        "assert_type(shop, frazil.Pipeline)\n"
        "assert_type(shop.run(until_caught_up=True).is_ok, bool)\n"
        "assert_type(shop.status().tables[0].lag.lag_records, int | None)\n"
        "assert_type(shop.plan().tables, tuple[frazil.PlannedTable, ...])\n"
        "from frazil_testing.twins import FakeClock\n"
        "assert_type(FakeClock().now_ms(), int)\n"
    )
    with program.open("a") as opened:
        opened.writelines(f"import {extra.module}\n" for extra in EXTRAS)  # Refused where a package has no types.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(typed)]
    checked = run(*mypy, "--follow-imports", "silent", str(program), directory=tmp_path)
    assert checked.startswith("Success")


def test_the_wheels_have_every_file_of_their_packages(installed: Path) -> None:
    [site] = installed.parent.glob("lib/python*/site-packages")
    folders = {"frazil": Path(frazil.__file__).parent} | {
        path.name: path for path in ROOT.glob("packages/*/src/frazil_*")
    }
    assert {name: _files(site / name) for name in folders} == {name: _files(path) for name, path in folders.items()}


def test_the_core_imports_no_extra_and_lists_what_each_would_add(core: Path, tmp_path: Path) -> None:
    shown = run(str(core / "frazil"), "--help", directory=tmp_path, COLUMNS="400")
    for extra in EXTRAS:
        for name in extra.added.get("frazil.commands", ()):
            assert re.search(rf"{name.split('.')[0]}\b", shown), name
    checked = "import frazil.api.running, sys; print([name for name in sys.modules if name.startswith('frazil_')])"
    assert run(str(core / "python"), "-c", checked, directory=tmp_path) == "[]\n"


@pytest.fixture(scope="module")
def without_extras(core: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[int, str]]:
    """How a command ends with the core alone, and what it reports. All of them are called in one process, as each would
    spend seconds on imports; that the installed command is a process of its own: the first test of this file.
    """
    calls = [(name.split("."), "") for _, name in COMMANDS]
    calls += [(["status"], file_with_key(text)) for _, text in KEYS]
    calls += [(["status"], file_with_table(settings)) for _, settings, _ in SETTINGS]
    folder = tmp_path_factory.mktemp("calls")
    (folder / "calls.json").write_text(json.dumps(calls))
    answers = json.loads(run(str(core / "python"), "-c", _CALLER, directory=folder, PROTECT_KEY="k" * 32))
    ended = {json.dumps(call): answer for call, answer in zip(calls, answers, strict=True)}

    def ended_of(words: list[str], text: str = "") -> tuple[int, str]:
        code, reported = ended[json.dumps((words, text))]
        return code, reported

    return ended_of


def file_with_key(text: str) -> str:
    """A pipeline file whose last line has this key."""
    table = [] if text.startswith("tables") else ["tables: {a.b: {topic: t}}"]
    return "\n".join([*table, "pipeline: p", "kafka: {bootstrap.servers: '127.0.0.1:9'}", text])


def file_with_table(settings: str) -> str:
    """A pipeline file whose last line has a table with these settings."""
    lines = ["pipeline: p", "kafka: {bootstrap.servers: '127.0.0.1:9'}", "tables:", f"  a.b: {{topic: t, {settings}}}"]
    return "\n".join(lines)


COMMANDS = [(extra.name, name) for extra in EXTRAS for name in extra.added.get("frazil.commands", ())[:1]]
KEYS = [
    ("cluster", "spark: {master: 'spark://127.0.0.1:9'}"),
    ("ha", "ha: {elect: kafka}"),
    ("http", "http: {listen: '127.0.0.1:9'}"),
    ("registry", "registry: {url: 'http://127.0.0.1:9'}"),
    ("verify", "verify: {every: 1h}"),
    ("telemetry", 'telemetry: {otlp: "http://127.0.0.1:9"}'),
    ("publish", "tables: {a.b: {topic: t, branch: b, publish: {}}}"),
]
SETTINGS = [
    ("cdc", "envelope: canal", "the envelope `canal`"),
    ("lookup", "lookup: {c: {table: r.c, on: a = b, take: [d]}}", "the setting `lookup`"),
    ("transactions", "envelope: debezium, atomic: transaction", "the setting `atomic`"),
    ("expect", "expect: {positive: 'a > 0'}", "the stage `expect`"),
    ("blobs", "blobs: {columns: [a], store: /blobs}", "the stage `blobs`"),
    ("protect", "protect: {a: hash}, protect_key: '${env:PROTECT_KEY}'", "the stage `protect`"),
    ("state", "mode: upsert, key_columns: [a], merge: {n: sum}", "the kind of table `merge`"),
    ("state", "select: 'select a, sum(n) as n from records group by a'", "the kind of table `merge`"),
    ("state", "mode: history, key_columns: [a]", "the kind of table `history`"),
    ("state", "dedupe: {by: [a]}", "the kind of table `dedupe`"),
    ("jsonschema", "value: {format: json_schema}", "the format `json_schema`"),
    ("protobuf", "value: {format: protobuf}", "the format `protobuf`"),
    ("protobuf", "value: {format: avro}, key: {format: protobuf}", "the format `protobuf`"),
]
# Each call finds the pipeline file of its own, or none, in the working directory.
_CALLER = """
import contextlib, io, json, pathlib, sys
from frazil.cli.main import main

file, answers = pathlib.Path("frazil.yaml"), []
for words, text in json.loads(pathlib.Path("calls.json").read_text()):
    file.unlink(missing_ok=True)
    if text:
        file.write_text(text)
    with contextlib.redirect_stderr(io.StringIO()) as reported:
        code = main(words)
    answers.append((code, reported.getvalue()))
assert not [name for name in sys.modules if name.startswith("frazil_")]
print(json.dumps(answers))
"""


@pytest.mark.parametrize(("extra", "name"), COMMANDS)
def test_a_command_of_an_extra_that_is_not_installed_names_what_to_install(
    without_extras: Callable[..., tuple[int, str]], extra: str, name: str
) -> None:
    assert without_extras(name.split(".")) == (
        2,
        f"error: the command `{name.replace('.', ' ')}` is in the package frazil-{extra}, which is not installed\n"
        f"remedy: install `frazil[{extra}]` with pip from where Frazil was installed\n",
    )


@pytest.mark.parametrize(("extra", "text"), KEYS)
def test_a_key_of_an_extra_that_is_not_installed_names_what_to_install(
    without_extras: Callable[..., tuple[int, str]], extra: str, text: str
) -> None:
    file = file_with_key(text)
    key = "spark.master" if extra == "cluster" else extra
    assert without_extras(["status"], file) == (
        2,
        f"error: what `{key}` configures is in the package frazil-{extra}, which is not installed\n"
        f"where: frazil.yaml:{len(file.splitlines())}\n"
        f"remedy: install `frazil[{extra}]` with pip from where Frazil was installed\n",
    )


@pytest.mark.parametrize(("extra", "settings", "what"), SETTINGS)
def test_an_envelope_a_format_a_stage_or_a_kind_of_an_extra_that_is_not_installed_names_what_to_install(
    without_extras: Callable[..., tuple[int, str]], extra: str, settings: str, what: str
) -> None:
    assert without_extras(["status"], file_with_table(settings)) == (
        2,
        f"error: {what} is in the package frazil-{extra}, which is not installed\n"
        f"where: frazil.yaml:4\nremedy: install `frazil[{extra}]` with pip from where Frazil was installed\n",
    )


def _files(package: Path) -> set[str]:
    """Returns the files of a package; those behind a link are in its wheel too."""
    compiled = {".pyc", ".nbi", ".nbc"}
    files = (Path(folder, name) for folder, _, names in os.walk(package, followlinks=True) for name in names)
    return {str(file.relative_to(package)) for file in files if file.suffix not in compiled}
