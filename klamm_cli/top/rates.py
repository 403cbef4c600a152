"""Computes the rates of topics, brokers and groups from two samples. Pure.

A number that went back (a topic was deleted and created again, retention cut a log, a broker restarted its counters)
has no rate for one sample: None for bytes, 0 for offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from klamm.model import TopicPartition
from klamm_cli.top.group_history import SILENT_S, GroupHistory
from klamm_cli.top.sample import Sample

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The content of one screen. Rates are per second. The topics with the most records and the groups with the most
    lag come first."""

    topics: list[dict[str, Any]]
    brokers: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    endpoints: list[dict[str, Any]]
    records_s: float
    interval_s: float
    health: str
    is_healthy: bool
    left_out: str

    def document(self) -> dict[str, Any]:
        """Returns the document that `--json` prints."""
        return {
            "interval_s": round(self.interval_s, 3),
            "records_s": round(self.records_s, 1),
            "topics": self.topics,
            "brokers": self.brokers,
            "groups": self.groups,
            "endpoints": self.endpoints,
            "health": self.health,
            "healthy": self.is_healthy,
            "left_out": self.left_out,
        }


TOPIC_COLUMNS = ("topic", "partitions", "records_s", "in_mib_s", "out_mib_s", "committed_s")
BROKER_COLUMNS = ("broker", "leaders", "records_s", "in_mib_s")
GROUP_COLUMNS = ("group", "state", "lag", "behind", "committed_s", "lag_s")
ENDPOINT_COLUMNS = ("endpoint", "requests_s", "in_mib_s", "out_mib_s")


def frame(before: Sample, after: Sample, *, limit: int, history: GroupHistory | None = None) -> Frame:
    """Returns the rates between two samples, with at most `limit` topics, brokers and groups.

    The rates of groups come from `history`. Without it, they are those between the two samples, and the lag has a rate
    only if the samples are so far apart that the commits in between do not matter."""
    interval_s = max(after.at_s - before.at_s, 1e-9)
    records = {tp: _grown(before.ends.get(tp), end) / interval_s for tp, end in after.ends.items()}
    log_bytes = {tp: rate for tp in after.log_bytes if (rate := _bytes_s(before, after, tp, interval_s)) is not None}
    topics = _topics(before, after, records, log_bytes, interval_s)
    groups = [_group(name, before, after, interval_s, history) for name in after.groups]
    return Frame(
        topics=sorted(topics, key=lambda row: (-row["records_s"], row["topic"]))[:limit],
        brokers=sorted(_brokers(after, records, log_bytes), key=lambda row: row["broker"])[:limit],
        groups=sorted(groups, key=lambda row: (-row["lag"], row["group"]))[:limit],
        endpoints=[_endpoint(name, before, after, interval_s) for name in sorted(after.metrics)],
        records_s=sum(records.values()),
        interval_s=interval_s,
        health=after.health,
        is_healthy=after.is_healthy,
        left_out=after.left_out,
    )


def _grown(before: float | None, after: float) -> float:
    return 0 if before is None else max(0, after - before)


def _bytes_s(before: Sample, after: Sample, tp: TopicPartition, interval_s: float) -> float | None:
    """Returns how fast a log grows, in bytes per second. Returns None if its leader changed, or if retention has cut
    the log."""
    was, now = before.log_bytes.get(tp), after.log_bytes[tp]
    if was is None or now < was or before.leaders.get(tp) != after.leaders.get(tp):
        return None
    return (now - was) / interval_s


def _topics(
    before: Sample,
    after: Sample,
    records: Mapping[TopicPartition, float],
    log_bytes: Mapping[TopicPartition, float],
    interval_s: float,
) -> list[dict[str, Any]]:
    by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for tp in after.ends:
        by_topic[tp.topic].append(tp)
    committed = _committed(before, after, interval_s)
    return [
        {
            "topic": name,
            "partitions": len(tps),
            "records_s": round(sum(records[tp] for tp in tps), 1),
            "in_mib_s": _mib(_counted("bytes_in", name, before, after, interval_s), _sum(log_bytes, tps)),
            "out_mib_s": _mib(_counted("bytes_out", name, before, after, interval_s)),
            "committed_s": round(committed[name], 1),
        }
        for name, tps in by_topic.items()
    ]


