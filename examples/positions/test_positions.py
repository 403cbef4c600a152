import pytest
from positions import Keeper, Position, create_topics, send_fill

from klamm import Producer
from klamm.testing import EmbeddedCluster


@pytest.mark.parametrize(
    ("fills", "position"),
    [
        ([(100, 10.0), (100, 20.0)], Position(200, 15.0)),
        ([(100, 10.0), (-40, 30.0)], Position(60, 10.0)),
        ([(100, 10.0), (-150, 30.0)], Position(-50, 30.0)),
    ],
)
def test_a_position_follows_its_fills(fills: list[tuple[int, float]], position: Position) -> None:
    kept = Position()
    for fill in fills:
        kept.apply(*fill)
    assert kept == position


def test_each_fill_counts_once_over_a_restart_of_the_keeper(
    klamm_cluster: EmbeddedCluster, klamm_topic: str, klamm_producer: Producer
) -> None:
    servers = klamm_cluster.bootstrap_servers
    topics = f"{klamm_topic}-fills", f"{klamm_topic}-positions"
    create_topics(servers, *topics)
    expected: dict[bytes, Position] = {}
    for part in range(3):
        for number in range(20):
            account, quantity, price = f"account-{number % 4}", 10 * (number + 1), 100.0 + number
            send_fill(klamm_producer, account, "KLM", quantity, price, topics[0])
            expected.setdefault(f"{account}/KLM".encode(), Position()).apply(quantity, price)
        klamm_producer.flush()
        keeper, applied = Keeper(servers, *topics), 0
        while applied < 20:
            applied += keeper.step()
        assert applied == 20, f"part {part}"
        assert keeper.positions == expected
        keeper.close()
