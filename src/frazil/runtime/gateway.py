"""Starts the JVM that PySpark uses, with an archive of loaded classes where there is one.

PySpark would start it by a shell script and a second JVM that only assembles the command. Starting it here saves that
second, keeps settings off the command line (which other users of the machine can read), and loads classes from an
archive (Java's application class-data sharing), which halves the CPU of a start: 18 to 11.6 seconds up to the first
job. The JVM ends when its standard input closes, so it never outlives this process.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import resource
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j import java_gateway
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from py4j.protocol import get_return_value

from frazil.clock import SystemClock, new_id
from frazil.errors import UnavailableError
from frazil.files import temporary_folder
from frazil.runtime.jars import cache_directory, spark_home
from frazil.runtime.java import find_java, with_one_collector
from frazil.zones import regions

OF_JVM = "frazil-jvm-"
"""The prefix of the folder for a JVM's temporary files: libraries that it unpacks, what Spark sorts and sends. A JVM that is
killed leaves them there.
"""
RECORD_VARIABLE = "FRAZIL_RECORD_CLASSES"
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0
# Java 17 maps an archive at a random address by default, for which each JVM corrects every pointer in it: 0.13 CPU-s, and
# all its pages become the JVM's own.
_AT_ITS_ADDRESS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",
)
# A JVM that cannot use an archive starts without it, and its warning on standard output would be taken for its address.
_WITHOUT_WARNINGS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
# A recording JVM writes the archive of its classes before it ends.
RECORDED_TIMEOUT_S = 300.0
_ANSWER_BYTES = 1 << 16
MINIMUM_FILES = 1024
_WANTED_FILES = 65536
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
# What Spark's own launcher passes to every JVM on Java 17.
_SPARK_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)


def start_jvm(
    settings: Mapping[str, str],
    classpath: Sequence[Path],
    options: Sequence[str],
    temporary: Path,
    last: Sequence[Path] = (),
    meanwhile: Callable[[], None] = lambda: None,
) -> subprocess.Popen[bytes]:
    """Starts the JVM and passes its address to PySpark. settings: Spark's properties. classpath: jars before Spark's
    own. last: jars behind them. options: of the JVM. temporary: the folder for its temporary files. meanwhile: is called
    while the JVM starts, which takes a second.

    Raises: UnavailableError where it does not start, or where this machine has no time zones.
    """
    raise_file_limit()
    home = spark_home()
    with temporary_folder("frazil-start-") as folder:
        properties = folder / "spark.properties"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{name} {_escaped(value)}\n" for name, value in settings.items()))
        java, *words = _command(home, settings, classpath, options, last, temporary)
        arguments = folder / "options"
        _write_options(arguments, words)
        command = [java, f"@{arguments}"]
        command += ["org.apache.spark.deploy.SparkSubmit", "--properties-file", str(properties), "pyspark-shell"]
        answer = folder / "answer"
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={
                **_environment(home, settings),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
            },
        )
        # A JVM that cannot write its answer, as the folder is gone, does not end. Ctrl-C ends this block, or the process
        # while another thread is in it.
        atexit.register(process.kill)
        try:
            meanwhile()
            regions()  # Here, as the first call of Arrow's functions takes a fifth of a second.
            port, secret = _wait_for(process, answer)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        finally:
            atexit.unregister(process.kill)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
    return process


def _environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the JVM's environment. Where its own Python workers run the tasks, it does not know Spark's home: they would
    import PySpark from the archive there, which keeps no bytecode, and compile it at each start. Nor does it look up this
    machine's name, which has no address on some.
    """
    if settings["spark.master"].partition("[")[0] == "local":
        here = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        return {"SPARK_LOCAL_HOSTNAME": "localhost", **here}
    return {**os.environ, "SPARK_HOME": str(home)}


@contextmanager
def options_file(options: Sequence[str]) -> Iterator[Path]:
    """Writes options to a file for `java @FILE` while the block runs: they may contain secrets, and every user of the
    machine can read command lines.
    """
    with temporary_folder("frazil-start-") as folder:
        file = folder / "options"
        _write_options(file, options)
        yield file


