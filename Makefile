# Every target sets up .venv when it is missing, or older than pyproject.toml or constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint docs benchmark constraints clean

# DEMO=offline make demo: with the jets that partt ships, instead of simulating some
demo: $(STAMP)
	$(BIN)/partt demo $(if $(filter offline,$(DEMO)),--offline)

# on all cores: one worker process for each
test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q docs build/docs
	@echo "The documentation is $(CURDIR)/build/docs/index.html"

benchmark: $(STAMP)
	$(BIN)/python benchmarks/bench_reading.py --json benchmarks/reading.json
	$(BIN)/python benchmarks/bench_simulate.py
	$(BIN)/python benchmarks/bench_model.py --json benchmarks/model.json
	$(BIN)/python benchmarks/bench_training.py --json benchmarks/training.json
	$(BIN)/python benchmarks/bench_training.py --threads 2 --json benchmarks/training_two_threads.json
	$(BIN)/python benchmarks/bench_training.py --processes 2 --json benchmarks/training_processes_128.json
	$(BIN)/python benchmarks/bench_training.py --processes 2 --batch 512 --jets 3000 --json benchmarks/training_processes.json
	$(BIN)/python benchmarks/bench_scale.py --json benchmarks/scale.json
	$(BIN)/python benchmarks/bench_memory.py --json benchmarks/memory.json
	$(BIN)/python benchmarks/bench_predict.py --json benchmarks/predict.json
	$(BIN)/python benchmarks/bench_evaluate.py --json benchmarks/evaluate.json
	$(BIN)/python benchmarks/bench_export.py --json benchmarks/export.json
	$(BIN)/python docs/numbers_in_pages.py

# Rewrite constraints.txt with the newest versions that work together; torch and pythia8mc stay as they are.
constraints:
	rm -rf build/constraints && $(PYTHON) -m venv build/constraints
	grep -E '^(torch|pythia8mc)==' constraints.txt > build/pinned.txt
	build/constraints/bin/pip install --quiet -c build/pinned.txt '.[all]'
	echo '# The versions that partt is tested with. `make constraints` writes this file anew.' > constraints.txt
	build/constraints/bin/pip freeze --exclude partt | sed 's/+cpu//' >> constraints.txt

clean:
	rm -rf $(VENV) build dist demo

# An old environment is thrown away, not patched: what is tested is what a newcomer gets.
$(STAMP): pyproject.toml constraints.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all]'
	touch $@
