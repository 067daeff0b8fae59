"""The compiled kernels; everything else about the package is in pyproject.toml.

The extensions are optional: where they cannot be compiled the package installs without them and
numpy serves. HPLUS_WERROR=1 makes warnings and a failed build errors, HPLUS_SANITIZE=1 adds the
address and undefined-behaviour sanitizers (`make test-kernels` sets both).
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


def extension(name: str) -> Extension:
    """A module of hplus.kernels, in one C file with the headers beside it."""
    return Extension(
        f"hplus.kernels.{name}",
        [f"src/hplus/kernels/{name}.c"],
        depends=["src/hplus/kernels/arrays.h", "src/hplus/kernels/products.h"],
        libraries=libraries,
        extra_compile_args=flags + sanitizers,
        extra_link_args=sanitizers,
        optional=not STRICT,
    )


setup(ext_modules=[extension(name) for name in ("_maxsim", "_lexical", "_products", "_ward")])
