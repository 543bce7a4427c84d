# Everything runs in .venv, which is made on first use from requirements.lock. `make help` lists the targets.

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-cost check-fast pythons packages java current-pgbouncer generate lint types format dist-check docs benchmarks worker-speed lock clean

# Every command, and every process that the tests start, would compile again all that it imports.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
SETUP := .venv/.complete
SOURCES := $(wildcard jmsql pyspark_jmsql tests tools benchmarks examples migrations)
PYTHON ?= $(shell for candidate in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$candidate -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$candidate && break; done)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 19

setup: $(SETUP) ## make the virtual environment

$(SETUP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with venv found. Install one (Debian: apt-get install python3-venv), or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting up .venv with $(PYTHON) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(SETUP) ## run the demonstration on an embedded PostgreSQL (ARGS="--all" for the whole input)
	@$(BIN)/python -m examples.flights $(ARGS)

# Tests come in random order, which follows from the names of their files: what fails on one machine fails on another.
SEED = $(shell find tests -name '*.py' | LC_ALL=C sort | cksum | cut -d' ' -f1)

# What the tests leave of the processors, and little more, goes to the other checks, whose output comes at the end.
WITH_CHECKS = checks=$$(mktemp) && \
	{ nice $(MAKE) --no-print-directory --keep-going $(CHECKS) >$$checks 2>&1 & }; \
	$(BIN)/python -m pytest --numprocesses logical --randomly-seed=$(SEED) $(ARGS) $(TESTS); tests=$$?; \
	wait $$!; others=$$?; \
	cat $$checks; rm $$checks; \
	test $$tests = 0 || echo "Failed: pytest" >&2; \
	test $$others = 0 || echo "Failed: one of make $(CHECKS)" >&2; \
	test $$tests = 0 && test $$others = 0

test: CHECKS := lint docs
test: current-pgbouncer ## run every check and all tests (ARGS go to pytest)
	@$(WITH_CHECKS)

test-cost: override ARGS += --budget
test-cost: test ## run all tests, and fail where they take more processor time than tests/plugins/budget.toml allows

check-fast: CHECKS := lint
# One API and one way to the server: the API for threads is generated from that for asyncio.
check-fast: TESTS := --route direct -k "not asyncio" tests/unit tests/compliance tests/integration/store
check-fast: $(SETUP) ## check what goes wrong most often: lint, and the tests of units, of JMS (for threads) and of the store
	@$(WITH_CHECKS)

pythons: $(SETUP) ## run the core's tests with each Python that is installed (PYTHONS="3.12 …")
	@$(BIN)/python -m tests.supported_versions $(PYTHONS)

# What tests need beside Python: a pooler, a clock that can be set, a network that can swallow packets, a browser, promtool
# (of Prometheus), curl, Java.
packages: WANTED := pgbouncer libfaketime iproute2 chromium chromium-driver prometheus curl default-jre-headless
# Servers among them do not start: Debian asks this program first.
POLICY := /usr/sbin/policy-rc.d
packages: $(SETUP) ## find what the tests need beside Python, or install it (Debian, as root)
java: WANTED := default-jre-headless
java: $(SETUP) ## find Java 17 or newer, which Spark needs, or install it (Debian, as root)

packages java:
	@missing=; \
	for package in $(WANTED); do \
		case $$package in \
			pgbouncer) command -v pgbouncer || test -x /usr/sbin/pgbouncer ;; \
			libfaketime) ls /usr/lib/*/faketime/libfaketimeMT.so.1 ;; \
			iproute2) command -v ip ;; \
			curl) command -v curl ;; \
			chromium) command -v chromium ;; \
			chromium-driver) command -v chromedriver ;; \
			prometheus) command -v promtool ;; \
			default-jre-headless) $(BIN)/python -m jmsql.spark.session ;; \
		esac >/dev/null 2>&1 || missing="$$missing $$package"; \
	done; \
	if test -z "$$missing"; then exit 0; fi; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		echo "Installing$$missing ..."; \
		test -e $(POLICY) || { trap 'rm $(POLICY)' EXIT; \
			printf '#!/bin/sh\nexit 101\n' >$(POLICY); chmod 755 $(POLICY); }; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends $$missing >/dev/null && exit 0; \
	fi; \
	if test $@ = java; then $(BIN)/python -m jmsql.spark.session >/dev/null; exit; fi; \
	echo "Not installed:$$missing. Without them, tests behind a pooler, of clocks, of networks, of alerts and of" \
		"reports are skipped, and those of Spark fail without Java; as root on Debian, apt-get install$$missing brings them." >&2

current-pgbouncer: packages ## find a PgBouncer that keeps prepared statements, or build it (Debian, as root)
	@bash tools/current_pgbouncer $(BIN) || \
		echo "Not built: a PgBouncer of 1.21 or newer. The tests run behind the installed one alone." >&2

generate: $(SETUP) ## make the client for threads from its source for asyncio
	@$(BIN)/python -m tools.async_to_sync

lint: $(SETUP) ## check style, types and layers
	$(BIN)/ruff check --quiet $(SOURCES)
	$(BIN)/ruff format --quiet --check $(SOURCES)
	@$(BIN)/python -m tools.async_to_sync --check
	@$(MAKE) --no-print-directory types
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.prose docs README.md CONTRIBUTING.md CHANGELOG.md $(SOURCES)

# Programs in the documentation are types to check as well; with the rest, which they import, they cost next to nothing.
types: $(SETUP) ## check types alone
	@$(BIN)/python -m tests.documentation build/programs
	$(BIN)/mypy --no-error-summary $(SOURCES) build/programs

format: $(SETUP) ## put the code in shape
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# Some minutes: Spark among the extras is large.
dist-check: $(SETUP) ## build the wheel and the sdist, and use each extra in a clean environment (EXTRAS="worker …")
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tools.dist_check $(EXTRAS)

# The variable silences an advertisement of the theme's. `--quiet` would hide warnings, and --strict would not count them.
docs: $(SETUP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

benchmarks: $(SETUP) ## measure (ARGS="NAME --json FILE")
	@$(BIN)/python -m benchmarks $(ARGS)

worker-speed: $(SETUP) ## measure workers, and write docs/worker-speed.md (half an hour)
	@$(BIN)/python -m benchmarks worker-peers --json worker-speed.json $(ARGS)
	@$(BIN)/python -m benchmarks.workers.page worker-speed.json

lock: $(SETUP) ## renew requirements.lock (ARGS="--upgrade" for newer versions)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--no-emit-index-url --all-extras --group dev --output-file requirements.lock $(ARGS) pyproject.toml

clean: ## remove everything that was made here
	rm -rf .venv site build dist jmsql-demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +
