"""Checks whether a history of concurrent operations could have happened one after the other (Herlihy and Wing, 1990).

The search is just-in-time linearization (Lowe, "Testing for linearizability", 2017; Knossos's `linear`): it walks
through the history in the order of time with all the configurations that explain it so far. A configuration is a state
of the model and the operations under way that have taken effect already. Operations take effect no sooner than some
return needs them to, so a return that no configuration survives is the violation itself.

An operation whose outcome is unknown may take effect at any later time, or never. Each such operation would double the
configurations. So the search drops a configuration if another one has reached the same state with fewer of the unknown
operations. The other one can do everything that the dropped one can.

Histories of independent objects are checked one by one, because linearizability is local.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.support.violation import Violation

NEVER: Final = math.inf
CONFIGURATIONS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A call of a client, and its outcome."""

    client: str
    call: Hashable
    result: Hashable | None
    """The result. None if it is unknown."""
    invoked_s: float
    returned_s: float = NEVER
    """The time when the client had the result."""

    def __post_init__(self) -> None:
        assert (self.result is None) == (self.returned_s == NEVER), self
        assert self.invoked_s <= self.returned_s, self

    def __str__(self) -> str:
        until = "..." if self.result is None else f"{self.returned_s:.4f}"
        return f"{self.invoked_s:.4f}-{until} {self.client}: {self.call} -> {self.result or 'unknown'}"


class Impossible(enum.Enum):
    """The answer of a model to a result that its state cannot give."""

    IMPOSSIBLE = enum.auto()


IMPOSSIBLE: Final = Impossible.IMPOSSIBLE


class Model(Protocol):
    """The behaviour of an object whose operations never overlap."""

    @property
    def initial(self) -> Hashable: ...

    def step(self, state: Any, call: Any, result: Any) -> Hashable | Impossible:
        """Returns the state after the call returned the result (None: any result), or IMPOSSIBLE if it cannot return
        that result."""


class NotLinearizableError(Violation):
    """Raised if no order of the operations explains the history."""


class TooComplexError(AssertionError):
    """Raised if the search has too many configurations. The history may be linearizable or not."""


@dataclass(frozen=True, slots=True)
class _Configuration:
    state: Hashable
    done: frozenset[int]
    """The operations under way with a known outcome that have taken effect."""
    used: frozenset[int]
    """The operations of unknown outcome that have taken effect."""


def check_linearizable(name: str, operations: Iterable[Operation], model: Model) -> None:
    """Raises NotLinearizableError with the events that lead to the violation, or TooComplexError."""
    history = sorted(operations, key=lambda operation: operation.invoked_s)
    invocations = [(each.invoked_s, 0, number) for number, each in enumerate(history)]
    returns = [(each.returned_s, 1, number) for number, each in enumerate(history) if each.returned_s != NEVER]
    under_way: dict[int, Operation] = {}
    configurations = {_Configuration(model.initial, frozenset(), frozenset())}
    for _, is_return, number in sorted(invocations + returns):
        if not is_return:
            under_way[number] = history[number]
            continue
        explained = _explain(name, configurations, number, under_way, model)
        if not explained:
            raise NotLinearizableError(_describe(name, configurations, number, history))
        configurations = explained
        del under_way[number]


def _explain(
    name: str, configurations: set[_Configuration], wanted: int, under_way: dict[int, Operation], model: Model
) -> set[_Configuration]:
    """Returns the configurations in which `wanted` has taken effect, without `wanted` among the operations under
    way."""
    explained = _Frontier()
    seen = _Frontier()
    # Begin with configurations that used fewer unknown operations, because they make others redundant.
    open_: list[set[_Configuration]] = [set() for _ in range(len(under_way) + 1)]
    for configuration in configurations:
        open_[len(configuration.used)].add(configuration)
    for layer in open_:
        while layer:
            configuration = layer.pop()
            if wanted in configuration.done:
                explained.add(_Configuration(configuration.state, configuration.done - {wanted}, configuration.used))
                continue
            if not seen.add(configuration):
                continue
            if len(seen) > CONFIGURATIONS_MAX:
                raise TooComplexError(f"{name}: more than {CONFIGURATIONS_MAX} configurations")
            for number, operation in under_way.items():
                after = _take(configuration, number, operation, model)
                if after is not None:
                    open_[len(after.used)].add(after)
    return set(explained)


def _take(configuration: _Configuration, number: int, operation: Operation, model: Model) -> _Configuration | None:
    """Returns the configuration after the operation, or None if the operation cannot, or need not, take effect here."""
    if number in configuration.done or number in configuration.used:
        return None
    state = model.step(configuration.state, operation.call, operation.result)
    if state is IMPOSSIBLE:
        return None
    if operation.result is not None:
        return _Configuration(state, configuration.done | {number}, configuration.used)
    if state == configuration.state:
        return None
    return _Configuration(state, configuration.done, configuration.used | {number})


class _Frontier:
    """A set of configurations without redundant ones. A configuration is redundant if another one can do all that it
    can."""

    def __init__(self) -> None:
        self._used: dict[tuple[Hashable, frozenset[int]], list[frozenset[int]]] = {}
        self._count = 0

    def add(self, configuration: _Configuration) -> bool:
        """Adds the configuration. Returns False if it is redundant. Configurations with more unknown operations must be
        added later."""
        known = self._used.setdefault((configuration.state, configuration.done), [])
        if any(used <= configuration.used for used in known):
            return False
        known.append(configuration.used)
        self._count += 1
        return True

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        for (state, done), alternatives in self._used.items():
            for used in alternatives:
                yield _Configuration(state, done, used)


def _describe(name: str, configurations: set[_Configuration], number: int, history: list[Operation]) -> str:
    failed = history[number]
    before = [each for each in history if each.invoked_s <= failed.returned_s and each is not failed]
    states = sorted({str(configuration.state) for configuration in configurations})
    return "\n".join(
        [
            f"{name}: nothing explains {failed}",
            f"  it could be in {len(states)} states before: {'; '.join(states[:5])}",
            *(f"  {each}" for each in before[-15:]),
        ]
    )
