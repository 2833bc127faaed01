# Everything stands on .venv, which the first target that needs it makes.
VENV := .venv
BIN := $(VENV)/bin
SEED := 0
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test schedules check format proto bench chaos train clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with all that is needed

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard protos/specmesh/v1/*.proto)
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[local]'
	touch $@

demo: $(READY) ## start a mesh, answer prompts with every strategy, compare
	$(BIN)/specmesh demo

test: $(READY) ## run all tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

schedules: $(READY) ## run the orchestrator through 100,000 schedules on a virtual clock
	$(BIN)/python -m tests.schedules $(ARGS)

check: $(READY) ## lint, types and protos
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code

format: $(READY) ## format code and protos
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/buf format --write

proto: $(READY) ## build the gRPC stubs again
	$(BIN)/python hatch_build.py

bench: $(READY) ## measure a hop, the engine, the mesh's tax and every strategy (20 minutes)
	$(BIN)/specmesh bench hops --json
	$(BIN)/specmesh bench engine --json
	$(BIN)/specmesh bench mesh --json
	$(BIN)/specmesh bench strategies --json

chaos: $(READY) ## break a mesh at random, check every token (30 minutes; SEED=n for another run)
	$(BIN)/specmesh bench chaos --minutes 30 --seed $(SEED) --json

train: $(READY) ## train the shipped model pair from scratch (takes hours)
	$(BIN)/specmesh train

clean: ## remove what was built; keeps the models
	rm -rf $(VENV) stubs dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
