"""Images of other projects: each is named by its digest, or the page on digests says why not and how to set it."""

from __future__ import annotations

import re
from pathlib import Path

from docs.scan import ROOT

DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "deploy" / "kubernetes.md"
_NAMED = re.compile(r"^(?:FROM| *image:) ([^ \n&*{]+)", re.MULTILINE)
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def files() -> list[Path]:
    """Returns the files of `deploy` in which an image may be named; templates of the chart name a value."""
    return [path for path in DEPLOY.rglob("*") if path.name == "Dockerfile" or path.suffix in (".yaml", ".yml")]


def images() -> set[str]:
    """Returns the images that are pulled: those of other projects, without Frazil's own."""
    named = {image for path in files() for image in _NAMED.findall(path.read_text())}
    return {image for image in named if not image.startswith("frazil:")}


def test_an_image_without_a_digest_is_listed_with_the_reason() -> None:
    without = {image for image in images() if not _DIGEST.search(image)}
    section = PAGE.read_text().partition("Images without a digest")[2].partition("\n#")[0]
    listed = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    assert (len(images()) >= 8, without) == (True, listed)


def test_an_image_has_a_tag_before_its_digest_which_says_what_it_is() -> None:
    assert [image for image in images() if ":" not in image.partition("@")[0]] == []


def test_an_image_that_is_named_twice_is_the_same() -> None:
    names = [image.partition("@")[0] for image in images()]
    assert sorted(names) == sorted(set(names))