def _write_options(file: Path, options: Sequence[str]) -> None:
    file.touch(mode=0o600)
    quoted = (option.replace("\\", "\\\\").replace('"', '\\"') for option in options)
    file.write_text("".join(f'"{option}"\n' for option in quoted))


def wait_for_end(process: subprocess.Popen[bytes]) -> None:
    """Waits for a JVM that was asked to end, and keeps what it has recorded; kills it after some seconds."""
    try:
        process.wait(RECORDED_TIMEOUT_S if os.environ.get(RECORD_VARIABLE) else _END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    keep_recorded(is_whole=process.returncode == 0)


def raise_file_limit() -> None:
    """Raises the limit of open files, for this process and its JVM, as far as the system allows.

    Raises: UnavailableError where it is too low: a JVM opens hundreds of jars.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY and soft < MINIMUM_FILES:
        raise UnavailableError(
            f"this process may open {soft} files at a time, and the JVM needs {MINIMUM_FILES} or more",
            remedy=f"raise the limit: `ulimit -n {_WANTED_FILES}` in the shell, or LimitNOFILE= of a systemd service",
            where="ulimit -n",
        )


def hadoop_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Returns Hadoop's settings among Spark's."""
    prefix = "spark.hadoop."
    return {name.removeprefix(prefix): value for name, value in conf.items() if name.startswith(prefix)}


def hadoop_folders() -> list[str]:
    """Returns the folders with Hadoop's settings that the environment names."""
    return [folder for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if (folder := os.environ.get(name))]


def forget_address() -> None:
    """Removes the JVM's address from the environment once PySpark has read it: a process started later, which may be
    another Spark, would use this JVM and its secret.
    """
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)


def class_archive(classpath: Sequence[Path], options: Sequence[str]) -> Path:
    """Returns the path of the class archive for this Java, these jars as they are now, and these options; it may not
    exist.
    """
    java = find_java()
    named = [java.version, str(java.path), str(spark_home()), *map(str, classpath), *options, *_SPARK_OPTIONS]
    # Java refuses an archive of jars that have another size or time by now, as after an installation in the same place.
    files = [jar.stat() for jar in (*classpath, *sorted(spark_home().glob("jars/*.jar")))]
    states = [f"{file.st_size} {file.st_mtime_ns}" for file in files]
    return cache_directory() / "classes" / f"{_digest(named)}-{_digest(states)}.jsa"


def _digest(words: Sequence[object]) -> str:
    return hashlib.sha256("|".join(map(str, words)).encode()).hexdigest()[:12]


def sharing_options(archive: Path) -> list[str]:
    """Returns the JVM options that load classes from the archive, where it exists, or record it, where the environment
    asks for that.
    """
    if os.environ.get(RECORD_VARIABLE):
        return recording_options(archive)
    return [f"-XX:SharedArchiveFile={archive}", *_AT_ITS_ADDRESS, *_WITHOUT_WARNINGS] if archive.exists() else []


_begun: list[Path] = []
"""The archives that JVMs of this process record, under the names that they have until the JVMs have ended."""


