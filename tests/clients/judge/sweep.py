"""Asks both sides everything of one API, in every version that both speak."""

from __future__ import annotations

import re
from collections.abc import Mapping

from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.served_apis import SPOKEN
from tests.clients.judge import cases_cluster, cases_groups, cases_records, cases_topics, cases_transactions
from tests.clients.judge.differ import Found, differences
from tests.clients.judge.normal import Normaliser, Tree
from tests.clients.judge.side import Ask, Case, Cases, Side

CASES: Cases = {
    **cases_records.CASES,
    **cases_topics.CASES,
    **cases_groups.CASES,
    **cases_transactions.CASES,
    **cases_cluster.CASES,
}
Observed = Mapping[tuple[str, Found], list[int]]
"""(case, difference) -> versions it was seen in"""


def common_versions(ours: Side, kafka: Side) -> Mapping[ApiKey, range]:
    """Returns the versions that both sides announce. Klamm announces versions of Produce that it refuses, as Kafka
    does."""
    ranges = [_ranges(side) for side in (ours, kafka)]
    both = ranges[0].keys() & ranges[1].keys() & set(ApiKey)
    common = {}
    for number in sorted(both):
        api_key = ApiKey(number)
        first = max(SPOKEN[api_key].min, *(spoken[number][0] for spoken in ranges))
        common[api_key] = range(first, min(spoken[number][1] for spoken in ranges) + 1)
    return common


def _ranges(side: Side) -> Mapping[int, tuple[int, int]]:
    answer = side.ask(ApiKey.API_VERSIONS, 3, {"client_software_name": "sweep", "client_software_version": "1"})
    return {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in answer.api_keys}


def observe(ours: Side, kafka: Side, api_key: ApiKey, versions: range) -> Observed:
    """All differences."""
    names = {_name(api_key, 0, name) for name in CASES[api_key]}
    assert len(names) == len(CASES[api_key]), f"questions about {api_key.name} share a name"
    observed: dict[tuple[str, Found], list[int]] = {}
    for version in versions:
        for name, case in CASES[api_key].items():
            found = _ask_both(ours, kafka, api_key, version, name, case if isinstance(case, Case) else Case(case))
            for difference in dict.fromkeys(found):
                observed.setdefault((name, difference), []).append(version)
    return observed


def _ask_both(ours: Side, kafka: Side, api_key: ApiKey, version: int, name: str, case: Case) -> list[Found]:
    if not case.since <= version <= case.until:
        return []
    full_name = _name(api_key, version, name)
    return list(differences(*(_answer(side, api_key, version, full_name, case) for side in (ours, kafka))))


def _name(api_key: ApiKey, version: int, case: str) -> str:
    """Returns the name for the topics, groups and ids that are created for this question alone."""
    return re.sub("[^a-z0-9]+", "-", f"{api_key.name} {version} {case}".lower())


def _answer(side: Side, api_key: ApiKey, version: int, full_name: str, case: Case) -> Tree:
    fields = case.build(Ask(side, version, full_name))
    return Normaliser(side, api_key, full_name).tree(side.ask(api_key, version, fields))
