"""Finds settings with which records are lost or refused when a broker fails. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from klamm_cli.doctor.finding import Finding, problem, warning

MIN_ISR: Final = "min.insync.replicas"
FACTOR: Final = "default.replication.factor"
UNCLEAN: Final = "unclean.leader.election.enable"
OFFSETS_FACTOR: Final = "offsets.topic.replication.factor"
TRANSACTIONS_FACTOR: Final = "transaction.state.log.replication.factor"
SETTINGS: Final = (MIN_ISR, FACTOR, UNCLEAN)
BROKERS_FOR_COPIES: Final = 3
"""A cluster with at least this many brokers can keep several copies of a partition, so a topic with one copy gets a
warning."""


def check_durability(check: str, where: str, settings: Mapping[str, str], brokers: int | None) -> Iterator[Finding]:
    """Yields the findings about `settings`, which are texts by name. Settings that are missing are not checked.
    `brokers` is the number of brokers, or None if it is not known."""
    factor, min_isr = _number(settings.get(FACTOR)), _number(settings.get(MIN_ISR))
    if factor is not None and min_isr is not None:
        yield from _check_min_isr(check, where, factor, min_isr, brokers)
    if factor is not None and brokers is not None:
        yield from _check_factor(check, where, factor, brokers)
    if settings.get(UNCLEAN, "").lower() == "true":
        yield warning(
            check,
            f"{where}: {UNCLEAN}=true: a replica that lags may lead, and acknowledged records are lost",
            f"set {UNCLEAN}=false; elect such a leader by hand when nothing else is left",
        )


def _check_min_isr(check: str, where: str, factor: int, min_isr: int, brokers: int | None) -> Iterator[Finding]:
    settings = f"{where}: {MIN_ISR}={min_isr}, {FACTOR}={factor}"
    if min_isr > factor:
        yield problem(
            check, f"{settings}: new topics refuse every record with acks=all", f"set {MIN_ISR} below {FACTOR}"
        )
    elif min_isr == factor > 1:
        yield warning(
            check,
            f"{settings}: new topics refuse records with acks=all while any one broker is down",
            f"set {MIN_ISR}={factor - 1}",
        )
    elif min_isr == 1 and factor >= BROKERS_FOR_COPIES:
        yield warning(
            check,
            f"{settings}: a record may be acknowledged when its leader alone has it",
            f"set {MIN_ISR}={factor - 1}",
        )


def _check_factor(check: str, where: str, factor: int, brokers: int) -> Iterator[Finding]:
    if factor > brokers:
        yield problem(
            check,
            f"{where}: {FACTOR}={factor}, and there are {brokers} brokers: topics cannot be created with the default",
            f"start brokers, or set {FACTOR}={brokers}",
        )
    elif factor == 1 and brokers >= BROKERS_FOR_COPIES:
        yield warning(
            check,
            f"{where}: {FACTOR}=1 in a cluster of {brokers} brokers: new topics have one copy",
            f"set {FACTOR}={BROKERS_FOR_COPIES} and {MIN_ISR}={BROKERS_FOR_COPIES - 1}",
        )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None