def _sum(rates: Mapping[TopicPartition, float], tps: Iterable[TopicPartition]) -> float | None:
    known = [rates[tp] for tp in tps if tp in rates]
    return sum(known) if known else None


def _committed(before: Sample, after: Sample, interval_s: float) -> Mapping[str, float]:
    """Returns the number of records per second that all groups together committed, by topic."""
    rates: defaultdict[str, float] = defaultdict(float)
    for name, group in after.groups.items():
        was = before.groups.get(name)
        for tp, offset in group.committed.items():
            rates[tp.topic] += _grown(was.committed.get(tp) if was else None, offset) / interval_s
    return rates


def _counted(kind: str, topic: str, before: Sample, after: Sample, interval_s: float) -> float | None:
    """Returns the topic's rate by the counters of all metrics endpoints, in bytes per second. Returns None if no
    endpoint counted the topic both before and after."""
    rates = []
    for endpoint, counters in after.metrics.items():
        was = before.metrics.get(endpoint)
        now = getattr(counters, kind).get(topic)
        then = getattr(was, kind).get(topic) if was else None
        if now is not None and then is not None and now >= then:
            rates.append((now - then) / interval_s)
    return sum(rates) if rates else None


def _mib(*candidates: float | None) -> float | None:
    """Returns the first candidate that is not None, converted from bytes to MiB."""
    return next((round(candidate / _MIB, 3) for candidate in candidates if candidate is not None), None)


def _brokers(
    after: Sample, records: Mapping[TopicPartition, float], log_bytes: Mapping[TopicPartition, float]
) -> list[dict[str, Any]]:
    led: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for tp in after.ends:
        if (leader := after.leaders.get(tp, -1)) >= 0:
            led[leader].append(tp)
    return [
        {
            "broker": broker_id,
            "leaders": len(tps),
            "records_s": round(sum(records[tp] for tp in tps), 1),
            "in_mib_s": _mib(_sum(log_bytes, tps)),
        }
        for broker_id, tps in led.items()
    ]


def _group(name: str, before: Sample, after: Sample, interval_s: float, history: GroupHistory | None) -> dict[str, Any]:
    committed_s, lag_s = _group_rates(name, before, after, interval_s) if history is None else _known(history, name)
    return {
        "group": name,
        "state": after.groups[name].state,
        "lag": after.groups[name].lag,
        "behind_ms": after.groups[name].behind_ms,
        "committed_s": None if committed_s is None else round(committed_s, 1),
        "lag_s": None if lag_s is None else round(lag_s, 1),
    }


def _known(history: GroupHistory, name: str) -> tuple[float | None, float | None]:
    return history.rates(name) or (None, None)


def _group_rates(name: str, before: Sample, after: Sample, interval_s: float) -> tuple[float | None, float | None]:
    now, was = after.groups[name], before.groups.get(name)
    committed = sum(_grown(was.committed.get(tp) if was else None, offset) for tp, offset in now.committed.items())
    if was is None or interval_s < SILENT_S:
        return committed / interval_s, None
    return committed / interval_s, (now.lag - was.lag) / interval_s


def _endpoint(name: str, before: Sample, after: Sample, interval_s: float) -> dict[str, Any]:
    now, was = after.metrics[name], before.metrics.get(name)

    def rate(kind: str) -> float | None:
        if was is None:
            return None
        total, then = sum(getattr(now, kind).values()), sum(getattr(was, kind).values())
        return _mib((total - then) / interval_s) if total >= then else None

    requests = None if was is None or now.requests < was.requests else (now.requests - was.requests) / interval_s
    return {
        "endpoint": name,
        "requests_s": None if requests is None else round(requests, 1),
        "in_mib_s": rate("bytes_in"),
        "out_mib_s": rate("bytes_out"),
    }
