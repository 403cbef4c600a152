from klamm.acls import (
    AclBinding as AclBinding,
)
from klamm.acls import (
    AclBindingFilter as AclBindingFilter,
)
from klamm.acls import (
    AclDecision as AclDecision,
)
from klamm.acls import (
    AclOperation as AclOperation,
)
from klamm.acls import (
    AclPermissionType as AclPermissionType,
)
from klamm.acls import (
    BuiltInRule as BuiltInRule,
)
from klamm.acls import (
    PatternType as PatternType,
)
from klamm.acls import (
    ResourceType as ResourceType,
)
from klamm.admin.types.cluster import ClusterDescription as ClusterDescription
from klamm.admin.types.cluster import ServerDescription as ServerDescription
from klamm.admin.types.configs import (
    ConfigChange as ConfigChange,
)
from klamm.admin.types.configs import (
    ConfigEntry as ConfigEntry,
)
from klamm.admin.types.configs import (
    ConfigOperation as ConfigOperation,
)
from klamm.admin.types.configs import (
    ConfigResource as ConfigResource,
)
from klamm.admin.types.configs import (
    ConfigResourceType as ConfigResourceType,
)
from klamm.admin.types.configs import (
    ConfigSource as ConfigSource,
)
from klamm.admin.types.groups import (
    GroupDescription as GroupDescription,
)
from klamm.admin.types.groups import (
    GroupLagDescription as GroupLagDescription,
)
from klamm.admin.types.groups import (
    GroupListing as GroupListing,
)
from klamm.admin.types.groups import (
    MemberDescription as MemberDescription,
)
from klamm.admin.types.groups import (
    PartitionLagDescription as PartitionLagDescription,
)
from klamm.admin.types.ledgers import LedgerListing as LedgerListing
from klamm.admin.types.ledgers import OpenPart as OpenPart
from klamm.admin.types.log_dirs import (
    LogDirDescription as LogDirDescription,
)
from klamm.admin.types.log_dirs import (
    ReplicaDescription as ReplicaDescription,
)
from klamm.admin.types.log_dirs import (
    TopicPartitionReplica as TopicPartitionReplica,
)
from klamm.admin.types.quorum import (
    QuorumDescription as QuorumDescription,
)
from klamm.admin.types.quorum import (
    QuorumReplicaKind as QuorumReplicaKind,
)
from klamm.admin.types.quorum import (
    ReplicaOfQuorum as ReplicaOfQuorum,
)
from klamm.admin.types.quotas import (
    ClientQuotaAlteration as ClientQuotaAlteration,
)
from klamm.admin.types.quotas import (
    ClientQuotaEntity as ClientQuotaEntity,
)
from klamm.admin.types.quotas import (
    ClientQuotaFilterComponent as ClientQuotaFilterComponent,
)
from klamm.admin.types.replicas import ElectionType as ElectionType
from klamm.admin.types.replicas import PartitionReassignment as PartitionReassignment
from klamm.admin.types.scrubs import (
    DamagedSegment as DamagedSegment,
)
from klamm.admin.types.scrubs import (
    DamageState as DamageState,
)
from klamm.admin.types.scrubs import (
    ScrubDescription as ScrubDescription,
)
from klamm.admin.types.topics import (
    CreatedTopic as CreatedTopic,
)
from klamm.admin.types.topics import (
    NewTopic as NewTopic,
)
from klamm.admin.types.topics import (
    PartitionDescription as PartitionDescription,
)
from klamm.admin.types.topics import (
    TopicDescription as TopicDescription,
)
from klamm.admin.types.transactions import (
    HangingTransaction as HangingTransaction,
)
from klamm.admin.types.transactions import (
    ProducerState as ProducerState,
)
from klamm.admin.types.transactions import (
    TransactionDescription as TransactionDescription,
)
from klamm.admin.types.transactions import (
    TransactionListing as TransactionListing,
)
from klamm.admin.types.users import (
    ScramCredentialInfo as ScramCredentialInfo,
)
from klamm.admin.types.users import (
    UserScramCredentialDeletion as UserScramCredentialDeletion,
)
from klamm.admin.types.users import (
    UserScramCredentialsDescription as UserScramCredentialsDescription,
)
from klamm.admin.types.users import (
    UserScramCredentialUpsertion as UserScramCredentialUpsertion,
)
from klamm.security.sasl.scram_keys import ScramMechanism as ScramMechanism
