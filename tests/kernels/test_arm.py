"""The kernel for ARM's dot product, compiled for ARM and run under an emulator."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
MISSING = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src" / "hplus" / "kernels"


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_the_dot_product_gives_what_portable_c_gives(tmp_path: Path) -> None:
    """Bit for bit, a scan included; and a processor without it is served by portable C."""
    program = tmp_path / "arm"
    headers = sysconfig.get_path("include")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [COMPILER, "-O2", "-static", *warnings, f"-I{SOURCES}", "-isystem", headers]
    # Nothing of Python is called: what would call it stays unresolved.
    command += [str(HERE / "arm.c"), "-Wl,--unresolved-symbols=ignore-all", "-lm"]
    subprocess.run([*command, "-o", str(program)], check=True)
    for processor, expected in (
        ("max", (0, "equal\n")),
        ("cortex-a53", (2, "this processor has no dot product\n")),
    ):
        ran = subprocess.run(
            [EMULATOR, "-cpu", processor, str(program)], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == expected
