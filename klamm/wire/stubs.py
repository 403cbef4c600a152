"""Stub classes and services, made from the descriptors of the contracts.

`klamm/wire/v1/*_rpc.py` makes one of each for every service of a contract; the `.pyi` beside it has their types. A stub
does not know how a call travels: its maker gives it the connection (`klamm/rpc/connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from google.protobuf.descriptor import ServiceDescriptor

from klamm.wire.service import Method, methods

ApiT = TypeVar("ApiT")
StubT = TypeVar("StubT", bound="Stub")


class Stub:
    """The calls of one service at one server: `await stub.list_offsets(request, timeout_ms=...)`.

    `bind` makes the function that calls a method; it is asked once for each method that is used."""

    descriptor: ClassVar[ServiceDescriptor]
    methods: ClassVar[tuple[Method, ...]]
    """The service's, in the order of its contract."""

    def __init_subclass__(cls) -> None:
        cls.methods = tuple(methods(cls.descriptor))
        for method in cls.methods:
            setattr(cls, method.name, _Rpc(method))

    def __init__(self, bind: Callable[[Method], Callable[..., Any]]) -> None:
        self._bind = bind


class _Rpc:
    """One RPC of a stub class: an attribute of its stubs, and by itself a function of a stub (`calls.Unary`)."""

    def __init__(self, method: Method) -> None:
        self.__name__ = method.name
        self._method = method

    def __get__(self, stub: Stub | None, owner: type[Stub]) -> Callable[..., Any]:
        if stub is None:
            return self
        call = stub._bind(self._method)
        # Found before this descriptor from now on.
        stub.__dict__[self.__name__] = call
        return call

    def __call__(self, stub: Stub, request: Any, **options: Any) -> Any:
        return getattr(stub, self.__name__)(request, **options)


class Service(Generic[StubT, ApiT]):
    """One service of a contract. Its callers use `stub`, and an object of type `ApiT` serves it."""

    def __init__(self, stub: type[StubT], api: type[ApiT]) -> None:
        self.stub = stub
        self.api = api

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods, in the order of the contract."""
        return self.stub.methods

    @property
    def name(self) -> str:
        """`klamm.v1.Broker`"""
        return str(self.stub.descriptor.full_name)
