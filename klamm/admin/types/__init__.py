"""The arguments and results of an Admin: plain values with Kafka's names.

Enum numbers are Kafka's (`ConfigResource.Type`, `AlterConfigOp.OpType`, `ConfigEntry.ConfigSource`). Each module is an
area, and is loaded when one of its names is used: a command needs few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.lazy_names import lazy_names

if TYPE_CHECKING:
    from klamm.acls import (
        AclBinding,
        AclBindingFilter,
        AclDecision,
        AclOperation,
        AclPermissionType,
        BuiltInRule,
        PatternType,
        ResourceType,
    )
    from klamm.admin.types.cluster import ClusterDescription, ServerDescription
    from klamm.admin.types.configs import (
        ConfigChange,
        ConfigEntry,
        ConfigOperation,
        ConfigResource,
        ConfigResourceType,
        ConfigSource,
    )
    from klamm.admin.types.groups import (
        GroupDescription,
        GroupLagDescription,
        GroupListing,
        MemberDescription,
        PartitionLagDescription,
    )
    from klamm.admin.types.ledgers import LedgerListing, OpenPart
    from klamm.admin.types.log_dirs import LogDirDescription, ReplicaDescription, TopicPartitionReplica
    from klamm.admin.types.quorum import QuorumDescription, QuorumReplicaKind, ReplicaOfQuorum
    from klamm.admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilterComponent
    from klamm.admin.types.replicas import ElectionType, PartitionReassignment
    from klamm.admin.types.scrubs import DamagedSegment, DamageState, ScrubDescription
    from klamm.admin.types.topics import CreatedTopic, NewTopic, PartitionDescription, TopicDescription
    from klamm.admin.types.transactions import (
        HangingTransaction,
        ProducerState,
        TransactionDescription,
        TransactionListing,
    )
    from klamm.admin.types.users import (
        ScramCredentialInfo,
        UserScramCredentialDeletion,
        UserScramCredentialsDescription,
        UserScramCredentialUpsertion,
    )
    from klamm.security.sasl.scram_keys import ScramMechanism

_MODULES: Final = {
    "AclBinding": "klamm.acls",
    "AclBindingFilter": "klamm.acls",
    "AclDecision": "klamm.acls",
    "AclOperation": "klamm.acls",
    "AclPermissionType": "klamm.acls",
    "BuiltInRule": "klamm.acls",
    "ClientQuotaAlteration": "klamm.admin.types.quotas",
    "ClientQuotaEntity": "klamm.admin.types.quotas",
    "ClientQuotaFilterComponent": "klamm.admin.types.quotas",
    "ClusterDescription": "klamm.admin.types.cluster",
    "ConfigChange": "klamm.admin.types.configs",
    "ConfigEntry": "klamm.admin.types.configs",
    "ConfigOperation": "klamm.admin.types.configs",
    "ConfigResource": "klamm.admin.types.configs",
    "ConfigResourceType": "klamm.admin.types.configs",
    "ConfigSource": "klamm.admin.types.configs",
    "CreatedTopic": "klamm.admin.types.topics",
    "DamageState": "klamm.admin.types.scrubs",
    "DamagedSegment": "klamm.admin.types.scrubs",
    "ElectionType": "klamm.admin.types.replicas",
    "GroupDescription": "klamm.admin.types.groups",
    "GroupLagDescription": "klamm.admin.types.groups",
    "GroupListing": "klamm.admin.types.groups",
    "HangingTransaction": "klamm.admin.types.transactions",
    "LedgerListing": "klamm.admin.types.ledgers",
    "LogDirDescription": "klamm.admin.types.log_dirs",
    "MemberDescription": "klamm.admin.types.groups",
    "NewTopic": "klamm.admin.types.topics",
    "OpenPart": "klamm.admin.types.ledgers",
    "PartitionDescription": "klamm.admin.types.topics",
    "PartitionLagDescription": "klamm.admin.types.groups",
    "PartitionReassignment": "klamm.admin.types.replicas",
    "PatternType": "klamm.acls",
    "ProducerState": "klamm.admin.types.transactions",
    "QuorumDescription": "klamm.admin.types.quorum",
    "QuorumReplicaKind": "klamm.admin.types.quorum",
    "ReplicaDescription": "klamm.admin.types.log_dirs",
    "ReplicaOfQuorum": "klamm.admin.types.quorum",
    "ResourceType": "klamm.acls",
    "ScramCredentialInfo": "klamm.admin.types.users",
    "ScramMechanism": "klamm.security.sasl.scram_keys",
    "ScrubDescription": "klamm.admin.types.scrubs",
    "ServerDescription": "klamm.admin.types.cluster",
    "TopicDescription": "klamm.admin.types.topics",
    "TopicPartitionReplica": "klamm.admin.types.log_dirs",
    "TransactionDescription": "klamm.admin.types.transactions",
    "TransactionListing": "klamm.admin.types.transactions",
    "UserScramCredentialDeletion": "klamm.admin.types.users",
    "UserScramCredentialUpsertion": "klamm.admin.types.users",
    "UserScramCredentialsDescription": "klamm.admin.types.users",
}

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclDecision",
    "AclOperation",
    "AclPermissionType",
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
    "GroupLagDescription",
    "GroupListing",
    "HangingTransaction",
    "LedgerListing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OpenPart",
    "PartitionDescription",
    "PartitionLagDescription",
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
