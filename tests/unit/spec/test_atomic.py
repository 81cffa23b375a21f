"""What a pipeline file may have for whole transactions."""

from __future__ import annotations

import pytest

from frazil.spec.settings import AtomicSpec
from tests.unit.spec.pipeline_file import HEAD, Load, Refuse, with_table


@pytest.mark.parametrize(
    ("settings", "atomic"),
    [
        ("envelope: debezium", None),
        ("atomic: batch", None),
        ("envelope: debezium, atomic: transaction", AtomicSpec()),
        (
            "envelope: debezium, atomic: {transaction_topic: shop.transaction}",
            AtomicSpec(transaction_topic="shop.transaction"),
        ),
    ],
)
def test_a_table_shows_transactions_whole_when_it_reports_it(
    load: Load, settings: str, atomic: AtomicSpec | None
) -> None:
    assert load(with_table(settings)).tables[0].changes.atomic == atomic


def test_tables_that_are_made_for_topics_have_it_from_the_defaults(load: Load) -> None:
    reported = "defaults: {envelope: debezium, atomic: {transaction_topic: e}}\nnamespace: n\ntopics: /./\n"
    assert load(HEAD + reported).table_for("a").changes.atomic == AtomicSpec(transaction_topic="e")


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        (
            "atomic: transaction",
            "`atomic` needs Debezium's envelope, and the table has none",
            "write `envelope: debezium`, or remove it",
        ),
        (
            "envelope: maxwell, atomic: {transaction_topic: t}",
            "`atomic` needs Debezium's envelope, and the table has none",
            "write `envelope: debezium`, or remove it",
        ),
        (
            "envelope: debezium, atomic: {}",
            "`atomic` names no topic of transactions",
            "write `transaction_topic: TOPIC`, or `atomic: transaction`",
        ),
        (
            "envelope: debezium, atomic: {transaction_topik: t}",
            "unknown key `transaction_topik` in `atomic`",
            "did you mean `transaction_topic`?",
        ),
        (
            "envelope: debezium, atomic: transactions",
            "`atomic` cannot be `transactions`",
            "did you mean `transaction`?",
        ),
        (
            "envelope: debezium, atomic: {transaction_topic: /t/}",
            "`topic` takes one name",
            "write `topics: /t/` for a regular expression",
        ),
    ],
)
def test_what_is_refused(refuse: Refuse, settings: str, message: str, remedy: str) -> None:
    error = refuse(with_table(settings))
    assert (error.message.partition(" (and ")[0], error.remedy) == (message, remedy)


@pytest.mark.parametrize("topics", ["[a, b]", "/^a/"])
def test_a_table_of_several_topics_is_refused(refuse: Refuse, topics: str) -> None:
    error = refuse(f"{HEAD}tables: {{n.t: {{topics: {topics}, envelope: debezium, atomic: transaction}}}}\n")
    assert (error.message, error.remedy) == (
        "`atomic` needs a table of one topic, and this table may read several",
        "give each topic its table, or remove it",
    )
