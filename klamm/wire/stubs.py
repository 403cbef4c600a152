"""Stub classes and services, made from the descriptors of the contracts.

`klamm/wire/v1/*_rpc.py` makes both for every service of a contract; the `.pyi` file beside it has their types. A stub
does not depend on a transport: its creator passes a connection to it (`klamm/rpc/connection.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from google.protobuf.descriptor import ServiceDescriptor

from klamm.wire.service import Method, methods

ApiT = TypeVar("ApiT")
StubT = TypeVar("StubT", bound="Stub")


class Stub:
    """The calls of one service at one server: `await stub.list_offsets(request, timeout_ms=...)`.

    `bind` makes the function that calls a method. The stub uses it once for each method that is called."""

    descriptor: ClassVar[ServiceDescriptor]
    methods: ClassVar[tuple[Method, ...]]
    """The methods of the service, in the order of the contract."""

    def __init_subclass__(cls) -> None:
        cls.methods = tuple(methods(cls.descriptor))
        for method in cls.methods:
            setattr(cls, method.name, _Rpc(method))

    def __init__(self, bind: Callable[[Method], Callable[..., Any]]) -> None:
        self._bind = bind


class _Rpc:
    """One RPC of a stub class. It is an attribute of stubs, and also a function that takes a stub (`calls.Unary`)."""

    def __init__(self, method: Method) -> None:
        self.__name__ = method.name
        self._method = method

    def __get__(self, stub: Stub | None, owner: type[Stub]) -> Callable[..., Any]:
        if stub is None:
            return self
        call = stub._bind(self._method)
        # From now on the instance's attribute is found before this descriptor.
        stub.__dict__[self.__name__] = call
        return call

    def __call__(self, stub: Stub, request: Any, **options: Any) -> Any:
        return getattr(stub, self.__name__)(request, **options)


class Service(Generic[StubT, ApiT]):
    """One service of a contract. Clients call it with `stub`, and an object of type `ApiT` implements it."""

    def __init__(self, stub: type[StubT], api: type[ApiT]) -> None:
        self.stub = stub
        self.api = api

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods, in the order of the contract."""
        return self.stub.methods

    @property
    def name(self) -> str:
        """The name of the service, for example `klamm.v1.Broker`."""
        return str(self.stub.descriptor.full_name)
