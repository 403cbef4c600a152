"""Tests each row of `klamm_server.security.operations` with one right at a time: every Kafka API, and every RPC of
every server.

With all rights but the one that a call needs, the call is refused with the error of the row. The right alone opens it.
Any other right leaves it shut, unless it implies the needed one. So a handler that asks for a wrong operation fails,
and so does a row that says something else than its handler. `single_rights.py` says which sets of rights are tried.

The client has no name, and its address has the rights. A server passes on its calls over gRPC, so that the
coordinator and the controller know the address of each call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from klamm.acls import ANONYMOUS
from klamm.wire.v1.coordinator_pb2 import LedgerName, RegisterRunRequest
from klamm_broker.kafka import api, served_apis
from klamm_broker.kafka.api import ApiKey
from klamm_server.security.operations import Check, check_of_rpc
from tests.support.canary_cluster import CANARY
from tests.support.coordinator_cluster import cluster
from tests.support.every_rpc import Caller, every_rpc
from tests.support.kafka_rights import KafkaThings, ask, kafka_cases
from tests.support.kafka_wire import KafkaWire
from tests.support.rpc_rights import NOT_SERVED, call, rpc_cases, server_of
from tests.support.single_rights import (
    OPENED,
    SERVERS,
    Addresses,
    Case,
    Rights,
    RightsByAddress,
    needs_of,
    sets_of,
    unasked,
    unlike,
)

APIS: Final = [api_key.name for api_key in served_apis.SPOKEN]
PATHS: Final = [rpc.path for rpc in every_rpc()]
OF_A_LOGIN: Final = {path for path in PATHS if path.startswith("/klamm.v1.Authentication/")}
"""The RPCs of a login. A listener without logins does not serve them."""
SILENT_MEMBERS_STAY: Final = {
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
}


class Asked(NamedTuple):
    """All cases, and the outcomes that differ from their rows."""

    cases: Mapping[str, list[Case]]
    """The cases by call."""
    wrong: Mapping[str, list[str]]
    """Lines for people, by call."""


class Endpoints:
    """The addresses of the servers of a cluster: the broker's Kafka listener, and the gRPC listeners of all."""

    def __init__(self, bootstrap: str, grpc: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self._grpc = grpc

    @contextlib.contextmanager
    def callers(self) -> Iterator[dict[str, Caller]]:
        with contextlib.ExitStack() as stack:
            yield {kind: stack.enter_context(Caller(address, None)) for kind, address in self._grpc.items()}


def ask_everything(endpoints: Endpoints, authorizer: RightsByAddress) -> Asked:
    with KafkaWire(endpoints.bootstrap) as servers_wire, endpoints.callers() as callers:
        things = KafkaThings(servers_wire)
        register_run(callers["coordinator"])
        cases = [*kafka_cases(things), *rpc_cases(things)]
        sets = {str(case): sets_of(case) for case in cases}
        assert len(sets) == len(cases), "two cases have the same name"
        addresses = Addresses(rights for each in sets.values() for rights in each)
        authorizer.give(addresses.bindings(ANONYMOUS))
        wrong: defaultdict[str, list[str]] = defaultdict(list)
        for rights, host in addresses:
            tried = [case for case in cases if rights in sets[str(case)]]
            for case, outcome in outcomes(endpoints, callers, tried, host):
                if (line := unlike(case, rights, outcome)) is not None:
                    wrong[case.call].append(line)
    by_call: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_call[case.call].append(case)
    return Asked(by_call, wrong)


def outcomes(
    endpoints: Endpoints, callers: Mapping[str, Caller], cases: Iterable[Case], host: str
) -> Iterator[tuple[Case, str]]:
    """Yields the outcome of each case for the client at `host`."""
    with KafkaWire(endpoints.bootstrap, source=host) as wire:
        for case in cases:
            if case.call in OF_A_LOGIN:
                outcome = call(callers["broker"], case, host)
                yield case, OPENED if outcome == NOT_SERVED else outcome
                continue
            is_rpc = case.call.startswith("/")
            outcome = call(callers[server_of(case.call)], case, host) if is_rpc else ask(wire, case)
            yield case, outcome
            if outcome == OPENED and case.renew is not None:
                case.renew()


def register_run(caller: Caller) -> None:
    """Creates the batch ledger that ListLedgers shows."""
    (rpc,) = [rpc for rpc in every_rpc() if rpc.path == "/klamm.v1.Coordinator/RegisterRun"]
    request = RegisterRunRequest(ledger=LedgerName(sink=CANARY, query_id=CANARY), run_id=CANARY)
    answer = caller.call(rpc, request.SerializeToString())
    assert not answer.ListFields(), answer


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    authorizer = RightsByAddress()

    async def run(directory: Path) -> Asked:
        async with cluster(directory, authorizer=authorizer, of_all=True, **SILENT_MEMBERS_STAY) as running:
            image = running.broker.server._replicas.image
            (port,) = {listener.port for listener in image.brokers[1].listeners if listener.name == "PLAINTEXT"}
            servers = {
                "broker": running.broker,
                "controller": running.controller,
                "coordinator": running.coordinators[1],
            }
            grpc = {kind: f"{SERVERS}:{server.port}" for kind, server in servers.items()}
            endpoints = Endpoints(f"{SERVERS}:{port}", grpc)
            return await asyncio.to_thread(ask_everything, endpoints, authorizer)

    return asyncio.run(run(tmp_path_factory.mktemp("rights")))


@pytest.mark.parametrize("name", APIS)
def test_a_kafka_api_opens_with_the_rights_of_its_row_and_no_others(asked: Asked, name: str) -> None:
    check(asked, name, api.APIS[ApiKey[name]].check)


@pytest.mark.parametrize("path", PATHS)
def test_an_rpc_opens_with_the_rights_of_its_row_and_no_others(asked: Asked, path: str) -> None:
    check(asked, path, check_of_rpc(path))


def check(asked: Asked, name: str, row: Check) -> None:
    assert asked.cases.get(name), f"{name} has no request in tests/support/kafka_rights.py or rpc_rights.py"
    assert unasked(row, asked.cases[name]) == [], f"no request of {name} has these needs of its row"
    assert not asked.wrong.get(name), "\n".join(asked.wrong[name])


def test_every_case_is_of_a_call_that_is_served(asked: Asked) -> None:
    assert set(asked.cases) == {*APIS, *PATHS}


def test_every_set_of_rights_has_an_address_of_its_own() -> None:
    sets = [
        frozenset[Rights](),
        *sets_of(Case("", "", needs_of(api.APIS[ApiKey.TXN_OFFSET_COMMIT].check), str)),
    ]
    hosts = [host for _, host in Addresses(sets)]
    assert len(set(hosts)) == len(hosts) == len(set(sets))
