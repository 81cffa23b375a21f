"""A word that is misspelt is one problem: what would not be wrong without it is not reported beside it."""

from __future__ import annotations

import re

from tests.needs import needs
from tests.unit.spec.pipeline_file import Load, Refuse

BROKER = 'kafka: {bootstrap.servers: "b:1"}\n'
WHOLE = """\
pipeline: shop
namespace: iot
topics: [sensors]
kafka:
  bootstrap.servers: b:1
registry:
  url: "https://registry:8081"
  auth:
    username: u
    password: long-enough
  tls:
    certificate: c
    key: k
catalog:
  type: rest
  uri: https://catalog
  warehouse: s3://lake
http:
  listen: "0.0.0.0:8787"
  tokens:
    operate: 0123456789012345678901234567890123456789
  tls:
    certificate: c
    key: k
ha:
  elect: postgres
  uri: postgresql://db:5432/frazil
tables:
  shop.orders:
    topic: orders
    value:
      format: avro
    mode: upsert
    key_columns: [id]
    order_by: updated_at
    envelope:
      operation: op
      insert: [I]
  shop.views:
    topic: views
    lookup: {shops: {table: ref.shops, on: "shop = id", take: [name]}}
    expect: {positive: {that: "id > 0", else: drop}}
routes:
  - topic: events
    by: type
    to: "events.${type}"
    rest: events.others
"""


def misspelt() -> list[str]:
    """The file with one key after the other whose last characters have changed places."""
    keys = re.finditer(r"(?<![.\w])[a-z_]{3,}(?=:[ \n])", WHOLE)
    return [
        WHOLE[: key.start()] + key[0][:-2] + key[0][-1] + key[0][-2] + WHOLE[key.end() :]
        for key in keys
        if key[0] not in ("shops", "positive")  # Names of one's own.
    ]


@needs("expect", "ha", "http", "lookup")
def test_each_key_that_is_misspelt_is_one_problem(load: Load, refuse: Refuse) -> None:
    load(WHOLE)
    texts = misspelt()
    assert len(texts) == 45
    for text in texts:
        error = refuse(text)
        assert (error.message.startswith("unknown key"), list(error.others)) == (True, []), text
