"""Runs scripts that move one partition by hand, a command per line, and writes down what happens.

The messages between followers, leaders and the controller (only AlterPartition of the latter) wait in a queue until a
command delivers them. Registrations, heartbeats and metadata arrive at once when a command sends them. Timers run only
when a command moves the time. So a script is a story that a reader can follow, and it is the same in every run.

| command                    | what happens                                                                          |
|----------------------------|---------------------------------------------------------------------------------------|
| `brokers 3 min_isr=2`      | brokers 1 to 3 start and register                                                     |
| `topic 1 2 3 leader=2`     | the controller creates the partition with all replicas in sync; all brokers learn it  |
| `settle`                   | all messages arrive, until none is in a queue                                         |
| `deliver 2`, `deliver 2 1` | the messages to 2 (from 1) that are in a queue now arrive; 0 is the controller        |
| `drop 2 1`                 | these messages are lost, and all later ones of their streams                          |
| `hold 2 1`, `release 2 1`  | these messages stay in the queue, also in `settle`, until they are released           |
| `metadata`, `metadata 2`   | all brokers (broker 2) get all metadata that the controller has written               |
| `produce 1 a b`            | broker 1 gets records with acks=all; `x7` is sequence 7 of producer x                 |
| `read 1`                   | a consumer reads all records that broker 1 lets it read                               |
| `poll 1`                   | the consumer reads its next records from broker 1, with that broker's metadata        |
| `lag 1`, `wait 2000`       | leader 1 looks for followers that lag; the time moves by 2000 ms                      |
| `unanswered 1`             | leader 1 stops waiting for the controller's response, and repeats its request         |
| `reconnect 2`              | follower 2 ends its stream of fetches, and begins another                             |
| `crash 2`, `lose 2 3`      | broker 2 is killed (kill -9); in a power failure only 3 of its records survive        |
| `start 2`, `register 2`    | broker 2 starts, registers and is unfenced; or it stays fenced                        |
| `shutdown 2`, `heartbeat 2`| broker 2 begins a controlled shutdown; it sends the next heartbeat of the shutdown    |
| `expire 2`                 | the session of broker 2 times out at the controller                                   |
| `prefer`                   | the controller elects the preferred leader                                            |
| `reassign 2 3`, `cancel`   | the controller reassigns the partition to replicas 2 and 3, or cancels that           |
| `quietly settle`           | the same as `settle` (or any command), but the trace leaves it out                    |
| `status`                   | the trace gets one line for each broker                                               |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from klamm.errors import ErrorCode
from klamm.wire.v1.broker_pb2 import ReplicaFetchHeader, ReplicaFetchRequest
from klamm.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse
from klamm_broker.replication.follower_streams import NEWS_LINGER_MS
from klamm_server.metadata.entities import NO_LEADER, PartitionImage
from tests.sim.isrsim.broker import Life, PendingProduce, SimBroker
from tests.sim.isrsim.cluster import Cluster
from tests.sim.isrsim.network import CONTROLLER, Network
from tests.sim.isrsim.options import Options
from tests.sim.isrsim.sim_log import decode
from tests.sim.kit.world import MS, World
from tests.support.violation import Violation

HOUR_MS = 3_600_000
LAG_TIME_MAX_MS = 1_000
STEPS_MAX = 500


def options(broker_count: int, min_isr: int) -> Options:
    """Returns options with which nothing happens by itself."""
    never = dict.fromkeys(
        ("crash_mean_ms", "partition_mean_ms", "pause_mean_ms", "reassignment_mean_ms", "controller_mean_ms"), 0
    )
    return Options(
        broker_count=broker_count,
        replica_count=broker_count,
        min_isr=min_isr,
        duration_ms=0,
        lag_time_max_ms=LAG_TIME_MAX_MS,
        session_timeout_ms=HOUR_MS,
        heartbeat_ms=HOUR_MS,
        request_timeout_ms=HOUR_MS,
        fetch_wait_ms=HOUR_MS,
        fetch_records_max=100,
        backoff_ms=HOUR_MS,
        delay_mean_us=1,
        slow_message_probability=0,
        slow_message_factor=1,
        loss_probability=0,
        metadata_delay_mean_us=0,
        producer_count=0,
        produce_mean_ms=HOUR_MS,
        lost_acknowledgement_probability=0,
        read_mean_ms=HOUR_MS,
        lossy_crash_probability=0,
        shutdown_probability=0,
        downtime_mean_ms=HOUR_MS,
        partitions_per_turn=0,
        turn_ms=1,
        full_disk_mean_ms=0,
        **never,
    )


class Envelope:
    """Something under way."""

    def __init__(
        self, sender: int, receiver: int, text: str, deliver: Callable[[], None], channel: ScriptChannel | None
    ) -> None:
        self.sender, self.receiver = sender, receiver
        self.text = text
        self.deliver = deliver
        self.channel = channel
        self.is_held = False


class ScriptNetwork(Network):
    """A network that keeps messages until a command asks for them. Other messages are delivered at once."""

    def __init__(self, world: World, options: Options, describe: Callable[[Iterable[Any]], str]) -> None:
        super().__init__(world, options)
        self.under_way: list[Envelope] = []
        self._describe = describe

    def send(self, sender: int, receiver: int, receive: Callable[..., None], *args: Any, extra_us: int = 0) -> None:
        self.post(sender, receiver, receive, args, None)

    def post(
        self,
        sender: int,
        receiver: int,
        deliver: Callable[..., None],
        args: tuple[Any, ...],
        channel: ScriptChannel | None,
    ) -> None:
        text = self._describe(args)
        if text:
            self.under_way.append(Envelope(sender, receiver, text, lambda: deliver(*args), channel))
        else:
            deliver(*args)

    def channel(self, sender: int, receiver: int) -> Any:
        return ScriptChannel(self, sender, receiver)


class ScriptChannel:
    """A stream's direction: once something of it was dropped, nothing more arrives."""

    def __init__(self, network: ScriptNetwork, sender: int, receiver: int) -> None:
        self._network, self._sender, self._receiver = network, sender, receiver
        self.is_broken = False

    def send(self, deliver: Callable[..., None], *args: Any) -> None:
        if not self.is_broken:
            self._network.post(self._sender, self._receiver, deliver, args, self)


