# The front door: every job of the repository is a target here, and `make help` lists them.
# Nothing is expected on the machine but Python 3.11 or newer, make and git; see README.md.

SHELL      := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON     ?= python3
VENV       := .venv
BIN        := $(VENV)/bin
READY      := $(VENV)/.ready
MEMBERS    := libs/gpucore libs/gpukube libs/gpuprobe services/extender services/deviceplugin services/inspect
E2E        := PYTHONPATH=e2e $(BIN)/python -m
KEEP       ?=
KEEP_GOING ?=
NODES      ?= 3
CLUSTER    ?= gpushare-e2e
ARGS       ?=
CASES      ?=
WORKERS    ?= auto
MARK       ?= e2e and not ondemand
VERSION    ?=
ARCH       ?=
REGISTRY   ?=
DOWNLOADS  ?=
KEY        ?=
IDENTITY   ?=
UNIT       := not gpu and not e2e
FAIL_FAST  := $(if $(GPUSHARE_FAIL_FAST),--exitfirst)
PARALLEL   := $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(FAIL_FAST)

# The Kubernetes of the cluster: empty for the newest, or a version such as 1.20 or 1.36.4.
KUBERNETES ?=
export KUBERNETES

# A package index that answers slowly, or fails once, is tried again.
export UV_HTTP_TIMEOUT ?= 120
export UV_HTTP_RETRIES ?= 8

# pip and uv give up where a transfer is cut, so the whole command is tried again.
again = for attempt in 1 2 3 4; do $(1) && exit 0; echo "attempt $$attempt of 4 failed" >&2; done; exit 1

# Files with tests of a budget: the import of all others would take half a minute.
BUDGETS = $(shell grep -rl --include='test_*.py' 'mark\.budget' libs services helm docs e2e | sort)

# Every start of Python would compile all it imports, twice as slow as it is where it is installed.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.txt requirements/uv.txt $(addsuffix /pyproject.toml,$(MEMBERS))
	@echo "==> Python environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "gpushare needs Python 3.11 or newer as '$(PYTHON)'; set PYTHON=..." >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) \
	  || { echo "cannot create $(VENV): on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@$(call again,$(BIN)/python -m pip install --quiet --retries 10 --timeout 60 --require-hashes -r requirements/uv.txt)
	@$(call again,$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation $(addprefix -e ,$(MEMBERS))
	@touch $@

.PHONY: setup
setup: $(READY) ## Create the Python environment (the other targets do it as needed)

.PHONY: demo
demo: $(READY) ## A cluster with mock GPUs, the stack and sample pods on it
	@$(E2E) demo up

.PHONY: demo-down
demo-down: $(READY) ## Remove all of the demo
	@$(E2E) demo down

.PHONY: test
# ARGS goes by the environment: a shell must not read it twice.
test test-all: export ARGS := $(ARGS)
test-all: export GPUSHARE_RANDOM_PODS := 1000
test: $(READY) ## Everything: lint, types, contracts, unit, chart and kind tests; KEEP_GOING=1 runs on after a failure
	@$(E2E) stages test --cluster $(CLUSTER) $(if $(KEEP_GOING),--keep-going)

.PHONY: test-all
test-all: $(READY) ## The same and the cases on demand, which take long: once per release
	@$(E2E) stages all --cluster $(CLUSTER) $(if $(KEEP_GOING),--keep-going)

.PHONY: test-arm64
test-arm64: $(READY) ## Unit tests of core, kube and device plugin on arm64, which an emulator runs (an hour)
	@$(E2E) emulated --architecture=arm64 -n $(WORKERS) $(ARGS)

.PHONY: preflight
preflight: $(READY) ## Show what the nodes of test clusters need and what this machine has (NODES=3)
	@$(E2E) preflight --nodes $(NODES)

.PHONY: preflight-fix
preflight-fix: $(READY)
	@$(E2E) preflight --fix --nodes $(NODES)

.PHONY: prepare
prepare: $(READY) ## Build or fetch what the cases run on: node and base images, programs
	@$(E2E) cluster prepare

.PHONY: check quick-libs quick-services
check: $(READY) ## The fast inner loop: no cluster, under a minute
	@$(MAKE) --no-print-directory --jobs=3 quick-services quick-libs lint

# Two plain processes: reports of short tests cost pytest-xdist more than the tests. ARGS may choose tests of one
# half, and then the other half, which ends with 5, is no failure.
quick-libs: PLACES := libs docs e2e
quick-services: PLACES := services helm
quick-libs quick-services: $(READY)
	@echo "==> quick tests of $(PLACES)"; $(BIN)/python -m pytest -q --hypothesis-profile=quick -m "$(UNIT) and not slow" \
	  $(FAIL_FAST) $(PLACES) $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])

