"""hatchling's build hook: generates the gRPC code, and compiles the fast part of the client if it can.

A wheel with the compiled module is for one platform and Python version. Without a C compiler, the wheel is pure Python
and for every platform. With KLAMM_CORE=compiled in the environment, the build fails instead.
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# A build hook is loaded by its path, away from its neighbours.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tools import build_core, build_proto


class BuildHook(BuildHookInterface):
    """Runs before a wheel, an editable install or an sdist is assembled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_proto.generate()
        if self.target_name != "wheel":
            return
        # Not in place, where the module of an editable install may be.
        target = None if version == "editable" else build_core.ROOT / "build" / f"core-{sys.implementation.cache_tag}"
        problem = build_core.build(target=target)
        if problem is not None and os.environ.get("KLAMM_CORE") == "compiled":
            raise RuntimeError(f"KLAMM_CORE=compiled, but klamm/_core.pyx was not compiled: {problem}")
        if problem is not None:
            self.app.display_warning(f"no C compiler, so the client is pure Python and slower: {problem}")
            return
        if target is None:
            return  # An editable install imports the compiled module from the source tree.
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(path): f"klamm/{path.name}" for path in build_core.compiled_files(target)}
