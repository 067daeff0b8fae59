"""onnxruntime, which computes encoders here, without its reports.

Its newer Linux builds (1.31 is one) count sessions, name machine and program, keep that in the
user's cache folder and send it off, from the moment of import. Nobody who indexes patients' records
has asked for that.
"""

from __future__ import annotations

import os
from typing import Any


def onnxruntime() -> Any:
    """The module, imported with its telemetry off (unless the user's environment asks for it)."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as module

    if os.environ["ORT_DISABLE_TELEMETRY"] == "1":
        module.disable_telemetry_events()  # somebody else may have imported it before
    return module