.PHONY: lint
lint: $(READY) ## Style, types and the direction of imports
	@echo "==> style";     $(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .
	@echo "==> types";     $(BIN)/mypy $(addsuffix /src,$(MEMBERS)) e2e docs/generators
	@echo "==> contracts"; $(BIN)/lint-imports

.PHONY: unit
unit: $(READY) ## Unit, property and chart tests
	@echo "==> unit, property and chart tests"; $(PARALLEL) -m "$(UNIT)" $(ARGS)

.PHONY: budgets
budgets: $(READY) ## The tests that compare time with a bound, one after the other
	@echo "==> budgets of time"; $(BIN)/python -m pytest -q -m budget $(FAIL_FAST) $(BUDGETS) $(ARGS)

.PHONY: e2e
e2e: $(READY) ## The cases on a kind cluster; KEEP=1 leaves the cluster, KUBERNETES=1.20 is another version
	@echo "==> what the cases run on"; $(E2E) preflight --fix --nodes 6; $(E2E) cluster prepare
	@echo "==> cases on a kind cluster"; $(BIN)/python -m pytest -m "$(MARK)" -v --durations=40 $(FAIL_FAST) --cluster-name $(CLUSTER) $(if $(KEEP),--keep-cluster) $(CASES) $(ARGS)

.PHONY: e2e-oldest
e2e-oldest: ## The short run on the oldest supported Kubernetes: the cases marked so
	@$(MAKE) --no-print-directory e2e KUBERNETES=1.20 CASES=e2e MARK="e2e and oldest"

.PHONY: machine
machine: IN_QEMU := CI=true GPUSHARE_MACHINE
machine: SCHEDULING := -m scheduling -v --durations=15 $(FAIL_FAST)
machine: TOPOLOGY := e2e/cases/test_topology.py
machine: $(READY) ## The cases on a Linux machine in QEMU: systemd, cgroup v2, reboots and power cuts
	@echo "==> what the machine is made of"; $(E2E) machine
	@echo "==> cases on a machine in QEMU"; CI=true $(BIN)/python -m pytest -m "e2e and ondemand" -v --durations=15 $(FAIL_FAST) e2e/machine/cases $(ARGS)
	@echo "==> cases of any cluster on such a machine"; $(IN_QEMU)=1 $(BIN)/python -m pytest $(SCHEDULING) --deselect $(TOPOLOGY) e2e/cases $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])
	@echo "==> those of topology on one with the GPUs of a DGX-1"; $(IN_QEMU)=dgx1-volta $(BIN)/python -m pytest $(SCHEDULING) $(TOPOLOGY) $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])

.PHONY: bench
bench: $(READY) ## Measure the extender on a real API server (ARGS=--help lists the options)
	@$(E2E) bench $(ARGS)

.PHONY: chaos
chaos: $(READY) ## Kill the parts of a running stack at random, 1,000 times (ARGS=--help lists the options)
	@$(E2E) chaos $(ARGS)

