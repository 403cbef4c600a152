"""Tests that the checker of histories accepts what is possible, and finds planted violations."""

from __future__ import annotations

import itertools
import random

import pytest

from klamm.errors import ErrorCode
from tests.chaos.klammchaos.topic_model import (
    Answer,
    Call,
    Create,
    Delete,
    Grow,
    ReadConfig,
    ReadTopic,
    SetConfig,
    State,
    Topic,
    TopicModel,
)
from tests.support import linearizability, seeds
from tests.support.linearizability import (
    IMPOSSIBLE,
    NEVER,
    NotLinearizableError,
    Operation,
    TooComplexError,
    check_linearizable,
)

ABSENT = Answer(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
DONE = Answer()
EXISTS = Answer(code=ErrorCode.TOPIC_ALREADY_EXISTS)


def op(begin_s: float, end_s: float, call: Call, result: Answer | None) -> Operation:
    return Operation(client="c", call=call, result=result, invoked_s=begin_s, returned_s=end_s)


def unknown(begin_s: float, call: Call) -> Operation:
    return op(begin_s, NEVER, call, None)


def created(topic_id: str) -> Answer:
    return Answer(topic_id=topic_id)


def seen(topic_id: str, partition_count: int = 1) -> Answer:
    return Answer(topic_id=topic_id, partition_count=partition_count)


def config(value: str | None) -> Answer:
    return Answer(config=value)


def check(*history: Operation) -> None:
    check_linearizable("topic", history, TopicModel(history))


CREATED = op(0, 1, Create(1), created("a"))

EXPLICABLE = {
    "nothing happened": (),
    "one after the other": (
        CREATED,
        op(2, 3, SetConfig("1"), DONE),
        op(4, 5, ReadConfig(), config("1")),
        op(6, 7, Grow(3), DONE),
        op(8, 9, ReadTopic(), seen("a", 3)),
        op(10, 11, Grow(3), Answer(code=ErrorCode.INVALID_PARTITIONS)),
        op(12, 13, Delete(), DONE),
        op(14, 15, ReadTopic(), ABSENT),
    ),
    "a read at the same time sees what was before": (
        CREATED,
        op(2, 9, Delete(), DONE),
        op(3, 4, ReadTopic(), seen("a")),
    ),
    "a read at the same time sees what comes": (CREATED, op(2, 9, Delete(), DONE), op(3, 4, ReadTopic(), ABSENT)),
    "of two at once one wins, the later one": (
        op(0, 5, Create(1), EXISTS),
        op(1, 4, Create(2), created("b")),
        op(6, 7, ReadTopic(), seen("b", 2)),
    ),
    "the unknown happened": (unknown(0, Create(2)), op(1, 2, ReadTopic(), seen("x", 2))),
    "the unknown happened much later": (
        unknown(0, Create(2)),
        op(1, 2, ReadTopic(), ABSENT),
        op(3, 4, ReadTopic(), ABSENT),
        op(5, 6, ReadTopic(), seen("x", 2)),
    ),
    "the unknown never happened": (CREATED, unknown(2, Delete()), op(3, 4, ReadTopic(), seen("a"))),
    "an unknown one between two creations": (
        CREATED,
        unknown(2, Delete()),
        op(3, 4, Create(2), created("b")),
        op(5, 6, ReadTopic(), seen("b", 2)),
    ),
    "a deletion takes the config with it": (
        op(0, 1, Create(1), created("a")),
        op(2, 3, SetConfig("1"), DONE),
        op(4, 5, Delete(), DONE),
        op(6, 7, Create(1), created("b")),
        op(8, 9, ReadConfig(), config(None)),
    ),
}

VIOLATIONS = {
    "lost write": (CREATED, op(2, 3, ReadTopic(), ABSENT)),
    "lost write, noticed late": (
        CREATED,
        op(2, 3, SetConfig("1"), DONE),
        op(4, 5, ReadConfig(), config("1")),
        op(6, 7, ReadConfig(), config(None)),
    ),
    "stale read": (
        CREATED,
        op(2, 3, SetConfig("1"), DONE),
        op(4, 5, SetConfig("2"), DONE),
        op(6, 7, ReadConfig(), config("1")),
    ),
    "stale read of a partition count": (CREATED, op(2, 3, Grow(4), DONE), op(4, 5, ReadTopic(), seen("a", 1))),
    "resurrected topic": (CREATED, op(2, 3, Delete(), DONE), op(4, 5, ReadTopic(), seen("a"))),
    "resurrected topic, though another creation may have happened": (
        CREATED,
        op(2, 3, Delete(), DONE),
        unknown(4, Create(1)),
        op(5, 6, ReadTopic(), seen("a")),
    ),
    "created twice": (CREATED, op(2, 3, Create(1), created("b"))),
    "deleted twice": (CREATED, op(2, 6, Delete(), DONE), op(3, 7, Delete(), DONE)),
    "one creation, two ids": (CREATED, op(2, 3, ReadTopic(), seen("b"))),
    "an unknown creation, two ids": (
        unknown(0, Create(1)),
        op(1, 2, ReadTopic(), seen("x")),
        op(3, 4, ReadTopic(), seen("y")),
    ),
    "a value that nobody wrote": (CREATED, op(2, 3, ReadConfig(), config("9"))),
    "there before it was asked for": (op(0, 1, ReadTopic(), seen("a")), op(2, 3, Create(1), created("a"))),
    "an unknown one that came and went": (
        CREATED,
        unknown(2, SetConfig("1")),
        op(3, 4, ReadConfig(), config("1")),
        op(5, 6, ReadConfig(), config(None)),
    ),
    "two reads at once, one after the other went back": (
        CREATED,
        op(2, 9, SetConfig("1"), DONE),
        op(3, 4, ReadConfig(), config("1")),
        op(5, 6, ReadConfig(), config(None)),
    ),
    "refused for no reason": (CREATED, op(2, 3, Delete(), DONE), op(4, 5, Create(1), EXISTS)),
    "a config outlived its topic": (
        CREATED,
        op(2, 3, SetConfig("1"), DONE),
        op(4, 5, Delete(), DONE),
        op(6, 7, Create(1), created("b")),
        op(8, 9, ReadConfig(), config("1")),
    ),
}


@pytest.mark.parametrize("name", EXPLICABLE)
def test_a_linearizable_history_is_accepted(name: str) -> None:
    check(*EXPLICABLE[name])


@pytest.mark.parametrize("name", VIOLATIONS)
def test_planted_violations_are_found(name: str) -> None:
    with pytest.raises(NotLinearizableError, match="nothing explains"):
        check(*VIOLATIONS[name])


def test_the_error_names_the_operation_that_nothing_explains() -> None:
    with pytest.raises(NotLinearizableError, match=r"topic: nothing explains 4.0000-5.0000 c: ReadTopic\(\)"):
        check(*VIOLATIONS["resurrected topic"])


def test_a_history_with_a_hundred_unknown_operations_can_be_checked() -> None:
    lost = [unknown(number, SetConfig(str(number))) for number in range(100)]
    check(CREATED, *lost, op(200, 201, ReadConfig(), config("57")), op(202, 203, ReadConfig(), config("99")))
    with pytest.raises(NotLinearizableError):
        check(CREATED, *lost, op(200, 201, ReadConfig(), config("100")))


def test_a_history_that_is_too_complex_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "CONFIGURATIONS_MAX", 10)
    at_once = [op(0, 100, SetConfig(str(number)), DONE) for number in range(5)]
    with pytest.raises(TooComplexError):
        check(op(-2, -1, Create(1), created("a")), *at_once)


