"""Writes the bill of materials of what Frazil installs, in CycloneDX 1.6: `make sbom`.

Wheels are those of requirements/runtime.txt with their hashes, and as optional those that only extras.txt has; jars those
that src/frazil/runtime/jars.sha256 lists, and those inside of PySpark's wheel. Licences are what packages
themselves name.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from email.parser import Parser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyspark

import frazil
from frazil.runtime.jars import USES, jars, known_sums

ROOT = Path(__file__).parent.parent
_REQUIREMENT = re.compile(r"^([\w.\-]+)==([^ ;\\]+)(?:[^\n]*\\\n(?: +--hash=\S+(?: \\)?\n)*)?", re.MULTILINE)
_NAME_OF_JAR = re.compile(r"^(.+?)-(\d[\w.\-+]*?)\.jar$")
Component = dict[str, Any]


def bill(version: str = frazil.__version__) -> dict[str, Any]:
    """Returns the document. The same inputs make the same document, its serial number included."""
    components = [*wheels(), *fetched_jars(), *jars_of_pyspark()]
    own = _component("application", "frazil", version, f"pkg:pypi/frazil@{version}", ["Apache-2.0"])
    refs = [component["bom-ref"] for component in components]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": refs}],
    }


def wheels() -> Iterator[Component]:
    """Yields the locked packages, each with the hashes of its files; those that only extras need are optional."""
    required = {component["name"]: component for component in _wheels_of("runtime.txt")}
    yield from ({**component, "scope": "required"} for component in required.values())
    for component in _wheels_of("extras.txt"):
        if component["name"] not in required:
            yield {**component, "scope": "optional"}


def _wheels_of(file: str) -> Iterator[Component]:
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    for match in _REQUIREMENT.finditer(text):
        name, version = match[1], match[2]
        component = _component("library", name, version, f"pkg:pypi/{name.lower()}@{version}", _licences_of(name))
        hashes = re.findall(r"sha256:([0-9a-f]{64})", match[0])
        component["externalReferences"] = [
            {"type": "distribution", "url": f"pkg:pypi/{name.lower()}@{version}", "hashes": [_sha256(one)]}
            for one in hashes
        ]
        yield component


def fetched_jars() -> Iterator[Component]:
    """Yields the jars that `frazil setup` fetches, with the sums that it checks."""
    sums, paths = known_sums(), {path.name: path for use in USES for path in jars(use)}
    for name in sorted(sums):
        yield _jar(name, paths.get(name), sums[name])


def jars_of_pyspark() -> Iterator[Component]:
    """Yields the jars in PySpark's wheel."""
    for path in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")):
        component = _jar(path.name, path, hashlib.sha256(path.read_bytes()).hexdigest())
        component["bom-ref"] += "#pyspark"
        component["properties"] = [{"name": "frazil:inside", "value": "pyspark"}]
        yield component


def _jar(file: str, path: Path | None, digest: str) -> Component:
    match = _NAME_OF_JAR.match(file)
    name, version = (match[1], match[2]) if match else (file.removesuffix(".jar"), "")
    group, licences = _said_by_jar(path, name) if path is not None else (None, [])
    purl = f"pkg:maven/{group}/{name}@{version}" if group else f"pkg:generic/{name}@{version}"
    component = _component("library", name, version, purl, licences)
    component["hashes"] = [_sha256(digest)]
    if group:
        component["group"] = group
    return component


def _said_by_jar(path: Path, name: str) -> tuple[str | None, list[str]]:
    """Returns the group of a jar and the names of its licences, as far as the jar contains them."""
    with zipfile.ZipFile(path) as opened:
        wanted = re.compile(rf"META-INF/maven/[^/]+/{re.escape(name)}/pom.xml")
        poms = [entry for entry in opened.namelist() if wanted.fullmatch(entry)]
        group, licences = (poms[0].split("/")[2], _licences_of_pom(opened.read(poms[0]))) if poms else (None, [])
        if not licences and "META-INF/MANIFEST.MF" in opened.namelist():
            manifest = (
                opened.read("META-INF/MANIFEST.MF").decode(errors="replace").replace("\r\n ", "").replace("\n ", "")
            )
            bundle = Parser().parsestr(manifest).get("Bundle-License", "")
            licences = [bundle.split(";")[0].split(",")[0].strip('" ')] if bundle else []
    return group, licences


def _licences_of_pom(text: bytes) -> list[str]:
    names = [node for node in ElementTree.fromstring(text).iter() if node.tag.endswith("}license")]
    found = [next((child.text for child in node if child.tag.endswith("}name") and child.text), None) for node in names]
    return [" ".join(name.split()) for name in found if name]


def _licences_of(name: str) -> list[str]:
    """Returns the licences that an installed package names: its expression, its classifiers, or its own words."""
    try:
        metadata: Mapping[str, str] = importlib.metadata.metadata(name).json  # type: ignore[assignment]
    except importlib.metadata.PackageNotFoundError:
        return []
    if expression := metadata.get("license_expression"):
        return [expression]
    classifiers = [line for line in metadata.get("classifier", ()) if line.startswith("License ::")]
    if classifiers:
        return [line.rpartition(" :: ")[2] for line in classifiers]
    words = (metadata.get("license") or "").strip().splitlines()
    return [words[0]] if words else []


def _component(kind: str, name: str, version: str, purl: str, licences: list[str]) -> Component:
    component: Component = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if licences:
        component["licenses"] = [{"license": {"name": licence}} for licence in licences]
    return component


def _sha256(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


def main(file: Path) -> None:
    """Writes the document to a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(bill(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
