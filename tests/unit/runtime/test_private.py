"""What is made for this user alone, and what is tightened."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from frazil.errors import UnavailableError
from frazil.files import make_private_directory, make_private_file, temporary_folder
from frazil.runtime import gateway
from frazil.runtime.gateway import options_file, wait_for_end


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files_are_made_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_directory(tmp_path / "a" / "b")
        make_private_file(tmp_path / "a" / "b" / "f")
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/f")] == [0o700, 0o700, 0o600]


def test_existing_files_of_frazil_lose_rights_and_others_stay(tmp_path: Path) -> None:
    for name in ("state", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
        make_private_directory(tmp_path / name)
    (tmp_path / "f").touch()
    (tmp_path / "f").chmod(0o444)
    make_private_file(tmp_path / "f")
    assert [mode(tmp_path / name) for name in ("state", "mine", "f")] == [0o700, 0o755, 0o400]


_KILLED = """
import os, signal, sys
from pathlib import Path
from frazil.files import temporary_folder
with temporary_folder("frazil-test-", *map(Path, sys.argv[1:])) as folder:
    (folder / "rows").write_text("x")
    print(folder, flush=True)
    {}
"""


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_folder_that_a_killed_process_leaves_is_removed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_elsewhere: bool
) -> None:
    where = tmp_path if is_elsewhere else None
    monkeypatch.setattr(tempfile, "tempdir", None if is_elsewhere else str(tmp_path))

    def start(end: str) -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", _KILLED.format(end), *([str(where)] if where else [])]
        environment = os.environ | ({} if where else {"TMPDIR": str(tmp_path)})
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    killed, left = start("os.kill(os.getpid(), signal.SIGKILL)")
    killed.communicate()
    running, used = start("input()")
    others = tmp_path / "frazil-other-1", tmp_path / "frazil-test-new"
    for folder in others:
        folder.mkdir()
    for folder in (left, used, others[0]):
        os.utime(folder, (1, 1))
    with temporary_folder("frazil-test-", where) as own:
        assert mode(own) == 0o700
        assert set(tmp_path.iterdir()) == {used, own, *others}
    running.communicate("\n")
    assert set(tmp_path.iterdir()) == set(others)


_WITHOUT_CACHE = """
import os
from pathlib import Path
os.access = lambda *_: False
import frazil.decode
folder = Path(os.environ["NUMBA_CACHE_DIR"])
(folder / "loop").write_text("compiled")
print(folder)
"""


def test_loops_that_no_folder_may_keep_end_with_their_process(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT_CACHE],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "TMPDIR": str(tmp_path)},
    )
    assert Path(ended.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


_ENDED = """
import threading, time
from frazil.files import temporary_folder
def hold():
    with temporary_folder("frazil-test-") as folder:
        print(folder, flush=True)
        made.set()
        time.sleep(60)
made = threading.Event()
threading.Thread(target=hold, daemon=True).start()
made.wait()
"""


def test_a_folder_is_removed_with_its_process_although_its_thread_has_not_ended(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", _ENDED], capture_output=True, text=True, check=True, env=environment)
    assert Path(ended.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_options_of_java_are_in_a_private_file_and_not_on_its_command_line() -> None:
    words = ['-Dx=a "quoted" \\ word', "-Dy=1"]
    with options_file(words) as file:
        assert mode(file) == 0o600
        assert file.read_text() == '"-Dx=a \\"quoted\\" \\\\ word"\n"-Dy=1"\n'
    assert not file.exists()


def test_too_few_open_files_are_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    with pytest.raises(UnavailableError, match="may open 256 files") as caught:
        gateway.raise_file_limit()
    assert "ulimit -n 65536" in caught.value.remedy


def test_a_jvm_that_does_not_end_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_END_TIMEOUT_S", 0.1)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    wait_for_end(process)
    assert process.returncode == -9
