"""A pipeline file that is refused is taken once somebody has done what the remedy reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from frazil.errors import SpecError
from frazil.spec import load_spec
from tests.unit.remedies.pipeline_files import MENDED
from tests.unit.spec.pipeline_file import with_section

ENVIRONMENT: Mapping[str, str] = {"A": "a"}


def test_what_the_remedy_reports_makes_it_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"

    def refusal(text: str) -> str:
        path.write_text(text)
        try:
            load_spec(path, ENVIRONMENT)
        except SpecError as error:
            return f"{error.message}; {error.remedy}" if error.remedy else "refused without a remedy"
        return ""

    assert [mended.broken for mended in MENDED if refusal(mended.broken) in ("", "refused without a remedy")] == []
    fixed = {text: words for mended in MENDED for text in mended.fixed if (words := refusal(text))}
    assert fixed == {}


@pytest.mark.parametrize(
    ("written", "remedy", "reference", "variables", "content"),
    [
        ("${env:S}", "set S before starting Frazil", "${env:S}", {"S": "x"}, None),
        ("${env:BYTES}", "set it to UTF-8 text", "${env:BYTES}", {"BYTES": "x"}, None),
        ("${evn:S}", "write `${env:NAME}` or `${file:PATH}`", "${env:S}", {"S": "x"}, None),
        (
            "${env:S:-y}",
            "write `${env:S}` for an environment variable; it has no default",
            "${env:S}",
            {"S": "x"},
            None,
        ),
        ("${evn:S}", "write `${env:NAME}` or `${file:PATH}`", "${file:s}", {}, b"x"),
        ("${file:s}", "create it, or correct its path", "${file:s}", {}, b"x"),
        ("${file:empty}", "write the secret, and only it, into the file", "${file:empty}", {}, b"x"),
        ("${file:latin}", "save the secret as UTF-8 text", "${file:latin}", {}, b"x"),
    ],
)
def test_secrets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    remedy: str,
    reference: str,
    variables: Mapping[str, str],
    content: bytes | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    Path("latin").write_bytes(b"\xe9")
    path = Path("pipeline.yaml")
    path.write_text(with_section(f"spark: {{conf: {{spark.a: '{written}'}}}}"))
    with pytest.raises(SpecError) as refused:
        load_spec(path, {"BYTES": "\udce9"})
    assert refused.value.remedy == remedy
    if content is not None:
        Path(reference[7:-1]).write_bytes(content)
    path.write_text(with_section(f"spark: {{conf: {{spark.a: '{reference}'}}}}"))
    assert load_spec(path, variables).spark.conf == {"spark.a": "x"}


def test_a_file_that_is_not_there_or_not_in_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    with pytest.raises(SpecError) as refused:
        load_spec(path, {})
    assert refused.value.remedy == "change to its folder, name it with -f FILE, or let `frazil init` write a first one"
    assert refused.value.where == str(path)
    path.write_bytes(with_section("# \xe9").encode("latin-1"))
    with pytest.raises(SpecError) as refused:
        load_spec(path, {})
    assert refused.value.remedy == "save it as UTF-8"
    path.write_bytes(with_section("# \xe9").encode())
    assert load_spec(path, {}).tables
