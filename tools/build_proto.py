"""Builds klamm/wire/v1/*_pb2.py and *_rpc.py, each with its types (.pyi), from proto/klamm/v1/*.proto.

Runs within hatchling's build hook (wheel and editable install) and by `make proto`. The generated code is
never edited and never committed.
"""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto" / "klamm" / "v1"
TARGET = ROOT / "klamm" / "wire" / "v1"
# protoc spells imports after the proto path (`klamm.v1`); the generated code lives in `klamm.wire.v1`.
IMPORT = re.compile(r"^(from|import) klamm\.v1\b", re.MULTILINE)


def generate() -> None:
    """Generates the code of every contract. Raises RuntimeError if protoc refuses one."""
    import grpc_tools
    from grpc_tools import protoc

    from tools.rpc_stubs import write_services

    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    protos = sorted(str(path) for path in SOURCES.glob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        descriptors = pathlib.Path(scratch, "descriptors")
        arguments = [
            "protoc",
            f"-I{ROOT / 'proto'}",
            f"-I{well_known}",
            f"--python_out={scratch}",
            f"--pyi_out={scratch}",
            f"--descriptor_set_out={descriptors}",
            "--include_source_info",
            *protos,
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc failed on {protos}")
        TARGET.mkdir(parents=True, exist_ok=True)
        for generated in sorted(pathlib.Path(scratch, "klamm", "v1").iterdir()):
            text = IMPORT.sub(r"\1 klamm.wire.v1", generated.read_text())
            (TARGET / generated.name).write_text(text)
        write_services(descriptors, TARGET)


if __name__ == "__main__":
    generate()
    sys.exit(0)
