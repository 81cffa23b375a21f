"""Alert rules and dashboard: of metrics that exist, with pages that exist, and rules that Prometheus's own tool accepts."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from docs.scan import ROOT
from frazil_http.metrics import PROCESS, TABLE

_FOLDER = ROOT / "deploy" / "prometheus"
_RULES: list[dict[str, Any]] = yaml.safe_load((_FOLDER / "frazil.rules.yaml").read_text())["groups"][0]["rules"]
_DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "frazil.json").read_text())
_OTHERS = {"process_resident_memory_bytes", "up"}
_METRICS = {metric.name: metric for metric in (*TABLE, *PROCESS)}


def _expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in _RULES)
    yield from (target["expr"] for panel in _DASHBOARD["panels"] for target in panel["targets"])


@pytest.mark.parametrize("expression", list(_expressions()))
def test_an_expression_names_metrics_and_labels_that_there_are(expression: str) -> None:
    found = re.findall(r"\b((?:frazil|process)_\w+?|up)(?:_bucket)?\b(?:\{([^}]*)\})?(?![\w=])", expression)
    assert found
    for name, selectors in found:
        assert name in _METRICS or name in _OTHERS, name
        labels = {selector.split("=")[0].strip() for selector in selectors.split(",") if selector}
        if name in _METRICS:
            own = {"table"} if _METRICS[name] in TABLE else set[str]()
            assert labels <= {"pipeline", *own, _METRICS[name].labels.split(" = ")[0]}, name


def test_each_alert_leads_to_a_page_and_has_its_own_name() -> None:
    assert [rule["alert"] for rule in _RULES if not (ROOT / rule["annotations"]["runbook"]).is_file()] == []
    assert len({rule["alert"] for rule in _RULES}) == len(_RULES)
    assert {rule["labels"]["severity"] for rule in _RULES} == {"critical", "warning"}


def test_rules_fire_on_their_faults_alone() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool on this machine")
    for words in (["check", "rules", "frazil.rules.yaml"], ["test", "rules", "frazil.rules.test.yaml"]):
        ended = subprocess.run(["promtool", *words], cwd=_FOLDER, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_panels_have_a_place_a_unit_and_a_description_each() -> None:
    panels = _DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    for one, other in itertools.combinations((panel["gridPos"] for panel in panels), 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below
