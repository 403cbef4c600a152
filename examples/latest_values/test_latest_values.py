import pathlib
import sqlite3

from latest_values import Capture, LatestValues

from klamm.testing import EmbeddedCluster


def test_the_topic_has_the_latest_value_of_each_row(
    klamm_cluster: EmbeddedCluster, klamm_topic: str, tmp_path: pathlib.Path
) -> None:
    servers, database, topic = klamm_cluster.bootstrap_servers, str(tmp_path / "shop.db"), f"{klamm_topic}-changes"
    shop = sqlite3.connect(database)
    shop.executescript("CREATE TABLE customers (id INTEGER PRIMARY KEY, name, city);")
    capture = Capture(servers, database, "customers", topic)
    with shop:
        shop.execute("INSERT INTO customers VALUES (1, 'Ada', 'London'), (2, 'Emmy', 'Erlangen'), (3, 'Kurt', 'Brno')")
        shop.execute("UPDATE customers SET city = 'Princeton' WHERE id = 3")
    assert capture.step() == 4
    capture.close()
    with shop:
        shop.execute("UPDATE customers SET city = 'Bryn Mawr' WHERE id = 2")
        shop.execute("DELETE FROM customers WHERE id = 1")
    capture = Capture(servers, database, "customers", topic)
    assert capture.step() == 2
    assert capture.step() == 0
    capture.close()
    shop.close()
    latest = LatestValues(servers, topic)
    latest.catch_up()
    assert latest.rows == {
        "2": {"id": 2, "name": "Emmy", "city": "Bryn Mawr"},
        "3": {"id": 3, "name": "Kurt", "city": "Princeton"},
    }
    latest.close()
