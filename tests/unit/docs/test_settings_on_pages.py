"""Every part of a pipeline file that a page shows loads in a file around it: blocks of YAML, settings within sentences."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from docs.scan import ROOT
from frazil.errors import SpecError
from frazil.secrets import Secrets
from frazil.spec import PipelineSpec, TableSpec, load_spec
from frazil.spec.syntax.keys import keys_of
from tests.unit.docs.test_pages import PAGES

_BLOCK = re.compile(r"^( *)```yaml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^( *)```.*?^ *```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)\1(?!`)", re.DOTALL)
_PLACEHOLDER = re.compile(r"…|\b[A-Z]{3,}\b")
_KAFKA = 'kafka: {bootstrap.servers: "localhost:9092"}\n'
_REGISTRY = 'registry: {url: "http://localhost:8081"}\n'
_OF_FILE, _OF_TABLE = set(keys_of(PipelineSpec)), set(keys_of(TableSpec))
_UPSERT = "mode: upsert\nkey_columns: [id]\n"
_BY_MINUTE = "select: \"select window.start as m, count(*) as n from records group by window(ts, '1 minute')\"\n"
_AROUND = (
    "",
    _UPSERT,
    "envelope: debezium\n",
    "mode: upsert\nenvelope: debezium\n",
    "mode: upsert\nkey_columns: [id]\nmetadata: [timestamp, topic]\n",
    "envelope: debezium\nmode: upsert\nmetadata: [source_ts, source_order]\n",
    "mode: upsert\nmetadata: [topic]\n",
    "mode: upsert\nkey_columns: [id]\ndeletes: soft\n",
    "envelope: debezium\nmode: upsert\nmetadata: [position]\n",
    "mode: history\nkey_columns: [id]\n",
    "envelope: cloudevents\n",
    "value: {format: avro}\n",
    "branch: ingest\n",
    "branch: ingest\nenvelope: debezium\n",
    f"{_UPSERT}format_version: 3\nbranch: ingest\npublish: {{every: 10m}}\n",
    "mode: upsert\nkey_columns: [id]\ndeletes: soft\nmetadata: [timestamp]\n",
    "unknown_fields: drop\ncolumns: {id: long}\n",
    _BY_MINUTE,
    f"{_BY_MINUTE}late: 1h\n",
    'protect_key: "${env:PROTECT_KEY}"\n',
    "blobs: {columns: [value], store: 's3://lake/objects'}\nvalue: {format: raw}\n",
)
"""What a table may have besides: a page names it around the part, and one of these has to do."""
_OTHERS = {
    "docs/deploy/kubernetes.md", "docs/guides/dbt.md", "docs/guides/test-pipelines.md", "docs/operate/http.md",
    "docs/operate/prometheus.md", "docs/migrate/flink-cdc.md", "docs/migrate/transforms/flink-cdc.md",
    "docs/tutorials/go-to-production.md", "docs/guides/objects.md",
}  # fmt: skip
"""Pages that have YAML of other programs too, files of cases, or keys of packages."""
_REFUSED = {
    "catalog: {type: rest}",  # Its address is in the same sentence.
    "properties: {format-version: 3}",  # An error, as the page says.
    "start: {partition: offset}",  # The form of the setting, and not a value.
}
_OF_THE_READER = "`catalog.jars` names a file that does not exist"
_VARIABLES = {"PUBLISH": "true"}
_NAMED_BY_PACKAGES = "docs/contributing/"


def _texts(text: str) -> Iterator[str]:
    """Yields the files in which the text may be a part; none where it has other keys than a file or a table has."""
    keys = set(map(str, yaml.safe_load(text)))
    if keys <= _OF_FILE:
        head = ("" if "pipeline" in keys else "pipeline: shop\n") + ("" if "kafka" in keys else _KAFKA)
        tables = "" if keys & {"tables", "topics", "routes"} else "tables: {shop.x: {topic: a}}\n"
        for more in ("", _REGISTRY, "namespace: lake\n"):
            if more.partition(":")[0] not in keys:
                yield f"{head}{more}{tables}{text}"
    if keys <= _OF_TABLE:
        topic = "" if {"topic", "topics"} & keys else "topic: a\n"
        for more in _AROUND:
            if not keys & set(yaml.safe_load(more) or ()):
                table = textwrap.indent(f"{topic}{more}{text}", "    ")
                yield f"pipeline: shop\n{_KAFKA}{_REGISTRY}tables:\n  shop.x:\n{table}"
    if all(re.fullmatch(r"\w+(\.\w+)+", key) for key in keys) and not keys <= _OF_FILE:
        yield f"pipeline: shop\n{_KAFKA}tables:\n{textwrap.indent(text, '  ')}"


def _refusal(text: str, path: Path) -> str | None:
    """Returns why no file with this part loads; empty where one does, None for text that is not a part of one."""
    reasons = []
    for whole in _texts(text):
        path.write_text(whole)
        try:
            load_spec(path, secrets=Secrets(_VARIABLES, has_placeholders=True))
        except SpecError as error:
            reasons.append(f"{error.message}; {error.remedy}")
        else:
            return ""
    if any(reason.startswith(_OF_THE_READER) for reason in reasons):
        return ""
    return reasons[0] if reasons else None


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pipeline file, with the module of functions that a page has beside it."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/guides/python-functions.md").read_text()
    (source,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "shop_functions.py").write_text(source)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path / "frazil.yaml"
    sys.modules.pop("shop_functions", None)  # Other tests have another one.


def test_every_block_that_is_a_part_of_a_pipeline_file_loads(path: Path) -> None:
    refused, count, others = {}, 0, set()
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for indent, written in _BLOCK.findall(page.read_text()):
            text = textwrap.dedent(written)
            if text.startswith("pipeline:") and not indent:
                continue  # A whole file, which is loaded as it is.
            reason = _refusal(text, path)
            count += reason is not None
            if reason is None:
                others.add(name)
            elif reason:
                refused[f"{name}: {text}"] = reason
    assert refused == {}
    assert count > 55
    assert others <= _OTHERS


def test_every_setting_within_a_sentence_loads(path: Path) -> None:
    reasons: dict[str, str | None] = {}
    refused = []
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        if name.startswith(_NAMED_BY_PACKAGES):
            continue
        for _, written in _INLINE.findall(_CODE.sub("", page.read_text())):
            text = " ".join(written.split())
            if not re.match(r"[a-z_]+: ", text) or _PLACEHOLDER.search(re.sub(r"\$\{[^}]*\}", "", text)):
                continue
            if text not in reasons:
                reasons[text] = _refusal(f"{text}\n", path) if _is_mapping(text) else None
            if reasons[text] and text not in _REFUSED:
                refused.append(f"{name}: {text}: {reasons[text]}")
    assert refused == []
    assert sum(reason == "" for reason in reasons.values()) > 150


def _is_mapping(text: str) -> bool:
    try:
        return isinstance(yaml.safe_load(text), dict)
    except yaml.YAMLError:
        return False