def explains(history: tuple[Operation, ...], model: TopicModel) -> bool:
    """Returns whether some order of the operations explains the history. Tries every order, which is slow, but too
    simple to be wrong."""
    unknowns = [each for each in history if each.result is None]
    known = [each for each in history if each.result is not None]
    return any(
        _is_order(order, model)
        for count in range(len(unknowns) + 1)
        for happened in itertools.combinations(unknowns, count)
        for order in itertools.permutations([*known, *happened])
    )


def _is_order(order: tuple[Operation, ...], model: TopicModel) -> bool:
    state: State | object = model.initial
    latest_s = -1.0
    for each in order:
        latest_s = max(latest_s, each.invoked_s)
        if each.returned_s < latest_s:
            return False
        state = model.step(state, each.call, each.result)
        if state is IMPOSSIBLE:
            return False
    return True


CALLS = (Create(1), Create(2), Delete(), Grow(3), SetConfig("1"), SetConfig("2"), ReadTopic(), ReadConfig())


def random_history(rng: random.Random) -> tuple[Operation, ...]:
    """Returns a random history of up to three clients. Most answers are possible for a topic, and some are not."""
    model = TopicModel(())
    state: State = None
    history = []
    for number in range(rng.randint(2, 6)):
        call = rng.choice(
            (Create(1), Create(2), Delete(), Grow(3), SetConfig("1"), SetConfig("2"), ReadTopic(), ReadConfig())
        )
        answers = [None, DONE, ABSENT, EXISTS, created("abc"[number % 3]), config("1"), config(None)]
        if isinstance(state, Topic):
            answers += [seen(state.topic_id or "x", state.partition_count), config(state.config)] * 3
        rng.shuffle(answers)
        possible = [each for each in answers if model.step(state, call, each) is not IMPOSSIBLE]
        answer = possible[0] if possible and rng.random() < 0.85 else rng.choice(answers)
        after = model.step(state, call, answer)
        state = state if after is IMPOSSIBLE else after
        begin_s = number + rng.uniform(-2, 0)
        history.append(op(begin_s, NEVER if answer is None else number + rng.uniform(0, 2), call, answer))
    return tuple(history)


def test_the_linearizability_check_agrees_with_trying_every_order() -> None:
    seed = seeds.run_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    found = {True: 0, False: 0}
    for _ in range(400):
        history = random_history(rng)
        model = TopicModel(history)
        try:
            check_linearizable("topic", history, model)
            accepted = True
        except NotLinearizableError:
            accepted = False
        assert accepted == explains(history, model), "\n".join(map(str, history))
        found[accepted] += 1
    assert min(found.values()) > 20, found
