from __future__ import annotations

import pytest

from frazil.errors import SpecError
from frazil.spec import TopicSelector
from frazil.spec.topics import parse_selector, select_topics, topic_filter


@pytest.mark.parametrize(
    ("selector", "topic", "matches"),
    [
        (TopicSelector(literal="orders"), "orders", True),
        (TopicSelector(literal="orders"), "orders2", False),
        (TopicSelector(literal="a.b"), "axb", False),
        (TopicSelector(literal="__consumer_offsets"), "__consumer_offsets", True),
        (TopicSelector(pattern="^device-.*"), "device-1", True),
        (TopicSelector(pattern="^device-.*"), "my-device-1", False),
        (TopicSelector(pattern="device"), "my-device-1", True),
        (TopicSelector(pattern="^device-[0-9]$"), "device-12", False),
        (TopicSelector(pattern=".*"), "__consumer_offsets", False),
        (TopicSelector(pattern=".*"), "_schemas", True),
    ],
)
def test_a_literal_is_compared_and_a_pattern_searched_for(selector: TopicSelector, topic: str, matches: bool) -> None:
    assert selector.matches(topic) is matches


def test_slashes_make_a_pattern() -> None:
    assert [parse_selector("orders"), parse_selector("/^a/b$/")] == [
        TopicSelector(literal="orders"),
        TopicSelector(pattern="^a/b$"),
    ]


@pytest.mark.parametrize("text", ["/", "//", "/abc", "/(/", "a b", "a,b", "..", "ä", "x" * 250, "${env:TOPIC}"])
def test_what_is_neither_a_topic_nor_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_selector(text)


@pytest.mark.parametrize("texts", [["b", "a"], ["/^a/", "b"], ["/x/"], []])
def test_topics_are_selected_as_each_selector_selects_them(texts: list[str]) -> None:
    selectors = [parse_selector(text) for text in texts]
    topics = ["a", "ab", "b", "c", "__a"]
    expected = {topic for topic in topics if any(selector.matches(topic) for selector in selectors)}
    assert set(select_topics(selectors, topics)) == expected
    assert set(filter(topic_filter(selectors), topics)) == expected
