# `make demo` and `make test` do all of their own set-up; `make help` lists the rest.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements.lock
EXTRAS := requirements-extras.lock requirements-engines.lock
READY := $(VENV)/.installed
EXTRAS_READY := $(VENV)/.extras-installed
DATA ?=
# The first Python that is new enough; `make PYTHON=... demo` takes another.
PYTHON ?= $(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python3.14,$(shell \
  $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))

.PHONY: help demo test lint format bench install clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: install ## from a commit to refined depth, on a small synthetic world (or DATA=folder)
	@$(BIN)/python -m zoerefine demo $(if $(DATA),--data "$(DATA)")

test: install $(EXTRAS_READY) ## every test
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=5 --numprocesses 2 --dist loadfile

lint: install ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: install ## rewrite the style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: install ## every benchmark, quick
	@set -e; for program in benchmarks/[a-z]*.py; do \
	  echo "== $$program"; $(BIN)/python $$program --quick; done

install: $(READY)

# The stamp is written last: an installation that was cut off is simply gone on with.
$(READY): $(LOCK) pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer here: install one, or give PYTHON=..." >&2; exit 2; }
	@echo "installing the pinned requirements into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

# Tests of optional parts are skipped, by name, where these cannot be had.
$(EXTRAS_READY): $(EXTRAS) $(READY)
	@echo "installing what tests of the optional parts need"
	@for list in $(EXTRAS); do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -r $$list \
	  || echo "$$list cannot be installed here: tests that need it are skipped"; done
	@touch $(EXTRAS_READY)

clean: ## remove what the demo made (not runs of other names)
	rm -rf data/synthetic caches runs/demo
