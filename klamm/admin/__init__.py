"""Administration: topics, configs, groups and their offsets, records, log directories."""

from __future__ import annotations

from klamm.admin.async_admin import AsyncAdmin
from klamm.admin.sync_admin import Admin
from klamm.admin.types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    CreatedTopic,
    ElectionType,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    MemberDescription,
    NewTopic,
    PartitionDescription,
    PartitionReassignment,
    QuorumDescription,
    QuorumReplicaKind,
    ReplicaDescription,
    ReplicaOfQuorum,
    ServerDescription,
    TopicDescription,
    TopicPartitionReplica,
)

__all__ = [
    "Admin",
    "AsyncAdmin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "CreatedTopic",
    "ElectionType",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "PartitionDescription",
    "PartitionReassignment",
    "QuorumDescription",
    "QuorumReplicaKind",
    "ReplicaDescription",
    "ReplicaOfQuorum",
    "ServerDescription",
    "TopicDescription",
    "TopicPartitionReplica",
]
