# Needs Python 3.11-3.13 and make; everything else is downloaded into .venv/ and .calve/.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full test-snowflake check structure words docs bench up down lock clean

# Each process of a test or of the demo loads compiled modules; without files of them it would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell $(p) -c $(supported) >/dev/null 2>&1 && echo $(p))))
supported := 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Each worker has a stack and a Spark session of its own; tests that share something costly go to one worker.
PYTEST_BY_TWO := $(BIN)/python -m pytest -n 2 --dist loadgroup
# What make test does by the columnar engine wherever that can, here by rows.
BY_ROWS := $(addprefix tests/integration/,ingest/test_rounds.py decode/test_types.py decode/test_evolution.py decode/test_rejects.py \
	tables/test_layout.py steps/test_steps.py steps/test_flatten_step.py steps/test_mask_step.py \
	steps/test_route_step.py steps/test_sql_step.py crash/test_crash.py ingest/test_topic_changes.py \
	decode/test_on_error.py decode/test_registries.py ingest/test_freshness.py decode/test_json.py \
	decode/test_connect_json.py decode/test_sources.py)
# CI takes long tests, too: make test MARKS="not full".
MARKS := not full and not long
# pip's hundreds of lines go into a log: the terminal gets every 25th package, or the log's end if pip fails.
pip = @{ $(PIP) install $(1) 2>&1; echo "pip ended: $$?"; } | tee -a $(VENV)/pip.log | awk ' \
	/^Collecting / && ++found % 25 == 0 { print "  " found " packages found"; fflush() } \
	/^Installing collected/ { if (found > 25) print "  installing " found " packages"; fflush() } \
	{ end[NR % 20] = $$0 } \
	/^pip ended: / { code = $$3 } \
	END { if (code) for (line = NR - 19; line <= NR; line++) print end[line % 20]; exit code }'
UV_COMPILE = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

help: ## Show this screen
	@printf 'calve keeps Kafka topics as Apache Iceberg tables, exactly once.\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nFirst time here? make demo\n'

setup: $(READY) ## Install everything Python into .venv (again only when the lock changes)

$(READY): requirements.txt requirements-build.txt pyproject.toml
	@test -n "$(PYTHON)" && $(PYTHON) -c $(supported) || { \
	  echo "calve needs Python 3.11, 3.12 or 3.13; python3 here is $$(python3 --version 2>&1 || echo missing)."; \
	  echo "Fix: install one, or name it: make setup PYTHON=/path/to/python3.13"; exit 1; }
	@echo "calve: installing into $(VENV) with $$($(PYTHON) --version); the first time takes a minute or two"
	$(PYTHON) -m venv --clear $(VENV)
	$(call pip,--require-hashes -r requirements-build.txt)
	$(call pip,--require-hashes --no-build-isolation -r requirements.txt)
	$(call pip,--no-deps --no-build-isolation -e .)
	@touch $@
	@echo "calve: ready. Next: make demo, or $(BIN)/calve doctor, $(BIN)/calve up"

demo: $(READY) ## Run all of calve on this machine: broker to tables, verified (KEEP=1 leaves it up)
	$(BIN)/calve demo $(if $(KEEP),--keep)

test: check ## check, then the stacks as templates, and all of it on the real broker, registry, Spark and CDK
	$(PYTEST_BY_TWO) -m "$(MARKS)" tests/synth tests/integration tests/browser

test-full: test ## test, what takes minutes, compares engines or needs a browser, and unit tests with other random examples
	$(PYTEST_BY_TWO) -m "full or long" tests
	$(BIN)/python -m pytest -n auto tests/unit
	CALVE_TEST_ENGINE=rows $(PYTEST_BY_TWO) -m "not full" $(BY_ROWS)

test-snowflake: $(READY) ## What calve takes Snowflake to do, tried on a real account (says what it needs)
	CALVE_SNOWFLAKE_REAL=1 $(BIN)/python -m pytest tests/unit/lambdas/snowflake/test_contract.py

# Random examples are the same each time: a check fails for a change, not by chance. `make test-full` takes others.
check: $(READY) ## Style, types, layers and unit tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n auto --hypothesis-seed=0 -m "$(MARKS)" tests/unit

structure: $(READY) ## Files, lines, largest folder, floors of imports and circles, by package
	@$(BIN)/python -m tests.structure

words: $(READY) ## Sentences of pages, help and messages that are long, or use words of a dialect
	@$(BIN)/python -m tests.plain_english

docs: $(READY) ## The pages as a site with search, in .calve/site
	@$(BIN)/python docs/site/build.py

bench: $(READY) ## Measure calve beside its peers (QUICK=1: calve, Spark and the limit on one workload; FULL=1, SYSTEM=connect, WORKLOAD=trades)
	$(BIN)/python -m bench --size $(if $(FULL),full,$(if $(QUICK),quick,default)) \
	  $(if $(SYSTEM),--system $(SYSTEM)) $(if $(WORKLOAD),--workload $(WORKLOAD))

up: $(READY) ## Start the embedded stack
	$(BIN)/calve up

down: $(READY) ## Stop the embedded stack
	$(BIN)/calve down

lock: ## Write the requirements anew from pyproject.toml, those of the functions and of the job (needs uv)
	$(UV_COMPILE) --all-extras pyproject.toml -o requirements.txt
	echo setuptools | $(UV_COMPILE) - -o requirements-build.txt
	printf "ministack==1.5.33\nboto3\n" | $(UV_COMPILE) - -o cli/embedded/ministack.txt
	$(UV_COMPILE) --no-deps glue_jobs/engines/columnar/requirements.in -o glue_jobs/engines/columnar/requirements.txt
	$(UV_COMPILE) docs/site/requirements.in -o docs/site/requirements.txt
	for each in lambdas/*/requirements.in; do $(UV_COMPILE) $$each -o $${each%.in}.txt || exit 1; done

clean: ## Stop the embedded stack and remove everything that was downloaded or made
	@test ! -x $(BIN)/calve || $(BIN)/calve down
	rm -rf .calve $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