def recording_options(archive: Path) -> list[str]:
    """Returns the JVM options that record the archive at the JVM's end, to be named by `keep_recorded`; makes its folder,
    and removes what it replaces, and what was begun by processes that were killed.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    for former in archive.parent.glob(f"{archive.stem.partition('-')[0]}-*"):
        former.unlink(missing_ok=True)
    # Java refuses half an archive at each start, and an archive that exists is not recorded again.
    begun = archive.with_suffix(f".{new_id()}")
    _begun.append(begun)
    return [f"-XX:ArchiveClassesAtExit={begun}", *_WITHOUT_WARNINGS]


def keep_recorded(*, is_whole: bool) -> None:
    """Names the archives that JVMs of this process have recorded. is_whole: whether the JVMs have ended by themselves;
    otherwise what they have written is removed.
    """
    while _begun:
        begun = _begun.pop()
        if is_whole:
            with suppress(FileNotFoundError):
                begun.replace(begun.with_suffix(".jsa"))
        else:
            begun.unlink(missing_ok=True)


def _command(
    home: Path,
    settings: Mapping[str, str],
    classpath: Sequence[Path],
    options: Sequence[str],
    last: Sequence[Path],
    temporary: Path,
) -> list[str]:
    jars = sorted((home / "jars").glob("*.jar"))
    # A class archive fits only a class path that begins like the one it was recorded with.
    path = os.pathsep.join(map(str, [*classpath, *jars, *last, *hadoop_folders()]))
    memory = settings.get("spark.driver.memory", "1g")
    user_options = settings.get("spark.driver.extraJavaOptions", "").split()
    return [
        str(find_java().path),
        *_SPARK_OPTIONS,
        *with_one_collector(options, user_options),
        *sharing_options(class_archive(classpath, options)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        f"-Djava.io.tmpdir={temporary}",
        *user_options,
        "-cp",
        path,
    ]


def _wait_for(process: subprocess.Popen[bytes], answer: Path) -> tuple[int, str]:
    clock = SystemClock()
    deadline = clock.monotonic_s() + _START_TIMEOUT_S
    while not answer.exists():
        if process.poll() is not None or clock.monotonic_s() > deadline:
            raise UnavailableError(
                "the JVM did not start",
                remedy="read what it printed above; `frazil doctor` looks at Java and memory",
                where=str(find_java().path),
            )
        clock.sleep(0.02)
    raw = answer.read_bytes()
    port, length = struct.unpack(">ii", raw[:8])
    return port, raw[8 : 8 + length].decode()


def _escaped(value: str) -> str:
    """Returns the value in Java's properties format."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def translate_exceptions_of(gateway: Any) -> None:
    """Makes PySpark translate the exceptions of this gateway's JVM alone: by itself it takes those of every JVM of the
    process for objects of its own. To be called after each session is made, which installs what translates.
    """
    translating = java_gateway.get_return_value

    def of_its_jvm(answer: str, client: Any, *words: Any) -> Any:
        read = translating if client is gateway._gateway_client else get_return_value
        return read(answer, client, *words)

    java_gateway.get_return_value = of_its_jvm


class _PromptReader(io.RawIOBase):
    """Reads a connection to a JVM, and acknowledges each part of an answer at once."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """See RawIOBase."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See RawIOBase."""
        if hasattr(socket, "TCP_QUICKACK"):  # Linux ends it by itself with the next command that is sent.
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return self._connection.recv_into(buffer)


def prompt_stream(connection: socket.socket) -> io.BufferedReader:
    """Returns the stream of a JVM's answers. Java writes an answer of more than 8 kB in parts, and sends the last one when
    the others are acknowledged: for that Linux takes 40 ms, unless it is asked to do so at once.
    """
    return io.BufferedReader(_PromptReader(connection), _ANSWER_BYTES)


def read_promptly() -> None:
    """Makes py4j read the answers of JVMs by `prompt_stream` on connections that are opened from now on."""
    connect = ClientServerConnection.connect_to_java_server
    if not hasattr(connect, "is_prompt"):

        def connect_to_java_server(connection: Any) -> None:
            connect(connection)
            connection.stream = prompt_stream(connection.socket)

        connect_to_java_server.is_prompt = True  # type: ignore[attr-defined]
        ClientServerConnection.connect_to_java_server = connect_to_java_server


def remember_names() -> None:
    """Makes py4j cache packages, classes and static methods, per view of a JVM, from now on; static fields are read
    each time.
    """
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "asks"):
            kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def look_up(owner: Any, name: str) -> Any:
        member = ask(owner, name)
        # To py4j any name that is not a class is a package: a class that is imported only later must be looked up
        # again.
        is_package = isinstance(member, JavaPackage) and name.islower()
        if is_package or isinstance(member, (JavaClass, JavaMember)):
            vars(owner)[name] = member  # Python calls `__getattr__` only for attributes that the object lacks.
        return member

    look_up.asks = ask  # type: ignore[attr-defined]
    return look_up
