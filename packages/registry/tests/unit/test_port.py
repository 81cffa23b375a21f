"""Names of subjects, and the twin's outages."""

from __future__ import annotations

import pytest

from frazil.errors import SpecError, UnavailableError
from frazil.registry.port import Naming, subject_of
from frazil_registry.references import context_of, qualified
from frazil_testing.memory_registry import MemoryRegistry


@pytest.mark.parametrize(
    ("naming", "is_key", "subject"),
    [
        ("topic", False, "orders-value"),
        ("topic", True, "orders-key"),
        ("record", False, "shop.Order"),
        ("record", True, "shop.Order"),
        ("topic_record", False, "orders-shop.Order"),
        ("topic_record", True, "orders-shop.Order"),
    ],
)
def test_a_subject_is_named_as_the_producer_names_it(naming: Naming, is_key: bool, subject: str) -> None:
    assert subject_of("orders", is_key, "shop.Order", naming) == subject


@pytest.mark.parametrize("naming", ["record", "topic_record"])
def test_a_subject_that_needs_the_record_s_type_is_not_guessed(naming: Naming) -> None:
    with pytest.raises(SpecError, match=f"`registry.naming` is {naming}"):
        subject_of("orders", False, "", naming)


def test_a_context_goes_before_a_subject_unless_it_has_one() -> None:
    assert qualified("a-value", "") == "a-value"
    assert qualified("a-value", "eu") == ":.eu:a-value"
    assert qualified(":.us:a-value", "eu") == ":.us:a-value"
    assert (context_of(":.us:a-value", "eu"), context_of("a-value", "eu")) == ("us", "eu")


def test_the_twin_is_away_when_it_is_told_to_be() -> None:
    registry = MemoryRegistry()
    schema_id = registry.register("avro", "x", subject="t-value")
    registry.outages = 1
    with pytest.raises(UnavailableError):
        registry.by_id(schema_id)
    assert registry.by_id(schema_id)
    registry.is_down = True
    with pytest.raises(UnavailableError):
        registry.latest("t-value")
    with pytest.raises(UnavailableError):
        registry.by_guid(registry.guid_of(schema_id))
    with pytest.raises(UnavailableError):
        registry.subjects("t-")
    assert registry.asked.pop() == "subjects t-"
    assert registry.asked == ["id 1", "id 1", "latest t-value", f"guid {registry.guid_of(schema_id)}"]
