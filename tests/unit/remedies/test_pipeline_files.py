"""A pipeline file that is refused with what is beside it is taken once somebody has done what the remedy reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from frazil.errors import SpecError
from frazil.spec import load_spec
from tests.unit.spec.pipeline_file import with_section


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


def test_a_file_that_is_not_there_not_text_or_too_large(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    with pytest.raises(SpecError) as refused:
        load_spec(path, {})
    assert refused.value.remedy == "change to its folder, name it with -f FILE, or let `frazil init` write a first one"
    assert refused.value.where == str(path)
    path.write_bytes(with_section("# \xe9").encode("latin-1"))
    with pytest.raises(SpecError) as refused:
        load_spec(path, {})
    assert refused.value.remedy == "save it as UTF-8"
    path.write_bytes(with_section("# \xe9\0").encode())
    with pytest.raises(SpecError) as refused:
        load_spec(path, {})
    assert refused.value.remedy == "remove the character"
    path.write_text(with_section("#" * 3 * 2**20))
    with pytest.raises(SpecError) as refused:
        load_spec(path, {})
    assert refused.value.remedy == "split the pipeline"
    path.write_bytes(with_section("# \xe9").encode())
    assert load_spec(path, {}).tables
