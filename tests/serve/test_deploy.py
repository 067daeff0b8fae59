"""The page about serving, and the files for whoever runs the service, hold against the service."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hplus import HPlus, Index
from hplus.serve.limits import Limits
from service import DOCUMENTS, Service, on_loopback

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text()
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def address(served_model: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("deploy") / "demo.hplus"
    with Index.create(folder, served_model) as made:
        made.add([dict(row) for row in DOCUMENTS])
    with on_loopback(folder, model=served_model) as (found, _):
        yield found


@pytest.mark.parametrize("block", re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL))
def test_the_shell_commands_of_the_page_run(block: str, address: str) -> None:
    command = block.replace("http://127.0.0.1:8000", address)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "error" not in json.loads(done.stdout)


@pytest.mark.parametrize("block", re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL))
def test_the_python_of_the_page_runs(block: str, address: str) -> None:
    if "openai" in block:
        pytest.importorskip("openai")
    program = block.replace("http://127.0.0.1:8000", address).replace(
        "dimensions=128", "dimensions=8"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_page_lists_every_endpoint(service: Service) -> None:
    paths = service.client.get("/openapi.json").json()["paths"]
    for path in paths:
        shown = path.replace("{name}", "NAME").replace("{id}", "ID")
        assert shown in PAGE, path


def test_the_page_states_the_limits() -> None:
    limits = Limits()
    for number in (limits.requests, limits.connections, limits.query, limits.texts):
        assert f"{number:,}" in PAGE
    assert f"| {limits.seconds:g} s; {limits.write_seconds:g} s |" in PAGE


def test_the_dashboard_shows_what_the_service_counts(service: Service) -> None:
    service.client.post("/indexes/med/search", json={"query": "cell"})
    figures = service.client.get("/metrics").text
    dashboard = json.loads((ROOT / "docs" / "deploy" / "dashboard.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for one in shown for name in re.findall(r"hplus_\w+", one)}
    assert len(names) >= 6
    for name in names:
        assert re.search(rf"^{name}[ {{]", figures, re.MULTILINE), name
    endpoints = {one for text in shown for one in re.findall(r'endpoint="([^"]+)"', text)}
    assert all(f'endpoint="{one}"' in figures for one in endpoints)


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("hplus.service", r"ExecStart=\S+/hplus (.*)"), ("Containerfile", r"ENTRYPOINT (\[.*\])")],
)
def test_the_command_lines_of_the_files_are_understood(file: str, pattern: str) -> None:
    found = re.search(pattern, (ROOT / "docs" / "deploy" / file).read_text())
    assert found is not None
    words = json.loads(found[1])[1:] if found[1].startswith("[") else shlex.split(found[1])
    command = [sys.executable, "-m", "hplus", *words, "--help"]
    help_ = subprocess.run(command, capture_output=True, text=True)
    assert help_.returncode == 0
    for option in (word for word in words if word.startswith("--")):
        assert option in help_.stdout


def test_a_copy_while_it_is_changed(folder: Path, served_model: HPlus, tmp_path: Path) -> None:
    stop = threading.Event()

    def change() -> None:
        with Index.open(folder, model=served_model) as index:
            for i in range(1000):
                if stop.is_set():
                    return
                index.add([{"id": f"w{i}", "text": f"cell {i}"}])
                if i % 20 == 19:
                    index.compact()

    changing = threading.Thread(target=change)
    changing.start()
    try:
        done = subprocess.run(
            [ROOT / "docs" / "deploy" / "backup.sh", folder, tmp_path / "copy.hplus"],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
        )
    finally:
        stop.set()
        changing.join()
    assert done.returncode == 0, done.stderr
    with Index.open(tmp_path / "copy.hplus", model=served_model) as copy:
        assert all(row["id"] in copy for row in DOCUMENTS)
        count = len(copy)
        assert copy.add([{"id": "later", "text": "gene"}]).added == 1
        assert len(copy) == count + 1
