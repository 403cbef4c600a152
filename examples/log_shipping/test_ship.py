import pathlib

from ship import Shipper

from klamm import Consumer
from klamm.testing import EmbeddedCluster


def test_each_line_is_shipped_once_over_restarts_and_a_rotation(
    klamm_cluster: EmbeddedCluster, klamm_topic: str, klamm_consumer: Consumer, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "app.log"
    expected: list[bytes] = []

    def ship(text: bytes, lines: list[bytes]) -> None:
        with file.open("ab") as log:
            log.write(text)
        expected.extend(lines)
        shipper = Shipper(klamm_cluster.bootstrap_servers, klamm_topic, [file])
        assert shipper.step() == len(lines)
        assert shipper.step() == 0
        shipper.close()

    ship(b"one\ntwo\nthr", [b"one", b"two"])
    ship(b"ee\n\nfive\n", [b"three", b"", b"five"])
    file.unlink()
    ship(b"six\n", [b"six"])
    seen: list[bytes | None] = []
    while len(seen) < len(expected):
        for records in klamm_consumer.poll(1_000).values():
            seen += [record.value for record in records]
    assert seen == expected
