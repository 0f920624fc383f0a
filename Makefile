# Two commands do everything: `make demo` and `make test`. Python 3.11+ and make are all they assume.
PYTHON ?= python3
BIN := .venv/bin
export UV_PYTHON_DOWNLOADS := never
# Some images set it: then each of the processes that the tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup clients openhands demo demo-gateway test quick check unit docs bench bars soak golden lock wheels release adapters crewai lock-adapters test-adapters clean

help:
	@echo "make demo    set up, replay the sample runs, print what each strategy costs, write report.html"
	@echo "make demo-gateway  a recorded run through the gateway, with its dashboard; no key needed"
	@echo "make test    set up, then lint, types and the whole test suite"
	@echo "make quick   lint, types, and the unit tests of what changed"
	@echo "make check   lint and types only        make unit   the tests only"
	@echo "make bench   speed and cost, as ratios  make soak   the long trials, whole"
	@echo "make bars    every figure that the docs promise, in a small form"
	@echo "make docs    these pages as a site, under build/docs"
	@echo "make clients install LiteLLM, mini-swe-agent and coding agents, for the tests that need them"
	@echo "make openhands install the OpenHands SDK for its test (Python 3.12 or newer)"
	@echo "make adapters install the agent frameworks, for the tests of the adapters    make crewai  CrewAI, too"
	@echo "make test-adapters  the contract suite of the adapters, with every framework that is installed"
	@echo "make golden  rewrite the golden files   make clean  remove everything built"
	@echo "make release sdist and wheel in dist, checked; make lock  the container's packages anew; make wheels  for its build"

.venv/run: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Elision needs Python 3.11 or newer; try: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[report]'
	@touch $@

.venv/gateway: .venv/run
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[gateway]'
	@touch $@

.venv/dev: .venv/run
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]'
	@touch $@

# Clients of the gateway that cannot live beside the rest, for tests/clients: without them those tests are skipped.
.venv-clients/ready: tests/clients/requirements.txt | .venv/run
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-clients
	$(BIN)/uv pip install --quiet --no-deps --python .venv-clients/bin/python -r $<
	@touch $@

.node-clients/ready: tests/clients/node/package.json
	@mkdir -p .node-clients && cp $< .node-clients/
	@command -v npm >/dev/null || echo "no npm: coding agents in JavaScript will not be tried"
	@! command -v npm >/dev/null || (cd .node-clients && npm install --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error && touch ready) || echo "npm could not install: coding agents in JavaScript will not be tried"

# The OpenHands SDK needs Python 3.12 or newer and half a gigabyte: for its tests alone, and no part of `make test`.
OPENHANDS_PYTHON ?= >=3.12
.venv-openhands/ready: tests/adapters/requirements-openhands.txt | .venv/run
	$(BIN)/uv venv --quiet --clear --python '$(OPENHANDS_PYTHON)' .venv-openhands || (echo "no Python 3.12 or newer (make openhands OPENHANDS_PYTHON=PATH): the OpenHands SDK will not be tried"; exit 1)
	$(BIN)/uv pip install --quiet --no-deps --compile-bytecode --python .venv-openhands/bin/python -r $<
	$(BIN)/uv pip install --quiet --no-deps --python .venv-openhands/bin/python -e .
	@touch $@

openhands: .venv-openhands/ready

# The agent frameworks of tests/adapters, some 200 packages and 900 MB, and Elision as a plugin of those that look for
# plugins: the tests take the code of this folder. No part of `make test`.
.venv-adapters/ready: tests/adapters/requirements.txt | .venv/run
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-adapters
	$(BIN)/uv pip install --quiet --no-deps --compile-bytecode --python .venv-adapters/bin/python -r $<
	$(BIN)/uv pip install --quiet --no-deps --python .venv-adapters/bin/python -e .
	@touch $@

