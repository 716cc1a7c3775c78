# `make demo` and `make test` do all of their own set-up; `make help` lists every target.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements.lock
EXTRAS := requirements-extras.lock requirements-engines.lock requirements-docs.lock requirements-trackers.lock requirements-archive.lock
READY := $(VENV)/.installed
# Folders beside the packages of the environment, which must not find them: Torch-TensorRT cannot be
# imported without TensorRT, only read; with Triton, torch for CPUs would do other things.
BESIDE := torch-tensorrt gpu-tests
# An environment without torch, and what tests of the laboratory's optional parts need in it.
LAB := $(VENV)/lab
LAB_READY := $(LAB)/.installed
LAB_EXTRAS := requirements-extras.lock requirements-trackers.lock requirements-archive.lock
# A fresh environment with the wheel.
PACKAGE := $(VENV)/package
EXTRAS_READY := $(VENV)/.extras-installed
DATA ?=
# The first Python that is new enough; `make PYTHON=... demo` takes another.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# One thread for each test process: more would only wait for one another.
# A test process that crashes ends the run: with a new one in its place pytest-xdist may never end.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --max-worker-restart 0
# Tests often wait (for a clock, a cluster, a disk), so that three processes keep two cores busy, and
# four those of the full tier. One that has run its own tests takes over half of those that wait for
# another one.
PROCESSES := 3
SPREAD = --numprocesses $(PROCESSES) --dist worksteal
# How often each kill test of the quick tier kills.
KILLS := 1
QUICK := not full and not nightly
# What oneDNN may use of the processor: each limit below what this one has. `make test` ran without.
PROCESSORS := $(shell flags=$$(grep -m 1 ^flags /proc/cpuinfo); \
  grep -q 'avx512f' <<<"$$flags" && echo AVX2; \
  grep -qE 'avx512_(vnni|bf16|fp16)|amx' <<<"$$flags" && echo AVX512_CORE; \
  grep -qE 'avx512_fp16|amx' <<<"$$flags" && echo AVX512_CORE_BF16)
NUMERIC := numeric and $(QUICK)

# What tests compile (the C++ example, a bundle, a library) is kept in pytest's cache.
COMPILED := $(VENV)/.compiled
COMPILING := tests/examples/test_cpp.py::test_an_aoti_bundle_gives_the_same_bits_as_in_python \
  tests/depth/exporting/test_tensorrt_engine.py::test_pitfall_6_another_type

.PHONY: help demo test test-full test-all test-nightly test-lab durations fuzz test-processors check lint format docs package bench install install-lab clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: install ## run the main job on a small synthetic world (or DATA=folder)
	@$(BIN)/python -m zoerefine demo $(if $(DATA),--data "$(DATA)")

test: install $(EXTRAS_READY) $(COMPILED) ## test every behaviour once (without tests/full.txt and nightly.txt)
	@ZOEREFINE_TEST_KILLS=$${ZOEREFINE_TEST_KILLS:-$(KILLS)} $(PYTEST) -m "$(QUICK)" $(SPREAD)

test-full: PROCESSES := 4
test-full: install $(EXTRAS_READY) $(COMPILED) ## run the tests that tests/full.txt lists
	@$(PYTEST) -m full $(SPREAD)

test-all: KILLS := 3
test-all: test test-full ## run every test but those of tests/nightly.txt

test-nightly: NUMERIC := numeric
test-nightly: install $(EXTRAS_READY) test-processors ## run tests/nightly.txt, all numeric tests, and 50 kills of every verb
	@$(PYTEST) -m nightly $(SPREAD)
	@ZOEREFINE_TEST_KILLS=$${ZOEREFINE_TEST_KILLS:-50} $(PYTEST) -k "kill" $(SPREAD)

test-lab: $(LAB_READY) ## run the quick tier of base and lab without torch (ZOEREFINE_TEST_SMOKE=2: two of each file)
	@OMP_NUM_THREADS=1 ZOEREFINE_TEST_KILLS=$(KILLS) $(LAB)/bin/python -m pytest -m "$(QUICK)" \
	  --max-worker-restart 0 -p no:cacheprovider $(SPREAD) tests/base tests/lab

durations: ## print which tests grew by more than a third (WRITE=1: make that the new table)
	@$(BIN)/python -m tests.durations $(if $(WRITE),--write)

