"""Tests the dump of the controllers' log: while its controller has it open, with a snapshot, and damaged."""

from __future__ import annotations

import contextlib
import os

import pytest
from rocksdict import Options, Rdict

from klamm.wire.v1.metadata_pb2 import (
    ClientQuotaRecord,
    ClusterRecord,
    ClusterSecretRecord,
    MetadataBatch,
    MetadataRecord,
    QuotaEntityPart,
    TopicRecord,
    UserScramCredentialRecord,
)
from klamm_cli.log_dump.line import LineKind
from klamm_cli.log_dump.metadata_log import dump_metadata_log
from klamm_controller.log.entry_codec import entry_key
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.log.snapshot import snapshot_bytes
from klamm_controller.raft.effects import Persist
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry, ReplicaKey, SnapshotId, Voter
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import ImageBuilder

VOTERS = VoterSet([Voter(ReplicaKey(1, "dir"), "host:9093")])
CLUSTER = MetadataRecord(cluster=ClusterRecord(cluster_id="the-cluster"))
TOPIC = MetadataRecord(topic=TopicRecord(name="orders", topic_id=bytes(16)))


def entry(index, record):
    batch = MetadataBatch(term=1, base_index=index, end_index=index + 1, records=[record])
    return LogEntry(index, 1, EntryKind.DATA, batch.SerializeToString())


def persist(**changes):
    values = dict.fromkeys(("hard_state", "snapshot_chunk", "log_end_index", "log_start_index"))
    return Persist(**{**values, "persist_id": 1, "entries": (), **changes})


def new_store(path):
    store = RaftStore(path)
    store.begin(VOTERS)
    voters = LogEntry(2, 1, EntryKind.VOTERS, VOTERS.to_bytes())
    store.write([persist(entries=(entry(0, CLUSTER), entry(1, TOPIC), voters))])
    return store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metadata.db"


@pytest.fixture
def store(path):
    """Returns an open store with three entries, like that of a running controller."""
    with contextlib.closing(new_store(path)) as opened:
        yield opened


def texts(path):
    return [line.to_text() for line in dump_metadata_log(str(path))]


def test_dumping_the_log_of_a_running_controller_changes_no_file(path, store):
    def seen():
        return {name: os.stat(path / name).st_mtime_ns for name in os.listdir(path)}

    before = seen()
    found = texts(path)
    assert seen() == before
    assert found[0] == f"directoryId: {store.directory_id} term: 0 votedFor: null"
    assert found[2:] == [
        f"index: 0 term: 1 kind: DATA size: {len(entry(0, CLUSTER).payload)}",
        '| recordIndex: 0 type: cluster payload: {"cluster_id":"the-cluster"}',
        f"index: 1 term: 1 kind: DATA size: {len(entry(1, TOPIC).payload)}",
        '| recordIndex: 1 type: topic payload: {"name":"orders","topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}',
        f"index: 2 term: 1 kind: VOTERS size: {len(VOTERS.to_bytes())}"
        ' voters: [{"key":{"node_id":1,"directory_id":"dir"},"endpoint":"host:9093"}]',
    ]


def test_a_snapshot_is_shown_record_by_record(path, store):
    builder = ImageBuilder(MetadataImage.empty())
    builder.apply([CLUSTER, TOPIC])
    data = b"".join(snapshot_bytes(builder.finish(2), 1))
    snapshot = SnapshotId(end_index=2, term=1)
    store.write_snapshot_part(snapshot, 0, data)
    store.name_snapshot(snapshot, VOTERS, len(data))
    store.write([persist(log_start_index=2)])
    found = texts(path)
    assert found[2] == f"snapshotEndIndex: 2 snapshotTerm: 1 size: {len(data)}"
    assert found[3].startswith("| type: cluster")
    assert found[4].startswith("| type: topic")
    assert found[-1].startswith("index: 2 ")


def test_scram_keys_salts_and_the_cluster_secret_are_not_shown(path, store):
    credential = UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"salty", stored_key=b"stored", server_key=b"serving", iterations=4096
    )
    secret = MetadataRecord(cluster_secret=ClusterSecretRecord(secret=b"shared"))
    store.write([persist(entries=(entry(3, MetadataRecord(user_scram_credential=credential)), entry(4, secret)))])
    found = "\n".join(texts(path))
    assert '"name":"alice"' in found
    assert '"iterations":4096' in found
    for hidden in (b"salty", b'stored"', b"serving", b"shared"):
        assert hidden.decode() not in found
        assert hidden.hex() not in found


def test_a_quota_is_shown_with_its_entity(path, store):
    quota = ClientQuotaRecord(
        entity=[QuotaEntityPart(type="client-id"), QuotaEntityPart(type="user", name="alice")],
        key="request_percentage",
        value=12.5,
    )
    store.write([persist(entries=(entry(3, MetadataRecord(client_quota=quota)),))])
    (found,) = (line for line in texts(path) if "type: client_quota" in line)
    assert '{"type":"client-id"}' in found
    assert '{"name":"alice","type":"user"}' in found or '{"type":"user","name":"alice"}' in found
    assert '"value":12.5' in found


def test_entries_before_a_damaged_one_are_shown(path):
    new_store(path).close()
    database = Rdict(str(path), options=Options(raw_mode=True))
    value = bytearray(database[entry_key(1)])
    value[-1] ^= 1
    database[entry_key(1)] = bytes(value)
    database.close()
    lines = list(dump_metadata_log(str(path)))
    assert [line.fields["index"] for line in lines if line.kind is LineKind.BATCH] == [0]
    assert lines[-1].to_text() == f"damage: {path}: the entry at index 1 fails its checksum"


def test_a_database_that_does_not_open_is_damage_and_named(path):
    new_store(path).close()
    for name in os.listdir(path):
        if name.startswith("MANIFEST"):
            (path / name).write_bytes(b"nonsense")
    (line,) = dump_metadata_log(str(path))
    assert line.kind is LineKind.DAMAGE
    assert f"the metadata log in {path}" in line.to_text()
