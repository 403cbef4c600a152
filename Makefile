# Every target does its own set-up: all it needs is a Python 3.11 or newer with venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pytest compiles each file of tests, which takes half of a minute. It keeps what it compiled only without this variable.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

QUICK := tests/unit tests/scenarios tests/sim tests/chaos

# Of tests: two more than there are cores, for many tests wait for processes rather than for a core.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
SPREAD := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

# What klamm/_core.pyx replaces.
IN_PURE_PYTHON := tests/unit/klamm/producer tests/unit/klamm/consumer tests/unit/klamm/records tests/unit/klamm/arrow \
    tests/unit/klamm/test_partitioner.py tests/unit/klamm/test_core.py \
    tests/integration/client/test_producer_interrupts.py tests/integration/client/test_arrow.py \
    tests/integration/client/test_producer_threads.py tests/integration/client/test_producer_values.py \
    tests/integration/client/test_producer_leaks.py

.DEFAULT_GOAL := help
.PHONY: help setup demo check quick-tests test tests quarantine fresh-seeds clients pipelines-test compose-test wheels lint format unit integration coverage bench bench-peers bench-gate sim world chaos fuzz proto reference docs docs-search docs-serve lock clean

help:  ## Lists the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# One environment for everything; made again when the pins or the package's description change.
$(VENV)/.ready: requirements.lock pyproject.toml tools/build_proto.py tools/rpc_stubs.py tools/build_hook.py tools/build_core.py klamm/_core.pyx tools/compile_pyspark.py $(wildcard proto/klamm/v1/*.proto)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "klamm needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Set PYTHON=..."; exit 1; }
	@# A lock names every package, so pip must not look for dependencies itself: it would find a newer version of one that
	@# is asked for with an extra, and refuse it for want of a hash.
	$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from klamm.core import core; core or print("klamm/_core.pyx was not compiled, so the client is \
	    slower: it needs a C compiler and Python.h (on Debian: apt-get install gcc libc6-dev python3-dev)")'
	@# As pip does for a wheel. An editable install leaves it to the first start, and each one after that where
	@# PYTHONDONTWRITEBYTECODE is set.
	$(BIN)/python -m compileall -q klamm klamm_cli services spark
	$(BIN)/python tools/compile_pyspark.py
	@touch $@

setup: $(VENV)/.ready  ## Makes the virtual environment, with every dependency pinned by hash.

demo: setup  ## A year of real flights through the log, Spark and back, checked against pandas.
	$(BIN)/python demo/flights.py

check: setup  ## Lint, unit tests, scenarios and simulations: nothing that starts a process. After each edit.
	+@$(MAKE) --no-print-directory --jobs 2 lint quick-tests

quick-tests: setup
	$(PYTEST) $(QUICK) $(SPREAD)

test: setup  ## Lint and every test a laptop can run. Before each commit.
	@sh tools/install_programs.sh "A part of make test" prometheus:prometheus kcat:kcat || true  # the tests say what they leave out
	@# Alone, because Ubuntu has no such package.
	@sh tools/install_programs.sh "A part of make test" kubectl:kubernetes-client || true
	@# Beside each other: mypy has one core for itself, and the first tests wait for processes.
	+@$(MAKE) --no-print-directory --jobs 2 lint tests

tests: setup
	@# Compiles all files once. Each worker would do it for itself, at the same time.
	@$(PYTEST) tests --collect-only --quiet >/dev/null 2>&1 || true  # the tests say what is wrong
	$(PYTEST) tests -m "not clients and not compose and not chaos and not pipelines and not quarantine" $(SPREAD) \
	    --durations 30
	@# Once more with what a machine without a C compiler has.
	KLAMM_CORE=pure $(PYTEST) $(IN_PURE_PYTHON) $(SPREAD)

quarantine: setup  ## Tests that fail now and then for a cause that is known and not yet mended.
	$(PYTEST) tests -m quarantine

fresh-seeds: setup  ## Simulations and property tests with new random seeds; a finding prints its seed and command.
	TEST_SEED=random $(PYTEST) tests/sim -k a_slice_of_seeds --numprocesses $(JOBS)
	TEST_SEED=random $(PYTEST) tests/unit -m hypothesis --numprocesses $(JOBS)

clients: setup  ## Kafka's clients and programs against the Kafka listener, and tables of them; CLIENTS=--table writes them into docs.
	sh tools/install_programs.sh "make clients" java:default-jdk-headless mvn:maven kcat:kcat pg_ctlcluster:postgresql
	$(PYTEST) tests/clients $(CLIENTS)

pipelines-test: setup  ## The data pipelines at length: a year of flights, killed drivers, a Spark standalone cluster.
	$(PYTEST) tests/integration/spark/test_pipelines_at_length.py

compose-test: setup  ## The image and compose.yaml: builds it, strikes its containers; starts a Docker engine if it must. As root.
	sh tools/install_programs.sh "make compose-test" dockerd:docker.io docker-compose:docker-compose \
	    mmdebstrap:mmdebstrap iptables:iptables || true  # the tests say what they leave out
	$(PYTEST) tests/compose -m "compose and not quarantine" -p no:randomly --capture=no

wheels: setup  ## deploy/wheels: what the image needs where it is built without a package index; WHEELS="server build spark".
	deploy/wheels.sh $(WHEELS)

lint: setup  ## ruff, mypy, import contracts, plain English, spelling.
	@sh tools/lint.sh $(BIN)

format: setup  ## Rewrites the sources in the house format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: setup  ## Only the unit tests.
	$(PYTEST) tests/unit

integration: setup  ## Only the tests with real processes, sockets, disks and Spark.
	$(PYTEST) tests/integration

COVERED := $(QUICK) tests/integration

coverage: setup  ## What the tests reach, by package, processes that they start among it; COVERED="tests/unit" for a part.
	$(PYTEST) $(COVERED) -m "not pipelines" $(SPREAD) \
	    --cov --cov-report= -W "ignore::coverage.exceptions.CoverageWarning" || true  # the tests say what failed
	$(BIN)/python tools/coverage_by_package.py

sim: setup  ## 5,000 seeds of the simulated quorum, partition, transaction and group protocol, and retention; SIM="--minutes 30" for more.
	$(BIN)/python tests/sim/run.py raft $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/run.py isr $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/run.py txn $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/run.py batch $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/run.py group $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/run.py hold $(or $(SIM),--seeds 5000)

world: setup  ## Seeds of a whole cluster in virtual time, for two minutes; WORLD="--start 1 --seeds 5000" for others.
	$(BIN)/python tests/world/run.py $(or $(WORLD),--start 1 --seeds 1000 --seconds 120 --jobs $$(getconf _NPROCESSORS_ONLN))

chaos: setup  ## An hour of faults against real processes; CHAOS="quorum --minutes 30 --seed 42" for others.
ifdef CHAOS
	$(BIN)/python tests/chaos/run.py $(CHAOS)
else
	$(BIN)/python tests/chaos/run.py quorum --minutes 5
	$(BIN)/python tests/chaos/run.py partitions --minutes 10
	$(BIN)/python tests/chaos/run.py partitions --cluster up --minutes 10
	$(BIN)/python tests/chaos/run.py secured --minutes 10
	$(BIN)/python tests/chaos/run.py transactions --minutes 10
	$(BIN)/python tests/chaos/run.py retention --minutes 10
	$(BIN)/python tests/chaos/run.py spread --minutes 5
	$(BIN)/python tests/chaos/run.py clients --minutes 5 --kills 20
	$(BIN)/python tests/chaos/run.py interrupts --minutes 2
	$(PYTEST) tests/integration/spark/test_spark_windows.py
	$(BIN)/python tests/chaos/run.py spark --minutes 20 --kills 100
endif

bench: setup  ## Every benchmark; bench/RESULTS.md says how to read them.
	sh tools/install_programs.sh "make bench" java:default-jdk-headless mvn:maven || true  # bench/spark.py says what it lacks
	$(BIN)/python bench/run.py

bench-peers: setup  ## Klamm beside Kafka, NATS, Redis and RabbitMQ, an hour; PEERS="--only nats" for one, "--quick" for less.
	sh tools/install_programs.sh "make bench-peers" java:default-jdk-headless mvn:maven nats-server:nats-server \
	    redis-server:redis-server rabbitmq-server:rabbitmq-server
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r bench/peers-requirements.lock
	$(BIN)/python bench/peers.py $(PEERS)

bench-gate: setup  ## Is this tree slower than the one before? Ten minutes beside it, Kafka and other clients; GATE="--record".
	sh tools/install_programs.sh "make bench-gate" java:default-jdk-headless mvn:maven
	$(BIN)/python bench/gate.py $(GATE)

fuzz: setup  ## 10,000,000 inputs each to the client's compiled core, the Kafka listener, its login and the mechanisms; FUZZ="--inputs 100000" for fewer.
	$(BIN)/python tests/fuzz/core.py $(FUZZ)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r tests/fuzz/requirements.lock
	$(BIN)/python tests/fuzz/kafka_listener.py $(FUZZ)
	$(BIN)/python tests/fuzz/kafka_login.py $(FUZZ)
	$(BIN)/python tests/fuzz/sasl.py $(FUZZ)

$(VENV)/.docs: $(VENV)/.ready docs/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r docs/requirements.lock
	@touch $@

reference: setup  ## Writes the pages of docs/reference again, types of settings and docstrings, which are made from the code.
	$(BIN)/klamm configs docs > docs/reference/settings.md
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.setting_types
	$(BIN)/python -m tools.facade_docstrings
	$(BIN)/python -m tools.sync_admin

docs: $(VENV)/.docs  ## Builds the documentation site into build/site; a warning is an error.
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --clean

docs-search: docs  ## Asks the site's search the questions of readers.
	sh tools/install_programs.sh "make docs-search" node:nodejs
	node tools/docs_search.mjs build/site tools/docs_search_questions.txt

docs-serve: $(VENV)/.docs  ## Shows the documentation site at 127.0.0.1:8000, and each change at once.
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs serve --livereload

proto: setup  ## Builds the gRPC code from proto/ again.
	$(BIN)/python tools/build_proto.py

PIP_COMPILE := $(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --strip-extras --no-emit-index-url \
    --no-emit-find-links --no-emit-trusted-host --no-header

lock: setup  ## Resolves the pinned dependencies again (name, version, hash).
	$(BIN)/python -m pip install --quiet pip-tools
	$(PIP_COMPILE) --all-build-deps --extra dev --output-file requirements.lock pyproject.toml
	$(BIN)/python tools/deploy_locks.py
	$(PIP_COMPILE) --output-file bench/peers-requirements.lock bench/peers-requirements.in
	$(PIP_COMPILE) --output-file docs/requirements.lock docs/requirements.in
	$(PIP_COMPILE) --output-file tests/clients/quix/requirements.lock tests/clients/quix/requirements.in

clean:  ## Removes the environment and everything built.
	rm -rf $(VENV) build dist klamm/_core.*.so klamm/wire/v1/*_pb2.py klamm/wire/v1/*_pb2.pyi klamm/wire/v1/*_rpc.py klamm/wire/v1/*_rpc.pyi
