"""Writes an image as metadata records: a snapshot of the metadata log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from klamm.quotas import QuotaEntity
from klamm.security.sasl.scram_keys import ScramCredential
from klamm.wire.quotas import entity_parts
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    BrokerChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ClusterSecretRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterCoordinatorRecord,
    ShardAssignmentRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from klamm_server.metadata.entities import (
    BrokerImage,
    CoordinatorImage,
    TopicImage,
)
from klamm_server.metadata.image import CredentialKey, MetadataImage
from klamm_server.net.listeners import SecurityProtocol, encode, endpoint, first


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yields records that turn the empty image into this one, except for its `end_index`."""
    if image.cluster_id:
        yield MetadataRecord(cluster=ClusterRecord(cluster_id=image.cluster_id))
    for broker in image.brokers.values():
        yield from _broker_records(broker)
    for coordinator in image.coordinators.values():
        yield _coordinator_record(coordinator)
    for topic in image.topics_by_id.values():
        yield from _topic_records(topic)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield MetadataRecord(
                config=ConfigRecord(
                    resource_type=resource_type,  # type: ignore[arg-type]  # stubs want the enum's NewType
                    resource_name=resource_name,
                    name=name,
                    value=value,
                )
            )
    for (topic_name, shard), assigned in image.shards.items():
        yield MetadataRecord(
            shard_assignment=ShardAssignmentRecord(
                topic=topic_name,
                shard=shard,
                coordinator_id=assigned.coordinator_id,
                producer_id=assigned.producer_id,
                writer_epoch=assigned.writer_epoch,
                coordinator_epoch=assigned.coordinator_epoch,
                former_producer_id=assigned.former_producer_id,
            )
        )
    for acl_id, binding in image.acls.by_id.items():
        yield MetadataRecord(access_control_entry=AccessControlEntryRecord(id=acl_id.bytes, **binding._asdict()))
    yield MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=image.next_producer_id))
    if image.cluster_secret:
        yield MetadataRecord(cluster_secret=ClusterSecretRecord(secret=image.cluster_secret))
    for key, credential in image.scram_credentials.items():
        yield credential_record(key, credential)
    yield from _quota_records(image.client_quotas)


def credential_record(key: CredentialKey, credential: ScramCredential) -> MetadataRecord:
    """Returns the record of a user's credential."""
    name, mechanism = key
    return MetadataRecord(
        user_scram_credential=UserScramCredentialRecord(
            name=name,
            mechanism=mechanism.number,  # type: ignore[arg-type]  # stubs want the enum's NewType
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    )


def _quota_records(client_quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Iterator[MetadataRecord]:
    for entity, quotas in client_quotas.items():
        for key, value in quotas.items():
            yield MetadataRecord(client_quota=ClientQuotaRecord(entity=entity_parts(entity), key=key, value=value))


def _broker_records(broker: BrokerImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(
        register_broker=RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            endpoint=Endpoint(host=broker.host, port=broker.port),
            rack=broker.rack,
            fenced=broker.fenced,
            log_dir_ids=broker.log_dir_ids,
            static_configs=dict(broker.static_configs),
            kafka_endpoint=endpoint(first(broker.listeners, SecurityProtocol.KAFKA)),
            listeners=encode(broker.listeners),
        )
    )
    if broker.in_controlled_shutdown:
        yield MetadataRecord(
            broker_change=BrokerChangeRecord(
                broker_id=broker.broker_id,
                broker_epoch=broker.broker_epoch,
                fenced=broker.fenced,
                in_controlled_shutdown=True,
            )
        )


def _coordinator_record(coordinator: CoordinatorImage) -> MetadataRecord:
    return MetadataRecord(
        register_coordinator=RegisterCoordinatorRecord(
            coordinator_id=coordinator.coordinator_id,
            incarnation_id=coordinator.incarnation_id,
            coordinator_epoch=coordinator.coordinator_epoch,
            endpoint=Endpoint(host=coordinator.host, port=coordinator.port),
            fenced=coordinator.fenced,
            listeners=encode(coordinator.listeners),
        )
    )


def _topic_records(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic.topic_id.bytes))
    for partition in topic.partitions:
        yield MetadataRecord(
            partition=PartitionRecord(
                topic_id=topic.topic_id.bytes,
                partition=partition.partition,
                replicas=partition.replicas,
                isr=partition.isr,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                elr=partition.elr,
                last_known_elr=partition.last_known_elr,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
                offline_replicas=partition.offline_replicas,
                resigned_replicas=partition.resigned_replicas,
            )
        )
