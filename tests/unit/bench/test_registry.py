"""What the bench's own registry answers."""

from __future__ import annotations

from bench.registry import Registry


def test_a_schema_is_found_by_its_id_its_guid_its_version_and_as_the_latest() -> None:
    registry = Registry()
    first = registry.register("t-value", "AVRO", '"long"')
    second = registry.register("t-value", "AVRO", '"string"')
    answer = registry.answer(f"/schemas/ids/{first}?subject=t-value")
    assert answer is not None
    assert (answer["schema"], answer["schemaType"], answer["version"]) == ('"long"', "AVRO", 1)
    assert registry.answer(f"/schemas/guids/{answer['guid']}") == answer
    assert registry.answer("/subjects/t-value/versions/1?deleted=true") == answer
    assert registry.answer("/subjects/t-value/versions/latest") == registry.answer(f"/schemas/ids/{second}")


def test_subjects_count_their_versions_each_for_itself() -> None:
    registry = Registry()
    answers = [registry.answer(f"/schemas/ids/{registry.register(name, 'JSON', '{}')}") for name in ("a", "b", "a")]
    assert [answer and (answer["id"], answer["version"]) for answer in answers] == [(1, 1), (2, 1), (3, 2)]


def test_what_was_not_registered_is_not_there() -> None:
    assert Registry().answer("/schemas/ids/1") is None
