"""Tests random administration against a naive model, on a real store, with crashes before and after writes.

After every step, the data on disk replays to the live image, and the image equals the model. A crash is a copy of the
store's directory at a chosen write. A controller opened on the copy must have every acknowledged change, and each
change in progress either whole or not at all.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest

from klamm.errors import ErrorCode
from klamm.model import topic_collision_key
from klamm.wire.v1.controller_pb2 import (
    CONFIG_OPERATION_DELETE,
    CONFIG_OPERATION_SET,
    AlterClientQuotasRequest,
    AlterConfigsResource,
    AlterUserScramCredentialsRequest,
    ClientQuotaAlteration,
    ClientQuotaOperation,
    ConfigChange,
    ConfigResource,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    NewPartitions,
    NewTopic,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_TOPIC,
    ClusterRecord,
    MetadataBatch,
    MetadataRecord,
    QuotaEntityPart,
)
from klamm_controller.active.committed_tail import CommittedTail
from klamm_controller.active.controller import Controller
from klamm_controller.active.liveness import BROKERS, Liveness
from klamm_controller.log.quorum_log import QuorumLog
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.log.snapshot import image_of_snapshot
from klamm_controller.metadata.configs import handle_incremental_alter_configs
from klamm_controller.metadata.partitions import handle_create_partitions
from klamm_controller.metadata.quotas import handle_alter_client_quotas
from klamm_controller.metadata.topics import handle_delete_topics
from klamm_controller.metadata.users import handle_alter_user_scram_credentials
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, ReplicaKey, Voter
from klamm_controller.raft.raft_log import START
from klamm_controller.raft.settings import RaftSettings
from klamm_server.metadata.entities import NO_LEADER
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.runtime.event_queue import EventQueue
from tests.support.whole_decisions import handle_create_topics

SESSION_MS = 9_000
ME = ReplicaKey(1, "")
VOTERS = VoterSet([Voter(ME, "")])
SETTINGS = RaftSettings(idle_no_op_interval_ms=0, retained_entries=3)
ILLEGAL_NAMES = ["no good", ""]
NAMES = ["a", "b", "c.d", "c_d", "e-f", *ILLEGAL_NAMES]


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class CrashingStore(RaftStore):
    """A store that copies its directory before or after a chosen write, as a crash would leave it.

    The test can load it while it writes a snapshot, because a lock makes one of the two wait.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path
        self.crash: tuple[str, Path] | None = None
        self._lock = threading.Lock()

    def image(self):
        """Returns the image that the stored snapshot and entries replay to."""
        with self._lock:
            stored = self.load()
            image = MetadataImage.empty()
            if stored.snapshot != START:
                image = image_of_snapshot(self.read_snapshot(stored.snapshot))
        for entry in stored.entries:
            if entry.kind is EntryKind.DATA and entry.index >= stored.snapshot.end_index:
                batch = MetadataBatch.FromString(entry.payload)
                image = replay(image, batch.records, batch.end_index)
        return image

    def write(self, persists):
        with self._lock:
            self._maybe_crash("before", persists)
            super().write(persists)
            self._maybe_crash("after", persists)

    def write_snapshot_part(self, snapshot, position, data):
        with self._lock:
            super().write_snapshot_part(snapshot, position, data)

    def name_snapshot(self, snapshot, voters, size_bytes):
        with self._lock:
            super().name_snapshot(snapshot, voters, size_bytes)

    def _maybe_crash(self, moment, persists):
        appends = any(persist.entries for persist in persists)
        if self.crash is not None and self.crash[0] == moment and appends:
            shutil.copytree(self.path, self.crash[1])
            self.crash = None


def _send(message):
    raise AssertionError(f"who is alone sends nothing: {message}")


