"""The client of this process, which lives as long as the process: no login and no question for a small batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from frazil.kafka.fetch.cluster import Cluster

_MOST = 2
_clusters: dict[tuple[tuple[str, str], ...], Cluster] = {}


def cluster_of(settings: Mapping[str, str]) -> Cluster:
    """Returns the client with these settings; those with others, such as a secret that was renewed, are closed in time."""
    key = tuple(sorted(settings.items()))
    cluster = _clusters.pop(key, None) or Cluster(settings)
    _clusters[key] = cluster  # Now the newest.
    while len(_clusters) > _MOST:
        _clusters.pop(next(iter(_clusters))).close()
    return cluster


@contextmanager
def second_cluster() -> Iterator[Cluster]:
    """Gives its block a client with the settings of the newest one, which may be in the middle of a read."""
    cluster = Cluster(dict(next(reversed(_clusters))))
    try:
        yield cluster
    finally:
        cluster.close()
