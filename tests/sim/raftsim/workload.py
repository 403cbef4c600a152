"""Clients, administrators and the causes of faults: each a stream of events with its own mean interval."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from klamm_controller.raft.events import AddVoter, Propose, Read, RemoveVoter, TransferLeadership, UpdateVoter
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter
from tests.sim.kit.world import MS
from tests.sim.raftsim.cluster import Cluster, voter
from tests.sim.raftsim.replica import Replica


class Workload:
    """Runs until `stop`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng
        self._options = cluster.options
        self._requests = itertools.count(1)
        self._is_running = True
        self._asked_to_add: set[ReplicaKey] = set()
        self._asked_late_to_remove: set[ReplicaKey] = set()
        """The voters whose removal was asked of a paused replica. It may handle the request after other disks have been
        lost."""
        cluster.on_down = self._restart_later

    def start(self) -> None:
        options = self._options
        self._repeat(options.propose_mean_ms, self._propose)
        self._repeat(options.read_mean_ms, self._read)
        self._repeat(options.crash_mean_ms, self._crash)
        self._repeat(options.partition_mean_ms, self._partition)
        self._repeat(options.pause_mean_ms, self._pause)
        self._repeat(options.transfer_mean_ms, self._transfer)
        self._repeat(options.membership_mean_ms, self._change_voters)
        self._repeat(options.wipe_mean_ms, self._wipe)
        self._repeat(options.voter_move_mean_ms, self._move_voter)
        self._repeat(options.voter_wipe_mean_ms, self._wipe_voter)

    def stop(self) -> None:
        """Ends all requests and faults, and starts all replicas again."""
        self._is_running = False
        self._cluster.network.heal()
        for replica in self._cluster.replicas.values():
            replica.disk.is_faulty = False
            replica.resume()
            self._restart(replica)

    def propose_at(self, replica: Replica) -> None:
        """Proposes one to three entries."""
        number = next(self._requests)
        payloads = tuple(b"%d.%d" % (number, part) for part in range(self._rng.choice((1, 1, 1, 2, 3))))
        replica.step(Propose(request_id=number, payloads=payloads))

    def _repeat(self, mean_ms: int, action: Callable[[], None]) -> None:
        if mean_ms:
            self._world.after(self._interval_us(mean_ms), self._fire, mean_ms, action)

    def _fire(self, mean_ms: int, action: Callable[[], None]) -> None:
        if self._is_running:
            action()
            self._repeat(mean_ms, action)

    def _interval_us(self, mean_ms: int) -> int:
        return int(self._rng.expovariate(1 / (mean_ms * MS)))

    def _target(self) -> Replica:
        """Returns a replica that claims to be the leader, deposed ones included, or sometimes any replica."""
        leaders = self._cluster.leaders()
        if leaders and self._rng.random() >= self._options.stray_probability:
            return self._rng.choice(leaders)
        return self._rng.choice(list(self._cluster.replicas.values()))

    def _propose(self) -> None:
        self.propose_at(self._target())

    def _read(self) -> None:
        request_id = next(self._requests)
        self._cluster.on_read_asked(request_id)
        self._target().step(Read(request_id=request_id))

    def _transfer(self) -> None:
        target = self._rng.choice([None, *(replica.key for replica in self._cluster.replicas.values())])
        self._target().step(TransferLeadership(target=target))

    def _change_voters(self) -> None:
        """Adds a spare or removes a voter, according to the voters that the asked replica knows. While a voter's disk
        is lost, only this voter is removed, as an operator should do."""
        leader = self._target()
        if leader.node is None:
            return
        key = self._rng.choice(list(self._cluster.replicas.values())).key
        request_id = next(self._requests)
        lost = self._lost(leader.node.voters)
        if lost and (key in leader.node.voters or self._rng.random() < 0.5):
            self._remove_voter(leader, lost[0], request_id)
        elif key in leader.node.voters:
            self._remove_voter(leader, key, request_id)
        else:
            self._asked_to_add.add(key)
            leader.step(AddVoter(request_id=request_id, voter=voter(key)))

    def _remove_voter(self, leader: Replica, key: ReplicaKey, request_id: int) -> None:
        if leader.is_paused:
            self._asked_late_to_remove.add(key)
        leader.step(RemoveVoter(request_id=request_id, key=key))

    def _crash(self) -> None:
        self._world.event_count += 1
        replicas = list(self._cluster.replicas.values())
        leaders = self._cluster.leaders()
        if self._rng.random() < self._options.crash_all_probability:
            for replica in replicas:
                replica.crash()
        elif leaders and self._rng.random() < self._options.crash_leader_probability:
            self._rng.choice(leaders).crash()
        else:
            self._rng.choice(replicas).crash()

    def _pause(self) -> None:
        self._world.event_count += 1
        self._target().pause(self._interval_us(self._options.election_timeout_ms * 2))

    def _partition(self) -> None:
        """Cuts the nodes in two, or isolates one of them. The cut is in both directions or in one."""
        self._world.event_count += 1
        ids = list(self._cluster.replicas)
        self._rng.shuffle(ids)
        size = self._rng.choice((1, len(ids) // 2))
        links = [(a, b) for a in ids[:size] for b in ids[size:]]
        if self._rng.random() < self._options.one_way_probability:
            if self._rng.random() < 0.5:
                links = [(b, a) for a, b in links]
        else:
            links += [(b, a) for a, b in links]
        self._cluster.network.cut(links, self._interval_us(self._options.partition_mean_ms))

    def _wipe(self) -> None:
        """Replaces the disk of a replica that never was a voter and was not asked to become one. Replacing a voter's
        disk is another fault, which a quorum survives only for a minority."""
        self._world.event_count += 1
        replica = self._rng.choice(list(self._cluster.replicas.values()))
        ever_voters = {key for position in self._cluster.history.positions.values() for key in position.voters.keys}
        if replica.key not in ever_voters and replica.key not in self._asked_to_add:
            self._cluster.wipe(replica.key.node_id)

    def _move_voter(self) -> None:
        leader = self._target()
        if leader.node is None or not leader.node.voters:
            return
        key = self._rng.choice(leader.node.voters.keys)
        request_id = next(self._requests)
        moved = Voter(key, f"node-{key.node_id}:{request_id}")
        leader.step(UpdateVoter(request_id=request_id, voter=moved))

    def _wipe_voter(self) -> None:
        """Replaces the disk of a voter, if all the sets that are, or may come to be, in force keep a majority."""
        self._world.event_count += 1
        key = self._rng.choice(list(self._cluster.replicas.values())).key
        history = self._cluster.history
        sets = {
            position.voters
            for (end_index, _), position in history.positions.items()
            if end_index >= history.committed_end_index
        }
        if key in self._asked_to_add or not any(key in voters for voters in sets):
            return
        sets |= {voters.without(late) for voters in sets for late in self._asked_late_to_remove & set(voters.keys)}
        lost = {voters: {*self._lost(voters), key} & set(voters.keys) for voters in sets}
        if all(2 * len(lost[voters]) < len(voters) for voters in sets):
            self._cluster.wipe(key.node_id)

    def _lost(self, voters: VoterSet) -> list[ReplicaKey]:
        """Returns the voters whose directory is gone."""
        return [key for key in voters.keys if self._cluster.replicas[key.node_id].key != key]

    def _restart_later(self, replica: Replica) -> None:
        delay_us = self._interval_us(self._options.downtime_mean_ms) if self._is_running else 0
        self._world.after(delay_us, self._restart, replica)

    def _restart(self, replica: Replica) -> None:
        if replica.node is None and self._cluster.replicas[replica.key.node_id] is replica:
            self._world.event_count += 1
            replica.start()
