"""Decodes the servers' answers into the Admin's values.

Each module belongs to an area of `klamm.admin.types`. It is loaded when one of its functions is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.lazy_names import lazy_names

if TYPE_CHECKING:
    from klamm.admin.decode.cluster import cluster_description
    from klamm.admin.decode.configs import config_entry, config_resource
    from klamm.admin.decode.groups import consumer_group_description, group_description, group_lag, group_listing
    from klamm.admin.decode.ledgers import ledger_listing
    from klamm.admin.decode.log_dirs import log_dir
    from klamm.admin.decode.quorum import quorum_description
    from klamm.admin.decode.quotas import quota_entity
    from klamm.admin.decode.replicas import partition_reassignment
    from klamm.admin.decode.scrubs import scrub
    from klamm.admin.decode.topics import created_topic, topic_description, topic_view
    from klamm.admin.decode.transactions import producer, transaction_description, transaction_listing
    from klamm.admin.decode.users import user_scram_credentials

_MODULES: Final = {
    "cluster_description": "klamm.admin.decode.cluster",
    "config_entry": "klamm.admin.decode.configs",
    "config_resource": "klamm.admin.decode.configs",
    "consumer_group_description": "klamm.admin.decode.groups",
    "created_topic": "klamm.admin.decode.topics",
    "group_description": "klamm.admin.decode.groups",
    "group_lag": "klamm.admin.decode.groups",
    "group_listing": "klamm.admin.decode.groups",
    "ledger_listing": "klamm.admin.decode.ledgers",
    "log_dir": "klamm.admin.decode.log_dirs",
    "partition_reassignment": "klamm.admin.decode.replicas",
    "producer": "klamm.admin.decode.transactions",
    "quorum_description": "klamm.admin.decode.quorum",
    "quota_entity": "klamm.admin.decode.quotas",
    "scrub": "klamm.admin.decode.scrubs",
    "topic_description": "klamm.admin.decode.topics",
    "topic_view": "klamm.admin.decode.topics",
    "transaction_description": "klamm.admin.decode.transactions",
    "transaction_listing": "klamm.admin.decode.transactions",
    "user_scram_credentials": "klamm.admin.decode.users",
}

__all__ = [
    "cluster_description",
    "config_entry",
    "config_resource",
    "consumer_group_description",
    "created_topic",
    "group_description",
    "group_lag",
    "group_listing",
    "ledger_listing",
    "log_dir",
    "partition_reassignment",
    "producer",
    "quorum_description",
    "quota_entity",
    "scrub",
    "topic_description",
    "topic_view",
    "transaction_description",
    "transaction_listing",
    "user_scram_credentials",
]

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
