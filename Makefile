# make run   the main job: design the metro of Seville, with its report in runs/seville
# make test  lint, types and tests; make test-slow runs those that take long for what they add
# make test-types  the numerics with every annotation of arrays checked
# make test-portable  the numerics as on other processors and in other surroundings; NAME=nehalem for one setting
# make bench every benchmark, figures measured now
# make reproduce  the paper's tables and figures in runs/reproduction; QUICK=1 at reduced size, WRITE_DOCS=1 into docs as well
# make docs  the site in build/site, every link checked; make gallery runs the gallery's examples again and writes its pages
# make dist  wheel and source archive in dist
# make audit known vulnerabilities of the locked dependencies, where pypi.org can be reached
# make install is done by each of them: it builds .venv from requirements.lock, wheels only.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Modules are compiled when they are first imported, which are few of those that are installed, and kept for later
# processes: tests start hundreds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install run test suite test-slow test-types test-portable lint docs gallery dist bench reproduce lock audit clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

run: install
	$(BIN)/blocc design seville --out runs/seville

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Many tests compile the same programs; JAX keeps them on disk, and every test but the first reads them from there.
test suite test-slow test-types: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.pytest_cache/compiled
test suite test-slow test-types test-portable: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.1
test suite test-slow test-types test-portable: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := 0
# Most of the tests' time is compilation of small programs: less optimisation, one thread each and no fusion emitters,
# which the package's own programs do without anyway, need a third of it.
test suite test-types test-portable: export XLA_FLAGS := --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 \
    --xla_cpu_use_fusion_emitters=false --xla_disable_hlo_passes=while-loop-invariant-code-motion,while-loop-constant-sinking,simplify-while-loops,simplify-conditional,constant_folding,reshape-mover
# Types and style are looked at beside the tests.
test: install
	$(MAKE) --no-print-directory -j2 lint suite

suite: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# Every annotation of the numerics checked while their tests run: shapes and types of arrays (jaxtyping, beartype). Tests
# that give wrong types on purpose are left out.
CHECKED := blocc.inner,blocc.outer,blocc.judge,blocc.run,blocc.resume,blocc.penalty,blocc.lagrangian
test-types: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --jaxtyping-packages=$(CHECKED),beartype.beartype \
	    -k "not bad_arguments and not impossible_paths" \
	    tests/inner tests/outer tests/judge tests/run tests/resume tests/test_penalty.py tests/test_lagrangian.py

# Each setting keeps its compiled programs apart from all others.
test-portable: install
	$(BIN)/python tools/portable.py $(NAME)

# Offline: nothing is fetched, neither now nor when a page is opened.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open build/site/index.html"

# Every example of examples/gallery, run now: what it prints, its picture, the time and the machine. NAME=braess runs one.
gallery: install
	$(BIN)/python tools/gallery.py $(NAME)

dist: install
	$(BIN)/python -m build --no-isolation

bench: install
	$(BIN)/python benchmarks/known_answers.py
	$(BIN)/python benchmarks/toy.py
	$(BIN)/python benchmarks/transport.py
	$(BIN)/python -m benchmarks.svm

reproduce: install
	$(BIN)/python -m reproduction $(if $(QUICK),--quick) $(if $(WRITE_DOCS),--write-docs)

# Renew the lock after a change of dependencies: newest versions, runtime extras and development tools together.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade pip setuptools wheel
	build/lock/bin/python -m pip install --quiet -e ".[all]" --group dev
	build/lock/bin/python -m pip freeze --all --exclude-editable | grep -v -e '^pip==' > requirements.lock

# Known vulnerabilities of the locked versions; needs pypi.org. --strict: a package that cannot be looked up is an error.
audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet pip-audit
	build/audit/bin/pip-audit --strict --no-deps --disable-pip -r requirements.lock

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