class Node:
    """A controller without a network, on a directory."""

    def __init__(self, path: Path, clock: FakeClock, snapshot_interval_bytes: int) -> None:
        self.store = CrashingStore(path)
        self.store.begin(VOTERS)
        stored = self.store.load()
        image = MetadataImage.empty()
        if stored.snapshot != START:
            image = image_of_snapshot(self.store.read_snapshot(stored.snapshot))
        self.clock = clock
        self.queue = EventQueue("controller", capacity=100, clock=clock)
        self.log = QuorumLog(
            self.store,
            stored,
            me=ME,
            end_index=image.end_index,
            settings=SETTINGS,
            snapshot_interval_bytes=snapshot_interval_bytes,
            send=_send,
            clock=clock,
            rng=random.Random(1),
            on_failure=self._fail,
        )
        tail = CommittedTail(500, image.end_index)
        self.controller = Controller(log=self.log, queue=self.queue, image=image, tail=tail)
        self.brokers = Liveness(
            BROKERS,
            self.controller,
            self.queue,
            clock,
            session_timeout_ms=SESSION_MS,
            connection_loss_timeout_ms=SESSION_MS,
        )
        self.failure: BaseException | None = None

    def _fail(self, story, error):
        self.failure = error

    async def start(self):
        self.controller.start(on_claimed=self._begin, on_resigned=self.brokers.stop)
        self.running = asyncio.create_task(self.queue.run())
        await self.controller.wait_active()
        await self.controller.wait_beyond(0)

    def _begin(self):
        if not self.controller.appended.cluster_id:
            self.controller.append([MetadataRecord(cluster=ClusterRecord(cluster_id="sim"))])
        self.brokers.start()

    async def stop(self):
        self.controller.resign()
        self.queue.close()
        await self.running
        await self.controller.close()
        assert self.failure is None, self.failure

    async def drain(self):
        """Waits until everything appended has committed, and due snapshots are written."""
        self.queue.schedule("nudge", self.clock.now_ms, lambda: None)
        await asyncio.sleep(0)
        while self.controller.committed is not self.controller.appended:
            await self.controller.wait_beyond(self.controller.committed.end_index)


