"""Reads the counters that `klamm top` needs from a broker's `/metrics`, in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

import http.client
import re
from typing import Final

from klamm.errors import ConfigError
from klamm_cli.top.sample import Counters

TEXT_BYTES_MAX: Final = 64 * 1024 * 1024
_LINE: Final = re.compile(r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_TOPIC: Final = re.compile(r'topic="([^"]*)"')
_BYTES_IN: Final = "klamm_broker_in_bytes_total"
_BYTES_OUT: Final = "klamm_broker_out_bytes_total"
_REQUESTS: Final = ("klamm_broker_requests_total", "klamm_broker_kafka_requests_total")


def parse_metrics(text: str) -> Counters:
    """Returns the counters of a broker. Skips other metrics and lines that do not parse. Pure."""
    bytes_in: dict[str, float] = {}
    bytes_out: dict[str, float] = {}
    requests = 0.0
    for line in text.splitlines():
        if not line.startswith("klamm_broker_") or (found := _LINE.match(line)) is None:
            continue
        name, topic = found["name"], _TOPIC.search(found["labels"] or "")
        if name in _REQUESTS:
            requests += float(found["value"])
        elif topic is not None and name in (_BYTES_IN, _BYTES_OUT):
            (bytes_in if name == _BYTES_IN else bytes_out)[topic[1]] = float(found["value"])
    return Counters(bytes_in=bytes_in, bytes_out=bytes_out, requests=requests)


def parse_endpoint(text: str) -> tuple[str, int]:
    """Returns the host and the port of a text such as `host:port`. Raises ConfigError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"--metrics {text!r}: expected host:port")
    return host.strip("[]"), int(port)


def read_metrics(host: str, port: int, timeout_s: float) -> Counters:
    """Returns the counters from a broker's metrics endpoint. Raises OSError or http.client.HTTPException."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"status {response.status}")
        return parse_metrics(response.read(TEXT_BYTES_MAX).decode("utf-8", "replace"))
    finally:
        connection.close()
