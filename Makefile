# Every target does its own set-up: all it needs is a Python 3.11 or newer with venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

# Of tests: many of them wait for processes rather than for a core.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test clients pipelines-test compose-test wheels lint format unit integration bench bench-peers sim chaos fuzz proto lock clean

help:  ## Lists the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# One environment for everything; made anew when the pins or the package's description change.
$(VENV)/.ready: requirements.lock pyproject.toml tools/build_proto.py $(wildcard proto/klamm/v1/*.proto)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "klamm needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# As pip does for a wheel. An editable install leaves it to the first start, and each one after that where
	@# PYTHONDONTWRITEBYTECODE is set.
	$(BIN)/python -m compileall -q klamm services spark
	@touch $@

setup: $(VENV)/.ready  ## Makes the virtual environment, with every dependency pinned by hash.

demo: setup  ## A year of real flights through the log, Spark and back, checked against pandas.
	$(BIN)/python demo/flights.py

test: setup lint  ## Lint and every test a laptop can run.
	@sh tools/install_programs.sh "A part of make test" prometheus:prometheus kcat:kcat || true  # the tests say what they leave out
	$(PYTEST) tests -m "not clients and not compose and not chaos and not pipelines" --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

clients: setup  ## Kafka's clients and programs against the Kafka listener, and tables of them; CLIENTS="--table README.md".
	sh tools/install_programs.sh "make clients" java:default-jdk-headless mvn:maven kcat:kcat
	$(PYTEST) tests/clients $(CLIENTS)

pipelines-test: setup  ## The data pipelines at length: a year of flights, killed drivers, a Spark standalone cluster.
	$(PYTEST) tests/integration/test_pipelines_at_length.py

compose-test: setup  ## The image and compose.yaml: builds it, strikes its containers; starts a Docker engine if it must. As root.
	sh tools/install_programs.sh "make compose-test" dockerd:docker.io docker-compose:docker-compose \
	    mmdebstrap:mmdebstrap iptables:iptables || true  # the tests say what they leave out
	$(PYTEST) tests/compose -m compose -p no:randomly --capture=no

wheels: setup  ## deploy/wheels: what the image needs where it is built without a package index; WHEELS="server build spark".
	deploy/wheels.sh $(WHEELS)

lint: setup  ## ruff, mypy strict, import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## Rewrites the sources in the house format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: setup  ## Only the unit tests.
	$(PYTEST) tests/unit

integration: setup  ## Only the tests with real processes, sockets, disks and Spark.
	$(PYTEST) tests/integration

sim: setup  ## 5,000 seeds of the simulated quorum, partition, transaction and group protocol; SIM="--minutes 30" for more.
	$(BIN)/python tests/sim/raft_sim.py $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/isr_sim.py $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/txn_sim.py $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/batch_sim.py $(or $(SIM),--seeds 5000)
	$(BIN)/python tests/sim/group_sim.py $(or $(SIM),--seeds 5000)

chaos: setup  ## An hour of faults against real processes; CHAOS="quorum --minutes 30 --seed 42" for others.
ifdef CHAOS
	$(BIN)/python tests/chaos/run.py $(CHAOS)
else
	$(BIN)/python tests/chaos/run.py quorum --minutes 5
	$(BIN)/python tests/chaos/run.py partitions --minutes 10
	$(BIN)/python tests/chaos/run.py partitions --cluster up --minutes 10
	$(BIN)/python tests/chaos/run.py transactions --minutes 10
	$(BIN)/python tests/chaos/run.py clients --minutes 5 --kills 20
	$(PYTEST) tests/integration/test_spark_windows.py
	$(BIN)/python tests/chaos/run.py spark --minutes 20 --kills 100
endif

bench: setup  ## Every benchmark; bench/RESULTS.md says how to read them.
	sh tools/install_programs.sh "make bench" java:default-jdk-headless mvn:maven || true  # bench/spark.py says what it lacks
	$(BIN)/python bench/run.py

bench-peers: setup  ## Klamm beside Kafka, NATS, Redis and RabbitMQ, an hour; PEERS="--only nats" for one, "--quick" for less.
	sh tools/install_programs.sh "make bench-peers" java:default-jdk-headless mvn:maven nats-server:nats-server \
	    redis-server:redis-server rabbitmq-server:rabbitmq-server
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bench/peers-requirements.lock
	$(BIN)/python bench/peers.py $(PEERS)

fuzz: setup  ## 10,000,000 inputs to the Kafka listener, guided by coverage; FUZZ="--inputs 100000" for fewer.
	$(BIN)/python -m pip install --quiet --require-hashes -r tests/fuzz/requirements.lock
	$(BIN)/python tests/fuzz/kafka_listener.py $(FUZZ)

proto: setup  ## Builds the gRPC code from proto/ again.
	$(BIN)/python tools/build_proto.py

PIP_COMPILE := $(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --strip-extras --no-emit-index-url \
    --no-emit-find-links --no-emit-trusted-host --no-header

lock: setup  ## Resolves what is pinned anew (name, version, hash).
	$(BIN)/python -m pip install --quiet pip-tools
	$(PIP_COMPILE) --all-build-deps --extra dev --output-file requirements.lock pyproject.toml
	$(BIN)/python tools/deploy_locks.py
	$(PIP_COMPILE) --output-file bench/peers-requirements.lock bench/peers-requirements.in

clean:  ## Removes the environment and everything built.
	rm -rf $(VENV) build dist klamm/wire/v1/*_pb2.py klamm/wire/v1/*_pb2.pyi
