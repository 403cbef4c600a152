"""Finds present and coming problems of a cluster that answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from klamm_cli.doctor.durability import BROKERS_FOR_COPIES, UNCLEAN, check_durability
from klamm_cli.doctor.finding import Finding, ok, problem, warning
from klamm_cli.status.facts import ClusterFacts
from klamm_cli.status.problems import name_some, problems

Settings = Mapping[int, Mapping[str, str]]
"""The settings of each broker, by broker id: the value as text, by the setting's name."""

COMPARED: Final = ("message.max.bytes", "auto.create.topics.enable", "log.retention.ms", "log.segment.bytes")
"""Settings that should be equal on all brokers, because the leader's value applies. The settings of durability are
compared, too."""
_INTERNAL: Final = {
    "__consumer_offsets": "committed offsets of all groups",
    "__transaction_state": "all transactions",
    "__klamm_audit": "who did what",
}


def check_cluster(facts: ClusterFacts, settings: Settings, data_dirs: Mapping[str, str]) -> list[Finding]:
    """Returns the findings about a cluster. `data_dirs` has the cluster id in each data directory that was checked, by
    path."""
    found = [problem("cluster", cluster_problem.text, cluster_problem.advice) for cluster_problem in problems(facts)]
    if not found:
        servers = len(facts.cluster.brokers) + len(facts.cluster.coordinators) + len(facts.cluster.controllers)
        found.append(ok("cluster", f"{facts.cluster.cluster_id} is healthy: {servers} servers"))
    return [
        *found,
        *_check_data_dirs(facts.cluster.cluster_id, data_dirs),
        *_check_settings(settings, len(facts.cluster.brokers)),
        *_check_copies(facts),
        *_check_unclean(facts),
    ]


def _check_data_dirs(cluster_id: str, data_dirs: Mapping[str, str]) -> Iterator[Finding]:
    for path, found in data_dirs.items():
        if found != cluster_id:
            yield problem(
                "data directory",
                f"{path} is of cluster {found}; the one that answers is {cluster_id}",
                "name the other one's servers with --bootstrap-servers, or this one's directory",
            )


def _check_settings(settings: Settings, brokers: int) -> Iterator[Finding]:
    differing: set[str] = set()
    for name in sorted({name for setting in settings.values() for name in setting}):
        values = {broker_id: setting[name] for broker_id, setting in settings.items() if name in setting}
        if len(set(values.values())) > 1:
            differing.add(name)
            listed = ", ".join(f"{value} on broker {broker_id}" for broker_id, value in sorted(values.items()))
            yield warning(
                "settings",
                f"{name} differs: {listed}",
                "what happens depends on which broker leads: set it once with `klamm configs`, or alike in all files",
            )
    # Fenced brokers may return, so the checks count all brokers.
    for broker_id, setting in sorted(settings.items())[:1]:
        alike = {name: value for name, value in setting.items() if name not in differing}
        yield from check_durability("settings", _where(settings, broker_id), alike, brokers)


def _where(settings: Settings, broker_id: int) -> str:
    return f"broker {broker_id}" if len(settings) == 1 else "all brokers"


def _check_copies(facts: ClusterFacts) -> Iterator[Finding]:
    brokers = len(facts.cluster.brokers)
    if brokers < BROKERS_FOR_COPIES or facts.topics is None:
        return
    for name, what in _INTERNAL.items():
        topic = facts.topics.get(name)
        copies = min((len(partition.replicas) for partition in topic.partitions), default=0) if topic else 0
        if 0 < copies < BROKERS_FOR_COPIES:
            yield warning(
                "copies",
                f"{name} has {copies} of {BROKERS_FOR_COPIES} copies in a cluster of {brokers} brokers: {what} go"
                " with them",
                f"`klamm reassign generate {name} --replication-factor {BROKERS_FOR_COPIES}`, then execute",
            )
    single = sorted(
        name
        for name, topic in facts.topics.items()
        if not topic.internal and any(len(partition.replicas) == 1 for partition in topic.partitions)
    )
    if single:
        yield warning(
            "copies",
            f"topics with one copy in a cluster of {brokers} brokers: {name_some(single)}",
            "give those that matter more replicas with `klamm reassign`",
        )


def _check_unclean(facts: ClusterFacts) -> Iterator[Finding]:
    topics: Iterable[str] = sorted(facts.unclean)
    if topics:
        yield warning(
            "unclean elections",
            f"{UNCLEAN}=true, so that acknowledged records may be lost: {name_some(list(topics))}",
            f"delete or set {UNCLEAN} with `klamm configs` where that is not wanted",
        )
