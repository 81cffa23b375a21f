"""The bill of materials names everything that is installed, each with a sum, and nothing twice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.sbom import bill, main
from docs.scan import ROOT
from frazil.runtime.jars import known_sums


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("sbom") / "dist" / "frazil.cdx.json"
    main(file)
    written: dict[str, Any] = json.loads(file.read_text())
    return written


def test_every_locked_package_and_every_jar_is_a_component(document: dict[str, Any]) -> None:
    components = document["components"]
    required, optional = _locked("runtime.txt"), _locked("extras.txt")
    wheels = {one["name"]: one["version"] for one in components if one["purl"].startswith("pkg:pypi/")}
    assert wheels == optional | required
    assert {one["name"] for one in components if one.get("scope") == "required"} == required.keys()
    assert "opentelemetry-sdk" in {one["name"] for one in components if one.get("scope") == "optional"}
    sums = {one["hashes"][0]["content"] for one in components if "hashes" in one}
    assert set(known_sums().values()) <= sums
    spark = [one for one in components if one["bom-ref"].endswith("#pyspark")]
    assert len(spark) > 200


def _locked(file: str) -> dict[str, str]:
    text = (ROOT / "requirements" / file).read_text()
    return dict(re.findall(r"^([\w.\-]+)==([^ ;\\]+)", text, re.MULTILINE))


def test_each_component_has_a_sum_a_name_of_its_own_and_nearly_all_a_licence(document: dict[str, Any]) -> None:
    components = document["components"]
    refs = [one["bom-ref"] for one in components]
    assert len(refs) == len(set(refs))
    assert [one["name"] for one in components if not (one.get("hashes") or one.get("externalReferences"))] == []
    without = [one["name"] for one in components if "licenses" not in one and one["purl"].startswith("pkg:pypi/")]
    assert without == ["hdfs-native"], "its metadata names none: the page has it"
    assert document["dependencies"][0]["dependsOn"] == refs


def test_the_document_is_the_same_each_time(document: dict[str, Any]) -> None:
    assert bill() == document
    assert bill("9.9.9")["serialNumber"] != document["serialNumber"]


def test_the_page_on_the_supply_chain_lists_the_licences_that_are_not_permissive(document: dict[str, Any]) -> None:
    page = Path(ROOT / "docs/security/supply-chain.md").read_text()
    named = {licence["license"]["name"] for one in document["components"] for licence in one.get("licenses", ())}
    strict = {name for name in named if re.search(r"GPL|General Public|EPL|Eclipse|MPL|Mozilla|CDDL", name)}
    assert [name for name in sorted(strict) if name not in page] == []
