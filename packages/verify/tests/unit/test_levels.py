"""What is refused before a table is verified, each with a remedy that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.cli.main import main
from frazil.errors import SpecError
from frazil.ledger import Ledger, dump_ledger, load_ledger
from frazil.spec import load_spec
from frazil_verify.command import _share_of
from frazil_verify.independent.judge import Judgement
from frazil_verify.independent.topic import Range
from frazil_verify.judging import _compare_with_ledger
from frazil_verify.ledger_check import OTHER_HASHES
from frazil_verify.opened import Opened, Options, sampled, time_of
from frazil_verify.verify import verify_tables

FILE = "pipeline: p\nkafka: {bootstrap.servers: 'localhost:1'}\ntables: {a.b: {topic: t}}\n"


def test_two_levels_at_once_are_refused_and_one_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(FILE)
    assert main(["verify", "-f", str(file), "--ledger", "--rows"]) == 2
    assert "choose one level, or run the command twice" in capsys.readouterr().err
    assert main(["verify", "-f", str(file), "--ledger", "--help"]) == 0


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--digests"], "add --rows, or leave --digests out"),
        (["--independent", "--digests"], "add --rows, or leave --digests out"),
        (["--ledger", "--scratch", "s3://lake/tmp"], "leave --scratch out: this level makes no copy"),
        (
            ["--scratch", "s3://lake/tmp"],
            "leave --scratch out, and set TMPDIR to a folder with the space of a copy",
        ),
    ],
    ids=["copy", "independent", "ledger", "no cluster"],
)
def test_options_of_another_level_are_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], remedy: str
) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(FILE)
    assert main(["verify", "-f", str(file), *words]) == 2
    assert remedy in " ".join(capsys.readouterr().err.split())


def test_a_copy_has_no_bounds_and_other_levels_have(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(FILE)
    with pytest.raises(SpecError, match="a copy is made of the whole topic") as refused:
        verify_tables(load_spec(file, {}), None, "copy", ("10", "", 1.0), lambda _: None)
    assert refused.value.remedy == "add --independent or --rows, or leave --from, --to and --sample out"


def test_a_bound_is_a_time_in_a_form_that_the_remedy_names() -> None:
    with pytest.raises(SpecError, match="`yesterday` is neither an offset nor a time") as refused:
        time_of("yesterday")
    text = refused.value.remedy.rpartition(" ")[2]
    assert time_of(text) == 1_769_817_600_000
    assert time_of("") is None


@pytest.mark.parametrize("text", ["1", "0%", "101%", "a few", "-1%"])
def test_a_share_is_written_as_the_remedy_names_it(text: str) -> None:
    with pytest.raises(SpecError, match="is not a share") as refused:
        _share_of(text)
    assert _share_of(refused.value.remedy.rpartition(" ")[2]) == 0.005
    assert _share_of("") == 1


def test_a_sample_has_the_share_of_the_offsets_in_blocks_and_at_least_one() -> None:
    nothing: Any = None
    opened = Opened(nothing, nothing, nothing, Options(sample=0.1), print)
    every = [Range("t", 0, 5, 500_000), Range("t", 1, 0, 500_000)]
    blocks = list(sampled(opened, every))
    assert len(blocks) == 10
    assert blocks == sorted(blocks, key=lambda block: (block.partition, block.start))
    assert all(0 < block.end - block.start <= 10_000 for block in blocks)
    assert len(list(sampled(opened, [Range("t", 0, 5, 9)]))) == 1
    assert list(sampled(Opened(nothing, nothing, nothing, Options(), print), every)) == every


@pytest.mark.parametrize(
    ("hash_version", "digest", "notes"),
    [
        ('"hash_version":2,', 5, []),
        ('"hash_version":2,', 6, ["the records of the topic are others than those that the commits have read"]),
        ("", 6, [OTHER_HASHES]),
        ('"hash_version":3,', 6, [OTHER_HASHES]),
    ],
    ids=["equal", "others", "before versions", "newer"],
)
def test_digests_of_a_ledger_with_other_hashes_accuse_nobody(hash_version: str, digest: int, notes: list[str]) -> None:
    text = dump_ledger(Ledger(1, "", 9, 9, 5, 9)).replace('"hash_version":2,', hash_version)
    ledger = load_ledger(text)
    assert ledger is not None
    judgement = Judgement(records=9, record_digest=digest)
    _compare_with_ledger(judgement, ledger)
    assert judgement.findings.notes == notes