# CrewAI allows one version of openai only, and is as large as all the others together.
.venv-crewai/ready: tests/adapters/requirements-crewai.txt | .venv/run
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-crewai
	$(BIN)/uv pip install --quiet --no-deps --compile-bytecode --python .venv-crewai/bin/python -r $<
	$(BIN)/uv pip install --quiet --no-deps --python .venv-crewai/bin/python -e .
	@touch $@

adapters: .venv-adapters/ready

crewai: .venv-crewai/ready

# Newer versions of the frameworks, after an edit of requirements.in.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links --override tests/adapters/overrides.txt --extra gateway pyproject.toml
lock-adapters: .venv/run
	$(LOCK) --python-version 3.11 tests/adapters/requirements.in -o tests/adapters/requirements.txt
	$(LOCK) --python-version 3.11 tests/adapters/requirements-crewai.in -o tests/adapters/requirements-crewai.txt
	$(LOCK) --python-version 3.12 tests/adapters/requirements-openhands.in -o tests/adapters/requirements-openhands.txt

test-adapters: .venv/dev
	$(BIN)/python -m pytest -n auto --dist loadfile tests/adapters

setup: .venv/dev

clients: .venv-clients/ready .node-clients/ready

demo: .venv/run
	$(BIN)/elision demo --html report.html

demo-gateway: .venv/gateway
	@$(BIN)/elision demo --gateway

# Types and tests side by side: the types take one core for half a minute.
test: .venv/dev clients
	@$(MAKE) --no-print-directory -j 2 check unit

# Lint, types, and the unit tests of what differs from main: no server, browser or other program is started.
quick: check
	@tests="$$($(BIN)/python tools/changed_tests.py)"; test -z "$$tests" || $(BIN)/python -m pytest -q -n auto $$tests

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# On every core; the tests of a file share what is expensive to build, so they stay in one process. tests/conftest.py
# orders the files.
ON_EVERY_CORE := -n auto --dist loadfile --no-loadscope-reorder --durations 10

unit: .venv/dev clients
	$(BIN)/python -m pytest $(ON_EVERY_CORE)

docs: .venv/dev
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --nitpicky -d build/doctrees docs build/docs
	@echo "The documentation: file://$(CURDIR)/build/docs/index.html"

bench: .venv/dev
	$(BIN)/python -m benchmarks

# What regressed since the last landing: ten minutes on two idle cores. LAND=1 writes the new figures.
bars: .venv/dev
	$(BIN)/python -m benchmarks.bars $(if $(LAND),--land)

soak: .venv/dev clients
	ELISION_SOAK=1 $(BIN)/python -m pytest --hypothesis-profile=soak $(ON_EVERY_CORE)

golden: .venv/dev
	for script in tests/golden/update_*.py; do $(BIN)/python $$script; done

# What the container installs, with hashes, for every Python and platform. Commit what it writes.
lock: .venv/run
	for name in requirements build; do echo "# Every package of the container with its hashes; \`make lock\` writes this file anew." > deploy/$$name.lock; done
	$(BIN)/uv pip compile --quiet $(LOCKED) --extra gateway --extra prometheus --extra postgres --extra mcp pyproject.toml >> deploy/requirements.lock
	echo 'hatchling>=1.25' | $(BIN)/uv pip compile --quiet $(LOCKED) - >> deploy/build.lock

LOCKED := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header

# The wheels of both locks, so that the container builds without a network: for the image's Python and this platform.
wheels:
	$(PYTHON) -m pip download --quiet --only-binary :all: --python-version 3.13 --require-hashes -d deploy/wheels -r deploy/requirements.lock
	$(PYTHON) -m pip download --quiet --only-binary :all: --python-version 3.13 --require-hashes -d deploy/wheels -r deploy/build.lock

# sdist and wheel, as they would be uploaded. The version is in pyproject.toml, its date in CHANGELOG.md.
release: .venv/dev
	rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist .
	$(BIN)/python tools/check_release.py dist

clean:
	rm -rf .venv .venv-clients .venv-openhands .node-clients build dist deploy/wheels report.html .mypy_cache .ruff_cache .pytest_cache .hypothesis .venv-adapters .venv-crewai
