# Every target sets up .venv when it is missing or older than pyproject.toml or constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint docs benchmark constraints clean

demo: $(STAMP)
	$(BIN)/python -m benchmarks.demo

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	@echo "docs/ is Markdown for now: see docs/README.md"

benchmark: $(STAMP)
	$(BIN)/python benchmarks/bench_reading.py

# Write the versions of a fresh environment as the tested ones (torch and pythia8mc stay as pinned).
constraints:
	$(PYTHON) benchmarks/make_constraints.py

clean:
	rm -rf $(VENV) build dist

# An old environment is thrown away, not patched: what is tested is what a newcomer gets.
$(STAMP): pyproject.toml constraints.txt
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all]'
	touch $@
