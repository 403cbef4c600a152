"""Real clusters for your own tests: `EmbeddedCluster`, and the fixtures of the pytest plugin.

pytest finds the plugin by itself once `klamm[server]` is installed:

    def test_orders_are_counted(klamm_topic, klamm_producer, klamm_consumer):
        klamm_producer.send(klamm_topic, b"apples").result()
        (records,) = klamm_consumer.poll(10_000).values()
        assert records[0].value == b"apples"

| fixture          | scope    | what it is                                                                  |
|------------------|----------|-----------------------------------------------------------------------------|
| `klamm_cluster`  | session  | a started `EmbeddedCluster`; each pytest-xdist worker has its own           |
| `klamm_options`  | session  | its arguments, a dictionary; define this fixture in `conftest.py` to change them |
| `klamm_admin`    | session  | an `Admin` client of the cluster                                            |
| `klamm_topic`    | function | the name of a new topic with one partition; the topic is deleted at the end |
| `klamm_producer` | function | a `Producer`                                                                |
| `klamm_consumer` | function | a `Consumer` of `klamm_topic`, from its first record, in a group of its own |
"""

from __future__ import annotations

from klamm.testing.cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster"]
