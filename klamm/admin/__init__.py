"""Administration: topics, configs, groups and their offsets, transactions, records, log directories.

The public names below are loaded on first use: a command needs few of the types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.admin import types
from klamm.lazy_names import lazy_names

if TYPE_CHECKING:
    from klamm.admin.async_admin import AsyncAdmin
    from klamm.admin.sync_admin import Admin
    from klamm.admin.types import (
        AclBinding,
        AclBindingFilter,
        AclDecision,
        AclOperation,
        AclPermissionType,
        BuiltInRule,
        ClientQuotaAlteration,
        ClientQuotaEntity,
        ClientQuotaFilterComponent,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigOperation,
        ConfigResource,
        ConfigResourceType,
        ConfigSource,
        CreatedTopic,
        DamagedSegment,
        DamageState,
        ElectionType,
        GroupDescription,
        GroupListing,
        HangingTransaction,
        LedgerListing,
        LogDirDescription,
        MemberDescription,
        NewTopic,
        OpenPart,
        PartitionDescription,
        PartitionReassignment,
        PatternType,
        ProducerState,
        QuorumDescription,
        QuorumReplicaKind,
        ReplicaDescription,
        ReplicaOfQuorum,
        ResourceType,
        ScramCredentialInfo,
        ScramMechanism,
        ScrubDescription,
        ServerDescription,
        TopicDescription,
        TopicPartitionReplica,
        TransactionDescription,
        TransactionListing,
        UserScramCredentialDeletion,
        UserScramCredentialsDescription,
        UserScramCredentialUpsertion,
    )

_MODULES: Final = {
    "Admin": "klamm.admin.sync_admin",
    "AsyncAdmin": "klamm.admin.async_admin",
    **dict.fromkeys(types.__all__, "klamm.admin.types"),
}

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclDecision",
    "AclOperation",
    "AclPermissionType",
    "Admin",
    "AsyncAdmin",
    "BuiltInRule",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilterComponent",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "CreatedTopic",
    "DamageState",
    "DamagedSegment",
    "ElectionType",
    "GroupDescription",
    "GroupListing",
    "HangingTransaction",
    "LedgerListing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OpenPart",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplicaKind",
    "ReplicaDescription",
    "ReplicaOfQuorum",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ScrubDescription",
    "ServerDescription",
    "TopicDescription",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
