"""Divides the connections to a port among several listening sockets, by the address of the client.

gRPC accepts connections itself, and bounds only how many a listening socket has. One client could take all of them. So
gRPC listens at an address with several sockets, and the kernel selects the socket by a hash of the client's address, or
of its /64 network of IPv6. Then an address can take only the places of one socket, without any code for a connection.
The kernel runs a program of classic BPF for that (SO_ATTACH_REUSEPORT_CBPF, since Linux 4.5). A process needs no rights
for it. The hash has a salt, so that no client can choose whose socket it shares.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

_SO_ATTACH_REUSEPORT_CBPF: Final = 51
_FILES: Final = "/proc/self/fd"
_NETWORK_HEADER: Final = 0xFFF00000
"""The position of the IP header, for loads (SKF_NET_OFF)."""
_SOURCE_V4: Final = _NETWORK_HEADER + 12
_SOURCE_V6: Final = _NETWORK_HEADER + 8
_LOAD_WORD, _LOAD_BYTE, _COPY_TO_X = 0x20, 0x30, 0x07
_SHIFT_RIGHT, _MULTIPLY, _MODULO, _XOR, _XOR_X = 0x74, 0x24, 0x94, 0xA4, 0xAC
_JUMP_UNLESS_EQUAL, _JUMP, _RETURN = 0x15, 0x05, 0x16
# The multipliers of MurmurHash3's last step.
_MIX: Final = (0x85EBCA6B, 0xC2B2AE35)


class Instruction(NamedTuple):
    """An instruction of classic BPF (`struct sock_filter`)."""

    code: int
    if_true: int
    if_false: int
    value: int


def program(part_count: int, salt: int) -> list[Instruction]:
    """Returns the program that returns the number of the part for the packet's source address."""
    return [
        Instruction(_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
        Instruction(_SHIFT_RIGHT, 0, 0, 4),
        Instruction(_JUMP_UNLESS_EQUAL, 0, 2, 4),
        Instruction(_LOAD_WORD, 0, 0, _SOURCE_V4),
        Instruction(_JUMP, 0, 0, 5),
        Instruction(_LOAD_WORD, 0, 0, _SOURCE_V6),
        Instruction(_MULTIPLY, 0, 0, _MIX[1]),
        Instruction(_COPY_TO_X, 0, 0, 0),
        Instruction(_LOAD_WORD, 0, 0, _SOURCE_V6 + 4),
        Instruction(_XOR_X, 0, 0, 0),
        Instruction(_XOR, 0, 0, salt),
        *_mixed(_MIX[0]),
        *_mixed(_MIX[1]),
        Instruction(_SHIFT_RIGHT, 0, 0, 8),
        Instruction(_MODULO, 0, 0, part_count),
        Instruction(_RETURN, 0, 0, 0),
    ]


def divide(port: int, part_count: int, salt: int) -> None:
    """Has the kernel divide the connections to this process's port among its `part_count` sockets at each address.
    Raises OSError if the system does not support that. Blocks while it searches the open files of the process."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program(part_count, salt))
    instructions = ctypes.create_string_buffer(code)
    filter_program = struct.pack("HP", len(code) // struct.calcsize("HBBI"), ctypes.addressof(instructions))
    divided: list[object] = []
    for listening in _listening(port):
        with listening:
            # The sockets of an address share the program.
            if (address := listening.getsockname()) not in divided:
                listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, filter_program)
                divided.append(address)


def _listening(port: int) -> Iterator[socket.socket]:
    """Yields duplicates of the process's sockets that listen at the port. gRPC does not hand its sockets out."""
    for name in os.listdir(_FILES):
        found = _duplicate(int(name))
        if found is None:
            continue
        if _is_listening(found, port):
            yield found
        else:
            found.close()


def _duplicate(file: int) -> socket.socket | None:
    """Returns a duplicate of an open file if it is a socket."""
    # Another thread of gRPC may close the file at any time.
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(file).st_mode):
            return socket.socket(fileno=os.dup(file))
    return None


def _is_listening(found: socket.socket, port: int) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) and found.getsockname()[1] == port


def _mixed(multiplier: int) -> list[Instruction]:
    """Returns instructions that multiply the hash, and mix its upper half into the lower one."""
    return [
        Instruction(_MULTIPLY, 0, 0, multiplier),
        Instruction(_COPY_TO_X, 0, 0, 0),
        Instruction(_SHIFT_RIGHT, 0, 0, 16),
        Instruction(_XOR_X, 0, 0, 0),
    ]
