import subprocess
import sys
from collections import Counter

import word_count
from word_count import WordCount

from klamm import Admin, NewTopic, Producer
from klamm.testing import EmbeddedCluster

LINES = 300


def test_every_word_counts_once_though_the_counter_is_killed(
    klamm_cluster: EmbeddedCluster, klamm_admin: Admin, klamm_topic: str, klamm_producer: Producer
) -> None:
    target = f"{klamm_topic}-counts"
    klamm_admin.create_topics([NewTopic(target, partition_count=1)])
    lines = [b"the quick fox and the lazy dog %d" % (number % 7) for number in range(LINES)]
    for line in lines[: LINES // 2]:
        klamm_producer.send(klamm_topic, line)
    klamm_producer.flush()
    arguments = [klamm_cluster.bootstrap_servers, klamm_topic, target]
    killed = subprocess.Popen([sys.executable, word_count.__file__, *arguments])
    for line in lines[LINES // 2 :]:
        klamm_producer.send(klamm_topic, line).result(60)
    killed.kill()
    killed.wait()
    counter = WordCount(*arguments)
    expected = Counter(word for line in lines for word in line.split())
    while counter.counts != expected:
        counter.step()
        assert counter.counts <= expected, "a word counted twice"
    counter.close()
