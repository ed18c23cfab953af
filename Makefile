# Needs python3 (3.11 or newer), git and make; everything else is installed into .venv.
PYTHON ?= python3
# Tests wait for processes and disks half of their time: three workers more than cores keep the cores busy.
WORKERS ?= $(shell expr 3 + $$(nproc))
EXAMPLES ?= 10
CPU_BUDGET := 600
# The engine for clusters, on a fake API server: its tests come after the others, beyond the budget of CPU seconds.
CLUSTERS := tests/engines/kubernetes tests/kubernetes
QUICK := "not slow and not packaging and not browser and not cluster and not own_cluster and not forge"
# Compiled modules are kept: test workers and every process that tests start would compile them again.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
# What running needs is there, and what developing needs, too.
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.complete
# Installs $(1) and names each package that it gets meanwhile; errors of pip are shown as they are.
install = bash -o pipefail -c "$(BIN)/python -m pip install --disable-pip-version-check --editable '$(1)' \
	| sed -u -n -E 's/^Collecting ([A-Za-z0-9_.-]+).*/  \1/p; s/^Installing collected .*/  (installing)/p'"
# pytest with its temporary files in memory
IN_MEMORY := $(BIN)/python -m tests.support.scratch
CACHES := .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.DEFAULT_GOAL := test
.PHONY: run test checks test-cpu test-packaging test-page test-forges test-cluster bench lint soak fuzz constraints release packages clean

## Start the daemon on a fresh copy of examples/repo (in DEMO_DIR if that is set) and print what to try next.
run: $(RUNS)
	@$(BIN)/python -m reconciler.demo $(DEMO_DIR)

define LINT
$(BIN)/ruff check --quiet . || status=1; \
$(BIN)/ruff format --check . || status=1; \
$(BIN)/mypy || status=1; \
$(BIN)/lint-imports --no-logo || status=1
endef

## Everything that must hold, long forms left out; prints the CPU seconds that it used beside its budget, which CI enforces at 1.3 times.
test: $(STAMP) packages
	@$(BIN)/python -m tests.support.cpu $(CPU_BUDGET) $(MAKE) --no-print-directory checks
	@$(if $(TESTS),:,$(IN_MEMORY) -q --workers $(WORKERS) -m $(QUICK) $(CLUSTERS))

# Lint runs beside the first tests, which wait more than others; its output comes after theirs, whatever either finds.
checks:
	@found=$$(mktemp); status=0; \
	$(MAKE) --no-print-directory lint >"$$found" 2>&1 & lint=$$!; \
	$(IN_MEMORY) --workers $(WORKERS) $(if $(CI),-p tests.support.cpu) -m $(QUICK) \
		$(or $(TESTS),$(addprefix --ignore=,$(CLUSTERS))) || status=1; \
	wait $$lint || status=1; cat "$$found"; rm -f "$$found"; \
	exit $$status

## The tests by the CPU seconds that each uses.
test-cpu: $(STAMP)
	@$(IN_MEMORY) -q --workers $(WORKERS) -p tests.support.cpu -m $(QUICK) $(TESTS)

## A release, its installation on a machine of its own, the image and the CI examples: CI runs this after the tests.
test-packaging: $(STAMP)
	@tests/setup-debian.sh packaging
	@$(BIN)/python -m pytest -q -m packaging $(or $(TESTS),tests/project tests/release)

## The page in Chromium, with pictures of it in build/pictures: CI runs this after the tests, too.
test-page: $(STAMP)
	@tests/setup-debian.sh page
	@$(IN_MEMORY) -q -m browser $(or $(TESTS),tests/page)

## A Gitea, built from Go modules once, and what it shows of pushes and pull requests: CI runs this after the tests, too.
test-forges: $(STAMP)
	@$(BIN)/python -m tests.notifications.forges.gitea
	@$(IN_MEMORY) -q -m forge $(or $(TESTS),tests/notifications)

## A Kubernetes control plane, built from Go modules once, and what needs one: CI runs this after the tests, too.
## With RECONCILER_TEST_KUBECONFIG, the promises of engines on the cluster of that file instead.
test-cluster: $(STAMP)
ifdef RECONCILER_TEST_KUBECONFIG
	@$(IN_MEMORY) -q -m own_cluster $(or $(TESTS),tests/kubernetes/test_own_cluster.py)
else
	@$(BIN)/python -m tests.kubernetes.cluster.build
	@$(IN_MEMORY) -q -m cluster $(or $(TESTS),tests/kubernetes)
endif

## Style, types and the import contract.
lint: $(STAMP)
	@status=0; $(LINT); exit $$status

## Speed and size, each beside its budget.
bench: $(STAMP)
	@$(BIN)/python -m tests.bench $(BENCH)

## The long forms: many kills, large numbers, properties with many examples.
soak: $(STAMP) packages
	@tests/setup-debian.sh soak
	@EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -m "slow or hypothesis or examples or packaging" $(TESTS)

## Hostile input for an hour (FUZZ_SECONDS for another time), and the two validators on 100,000 mutations.
fuzz: $(STAMP)
	@PARITY_MUTATIONS=100000 $(BIN)/python -m pytest -q tests/documents/test_parity.py
	@$(BIN)/python -m tests.fuzz

## The versions and hashes of the dependencies, for the CI examples and the list in the wheel.
constraints: $(STAMP)
	@$(BIN)/python .ci/constraints.py

## The files of a release in dist/, made from the commit; SIGNING_KEY=FILE signs SHA256SUMS with an ssh key.
release: $(STAMP)
	@tests/setup-debian.sh release
	@PYTHONPATH=.ci $(BIN)/python -m release $(if $(SIGNING_KEY),--key '$(SIGNING_KEY)')

packages:
	@tests/setup-debian.sh tools

$(RUNS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null \
	|| { PYTHON=$(PYTHON) tests/setup-debian.sh venv && $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing the reconciler and what it needs into $(VENV)"
	@$(call install,.)
	@touch $@

$(STAMP): $(RUNS)
	@echo "Installing what the tests need into $(VENV), which takes a minute or two"
	@$(call install,.[dev])
	@touch $@

clean:
	rm -rf $(VENV) $(CACHES) build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