class ScriptCluster(Cluster):
    """A cluster without timers, and without producers that retry by themselves."""

    def __init__(self, world: World, options: Options, network: Network, say: Callable[[str], None]) -> None:
        self._say = say
        self._names: dict[int, str] = {}
        super().__init__(world, options, None, network)

    def note(self, text: str) -> None:
        if not text.startswith("controller:"):
            self._say(text.removeprefix("broker "))

    def every(self, broker: SimBroker, life: Life, period_ms: int, action: Callable[[], None]) -> None:
        pass

    def after_down(self, broker: SimBroker) -> None:
        pass

    def on_acknowledged(self, broker: SimBroker, produce: PendingProduce) -> None:
        self.checks.after_step(broker)
        self.checks.on_acknowledged(broker, produce.offset, produce.value)
        self._say(f"  acknowledges {name_of(produce.value)} at {produce.offset}")


class Script:
    """Runs commands. After a violation nothing more happens."""

    def __init__(self) -> None:
        self.violation: Violation | None = None
        self._trace: list[str] = []
        self._seen: dict[int, str] = {}
        self._image: PartitionImage | None = None
        self._commands: dict[str, Callable[..., None]] = {
            "brokers": self._begin,
            "topic": self._topic,
            "settle": self._settle,
            "deliver": lambda *ends: self._deliver(self._take(*ends)),
            "drop": self._drop,
            "hold": lambda *ends: self._mark(True, *ends),
            "release": lambda *ends: self._mark(False, *ends),
            "metadata": self._metadata,
            "produce": self._produce,
            "read": self._read,
            "poll": self._poll,
            "lag": lambda at: self._act(at, self._broker(at).check_lag),
            "wait": lambda ms: self.world.run_until(self.world.now_us + int(ms) * MS),
            "unanswered": self._unanswered,
            "reconnect": self._reconnect,
            "crash": lambda at: self.cluster.crash(self._broker(at), is_lossy=False),
            "lose": lambda at, count: self.cluster.crash(self._broker(at), is_lossy=True, kept_count=int(count)),
            "register": lambda at: self._broker(at).start(),
            "start": self._start,
            "shutdown": self._shut_down,
            "heartbeat": lambda at: self._act(at, self._broker(at).heartbeat),
            "expire": lambda at: self.cluster.controller.end_session(int(at)),
            "prefer": lambda: self._say_if(self.cluster.controller.elect_preferred()),
            "reassign": lambda *ids: self._say_if(self.cluster.controller.reassign([*map(int, ids)])),
            "cancel": lambda: self._say_if(self.cluster.controller.reassign(None)),
            "status": self._status,
            "quietly": self._quietly,
        }

    def run(self, command: str) -> list[str]:
        """Runs one command, and returns its events, one line each."""
        self._trace.clear()
        if self.violation is None:
            try:
                self._run(*command.split())
            except Violation as error:
                self.violation = error
                self._say(f"VIOLATION {error}")
        return list(self._trace)

    def _run(self, name: str, *words: str) -> None:
        self._commands[name](*words)
        self._say_changes()

    def _quietly(self, *words: str) -> None:
        self._run(*words)
        self._trace.clear()

    # The beginning

    def _begin(self, count: str, *settings: str) -> None:
        given = dict(setting.split("=") for setting in settings)
        self.world = World(seed=0)
        chosen = options(int(count), int(given.get("min_isr", "1")))
        self.network = ScriptNetwork(self.world, chosen, self._describe)
        self.cluster = ScriptCluster(self.world, chosen, self.network, self._say)
        for number in self.cluster.brokers:
            self._start(str(number))
        self._trace.clear()

    def _topic(self, *words: str) -> None:
        replicas = [int(word) for word in words if word.isdigit()]
        leader = next((int(word.removeprefix("leader=")) for word in words if "=" in word), replicas[0])
        self.cluster.controller.create_topic(replicas, self.cluster.options.min_isr, leader)
        self._metadata()

    # Messages

    def _take(self, receiver: str, sender: str | None = None) -> list[Envelope]:
        return [
            one
            for one in self.network.under_way
            if one.receiver == int(receiver) and sender in (None, str(one.sender)) and not one.is_held
        ]

    def _deliver(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            self.network.under_way.remove(envelope)
            receiver = self.cluster.brokers.get(envelope.receiver)
            if receiver is None or receiver.life is not None:
                self._say(f"{_node(envelope.receiver)} <- {_node(envelope.sender)} {envelope.text}")
            envelope.deliver()
            self._say_changes()

    def _settle(self) -> None:
        for _ in range(STEPS_MAX):
            ready = [one for one in self.network.under_way if not one.is_held]
            if ready:
                self._deliver(ready[:1])
                continue
            self.world.run_until(self.world.now_us + NEWS_LINGER_MS * MS)  # high watermarks wait for company
            if all(one.is_held for one in self.network.under_way):
                return
        raise AssertionError("it does not settle")

    def _drop(self, *ends: str) -> None:
        for envelope in self._take(*ends):
            self.network.under_way.remove(envelope)
            if envelope.channel is not None:
                envelope.channel.is_broken = True
            self._say(f"{_node(envelope.sender)} -> {_node(envelope.receiver)} {envelope.text}: lost")

    def _mark(self, is_held: bool, receiver: str, sender: str) -> None:
        for envelope in self.network.under_way:
            if (str(envelope.receiver), str(envelope.sender)) == (receiver, sender):
                envelope.is_held = is_held

    def _describe(self, args: Iterable[Any]) -> str:
        """Describes a message. Returns nothing for messages that a story leaves out."""
        words = list(args)
        for word in words:
            if isinstance(word, ReplicaFetchRequest):
                return _fetch(word)
            if isinstance(word, ReplicaFetchHeader):
                return _answer(word, words[-1])
            if isinstance(word, AlterPartitionRequest):
                return _change(word)
            if isinstance(word, AlterPartitionResponse):
                return _changed(word)
        return "ends its stream" if any(getattr(word, "__name__", "") == "end_stream" for word in words) else ""

    # Brokers

    def _broker(self, number: str) -> SimBroker:
        return self.cluster.brokers[int(number)]

    def _act(self, at: str, action: Callable[..., None], *args: Any) -> None:
        self._broker(at).receive(None, action, *args)

    def _start(self, at: str) -> None:
        broker = self._broker(at)
        if broker.life is None:
            broker.start()
        self._metadata(at)
        self._act(at, broker.heartbeat)

    def _metadata(self, *numbers: str) -> None:
        for number in numbers or map(str, self.cluster.brokers):
            broker = self._broker(number)
            if broker.life is not None:
                start_index = broker.life.image.end_index
                records = self.cluster.controller.records_from(start_index)
                if records:
                    broker.receive(None, broker.on_metadata, start_index, records)

    def _shut_down(self, at: str) -> None:
        self._broker(at).shut_down()
        self._act(at, self._broker(at).heartbeat)

    def _produce(self, at: str, *names: str) -> None:
        for name in names:
            self._act(at, self._produce_one, at, name)

    def _produce_one(self, at: str, name: str) -> None:
        code = self._broker(at).produce(*sequence_and_value(name))
        if code is not ErrorCode.NONE:
            self._say(f"{at} refuses {name}: {code.name}")

    def _read(self, at: str) -> None:
        broker = self._broker(at)
        told = self.cluster.checks.visible_count
        self._act(at, broker.consume)
        if self.cluster.checks.visible_count == told:
            self._say(f"{at} does not say how far one may read")
        else:
            assert broker.partition is not None
            self._say(f"{at} lets a consumer read up to {broker.partition.high_watermark}")

    def _poll(self, at: str) -> None:
        broker, consumer = self._broker(at), self.cluster.consumer
        consumer.learn(broker)
        is_served = consumer.poll(broker)
        self._say(f"{at} serves a consumer up to {consumer.offset}" if is_served else f"{at} does not serve consumers")

    def _unanswered(self, at: str) -> None:
        broker = self._broker(at)
        partition = broker.partition
        assert partition is not None
        if partition.leadership is None or partition.leadership.pending is None:
            self._say(f"{at} waits for no answer")
            return
        self._act(at, broker.give_up_change, partition, partition.leadership.pending)

    def _reconnect(self, at: str) -> None:
        stream = self._broker(at).present.stream
        assert stream is not None
        self._act(at, stream.reconnect)

    # What there is to see

    def _say(self, line: str) -> None:
        self._trace.append(line)

    def _say_if(self, problem: str) -> None:
        if problem:
            self._say(f"controller: {problem}")

    def _say_changes(self) -> None:
        image = self.cluster.controller.partition
        if image is not None and image != self._image:
            self._image = image
            self._say(f"controller: {_state(image)}")
        for broker in self.cluster.brokers.values():
            state = self._state_of(broker)
            if state != self._seen.get(broker.broker_id, state if broker.partition is None else ""):
                self._say(f"  {broker.broker_id} {state}")
            self._seen[broker.broker_id] = state

    def _state_of(self, broker: SimBroker) -> str:
        partition = broker.partition
        if partition is None:
            return "is down" if broker.life is None else "has no replica"
        role = f"follows {partition.leader}" if partition.following else "waits for a leader"
        pending = ""
        if partition.leadership is not None:
            role = "leads"
            if partition.leadership.pending is not None:
                pending = f", wants isr {_ids(partition.leadership.pending.isr)}"
        return f"{role} in epoch {partition.leader_epoch}, high watermark {partition.high_watermark}{pending}"

    def _status(self) -> None:
        for broker in self.cluster.brokers.values():
            records = " ".join(f"{name_of(record.value)}/{record.epoch}" for record in broker.log.records)
            self._say(f"{broker.broker_id} {self._state_of(broker)}: [{records}]")


def _node(number: int) -> str:
    return "controller" if number == CONTROLLER else str(number)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


def _state(image: PartitionImage) -> str:
    leader = "nobody leads" if image.leader == NO_LEADER else f"{image.leader} leads"
    elr = f", elr {_ids(image.elr)}" if image.elr else ""
    moving = f", replicas {_ids(image.replicas)}" if image.adding_replicas or image.removing_replicas else ""
    return (
        f"{leader} in epoch {image.leader_epoch}, isr {_ids(image.isr)}{elr}{moving},"
        f" partition epoch {image.partition_epoch}"
    )


def _fetch(request: ReplicaFetchRequest) -> str:
    told = [
        f"fetches from {position.fetch_offset} (last epoch {position.last_fetched_epoch}) in epoch"
        f" {position.current_leader_epoch}"
        for position in request.positions
    ]
    return ", ".join(told) or "waits for more"


def _answer(header: ReplicaFetchHeader, data: bytes) -> str:
    told = []
    for partition in header.partitions:
        if partition.error_code:
            told.append(f"refuses {partition.fetch_offset}: {ErrorCode.of(partition.error_code).name}")
        elif partition.HasField("diverging"):
            told.append(
                f"answers {partition.fetch_offset}: epoch {partition.diverging.epoch} ends at"
                f" {partition.diverging.end_offset}"
            )
        else:
            records = "".join(f" {name_of(value)}/{epoch}" for epoch, _, _, value in decode(data))
            told.append(f"answers {partition.fetch_offset}:{records} high watermark {partition.high_watermark}")
    return ", ".join(told) or "has nothing new"


def _change(request: AlterPartitionRequest) -> str:
    (change,) = request.partitions
    members = ",".join(f"{member.broker_id}@{member.broker_epoch}" for member in change.new_isr)
    return f"asks for isr {members} after partition epoch {change.partition_epoch}"


def _changed(response: AlterPartitionResponse) -> str:
    if response.error_code:
        return f"refuses: {ErrorCode.of(response.error_code).name}"
    (answer,) = response.partitions
    if answer.error_code:
        return f"refuses: {ErrorCode.of(answer.error_code).name}"
    return f"has isr {_ids(answer.isr)} in partition epoch {answer.partition_epoch}"


def sequence_and_value(name: str) -> tuple[tuple[int, int], int]:
    """Returns the sequence and value of a name. `a` is the only record of a producer of its own. `x7` is the one with
    sequence 7 of producer x."""
    match = re.fullmatch(r"([a-z])(\d*)", name)
    assert match is not None, name
    producer, sequence = ord(match[1]), int(match[2] or 0)
    return (producer, sequence), producer * 1_000 + sequence * 2 + bool(match[2])


def name_of(value: int) -> str:
    """The reverse, from the value."""
    producer, rest = divmod(value, 1_000)
    return chr(producer) + (str(rest // 2) if rest % 2 else "")
