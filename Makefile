# What a user needs is `make demo` and `make test`; both make a virtual environment of their own in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without --no-compile pip compiles everything, also what is never imported: a third of its time.
INSTALL := -m pip --disable-pip-version-check --quiet install --no-compile
SPARK40 := .venv-spark40
QUIX := .venv-quix
SBOM := .venv-sbom
# Tests start hundreds of processes of Python. With this variable set, each of them would compile all modules that it
# imports, which is half of the time of such tests.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

.PHONY: help
help:
	@awk -F ':.*## ' '/^##@ / {print "\n" substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "rackassign needs Python 3.10 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	@echo "Installing rackassign and what the demo needs into $(VENV) (first time: some 60 MB, with a Java runtime)"
	@$(BIN)/python $(INSTALL) --editable '.[cli,testing]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@echo "Installing rackassign and what its tests need into $(VENV)"
	@$(BIN)/python $(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/demo.stamp

# The oldest Spark that is supported, with which the figures beside Spark's own Kafka source were measured.
$(SPARK40)/dev.stamp: pyproject.toml
	@echo "Making a virtual environment with Spark 4.0 in $(SPARK40)"
	@$(PYTHON) -m venv $(SPARK40)
	@$(SPARK40)/bin/python $(INSTALL) --editable '.[dev]' 'pyspark[connect]==4.0.*'
	@touch $@

# What a benchmark alone needs is in no environment but this: it brings a librdkafka and a RocksDB of its own.
$(QUIX)/dev.stamp: benchmarks/quix-requirements.txt
	@echo "Making a virtual environment with Quix Streams in $(QUIX)"
	@$(PYTHON) -m venv $(QUIX)
	@$(QUIX)/bin/python $(INSTALL) --requirement $<
	@touch $@

##@ Use

.PHONY: demo
demo: $(VENV)/demo.stamp ## Kafka in three racks on this machine, read with and without rackassign
	@exec $(BIN)/rackassign demo

# Beside each other: some compute while others wait for brokers. Workers with tests on brokers have a cluster each.
# A worker takes ten seconds of a processor to collect all tests.
TOGETHER := --dist worksteal --durations 12
SHORT := not docker and not spark and not spark_faults and not frameworks and not docs

.PHONY: test
ifdef ROOM
test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 -m 'not long' tests/unit/$(ROOM)
else
test: lint ## Lint, types, unit and property tests, tests on brokers: ten minutes on 2 cores; with LONG=1 those that take long, too; ROOM=stateful: of one package
	$(BIN)/python -m pytest -n 3 $(TOGETHER) -m '$(SHORT) and not release$(if $(LONG),, and not long)' tests integration
	@$(MAKE) --no-print-directory test-docker \
	  CONTAINERS='not frameworks and not release and $(if $(LONG),not local,docker and not long)'
endif

.PHONY: lint
lint: $(VENV)/dev.stamp ## Style, types and import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	MYPYPATH=examples/tests_on_brokers $(BIN)/mypy --explicit-package-bases examples/tests_on_brokers/*.py
	$(BIN)/lint-imports

# Material for MkDocs reports at each build that it ends in 2027; see CONTRIBUTING.md.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.PHONY: docs
docs: $(VENV)/dev.stamp ## The documentation as a site in build/site, which opens from the folder
	$(MKDOCS) build --config-file tools/site/mkdocs.yml
	@echo "Open build/site/index.html"

.PHONY: docs-serve
docs-serve: $(VENV)/dev.stamp ## The site at http://127.0.0.1:8000, built again with each change
	exec $(MKDOCS) serve --config-file tools/site/mkdocs.yml

.PHONY: examples
examples: $(VENV)/dev.stamp ## The examples with frameworks, with rackassign and without
	$(BIN)/python -m tools.run_examples

.PHONY: pipeline
pipeline: $(VENV)/dev.stamp ## Spark on a three-rack cluster: cost across racks, before and after
	@exec $(BIN)/python -m examples.pipeline

.PHONY: broker-plugin
broker-plugin: $(VENV)/dev.stamp ## The jar of the broker plug-in from its Java sources, without a JDK
	$(BIN)/python -m tools.broker_plugin

.PHONY: clean
clean: ## Remove what make and the tools have made here; the cache of jars stays
	rm -rf $(VENV) .venv-examples .matrix build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Test

.PHONY: test-all
test-all: $(VENV)/dev.stamp ## What `make test` leaves out: all examples of properties, and what takes long
	RACKASSIGN_EXAMPLES=1 $(BIN)/python -m pytest -n 3 $(TOGETHER) \
	  -m '$(SHORT) and not release and (long or hypothesis)' tests integration
	@$(MAKE) --no-print-directory test-docker CONTAINERS='not local and not frameworks and not release and (long or not docker)'

.PHONY: test-release
test-release: $(VENV)/dev.stamp ## Whole programs and older versions: the demo, exactly once, killed examples
	$(BIN)/python -m pytest -n 4 $(TOGETHER) -m 'release and not docker' tests integration
	@$(MAKE) --no-print-directory test-docker CONTAINERS='release and docker'

.PHONY: test-docker
CONTAINERS ?= not local and not frameworks
test-docker: $(VENV)/dev.stamp ## Tests on brokers in containers, where a Docker engine answers
	@if [ "$$CI" = true ] || docker version > /dev/null 2>&1; then \
	  exec $(BIN)/python -m pytest -n 3 --dist worksteal --durations 5 --rack-cluster-provider docker -m '$(CONTAINERS)' integration; \
	else \
	  echo "Skipped the tests on brokers in containers: no Docker engine responds"; \
	fi

.PHONY: test-docs
test-docs: $(VENV)/dev.stamp ## Every command and program of README and documentation; a quarter of an hour
	$(BIN)/python -m pytest -m docs integration

.PHONY: test-examples
test-examples: $(VENV)/dev.stamp ## The examples with frameworks, and the image of examples/kubernetes
	$(BIN)/python -m pytest -m 'frameworks and not docker' integration
	@$(MAKE) --no-print-directory test-docker CONTAINERS='frameworks and docker'

.PHONY: test-spark
test-spark: $(VENV)/dev.stamp ## Longer tests with Spark: dying workers, replays, the pipeline
	$(BIN)/python -m pytest -m spark integration

.PHONY: spark-faults
spark-faults: $(SPARK40)/dev.stamp ## Spark 4.0 beside the JVM source, with killed executors and brokers
	# Two runs: a process has one Spark, and what is on its class path is settled with the first session.
	$(SPARK40)/bin/python -m pytest -m spark_faults integration
	$(SPARK40)/bin/python -m pytest -m spark integration

.PHONY: test-stress
ROUNDS ?= 3
TESTS ?= integration
test-stress: $(VENV)/dev.stamp ## Tests on brokers beside eight busy processes: ROUNDS=1 TESTS=integration/cli
	$(BIN)/python -m tools.stress --rounds $(ROUNDS) --select '$(SHORT)' $(TESTS)

.PHONY: test-oldest
test-oldest: ## Unit tests and tests on brokers with the oldest kafka-python
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python $(INSTALL) --editable '.[dev]' 'kafka-python==3.0.9'
	.venv-oldest/bin/python -m pytest -m 'not docker and not spark_faults and not frameworks' tests integration

.PHONY: matrix
ONLY ?=
matrix: $(VENV)/dev.stamp ## Fixed tests with each Python and client; an hour, or ONLY=pyspark-4.1.4
	$(BIN)/python -m nox $(if $(ONLY),--session $(ONLY)) $(MATRIX)

.PHONY: fuzz
fuzz: $(VENV)/dev.stamp ## A million mutated inputs for the codec
	RACKASSIGN_FUZZ=1000000 $(BIN)/python -m pytest tests/unit/wire/test_consumer_protocol.py

.PHONY: mutants
MINUTES ?= 60
MUTANTS ?= *__mutmut_*1
mutants: $(VENV)/dev.stamp ## Small changes to the core that unit tests must find; an hour: MUTANTS='*.wire.*'
	$(BIN)/python -m nox --reuse-existing-virtualenvs --session mutants -- $(MINUTES) '$(MUTANTS)'

.PHONY: simulate
simulate: $(VENV)/dev.stamp ## Members of both Python clients in a simulated world: SEEDS=1000:2000 MINUTES=30 STATE=1, or REASSIGN=1
	$(BIN)/python -W ignore::DeprecationWarning -m tests.simulation $(if $(filter command line,$(origin SEEDS)),--seeds $(SEEDS)) \
	  $(if $(filter command line,$(origin MINUTES)),--minutes $(MINUTES)) $(if $(STATE),--state) $(if $(REASSIGN),--reassign)

.PHONY: coverage
coverage: $(VENV)/dev.stamp ## Lines and branches that the unit tests execute, by module
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -q -n auto tests
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-empty

.PHONY: chaos
SEEDS ?= 5
CLIENT ?= kafka-python
chaos: $(VENV)/dev.stamp ## Kills, outages, moves, and a checker: SEEDS=20 CLIENT=confluent
	$(BIN)/python -m tools.chaos --seeds $(SEEDS) --client $(CLIENT)

.PHONY: chaos-stateful
chaos-stateful: $(VENV)/dev.stamp ## Members with state, brokers and disks fail, and a checker: SEEDS=20
	$(BIN)/python -m tools.chaos.stateful --seeds $(SEEDS)

.PHONY: exactly-once
exactly-once: $(VENV)/dev.stamp ## A transactional example under faults: SEEDS=3 CLIENT=aiokafka
	$(BIN)/python -m tools.chaos.exactly_once --client $(CLIENT) --seeds $(SEEDS)

.PHONY: soak
soak: $(VENV)/dev.stamp ## Ten minutes at constant load, a fault a minute: memory, threads, files
	$(BIN)/python -m tools.chaos.soak

##@ Measure

.PHONY: bench
bench: $(VENV)/dev.stamp ## Speed and decay beside the Java assignors and franz-go
	$(BIN)/python -m benchmarks.assignors
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.long_run

.PHONY: bench-full
bench-full: $(VENV)/dev.stamp ## The whole grid of Kafka's own benchmark beside the Java assignors; hours
	$(BIN)/python -m benchmarks.assignors --full --json build/bench-full.json

.PHONY: bench-placement
bench-placement: $(VENV)/dev.stamp ## How even placers are, how much they move, and an audit's time
	$(BIN)/python -m benchmarks.placement
	$(BIN)/python -m benchmarks.audit

.PHONY: bench-flow-logs
bench-flow-logs: $(VENV)/dev.stamp ## Flow logs in one process, on Spark and beside Spark's SQL; minutes
	$(BIN)/python -m benchmarks.flow_logs

.PHONY: bench-spark
bench-spark: $(SPARK40)/dev.stamp ## Spark in three racks: its own source and sink beside ours; half an hour
	$(SPARK40)/bin/python -m benchmarks.spark_racks
	$(SPARK40)/bin/python -m benchmarks.spark_racks --record 100 --records 250000 --runs 3
	$(SPARK40)/bin/python -m benchmarks.spark
	$(SPARK40)/bin/python -m benchmarks.spark_writes
	$(SPARK40)/bin/python -m benchmarks.spark_writes --record 1000 --keys

.PHONY: bench-stateful
bench-stateful: $(VENV)/dev.stamp ## How long state of a killed zone stands still, with warm copies and without
	$(BIN)/python -m benchmarks.standby
	$(BIN)/python -m benchmarks.stateful
	@$(MAKE) --no-print-directory bench-stateful-rate

.PHONY: bench-stateful-rate
RATE ?=
bench-stateful-rate: $(VENV)/dev.stamp $(QUIX)/dev.stamp ## Records a second with state, beside Quix Streams; seconds: RATE=--quick
	$(BIN)/python -m benchmarks.stateful_rate --quix $(QUIX)/bin/python $(RATE)

.PHONY: bench-idle
bench-idle: $(VENV)/dev.stamp ## What an idle consumer costs: import, memory, the first plan
	$(BIN)/python -m benchmarks.idle_consumer
	$(BIN)/python -m benchmarks.first_plan

##@ Release

.PHONY: compatibility
compatibility: $(VENV)/dev.stamp ## Checks on a cluster of each version of Kafka, written into the documentation
	$(BIN)/python -m tools.compatibility --write

.PHONY: reference
reference: $(VENV)/dev.stamp ## Record the names that programs of users rely on, from the code
	$(BIN)/python -m tools.reference

# The tool is in no environment but this, since a list of what is installed would contain it.
$(SBOM)/bin/cyclonedx-py:
	@$(PYTHON) -m venv $(SBOM)
	@$(SBOM)/bin/python $(INSTALL) 'cyclonedx-bom==7.*'

.PHONY: sbom
sbom: $(SBOM)/bin/cyclonedx-py ## A bill of materials (CycloneDX) of `pip install rackassign`: build/sbom.json
	rm -rf build/sbom
	$(PYTHON) -m venv --without-pip build/sbom
	$(SBOM)/bin/python -m pip --python build/sbom/bin/python --quiet install .
	$(SBOM)/bin/cyclonedx-py environment --output-reproducible --validate \
	  --output-file build/sbom.json build/sbom

.PHONY: test-wheel
PYTHONS ?=
test-wheel: $(VENV)/dev.stamp ## Wheel and sdist: built, checked, installed, used: PYTHONS='3.10 3.14'
	$(BIN)/python -m nox --error-on-missing-interpreters --session wheel $(if $(PYTHONS),--force-python $(PYTHONS))

.PHONY: release-check
release-check: docs ## What a release publishes, built and checked, and the site: TAG=v0.1.0
	$(BIN)/python -m tools.wheel --tag "$$TAG"
