"""Every error that a running pipeline can name is explained in docs/troubleshoot, in the very words it uses."""

from __future__ import annotations

from docs.scan import GAP, ROOT, Message, messages

_ROOMS_OF_A_RUN = (
    "ingest", "dead_letters", "upsert", "cdc", "rows", "write", "decode", "schema", "catalog", "kafka", "registry",
    "store",
)  # fmt: skip
RUNBOOKS = ROOT / "docs" / "troubleshoot"


def test_every_message_is_explained() -> None:
    pages = {page.name: " ".join(page.read_text().split()) for page in RUNBOOKS.glob("*.md")}
    assert [found for found in messages(_ROOMS_OF_A_RUN) if not _is_on_a_page(found, pages)] == []


def test_every_page_reports_what_it_means_and_what_to_do() -> None:
    alarms = [page for page in RUNBOOKS.glob("*.md") if page.name != "README.md"]
    parts = ("**It means**", "**Look at**", "**Do**")
    assert [page.name for page in alarms if not all(part in page.read_text() for part in parts)] == []


def test_the_index_has_every_page() -> None:
    index = (RUNBOOKS / "README.md").read_text()
    assert [page.name for page in RUNBOOKS.glob("*.md") if f"]({page.name})" not in index + "](README.md)"] == []


def _is_on_a_page(message: Message, pages: dict[str, str]) -> bool:
    text = " ".join(message.text.split())
    return any(text in page for page in pages.values()) or text == GAP