fuzz: install $(EXTRAS_READY) ## try 100,000 damaged configs, pictures, runs, bundles and addresses
	@ZOEREFINE_FUZZ=$${ZOEREFINE_FUZZ:-100000} $(PYTEST) --numprocesses 2 tests/fuzz

test-processors: install ## run the quick tests of trained numbers as on older and newer processors
	@set -e; for isa in $(PROCESSORS); do \
	  echo "== ONEDNN_MAX_CPU_ISA=$$isa"; \
	  ONEDNN_MAX_CPU_ISA=$$isa $(PYTEST) -m "$(NUMERIC)" --numprocesses 2 --dist loadfile; done

check: lint ## check style and types, and test what changed since main (under a minute)
	@tests=$$($(BIN)/python tests/tests_of_changes.py); \
	if [ -n "$$tests" ]; then $(PYTEST) --numprocesses 2 $$tests; else echo "no test file to run"; fi

lint: install ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: install ## rewrite the style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: install $(EXTRAS_READY) ## build the documentation site; warnings and broken links are errors
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

package: ## build sdist and wheel, and check them in a fresh environment (runs the demo)
	@rm -rf dist build $(PACKAGE)
	@$(PYTHON) -m venv $(PACKAGE)
	@$(PACKAGE)/bin/python -m pip install --quiet --disable-pip-version-check build twine
	@$(PACKAGE)/bin/python -m build --outdir dist >/dev/null
	@$(PACKAGE)/bin/twine check --strict dist/*
	@rm -rf build $(PACKAGE)
	@$(PYTHON) -m venv $(PACKAGE)
	@$(PACKAGE)/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl "$$(grep '^torch==' $(LOCK))"
	@set -e; cd "$$(mktemp -d)"; zoerefine=$(abspath $(PACKAGE))/bin/zoerefine; \
	for name in $$($$zoerefine --help | awk '/^  [a-z]/ {print $$1}'); do $$zoerefine $$name --help >/dev/null; done; \
	$$zoerefine config --example demo >/dev/null; $$zoerefine demo

bench: install ## run every benchmark with --quick, and write benchmarks/RESULTS.md
	@$(BIN)/python benchmarks/common/bench_all.py

install: $(READY)

install-lab: $(LAB_READY)

# The stamp is written last, so an installation that was interrupted is completed by the next one.
$(READY): $(LOCK) pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found: install one, or give PYTHON=..." >&2; exit 2; }
	@echo "installing the pinned requirements into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

$(COMPILED): $(EXTRAS_READY) $(wildcard examples/cpp/* tests/depth/exporting/*.cpp)
	@echo "compiling what tests use"
	@$(PYTEST) --numprocesses 2 $(COMPILING)
	@touch $@

# Tests of optional parts are skipped, by name, where their requirements cannot be installed.
$(EXTRAS_READY): $(EXTRAS) $(BESIDE:%=requirements-%.lock) $(READY)
	@echo "installing what tests of the optional parts need"
	@for list in $(EXTRAS); do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -r $$list \
	  || echo "$$list cannot be installed here: tests that need it are skipped"; done
	@for name in $(BESIDE); do \
	  rm -rf $(VENV)/$$name; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --target $(VENV)/$$name -r requirements-$$name.lock \
	  || echo "requirements-$$name.lock cannot be installed here: tests that need it are skipped"; done
	@touch $(EXTRAS_READY)

$(LAB_READY): $(LOCK) $(LAB_EXTRAS) pyproject.toml
	@echo "installing the pinned requirements without torch into $(LAB)"
	@test -x $(LAB)/bin/python || $(PYTHON) -m venv $(LAB)
	@grep -v '^torch==' $(LOCK) >$(LAB)/requirements.lock
	@$(LAB)/bin/python -m pip install --quiet --disable-pip-version-check -r $(LAB)/requirements.lock
	@for list in $(LAB_EXTRAS); do \
	  $(LAB)/bin/python -m pip install --quiet --disable-pip-version-check \
	    -c $(LAB)/requirements.lock -r $$list \
	  || echo "$$list cannot be installed here: tests that need it are skipped"; done
	@$(LAB)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(LAB_READY)

clean: ## remove what the demo made (runs of other names stay)
	rm -rf data/synthetic caches runs/demo docs/_build
