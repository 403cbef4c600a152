"""Tests that waiting threads ask again when they are woken, and only then."""

from __future__ import annotations

import contextlib
import threading

from klamm.threads import waiting_threads
from klamm.threads.waiting_threads import WaitingThreads
from tests.support.interrupts import interrupted_everywhere
from tests.support.waiting import patience


def test_a_waiting_thread_asks_at_once_and_after_each_wake_up() -> None:
    waiting = WaitingThreads()
    asked: list[int] = []

    def ask() -> str | None:
        asked.append(len(asked))
        if len(asked) < 3:
            threading.Thread(target=waiting.wake_all).start()
            return None
        return "answer"

    assert waiting.wait_for(ask, patience()) == "answer"
    assert asked == [0, 1, 2]


def test_a_wait_without_an_answer_ends_after_its_timeout() -> None:
    asked: list[None] = []
    assert WaitingThreads().wait_for(lambda: asked.append(None), 0) is None
    assert len(asked) == 1


def test_a_timeout_that_has_passed_already_asks_once() -> None:
    assert WaitingThreads().wait_for(lambda: "answer", -1) == "answer"
    assert WaitingThreads().wait_for(lambda: None, -1) is None


def test_an_interrupt_at_any_instruction_of_a_wait_leaves_no_waiting_thread() -> None:
    waiting = WaitingThreads()

    def run() -> None:
        asked: list[None] = []

        def ask() -> str | None:
            asked.append(None)
            waiting.wake_all()
            return "answer" if len(asked) > 1 else None

        assert waiting.wait_for(ask, patience()) == "answer"

    def check() -> None:
        assert not waiting._wake_ups

    assert interrupted_everywhere(run, waiting_threads, threading, contextlib, check=check, is_signal=True) > 5