class Model:
    """The state of the cluster as an administrator expects it."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.heard_ms: dict[int, int] = {}
        """When each live broker was heard last."""
        self.registered: set[int] = set()
        self.users: dict[tuple[str, int], int] = {}
        """Iterations, by user and mechanism."""
        self.quotas: dict[str | None, dict[str, float]] = {}
        """The quotas of each user, or of the default user, by key."""

    def creation_code(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> int:
        if name in ILLEGAL_NAMES:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if name in self.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        if topic_collision_key(name) in map(topic_collision_key, self.topics):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if "x" in configs.values():
            return ErrorCode.INVALID_CONFIG
        if partitions < 1:
            return ErrorCode.INVALID_PARTITIONS
        if replicas > len(self.registered) or not self.heard_ms:
            return ErrorCode.INVALID_REPLICATION_FACTOR
        return ErrorCode.NONE


class Sim:
    def __init__(self, seed: int, directory: Path, cluster) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.cluster = cluster
        self.clock = FakeClock()
        self.model = Model()
        self.crashes = 0
        self.lives = 0
        self.interval_bytes = self.rng.choice([200, 2_000, 1 << 20])
        self.node = Node(directory / "0", self.clock, self.interval_bytes)

    async def run(self, steps: int) -> None:
        # A lost commit shows as an endless wait.
        async with asyncio.timeout(60):
            await self._run(steps)

    async def _run(self, steps: int) -> None:
        await self.node.start()
        for _ in range(steps):
            step = self.rng.choice(
                [self.create] * 4
                + [self.burst]
                + [self.delete, self.grow, self.alter, self.alter, self.register, self.beat, self.beat]
                + [self.alter_user, self.alter_quota]
                + [self.wait, self.wait, self.crash, self.restart]
            )
            await step()
            await self.node.drain()
            self.check()
        await self.node.stop()

    def check(self) -> None:
        controller, image = self.node.controller, self.node.controller.committed
        controller.check_invariants()
        assert self.node.store.image() == image
        assert {name: len(topic.partitions) for name, topic in image.topics_by_name.items()} == self.model.topics
        for name in self.model.topics:
            assert image.topic_configs(name) == self.model.configs[name]
        credentials = image.scram_credentials.items()
        assert {
            (name, credential.number): known.iterations for (name, credential), known in credentials
        } == self.model.users
        quotas = image.client_quotas.items()
        assert {name: dict(values) for ((_, name),), values in quotas} == self.model.quotas
        live = {broker.broker_id for broker in image.live_brokers()}
        assert live == set(self.model.heard_ms)
        for topic in image.topics_by_name.values():
            for partition in topic.partitions:
                led = live & set(partition.isr)
                assert (partition.leader in led) if led else (partition.leader == NO_LEADER), partition

    async def submit(self, handle):
        reply = await self.node.controller.submit("sim", handle)
        self.cluster.image = self.node.controller.committed
        return reply

    def creation(self):
        name = self.rng.choice(NAMES)
        partitions, replicas = self.rng.randint(0, 4), self.rng.randint(1, 3)
        configs = {"retention.ms": self.rng.choice("123x")} if self.rng.random() < 0.5 else {}
        topic = NewTopic(name=name, partition_count=partitions, replication_factor=replicas, configs=configs)
        expected = self.model.creation_code(name, partitions, replicas, configs)
        request = CreateTopicsRequest(topics=[topic])
        seed = self.rng.random()

        def handle(image):
            return handle_create_topics(request, image, self.cluster.policy, random.Random(seed))

        return topic, expected, handle

    async def create(self):
        topic, expected, handle = self.creation()
        (created,) = (await self.submit(handle)).topics
        assert created.error_code == expected, created
        if not expected:
            self.note_created(topic)

    def note_created(self, topic):
        self.model.topics[topic.name] = topic.partition_count
        self.model.configs[topic.name] = dict(topic.configs)

    async def burst(self):
        """Creates topics concurrently. Groups of them share writes, and a snapshot may come between two groups."""
        if not self.model.heard_ms:
            return
        under_way = []
        for name in self.rng.sample([f"z{n}" for n in range(30)], 6):
            if name in self.model.topics:
                continue
            topic = NewTopic(name=name, partition_count=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic])
            handle = partial(handle_create_topics, request, policy=self.cluster.policy, rng=random.Random(1))
            under_way.append((topic, asyncio.ensure_future(self.submit(handle))))
            for _ in range(self.rng.randint(0, 20)):
                await asyncio.sleep(0)
        for topic, task in under_way:
            (created,) = (await task).topics
            assert created.error_code == 0, created
            self.note_created(topic)

    async def delete(self):
        name = self.rng.choice(NAMES)
        request = DeleteTopicsRequest(topics=[name])
        (result,) = (await self.submit(lambda image: handle_delete_topics(request, image, self.cluster.policy))).results
        known = self.model.topics.pop(name, None) is not None
        self.model.configs.pop(name, None)
        assert result.error_code == (ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def grow(self):
        name, count = self.rng.choice(NAMES), self.rng.randint(0, 6)
        request = CreatePartitionsRequest(topics=[NewPartitions(topic=name, total_count=count)])
        rng = random.Random(self.rng.random())
        reply = await self.submit(lambda image: handle_create_partitions(request, image, self.cluster.policy, rng))
        code = reply.results[0].error_code
        before = self.model.topics.get(name)
        if before is None:
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif count <= before:
            assert code == ErrorCode.INVALID_PARTITIONS
        elif not self.model.heard_ms:
            assert code == ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            assert code == ErrorCode.NONE
            self.model.topics[name] = count

    async def alter(self):
        name = self.rng.choice(NAMES)
        key, value = self.rng.choice(["retention.ms", "segment.ms"]), self.rng.choice("123x")
        operation = self.rng.choice([CONFIG_OPERATION_SET, CONFIG_OPERATION_DELETE])
        resource = AlterConfigsResource(
            resource=ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name=name),
            changes=[ConfigChange(name=key, operation=operation, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        reply = await self.submit(lambda image: handle_incremental_alter_configs(request, image))
        code = reply.results[0].error_code
        if name in ILLEGAL_NAMES:
            assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        elif name not in self.model.topics:
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif operation == CONFIG_OPERATION_DELETE:
            self.model.configs[name].pop(key, None)
        elif value == "x":
            assert code == ErrorCode.INVALID_CONFIG
        else:
            self.model.configs[name][key] = value

    async def alter_user(self):
        key = self.rng.choice("uv"), self.rng.choice([1, 2])
        name, mechanism = key
        iterations = self.rng.choice([1, 4096, 5000])
        upsertion = ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
        )
        if sets := self.rng.random() < 0.6:
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        else:
            deletion = ScramCredentialDeletion(name=name, mechanism=mechanism)
            request = AlterUserScramCredentialsRequest(deletions=[deletion])
        reply = await self.submit(lambda image: handle_alter_user_scram_credentials(request, image, b"secret"))
        code = reply.results[0].error_code
        if not sets:
            known = self.model.users.pop(key, None) is not None
            assert code == (ErrorCode.NONE if known else ErrorCode.RESOURCE_NOT_FOUND)
        elif iterations == 1:
            assert code == ErrorCode.UNACCEPTABLE_CREDENTIAL
        else:
            assert code == ErrorCode.NONE
            self.model.users[key] = iterations

    async def alter_quota(self):
        user, key = self.rng.choice(["u", "v", None]), self.rng.choice(["producer_byte_rate", "request_percentage"])
        value = self.rng.choice([None, 0.5, 2.0, -1.0])
        alteration = ClientQuotaAlteration(
            entity=[QuotaEntityPart(type="user", name=user)], operations=[ClientQuotaOperation(key=key, value=value)]
        )
        request = AlterClientQuotasRequest(alterations=[alteration], validate_only=self.rng.random() < 0.2)
        reply = await self.submit(lambda image: handle_alter_client_quotas(request, image))
        is_wrong = value == -1.0 or (value == 0.5 and key == "producer_byte_rate")
        assert reply.results[0].error_code == (ErrorCode.INVALID_REQUEST if is_wrong else ErrorCode.NONE)
        if is_wrong or request.validate_only:
            return
        quotas = self.model.quotas.setdefault(user, {})
        quotas.pop(key, None)
        if value is not None:
            quotas[key] = value
        if not quotas:
            del self.model.quotas[user]

    async def register(self):
        broker_id = self.rng.randint(1, 3)
        self.lives += 1
        request = self.cluster.broker_request(broker_id, self.lives % 250)
        reply = await self.node.brokers.register(request)
        assert reply.error_code == 0, reply
        self.model.registered.add(broker_id)
        self.model.heard_ms.pop(broker_id, None)
        await self.beat_of(broker_id)

    async def beat(self):
        if self.model.registered:
            await self.beat_of(self.rng.choice(sorted(self.model.registered)))

    async def beat_of(self, broker_id):
        self.cluster.image = self.node.controller.committed
        reply = await self.node.brokers.heartbeat(self.cluster.heartbeat(broker_id))
        assert (reply.error_code, reply.fenced) == (0, False)
        self.model.heard_ms[broker_id] = self.clock.now_ms

    async def wait(self):
        for _ in range(self.rng.randint(1, 12)):
            self.clock.now_ms += 500
            await self.node.drain()
        now_ms = self.clock.now_ms
        self.model.heard_ms = {b: heard for b, heard in self.model.heard_ms.items() if now_ms - heard < SESSION_MS}

    async def restart(self):
        await self.node.stop()
        await self.open(self.node.store.path)

    async def open(self, path):
        self.node = Node(path, self.clock, self.interval_bytes)
        await self.node.start()
        self.model.heard_ms = dict.fromkeys(self.model.heard_ms, self.clock.now_ms)

    async def crash(self):
        """Copies the disk during one creation, with no other request in progress, and continues on the copy."""
        topic, expected, handle = self.creation()
        if expected:
            return
        self.crashes += 1
        left = self.directory / str(self.crashes)
        moment = self.rng.choice(["before", "after"])
        self.node.store.crash = (moment, left)
        await self.submit(handle)
        await self.node.stop()
        if moment == "after":
            self.note_created(topic)
        await self.open(left)


@pytest.mark.parametrize("seed", range(12))
def test_random_administration_with_crashes_matches_the_model(seed, tmp_path, cluster):
    asyncio.run(Sim(seed, tmp_path, cluster).run(150))
