# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
SPARK_TESTS ?= tests/spark tests/docs
KILLS ?= 45
COUNT ?= 200
NODES ?= 3
# Most tests wait more than they work: more of them than there are cores.
JOBS ?= 4
BIN := $(VENV)/bin
COMPILED := $(addprefix src/semel/,metrics/counts_kernel.py records/kernel.py records/column_kernel.py log/index_kernel.py log/row_kernel.py log/append_kernel.py log/ordinary_kernel.py replication/term_kernel.py rpc/served_kernel.py broker/lane_kernel.py host/_native.pyx host/_rounds.pyx)
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiled once and kept, whatever the environment says: hundreds of processes are started from here.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test spark connect chaos faults cluster stores screenshots mutants lint format conformance bench pairs docs dist clean controllers

help: ## What there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: $(VENV)/.ready ## Payments through Spark in two ways, while the plug is pulled (two minutes)
	@$(BIN)/python demo/demo.py

test: $(VENV)/.ready ## Run every test but those that start Spark or need Maven
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not spark and not kafka and not alone" $(ARGS)
	@$(BIN)/python -m pytest -m "alone and not spark and not kafka" $(ARGS) || [ $$? -eq 5 ]  # 5: ARGS has chosen none of them

spark: $(VENV)/.ready ## The tests that start Spark (Java 17; some minutes)
	@$(BIN)/python -m pytest -m "spark and not kafka" $(SPARK_TESTS) $(ARGS)

connect: $(VENV)/.ready ## The pipeline through Spark Connect, with the packages that it needs beside the others
	@$(BIN)/pip install --quiet --target build/connect grpcio grpcio-status googleapis-common-protos 'pandas<3'
	@PYTHONPATH=build/connect $(BIN)/python -m pytest -m "spark and not kafka" tests/spark/test_connect.py $(ARGS)

chaos: $(VENV)/.ready ## The pipeline under a long row of kills, drawn by a seed (KILLS=45; half an hour)
	@SEMEL_CHAOS_KILLS=$(KILLS) $(BIN)/python -m pytest -s tests/spark/test_chaos_long.py $(ARGS)

faults: $(VENV)/.ready ## Kills, pauses and cuts on three brokers, with our clients, librdkafka and Java (Java, Maven; 40 minutes)
	@SEMEL_KAFKA_VERSION=4.3.1 $(BIN)/python tests/faults $(ARGS)

cluster: $(VENV)/.ready ## A pipeline on a Spark cluster and three Kafka nodes, with kills (Java, Maven; ten minutes)
	@PYTHONPATH=tests $(BIN)/python tests/spark/cluster_run.py $(ARGS)

controllers: $(VENV)/.ready ## Kill and pause controllers of real nodes while they work (COUNT=200 NODES=3; an hour)
	@$(BIN)/python tests/crash/controller_attack.py --faults $(COUNT) --nodes $(NODES) $(ARGS)

screenshots: $(VENV)/.ready ## The pictures of the console in docs/, of a real cluster (chromium)
	@PYTHONPATH=tests $(BIN)/python tests/console/screenshots.py $(ARGS)

stores: $(VENV)/.ready ## Checkpoints and staged batches on a real S3 server, with kills (Go; builds the server once)
	@SEMEL_TEST_S3=1 $(BIN)/python -m pytest tests/spark/test_s3.py $(ARGS)

mutants: $(VENV)/.ready ## Change the code that carries exactly-once in small ways: does a test notice?
	@$(BIN)/pip install --quiet cosmic-ray coverage
	@$(BIN)/python tests/mutants $(ARGS)

lint: $(VENV)/.ready ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(VENV)/.ready ## Let ruff put the code in order
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

conformance: $(VENV)/.ready ## The tests against Apache Kafka's own tools (Java and Maven)
	@SEMEL_TEST_KAFKA=1 $(BIN)/python -m pytest -m kafka $(ARGS)

bench: $(VENV)/.ready ## Speed beside others, in one run (ARGS="--rounds 3 --share 0.2" for a quick look)
	@$(BIN)/python bench $(ARGS)

pairs: $(VENV)/.ready ## What a request costs the broker beside an earlier commit: make pairs BEFORE=HEAD~1
	@$(BIN)/python bench/pairs.py $(BEFORE) $(ARGS)

docs: $(VENV)/.ready ## Write the pages that are made from the code
	@$(BIN)/python -m semel.config.document > docs/settings.md
	@$(BIN)/python -m semel.metrics.document > docs/metrics.md
	@$(BIN)/python -m semel.client.document > docs/client-settings.md
	@$(BIN)/python -m semel.client.document_options > $(VENV)/option_types.py && mv $(VENV)/option_types.py src/semel/client/
	@$(BIN)/python -m semel.client.document_errors > docs/errors.md
	@$(BIN)/python -m semel.cli.document > docs/command-line.md

dist: ## The sdist and a manylinux wheel in dist/, tried in an empty environment without a compiler
	@PYTHON=$(PYTHON) .ci/dist

clean: ## Remove what was built
	rm -rf $(VENV) build dist src/*.egg-info $(addsuffix .c,$(basename $(COMPILED))) src/semel/*/*.so

$(VENV)/.ready: pyproject.toml setup.py constraints.txt $(COMPILED)
	@$(PYTHON) -c 'import sys; sys.exit("semel needs Python 3.11 or later, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) (once; a minute or so)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --editable '.[test,lint]'
	@touch $@
