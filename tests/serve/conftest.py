"""Fixtures of the service's tests; where its packages are missing, none of them runs."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("fastapi") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from service import client, folder, model_folder, served_model, service

    __all__ = ["client", "folder", "model_folder", "served_model", "service"]
