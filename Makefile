# The stable interface of the project. Each target works from a fresh clone, alone.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PYTHON := $(VENV)/bin/python
SHELL_FILES = $(shell git ls-files '*.sh' bin .ci)

.PHONY: help demo test check lab lab-down clean env setup lock docs pictures

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## Two simulated Sparks, a real deployment, one chat completion
	@$(PYTHON) -m lab.demo

test: setup ## All tests that this machine can run; the last lines say what could not run, and why
	@$(PYTHON) -m lab.prepare
	@$(PYTHON) -m pytest -n 5 --dist loadscope --no-loadscope-reorder --durations 15

check: setup ## Formatting, lint, types, shell, known vulnerabilities and the fast tests; no Docker
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy .
	@$(VENV)/bin/shellcheck $(SHELL_FILES)
	@$(VENV)/bin/shfmt -i 2 -ci -d $(SHELL_FILES)
	@$(PYTHON) -m scripts.reference --check
	@$(PYTHON) -m scripts.audit & audit=$$!; \
	  $(PYTHON) -m pytest -q -n 4 --dist loadscope --no-loadscope-reorder -m 'not engine and not lab and not real'; \
	  wait $$audit

lab: setup ## The two simulated Sparks alone
	@$(PYTHON) -m lab up

lab-down: setup ## Remove them
	@$(PYTHON) -m lab down

env: setup ## Shell settings for plain pulumi: eval "$$(make -s env)"
	@$(PYTHON) -m lab.environment

docs: setup ## Write the reference page and the JSON schema from the settings
	@$(PYTHON) -m scripts.reference

pictures: setup ## Draw the pictures of the README anew, from the deployment of make demo
	@$(PYTHON) -m lab.pictures

clean: ## Remove the lab, and what was built in this folder; caches outside it stay
	@[[ ! -x $(PYTHON) ]] || $(PYTHON) -m lab down
	@rm -rf $(VENV) .local Pulumi.lab.yaml .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(VENV)/.complete

$(VENV)/.complete: requirements.lock bin/bootstrap
	@bin/bootstrap $(VENV) requirements.lock
	@touch $@

lock: setup ## Resolve the dependencies of pyproject.toml again
	@$(PYTHON) -m pip install -q uv
	@$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' pyproject.toml --extra operator --group pyproject.toml:dev -o requirements.lock
