# The two commands: `make demo` shows it, `make test` proves it. Both make their own .venv first.

PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS := 1
BESIDE := -n auto --maxprocesses 8 --dist loadfile

.PHONY: demo test lint nightly clean

demo: .venv/demo
	$(BIN)/gangline demo

test: .venv/dev lint
	$(BIN)/pytest $(BESIDE) -m "not nightly"

lint: .venv/dev
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/lint-imports
	$(BIN)/basedpyright

nightly: .venv/dev lint
	$(BIN)/pytest $(BESIDE)

# What runs; and what tests need besides. The stamp of the larger one holds the smaller one too.
.venv/demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[server,worker,train]"
	touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/demo
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv gangline-demo
