# The verbs of the project. They need Python 3.11 or newer with pip, and make; everything else goes into .venv.
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# At most four workers, and no more than the free memory has room for: a worker takes less than 2 GB.
WORKERS = $(or $(shell awk '/^MemAvailable:/ { n = int($$2 / 2097152); print (n < 1 ? 1 : n > 4 ? 4 : n) }' /proc/meminfo 2>/dev/null),4)
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help run test test-all check coverage docs bench clean

help: ## show the verbs
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/.installed ## install and run a small campaign (make run ARGS="--help" shows its settings)
	$(BIN)/musbo run $(ARGS)

test: $(VENV)/.installed-dev ## the short forms of all tests (make test ARGS="tests/theory -x" runs some)
	$(PYTEST) $(ARGS)

# The short forms compile without LLVM's optimiser (tests/conftest.py), the long ones as users do.
test-all: $(VENV)/.installed-dev ## all tests, the long forms too
	XLA_FLAGS= $(PYTEST) -m "" --hypothesis-profile long $(ARGS)

check: $(VENV)/.installed-dev ## what a change has to pass: format, lint, types, import rule, tests (the documents' links too)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(PYTEST) $(ARGS)

coverage: $(VENV)/.installed-dev ## the short forms, with the lines that they miss
	$(PYTEST) --cov --cov-report term-missing $(ARGS)

docs: $(VENV)/.installed-dev ## the site, in site/ (open site/index.html); a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

bench: $(VENV)/.installed ## speed beside the peers and the machine's limit (on an idle machine, about half an hour)
	$(BIN)/python benchmarks/speed/run.py $(ARGS)
	$(BIN)/python benchmarks/speed/growth.py
	$(BIN)/python benchmarks/speed/start.py

clean: ## remove the environment, caches and build products
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A system Python may come without ensurepip (Debian's does); its own pip can then fill the environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "musbo needs Python 3.11 or newer, and $(PYTHON) is %d.%d: try make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV) 2>/dev/null || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[sim,report]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[cluster,tensorboard,hdf5,minari,docs]' --group dev
	touch $@
