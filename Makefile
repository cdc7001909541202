# Everything runs in .venv, which is made on first use.
#
#   make quickstart        a table of five attentions on short generated ListOps, on a CPU
#   make test              the tests;  make test-slow: the long ones as well
#   make JAX=cuda13 ...    install JAX for NVIDIA GPUs (any extra of the jax package: cuda12, tpu)
#   make PYTHON=python3.12 ...    choose the interpreter (3.11 to 3.13)
#   make lint              the linter alone
#   make clean             remove .venv and what the tests keep;  make help: these lines

VENV := .venv
BIN := $(VENV)/bin
# What is installed stays, unless another choice is asked for: `.installed@cuda13@python3`.
CHOSEN := $(subst @, ,$(notdir $(firstword $(wildcard $(VENV)/.installed@*))))
JAX ?= $(or $(word 2,$(CHOSEN)),cpu)
PYTHON ?= $(or $(word 3,$(CHOSEN)),python3)
INSTALLED := $(VENV)/.installed@$(JAX)@$(notdir $(PYTHON))
QUICK := runs/quickstart
# Tests in two processes (more only pays where there are more cores), each with whole files: what
# tests of a file share is made, and their programs are compiled, once.
TEST_WORKERS ?= 2

.PHONY: help install quickstart test test-slow lint clean

install: $(INSTALLED)

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# Python compiles what is imported; for pip to compile all would take a third of its time.
$(INSTALLED): requirements.txt tests/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 to 3.13; choose one: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  "jax[$(JAX)]" -r requirements.txt -r tests/requirements.txt
	@touch $@

quickstart: $(INSTALLED)
	$(BIN)/python -m lra.sweep configs/sweeps/quick.py --results=$(QUICK)/rows.jsonl \
	  --workdir=$(QUICK)/runs --data_dir=$(QUICK)/data
	$(BIN)/python -m lra.report $(QUICK)/rows.jsonl --out=$(QUICK) --curves $(QUICK)/runs/*

test: $(INSTALLED) lint
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile -m "slow or not slow"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .jax_cache
