"""The Dockerfile, which is not built here: its rules, and that what it copies exists."""

from __future__ import annotations

import json
import re

from docs.scan import ROOT

FILE = ROOT / "deploy/docker/Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its words, on one line."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], " ".join(line.split()[1:])) for line in joined.splitlines() if line.strip()]


def last(name: str) -> str:
    return [words for instruction, words in instructions() if instruction == name][-1]


def test_the_image_has_a_user_without_rights_and_starts_without_a_shell() -> None:
    assert last("USER") == "10001:10001"
    assert json.loads(last("ENTRYPOINT")) == ["tini", "--", "frazil"]
    assert json.loads(last("CMD"))[0] == "run"
    assert last("STOPSIGNAL") == "SIGTERM"


def test_nothing_comes_into_the_image_without_a_version_or_a_hash() -> None:
    [base] = {words.split()[0] for name, words in instructions() if name == "FROM"}
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert "ADD" not in dict(instructions())
    installs = re.findall(r"pip install ([^&]*)", " ".join(words for name, words in instructions() if name == "RUN"))
    assert all("--require-hashes" in one or "--no-index" in one for one in installs)


def test_every_file_that_is_copied_exists_and_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in FILE.with_name("Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = {
        source
        for name, words in instructions()
        if name == "COPY" and not words.startswith("--from")
        for source in words.split()[:-1]
    }
    assert copied == sent
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_package_lists_are_not_kept() -> None:
    [install] = [words for name, words in instructions() if name == "RUN" and "apt-get" in words]
    assert "--no-install-recommends" in install
    assert install.endswith("rm -rf /var/lib/apt/lists/*")
