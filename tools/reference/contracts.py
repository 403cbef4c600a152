"""The pages of the gRPC API, read from the contracts in `proto/klamm/v1` and their comments."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from tools.reference.markdown import prose, table

ROOT: Final = Path(__file__).resolve().parents[2]
_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_FIELD_OF_MESSAGE, _VALUE_OF_ENUM, _METHOD_OF_SERVICE = 2, 2, 2
"""The numbers by which a comment says what it belongs to (descriptor.proto, SourceCodeInfo)."""
_SYNTAX: Final = (12,)
"""The path of a file's first statement: the comment above it is about the whole file."""
_HEAD: Final = ()

HEAD: Final = """# gRPC API

The calls that Klamm's own clients and servers make. Any gRPC client can use them: the contracts are in
`proto/klamm/v1`, and these pages are made from them and their comments (`python -m tools.reference`). A server has
reflection, so [grpcurl](../../how-to/call-with-grpcurl.md) lists them too. The error of a partition, group or topic is
an [error code](../errors.md) in the body; a gRPC status is about the transport. Fields are added and never renumbered.
All lists of a client's request together have at most 10,000 items; otherwise the status is INVALID_ARGUMENT.

Each kind of server has its own services: brokers have Broker, controllers have Admin, and coordinators have
Coordinator. A call at another kind of server is UNIMPLEMENTED, and its text has the addresses of the right servers.

A client leaves out what it does not know, such as a leader epoch, a generation or a time-out. The comment of an
`optional` field says what its absence means. `acks` of Produce is different: without it, the value is 0, and the broker
reports no outcome.
"""


class _Contract(NamedTuple):
    """A contract, and the pages that explain the messages of all contracts."""

    file: FileDescriptorProto
    comments: Mapping[tuple[int, ...], str]
    """The comments by the path of what they belong to."""
    homes: Mapping[str, str]
    """The names of the contracts by the full names of messages and enumerations."""

    @property
    def name(self) -> str:
        return PurePath(self.file.name).stem


def pages() -> dict[str, str]:
    """The texts by file names: an index, and a page for each contract."""
    contracts = _contracts()
    index = [
        HEAD,
        *table(
            ("Contract", "What it is"),
            ([f"[{contract.name}]({contract.name}.md)", _summary(contract)] for contract in contracts),
        ),
    ]
    return {"index.md": _text(index), **{f"{contract.name}.md": _text(_page(contract)) for contract in contracts}}


def _contracts() -> list[_Contract]:
    files = [file for file in _descriptors().file if file.package == "klamm.v1"]
    homes: dict[str, str] = {}
    for file in files:
        names = [*(each.name for each in file.message_type), *(each.name for each in file.enum_type)]
        homes |= {f".{file.package}.{name}": PurePath(file.name).stem for name in names}
    found = [_Contract(file, _comments(file), homes) for file in files]
    return sorted(found, key=lambda contract: contract.name)


def _descriptors() -> FileDescriptorSet:
    """All contracts, with their comments, as protoc reads them."""
    import grpc_tools
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "descriptors")
        sources = sorted(map(str, (ROOT / "proto" / "klamm" / "v1").glob("*.proto")))
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        include = (f"-I{ROOT / 'proto'}", f"-I{well_known}", "--include_source_info")
        if protoc.main(["protoc", *include, f"--descriptor_set_out={out}", *sources]) != 0:
            raise RuntimeError(f"protoc refused one of {sources}")
        return FileDescriptorSet.FromString(out.read_bytes())


def _comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    found = {}
    for location in file.source_code_info.location:
        path = _HEAD if tuple(location.path) == _SYNTAX else tuple(location.path)
        text = location.leading_comments or location.trailing_comments
        if text:
            found[path] = text
    return found


def _summary(contract: _Contract) -> str:
    return prose(_paragraphs(contract.comments.get(_HEAD, ""))[0])


def _paragraphs(comment: str) -> list[str]:
    return [" ".join(each.split()) for each in comment.split("\n\n")]


def _said(contract: _Contract, *path: int) -> str:
    """Returns the comment of the element at this path, in one line."""
    return prose(" ".join(contract.comments.get(path, "").split()))


def _page(contract: _Contract) -> Iterator[str]:
    yield from (f"# {contract.name}.proto", "")
    for paragraph in _paragraphs(contract.comments.get(_HEAD, "")):
        yield from (prose(paragraph), "")
    for place, service in enumerate(contract.file.service):
        yield from _service(contract, place, service)
    if contract.file.message_type:
        yield from ("## Messages", "")
    for place, message in enumerate(contract.file.message_type):
        yield from _message(contract, place, message)
    for place, enum in enumerate(contract.file.enum_type):
        yield from _enum(contract, place, enum)


def _service(contract: _Contract, place: int, service: ServiceDescriptorProto) -> Iterator[str]:
    yield from (f"## Service {service.name}", "", _said(contract, _SERVICE, place), "")
    yield from table(
        ("Call", "What it does", "Request", "Response"),
        (
            _method(contract, method, _said(contract, _SERVICE, place, _METHOD_OF_SERVICE, number))
            for number, method in enumerate(service.method)
        ),
    )


def _method(contract: _Contract, method: MethodDescriptorProto, text: str) -> Sequence[str]:
    request = ("stream of " if method.client_streaming else "") + _link(contract, method.input_type)
    response = ("stream of " if method.server_streaming else "") + _link(contract, method.output_type)
    return f"`{method.name}`", text, request, response


def _message(contract: _Contract, place: int, message: DescriptorProto) -> Iterator[str]:
    yield from (f"### {message.name}", "", _said(contract, _MESSAGE, place), "")
    yield from table(
        ("Field", "What it is", "Type"),
        (
            (
                f"`{field.name}`",
                _said(contract, _MESSAGE, place, _FIELD_OF_MESSAGE, number),
                _type(contract, message, field),
            )
            for number, field in enumerate(message.field)
        ),
    )


def _enum(contract: _Contract, place: int, enum: EnumDescriptorProto) -> Iterator[str]:
    yield from (f"### {enum.name}", "", _said(contract, _ENUM, place), "")
    yield from table(
        ("Value", "What it is", "Number"),
        (
            (f"`{value.name}`", _said(contract, _ENUM, place, _VALUE_OF_ENUM, number), str(value.number))
            for number, value in enumerate(enum.value)
        ),
    )


def _type(contract: _Contract, message: DescriptorProto, field: FieldDescriptorProto) -> str:
    entries = {f".klamm.v1.{message.name}.{each.name}": each for each in message.nested_type}
    if field.type_name in entries:
        key, value = entries[field.type_name].field
        return f"map of {_type(contract, message, key)} to {_type(contract, message, value)}"
    name = (
        _link(contract, field.type_name) if field.type_name else FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    )
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    if field.proto3_optional:
        return f"{name}, optional"
    return f"{name}, one of `{message.oneof_decl[field.oneof_index].name}`" if field.HasField("oneof_index") else name


def _link(contract: _Contract, full_name: str) -> str:
    """A message's or enumeration's name, with a link to its explanation."""
    name = full_name.rpartition(".")[2]
    home = contract.homes.get(full_name)
    if home is None:
        return f"`{full_name.lstrip('.')}`"
    return f"[{name}]({'' if home == contract.name else f'{home}.md'}#{name.lower()})"


def _text(lines: Iterator[str] | Sequence[str]) -> str:
    """A page without doubled empty lines: of what has no comment there is none to show."""
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip("\n") + "\n"
