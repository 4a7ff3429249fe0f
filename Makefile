# Development commands; `make` alone lists them.

PYTHON ?= python3
JOBS ?= 2
RUN ?= demo
PORT ?= 8000

BIN := .venv/bin
READY := .venv/.ready
EXTRAS := .venv/.extras
SITE := .venv/.docs
QUICK := not learning and not diagonal and not wide and not slow and not faults and not extras and not gpu
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist worksteal
# Only the files that have such tests: to collect all of them takes half a minute.
MARKED = -m "($(subst |, or ,$(1)))$(2)" $(shell grep -rlwE 'mark\.($(1))$(3)' tests --include='test_*.py')
WIDE := |each_system|quick_or_wide|quick_and_wide
COVERED := $(PYTEST) --cov --cov-report=term:skip-covered

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE := # compiled modules are kept: tests start hundreds of processes

.DEFAULT_GOAL := help
.PHONY: help setup demo studio site test test-learning test-wide test-faults test-rest test-extras test-all check bench constraints clean

help: ## List the targets
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14 | sed 's/^/  /'

setup: $(READY) ## Create .venv and install heedful into it, unless that is done

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  version=$$($(PYTHON) --version 2>/dev/null || echo "no $(PYTHON)"); \
	  echo "heedful needs Python 3.11 or newer, but there is $$version."; \
	  echo "  Choose another one, for example: make setup PYTHON=python3.12"; exit 1; }
	@echo "Setting up .venv (first time only, a minute or two) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet -c constraints.txt hatchling editables setuptools
	@$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@
	@echo "Set up. The command is $(BIN)/heedful."

demo: setup ## Train a small Latin-English model, translate with it, draw its attention
	@echo "Running heedful demo ..."
	@$(BIN)/heedful demo

studio: setup ## Open a page on which the attention of a model can be edited; RUN=runs/demo names another
	@$(BIN)/heedful serve $(RUN) --port $(PORT) --open

site: $(SITE) ## Write the documents as a site that works without a network: site/index.html
	@echo "Building the site (about a minute) ..."
	@$(BIN)/python -m tools.site

$(SITE): $(READY)
	@echo "Installing Sphinx ..."
	@$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev,docs,onnx]'
	@touch $@

test: setup ## Run the tests, except those that train a model, kill processes or need a GPU
	@echo "Running the tests on $(JOBS) processes ..."
	@$(if $(COVERAGE),$(COVERED),$(PYTEST)) -m "$(QUICK)"

test-learning: setup ## Check that every mechanism learns: some minutes
	@echo "Training every mechanism on $(JOBS) processes ..."
	@$(PYTEST) $(call MARKED,diagonal)

test-wide: setup ## Check every recipe, every pair of options, the programs in the documents: some minutes
	@echo "Checking every recipe and every pair of options on $(JOBS) processes ..."
	@$(PYTEST) $(call MARKED,wide, and not slow,$(WIDE))

test-faults: setup ## Kill training processes, fill disks and run several ranks; nothing may be lost
	@echo "Running the fault tests, on $(JOBS) processes (some minutes) ..."
	@$(PYTEST) $(call MARKED,faults, and not slow)

test-rest: $(EXTRAS) ## Run the tests of learning, wide, faults and extras side by side, as CI does
	@echo "Running the tests of learning, width, faults and extras on $(JOBS) processes ..."
	@$(PYTEST) $(call MARKED,diagonal|wide|faults|extras, and not slow,$(WIDE))

test-extras: $(EXTRAS) ## Install the optional packages and Triton, and run their tests
	@echo "Running the tests of optional packages, and of Triton kernels in its interpreter ..."
	@$(PYTEST) $(call MARKED,extras, and not slow)

$(EXTRAS): $(READY)
	@echo "Installing TensorBoard, MLflow, wandb, pyarrow, CTranslate2, ONNX, image weights, Sphinx and Triton ..."
	@$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev,dev-serve,dev-triton,dev-vision,track,parquet,argos,docs,hf,onnx]'
	@touch $@

test-all: setup $(EXTRAS) ## Run every test; GPU tests are skipped without a GPU
	@echo "Running every test on $(JOBS) processes; some train a model for minutes ..."
	@$(COVERED) --cov-fail-under=97

CHECKS := check-format check-style check-types check-layers check-limits

check: setup ## Check format, style, types, layers, and limits on size, language and paths
	@$(MAKE) --no-print-directory --jobs=$(JOBS) $(CHECKS)

.PHONY: $(CHECKS)
check-format:
	@echo "Checking the format ..." && $(BIN)/ruff format --check .
check-style:
	@echo "Checking the style ..." && $(BIN)/ruff check .
check-types:
	@echo "Checking the types ..." && $(BIN)/mypy
check-layers:
	@echo "Checking the layers ..." && $(BIN)/lint-imports --no-logo
check-limits:
	@echo "Checking the limits ..." && $(BIN)/python -m tools.limits

bench: setup ## Run every benchmark in benchmarks/; those that need a GPU say so without one
	@$(BIN)/python -m benchmarks

constraints: setup ## Resolve newer versions of everything but torch and write constraints.txt
	@echo "Resolving every version (about a minute) ..."
	@mkdir -p .setup
	@$(BIN)/python -m pip install --isolated --quiet --dry-run --ignore-installed \
	  --report .setup/resolved.json "$$(grep '^torch==' constraints.txt)" \
	  hatchling editables setuptools '.[dev,dev-serve,dev-triton,dev-vision,track,parquet,argos,docs,hf,onnx]'
	@$(BIN)/python tools/write_constraints.py .setup/resolved.json
	@echo "Wrote constraints.txt. Now: make check test"

clean: ## Remove the environment and all caches, never runs/
	rm -rf .venv .setup .site .site-cache site dist htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf .import_linter_cache .coverage .coverage.*
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Removed the environment and the caches; runs/ is unchanged."
