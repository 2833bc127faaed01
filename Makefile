# Everything stands on .venv, which the first target that needs it makes.
VENV := .venv
BIN := $(VENV)/bin
OUTSIDE := .venv-outside/bin
INSTRUCTOR := .venv-instructor/bin
PHOENIX := .venv-phoenix/bin
K8S := .venv-k8s
SCHEMAS := .schema-suite
VLLM := .venv-vllm
WEIGHTS := ./services/specmesh/models
SEED := 0
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup setup-vllm demo test test-slow numbers gpu-test schedules bad-bodies browser check hashes images k8s-check k8s-smoke vllm-check try-vllm format proto bench chaos outside schema-suite phoenix train clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with all that is needed

$(READY): pyproject.toml constraints.txt hatch_build.py $(WEIGHTS)/pyproject.toml $(shell find protos -name "*.proto")
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/pip install --quiet --no-deps $(WEIGHTS)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[local]'
	touch $@

setup-vllm: $(VLLM)/.ready ## make .venv-vllm, with vLLM for CPUs: specmesh serve verifier --backend vllm (2 GB)

# By uv, which alone can leave out what a package asks for.
$(VLLM)/.ready: pyproject.toml hatch_build.py vllm-overrides.txt $(shell find protos -name "*.proto")
	python3 -m venv --clear $(VLLM)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check 'uv>=0.8'
	VIRTUAL_ENV=$(VLLM) $(VLLM)/bin/uv pip install --quiet $${PIP_FIND_LINKS:+--find-links "$$PIP_FIND_LINKS"} \
		--override vllm-overrides.txt --group vllm --editable '.[local]' $(WEIGHTS)
	touch $@

demo: $(READY) ## start a mesh, answer prompts with every strategy, compare
	$(BIN)/specmesh demo

# They start hundreds of processes: what one has compiled, the next need not.
test test-slow k8s-check vllm-check: export PYTHONDONTWRITEBYTECODE =

PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: $(READY) ## run all tests but the slow ones and those that need vLLM
	$(PYTEST) -m "not slow and not needs_vllm"

test-slow: $(READY) ## run the slow tests: faults by the dozen, other versions and languages, packages, pages, studies
	$(PYTEST) -m slow

# For each processor: the instruction set of PyTorch's own kernels, that of oneDNN's, and what
# LLVM calls it for numba.
INSTRUCTIONS := default:SSE41:nehalem avx2:AVX2:haswell avx512:AVX512_CORE:skylake-avx512

