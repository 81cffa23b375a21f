"""What the acceptance tests share, and pipelines in folders of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.lakes import RemoteLake
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import Pipeline, opened
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.registry import ApicurioRegistry
from tests.integration.servers import ObjectStore, RestCatalogServer


@pytest.fixture(scope="session")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Somebody who changes tables by hand."""
    made = Operator(tmp_path_factory.mktemp("operator"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def remote_lake(store: ObjectStore, catalog: RestCatalogServer) -> RemoteLake:
    """A REST catalog with an S3 store."""
    return RemoteLake(store, catalog)


@pytest.fixture
def pipeline(broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline for one test."""
    with opened(tmp_path, broker.bootstrap_servers, spark) as made:
        yield made


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[ApicurioRegistry]:
    """A registry that takes every change."""
    made = ApicurioRegistry(tmp_path / "registry")
    made.start()
    made.ask("PUT", "/config", {"compatibility": "NONE"})
    yield made
    made.kill()


@pytest.fixture(scope="module")
def shared_pipeline(
    broker: EmbeddedBroker, spark: ForeignSpark, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """A pipeline for all tests of a module."""
    with opened(tmp_path_factory.mktemp("pipeline"), broker.bootstrap_servers, spark) as made:
        yield made
