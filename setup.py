"""The compiled kernel; everything else about the package is in pyproject.toml.

The extension is optional: where it cannot be compiled the package installs without it and numpy
serves. HPLUS_WERROR=1 makes warnings and a failed build errors, HPLUS_SANITIZE=1 adds the address
and undefined-behaviour sanitizers (`make test-kernels` sets both).
"""

import os
import sys

from setuptools import Extension, setup

STRICT = os.environ.get("HPLUS_WERROR") == "1"
SANITIZE = os.environ.get("HPLUS_SANITIZE") == "1"

flags, libraries = [], []
if sys.platform != "win32":
    flags, libraries = ["-O3"], ["m"]
    if STRICT:
        flags += ["-Wall", "-Wextra", "-Werror"]
sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if SANITIZE else []

setup(
    ext_modules=[
        Extension(
            "hplus.kernels._maxsim",
            ["src/hplus/kernels/_maxsim.c"],
            libraries=libraries,
            extra_compile_args=flags + sanitizers,
            extra_link_args=sanitizers,
            optional=not STRICT,
        )
    ]
)
