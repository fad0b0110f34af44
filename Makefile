# The two commands: `make demo` shows it, `make test` proves it. Both make their own .venv first.
# While you write, `make quick` answers within a minute; `make nightly` leaves nothing out.

PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS := 1
# Half as many processes again as there are cores, twelve at most: many tests wait for processes of their own.
CORES := $(shell env -u OMP_NUM_THREADS nproc)
BESIDE := -n $(shell echo $$(( $(CORES) * 3 / 2 < 12 ? $(CORES) * 3 / 2 : 12 ))) --dist loadfile --no-loadscope-reorder

.PHONY: demo test quick quick-tests lint nightly docs docs-serve coverage constraints clean

demo: .venv/demo
	$(BIN)/gangline demo

test: .venv/dev lint
	$(BIN)/pytest $(BESIDE) -m "not nightly"

quick: .venv/dev
	$(MAKE) --no-print-directory --jobs 2 lint quick-tests

quick-tests: .venv/dev
	$(BIN)/pytest $(BESIDE) --quiet -m "not nightly" -k "not postgres and not s3" tests/unit tests/wire tests/contract

lint: .venv/dev
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/lint-imports
	$(BIN)/basedpyright
	$(BIN)/codespell README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md docs src tests benchmarks
	$(BIN)/python -m tests.docs.words

nightly: .venv/dev lint
	PYTEST_DEBUG_TEMPROOT=$${TMPDIR:-/tmp} $(BIN)/pytest $(BESIDE) --tenth all

# The docs as a site in site/, and served while you write.
docs: .venv/dev
	$(BIN)/python -m tests.docs.site.build

docs-serve: .venv/dev
	$(BIN)/python -m tests.docs.site.build --serve

coverage: .venv/dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(BESIDE) -m "not nightly"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty | tail -40

# Take the newest of everything that pyproject.toml allows, but torch; run the tests before it is committed.
constraints: .venv/dev
	grep '^torch==' constraints.txt > .venv/torch.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager -c .venv/torch.txt -e ".[dev]"
	{ head -1 constraints.txt; $(BIN)/pip freeze --exclude-editable --exclude pip --exclude setuptools | sed 's/+cpu//'; } > .venv/constraints.txt
	mv .venv/constraints.txt constraints.txt
	$(BIN)/python -m benchmarks.on_card.write_wheels

# What runs; and what tests need besides. The stamp of the larger one holds the smaller one too.
.venv/demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[server,worker,train]"
	touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/demo
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv gangline-demo site build/pages