numbers: $(READY) ## run the tests of numbers as older processors would: INSTRUCTIONS=default:SSE41:nehalem
	for level in $(INSTRUCTIONS); do echo "$$level"; others=$${level#*:}; \
		ATEN_CPU_CAPABILITY=$${level%%:*} ONEDNN_MAX_CPU_ISA=$${others%:*} \
		NUMBA_CPU_NAME=$${others#*:} NUMBA_CPU_FEATURES= \
		$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m numbers tests/inference || exit; \
	done

GPU_PYTEST := $(BIN)/python -m pytest --device cuda --numprocesses $(or $(PROCESSES),8) -m "not slow"

# To compile each of hundreds of tiny models would take seconds; vLLM has an environment of its own.
gpu-test: $(READY) ## run the engine's tests with models on a GPU: PROCESSES=8
	$(GPU_PYTEST) --dist loadfile --no-loadscope-reorder tests/gpu tests/conformance \
		tests/decoding/test_noise.py tests/decoding/test_documented_numbers.py
	TORCH_COMPILE_DISABLE=1 $(GPU_PYTEST) --dist worksteal --ignore-glob "*/test_vllm*" tests/inference

schedules: $(READY) ## run the orchestrator through 100,000 schedules on a virtual clock
	$(BIN)/python -m tests.schedules $(ARGS)

bad-bodies: $(READY) ## send a gateway 10,000 generated requests, most of them wrong, beside a stream
	BAD_BODIES=10000 $(BIN)/python -m pytest -s tests/gateway/test_bad_bodies.py

browser: $(READY) ## try the pages in headless Chromium (apt-get install chromium), time the frames of traces
	$(BIN)/python -m pytest tests/cli/page tests/load/test_html_browser.py
	$(BIN)/python -m tests.cli.page.frames

check: $(READY) ## lint, types and protos
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against protos/baseline.binpb

k8s-check: $(READY) $(K8S)/.ready ## render all of k8s/, hold it to Kubernetes, to policies and to the code
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile tests/k8s

# By uv: it takes seconds where pip takes minutes.
$(K8S)/.ready: pyproject.toml
	python3 -m venv --clear $(K8S)
	$(K8S)/bin/pip install --quiet --disable-pip-version-check 'uv>=0.8'
	VIRTUAL_ENV=$(K8S) $(K8S)/bin/uv pip install --quiet --group k8s
	touch $@

hashes: $(READY) ## take the hashes of the packages that images have from the package index
	deploy/images/hashes

images: ## build the images of all roles: BASE=IMAGE@sha256:... ENGINE=podman REGISTRY= TAG= WHEELS=
	deploy/images/build

k8s-smoke: $(READY) .venv-k8s/.ready ## as root on Debian: build the images, play k8s/overlays/podman, break it, roll it
	$(BIN)/python -m tests.k8s_smoke

vllm-check: $(READY) $(VLLM)/.ready ## run all tests that need vLLM, in 10 minutes
	$(BIN)/python -m pytest --engine vllm tests/conformance tests/*/test_vllm*.py

try-vllm: $(READY) ## run another version of vLLM through the conformance suite: VERSION=0.33.0
	$(BIN)/python -m tests.try_vllm $(VERSION)

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

# Each asks for torch as it is here, lest another one comes.
# Instructor bounds what it shares with the others, which would get older versions beside it.
outside: $(READY) $(VLLM)/.ready ## run LangChain, LangGraph, LiteLLM, Instructor, agents, lm-eval, guidellm and vLLM's bench through a gateway (4 GB)
	test -x $(OUTSIDE)/python || python3 -m venv .venv-outside
	$(OUTSIDE)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(OUTSIDE)/pip install --quiet 'guidellm>=0.8' langchain langchain-openai langgraph litellm 'lm-eval[api]' \
		autogen-agentchat 'autogen-ext[openai]' openai-agents 'pydantic-ai-slim[openai]' \
		$$(grep '^torch==' constraints.txt)
	test -x $(INSTRUCTOR)/python || python3 -m venv .venv-instructor
	$(INSTRUCTOR)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(INSTRUCTOR)/pip install --quiet instructor langchain-openai
	$(BIN)/python -m tests.gateway.outside $(OUTSIDE) $(INSTRUCTOR) $(VLLM)/bin
	$(BIN)/python -m tests.gateway.same_load $(OUTSIDE)

schema-suite: $(READY) ## run the JSON Schema Test Suite, which the source of jsonschema ships, against our grammars
	$(BIN)/pip download --quiet --no-deps --no-binary jsonschema --dest $(SCHEMAS) jsonschema
	tar -xzf $(SCHEMAS)/jsonschema-*.tar.gz -C $(SCHEMAS) --strip-components 1
	SCHEMA_SUITE=$(SCHEMAS)/json/tests $(BIN)/python -m pytest -q -s tests/inference/grammar/test_public_suite.py

phoenix: $(READY) ## send a mesh's traces to Arize Phoenix, in an environment of its own (850 MB)
	test -x $(PHOENIX)/python || python3 -m venv .venv-phoenix
	$(PHOENIX)/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	$(PHOENIX)/pip install --quiet 'arize-phoenix>=20,<21'
	$(BIN)/python -m pytest tests/traces/test_phoenix.py

train: $(READY) ## train the shipped model pair from scratch (takes hours)
	$(BIN)/specmesh train

clean: ## remove what was built; keeps the models
	rm -rf $(VENV) .venv-outside .venv-instructor .venv-phoenix $(K8S) $(VLLM) .venv-try-vllm $(SCHEMAS) stubs dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
