# make demo: from nothing to a finished job. make test: all tests but the lanes of other installs. make help: the rest.
PYTHON ?= python3
VENV := .venv
GAUDI_VENV := .venv-gaudi
CLIENT_VENV := .venv-client
BIN := $(VENV)/bin
MODEL := .models/SmolLM2-135M-Instruct
DEMO_OUTPUT := demo-completions
PIP := -m pip --disable-pip-version-check install --quiet
# Else tokenizers warns of each process that is started after it was used.
export TOKENIZERS_PARALLELISM := false
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: help demo model test test-redis test-faults faults soak test-client test-gaudi-pins lint types bench clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/.worker: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) -c constraints.txt -e ".[worker,local]"
	@touch $@

$(VENV)/.dev: $(VENV)/.worker
	$(BIN)/python $(PIP) -c constraints.txt -e ".[worker,local,dev]"
	@touch $@

$(MODEL)/config.json: | $(VENV)/.worker
	$(BIN)/python examples/demo_model.py $(MODEL)

model: $(MODEL)/config.json  ## fetch and convert the demo model

demo: $(VENV)/.worker $(MODEL)/config.json  ## install, fetch the demo model, run a job on 64 prompts
	$(BIN)/jobctl run examples/prompts.parquet --model $(MODEL) --output $(DEMO_OUTPUT) --max-new-tokens 64

# The engine's tests share nothing, so they run side by side.
SIDE_BY_SIDE = OMP_NUM_THREADS=1 $(1) -m pytest -n auto --dist loadfile -m engine tests/engine
# Each worker of xdist has its own broker. Tests with services mostly wait; more than two at once would make them late.
TWO_AT_ONCE = -n 2 --dist loadfile

test: $(VENV)/.dev $(MODEL)/config.json  ## all tests, with real processes and models
	$(call SIDE_BY_SIDE,$(BIN)/python)
	$(BIN)/python -m pytest $(TWO_AT_ONCE) -m "not engine and not faults"

# What speaks to the broker, on Redis as Debian has it instead of the embedded Valkey.
ON_BOTH_BROKERS := $(foreach name,store queue reconcile dlq,tests/jobs/test_$(name).py) tests/integration/test_queue.py \
	tests/integration/test_faults.py

test-redis: $(VENV)/.dev  ## queue and fault tests on redis-server
	SPECBATCH_TEST_BROKER=redis $(BIN)/python -m pytest $(TWO_AT_ONCE) $(ON_BOTH_BROKERS)

test-faults: $(VENV)/.dev  ## the share of the faults that CI has time for
	$(BIN)/python -m pytest -m "faults and ci" tests/faults

faults: $(VENV)/.dev  ## every named fault, and 50 random kills, on both brokers
	$(BIN)/python -m pytest -m faults tests/faults
	SPECBATCH_TEST_BROKER=redis $(BIN)/python -m pytest -m faults tests/faults --deselect tests/faults/test_calls.py

soak: $(VENV)/.dev  ## 1,000 random kills over several jobs; prints their counts
	$(BIN)/python -m tests.faults.soak --kills 1000

# The client must install and work without torch; the import rule is tested where torch is not even there.
test-client:  ## the base install alone: client tests without torch
	$(PYTHON) -m venv --clear $(CLIENT_VENV)
	$(CLIENT_VENV)/bin/python $(PIP) -c constraints.txt . pytest pytest-timeout hypothesis psutil pyyaml
	! $(CLIENT_VENV)/bin/python -c "import torch" 2>/dev/null
	$(CLIENT_VENV)/bin/python -m pytest tests/schemas tests/jobs -m "not services"

$(GAUDI_VENV)/.dev: pyproject.toml constraints.txt constraints-gaudi.txt
	$(PYTHON) -m venv $(GAUDI_VENV)
	grep -vE "^(huggingface[-_]hub|tokenizers|transformers)==" constraints.txt > $(GAUDI_VENV)/constraints.txt
	$(GAUDI_VENV)/bin/python $(PIP) -c $(GAUDI_VENV)/constraints.txt -c constraints-gaudi.txt -e ".[worker,dev]"
	@touch $@

# Arithmetic of our own, which no version of transformers can change.
OWN_ARITHMETIC := $(foreach name,acceptance coupled draft_length mutations noise rejection replay step_times,--ignore=tests/engine/test_$(name).py)

test-gaudi-pins: $(GAUDI_VENV)/.dev $(MODEL)/config.json  ## engine and device tests on transformers 4.55.4
	$(call SIDE_BY_SIDE,$(GAUDI_VENV)/bin/python) $(OWN_ARITHMETIC)

lint: $(VENV)/.dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy
	$(BIN)/mypy

bench: $(VENV)/.dev $(MODEL)/config.json  ## benchmarks; medians of runs made side by side
	$(BIN)/python -m tests.bench.client
	$(BIN)/python -m tests.bench.buckets --model $(MODEL)
	$(BIN)/python -m tests.bench.engine --model $(MODEL)
	$(BIN)/python -m tests.bench.job --model $(MODEL)
	$(BIN)/python -m tests.bench.deterministic --model $(MODEL)
	$(BIN)/python -m tests.bench.speculation --model $(MODEL)
	$(BIN)/python -m tests.bench.commit --model $(MODEL)

clean:  ## remove environments, models and the demo's output
	rm -rf $(VENV) $(GAUDI_VENV) $(CLIENT_VENV) .models $(DEMO_OUTPUT)
