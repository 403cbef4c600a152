"""Writes, for each contract, the module of its services (`broker_rpc.py`) and its types (`broker_rpc.pyi`).

The module makes stub classes and services from the descriptors when it is imported (klamm/wire/stubs.py). The types
say what each call takes and answers, so that mypy checks callers and servicers. Their docstrings are the contract's
comments.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_SERVICE_FIELD, _METHOD_FIELD = 6, 2
"""The numbers by which a comment says what it belongs to (descriptor.proto, SourceCodeInfo)."""


def write_services(descriptors: pathlib.Path, target: pathlib.Path) -> None:
    """Writes the stubs of all contracts in protoc's `descriptors` (with imports and source information) to the folder
    `target`."""
    files = FileDescriptorSet.FromString(descriptors.read_bytes()).file
    messages = {
        f".{file.package}.{message.name}": (_module(file), message) for file in files for message in file.message_type
    }
    for file in files:
        if file.service:
            types = _Types(file, messages)
            (target / f"{_stem(file)}_rpc.py").write_text(_runtime(file))
            (target / f"{_stem(file)}_rpc.pyi").write_text(types.text())


def _stem(file: FileDescriptorProto) -> str:
    return pathlib.PurePath(file.name).stem


def _module(file: FileDescriptorProto) -> str:
    return f"klamm.wire.v1.{_stem(file)}_pb2"


def _head(file: FileDescriptorProto) -> str:
    return f'"""The services of {_stem(file)}.proto, whose comments say more. Generated from it, never edited."""'


def _runtime(file: FileDescriptorProto) -> str:
    stem = _stem(file)
    lines = [_head(file), "", "from klamm.wire.stubs import Service, Stub", f"from klamm.wire.v1 import {stem}_pb2"]
    for service in file.service:
        name = service.name
        descriptor = f'{stem}_pb2.DESCRIPTOR.services_by_name["{name}"]'
        lines += ["", "", f"class {name}Stub(Stub):", f"    descriptor = {descriptor}"]
        lines += ["", "", f"class {name}Api: ...", "", "", f"{name.upper()} = Service({name}Stub, {name}Api)"]
    return "\n".join(lines) + "\n"


class _Types:
    """The .pyi of one contract."""

    def __init__(self, file: FileDescriptorProto, messages: dict[str, tuple[str, DescriptorProto]]) -> None:
        self._file = file
        self._messages = messages
        self._imports: set[tuple[str, str]] = set()
        self._comments = {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}

    def text(self) -> str:
        body: list[str] = []
        for number, service in enumerate(self._file.service):
            body += ["", *self._stub(number, service), "", *self._api(service), ""]
            body += [f"{service.name.upper()}: Final[Service[{service.name}Stub, {service.name}Api]]"]
        imports = [f"from {module} import {name}" for module, name in sorted(self._imports)]
        return "\n".join(
            [
                _head(self._file),
                "",
                "from collections.abc import AsyncIterator",
                "from typing import Final, Protocol",
                "",
                "from klamm.wire.calls import CallContext, Duplex",
                "from klamm.wire.stubs import Service, Stub",
                *imports,
                *body,
                "",
            ]
        )

    def _stub(self, number: int, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"class {service.name}Stub(Stub):"
        yield from self._docstring("    ", (_SERVICE_FIELD, number))
        for index, method in enumerate(service.method):
            request, answer = self._types(method)
            name = _WORD.sub("_", method.name).lower()
            yield ""
            if method.client_streaming:
                yield f"    def {name}(self, *, timeout_ms: int | None = None) -> Duplex[{request}, {answer}]:"
            elif method.server_streaming:
                yield f"    def {name}("
                yield f"        self, request: {request}, *, timeout_ms: int | None = None"
                yield f"    ) -> AsyncIterator[{answer}]:"
            else:
                yield f"    async def {name}(self, request: {request}, *, timeout_ms: int = ...) -> {answer}:"
            yield from self._docstring("        ", (_SERVICE_FIELD, number, _METHOD_FIELD, index))

    def _api(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"class {service.name}Api(Protocol):"
        yield f'    """What serves {service.name}: one method for each call, which raises a KlammError to refuse it."""'
        for method in service.method:
            request, answer = self._types(method)
            request = f"AsyncIterator[{request}]" if method.client_streaming else request
            answer = f"AsyncIterator[{answer}]" if method.server_streaming else answer
            kind = "def" if method.server_streaming else "async def"
            name = _WORD.sub("_", method.name).lower()
            yield ""
            yield f"    {kind} {name}(self, request: {request}, context: CallContext, /) -> {answer}: ..."

    def _types(self, method: MethodDescriptorProto) -> tuple[str, str]:
        return self._type(method.input_type), self._type(method.output_type)

    def _type(self, full_name: str) -> str:
        module, message = self._messages[full_name]
        if is_framed(message):
            return "bytes"
        self._imports.add((module, message.name))
        return message.name

    def _docstring(self, indent: str, path: tuple[int, ...]) -> Iterator[str]:
        first, *others = self._comments[path].splitlines()
        lines = [f'{indent}"""{first.strip()}', *(f"{indent}{line.strip()}" for line in others)]
        lines[-1] += '"""'
        yield from lines


def is_framed(message: DescriptorProto) -> bool:
    """True if the message is sent as bytes, because its records are a field of its own: `{header = 1; records = 2}`."""
    return [(one.name, one.type) for one in message.field] == [
        ("header", FieldDescriptorProto.TYPE_MESSAGE),
        ("records", FieldDescriptorProto.TYPE_BYTES),
    ]