.PHONY: scale
scale: $(READY) ## Measure the extender with 10,000 nodes and 100,000 pods, and compare with the recorded figures
	@$(E2E) scale $(ARGS)

.PHONY: soak
soak: $(READY) ## Run the stack under load for an hour and check that memory stays flat
	@$(E2E) chaos.soak $(ARGS)

.PHONY: idle
idle: $(READY) ## Measure what the device plugin costs on a node where nothing happens
	@$(E2E) chaos.idle $(ARGS)

.PHONY: bench-core
bench-core: $(READY) ## Measure the core
	@$(BIN)/python -m pytest libs/gpucore/bench -q -o python_files='bench_*.py' -o timeout=900 $(ARGS)

.PHONY: bench-calls
bench-calls: $(READY) ## Measure filter, prioritize and bind, beside other checkouts (ARGS=--help lists the options)
	@PYTHONPATH=libs/gpucore/bench $(BIN)/python services/extender/bench/calls.py $(ARGS)

.PHONY: bench-packing
bench-packing: $(READY) ## Compare packing policies on the traces of a folder (ARGS='--traces FOLDER')
	@$(BIN)/python services/inspect/bench/packing.py $(ARGS)

.PHONY: bench-week
bench-week: $(READY) ## Compare packing policies in simulated weeks (ARGS='--traces FOLDER --output FILE')
	@$(BIN)/python services/inspect/bench/week.py $(ARGS)

.PHONY: bench-sizing
bench-sizing: $(READY) ## Measure what recommended sizes free and break in simulated weeks (ARGS=--help lists the options)
	@$(BIN)/python services/inspect/bench/sizing.py $(ARGS)

.PHONY: bench-gpu
bench-gpu: $(READY) ## Measure isolation on this machine's GPU and write docs/isolation.md
	@$(E2E) hardware.bench $(ARGS)

.PHONY: mutation
mutation: $(READY) ## Break lines of a package one at a time and count what the tests notice: PACKAGE=extender
	@$(E2E) mutation $(or $(PACKAGE),extender) $(ARGS)

.PHONY: docs
docs: $(READY) ## Build the documentation into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site && echo "open build/site/index.html"

.PHONY: images
images: $(READY) ## Build the service images, print their sizes, and write SBOMs to artifacts/sbom (ARCH=arm64)
	@$(E2E) images build --architecture="$(ARCH)"

.PHONY: verify-images
verify-images: $(READY) ## Build every image anew and compare ids with those that are there (minutes)
	@$(E2E) images verify --architecture="$(ARCH)"

# Passed by the environment: the name of a tag is text that a shell must not read as a command.
.PHONY: release
release: export VERSION := $(VERSION)
release: export REGISTRY := $(REGISTRY)
release: export KEY := $(KEY)
release: export IDENTITY := $(IDENTITY)
release: export DOWNLOADS := $(DOWNLOADS)
release: export ARCH := $(ARCH)
release: $(READY) ## Write the artefacts of VERSION=x.y.z to dist; ARCH="amd64 arm64" takes both; REGISTRY=host/path pushes, KEY=file or IDENTITY=1 signs them
	@$(E2E) release --version="$$VERSION" --registry="$$REGISTRY" --downloads="$$DOWNLOADS" --key="$$KEY" --identity="$$IDENTITY" --architectures="$$ARCH"

.PHONY: cli
cli: export VERSION := $(VERSION)
cli: export DOWNLOADS := $(DOWNLOADS)
cli: $(READY) ## The gpushare command as a wheel and as one executable file, in dist/cli
	@$(E2E) release.cli --version="$$VERSION" --downloads="$$DOWNLOADS"

.PHONY: lock
lock: $(READY) ## Compile the requirement files with hashes
	@$(BIN)/python requirements/compile.py

.PHONY: clean
clean: ## Remove what the tools made in the checkout
	rm -rf $(VENV) build dist artifacts .pytest-kind .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .coverage* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
