"""The schema, fuzzed: whatever it allows or forbids, no request ends in a 500 or hangs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from hplus import HPlus
from service import on_loopback

schemathesis = pytest.importorskip("schemathesis")
SECONDS = 20


def fuzz(address: str, examples: int) -> None:
    """So many requests of each endpoint that the schema allows, and as many that it forbids."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    run = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    for operation in operations:
        for mode in schemathesis.GenerationMode:

            def check(case: Any) -> None:
                answer = case.call(timeout=SECONDS)
                case.validate_response(answer, checks=checks)

            with suppress(Unsatisfiable):  # an endpoint without parameters has no wrong ones
                run(given(case=operation.as_strategy(generation_mode=mode))(check))()


def test_a_short_fuzz(folder: Path, served_model: HPlus) -> None:
    with on_loopback(folder, model=served_model) as (address, _):
        fuzz(address, 1)


@pytest.mark.slow
def test_a_long_fuzz(folder: Path, served_model: HPlus) -> None:
    with on_loopback(folder, model=served_model) as (address, _):
        fuzz(address, 100)
