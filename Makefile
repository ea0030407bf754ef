# Every target sets up .venv by itself: Python 3.11-3.13, make and access to PyPI are enough.
# `make PYTHON=/path/to/python` picks the interpreter for a new .venv.

VENV := .venv
BIN := $(VENV)/bin
AXE := build/node_modules/axe-core/axe.min.js
STAMP := $(VENV)/.stamp
ARGS :=
COMMA := ,
RUNNABLE := docs/coming-from.md docs/data.md docs/extending.md docs/recipes.md docs/solving.md docs/papers/pmp.md docs/papers/query-training.md docs/papers/tempered.md

# An environment whose interpreter no longer runs is made again.
ifneq ($(shell $(BIN)/python -c 'print("ok")' 2>/dev/null),ok)
.PHONY: $(STAMP)-venv
endif

.PHONY: help demo test slow mutate lint format docs readme bench clean
.NOTPARALLEL:

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP)-demo  ## fit a model to handwritten digits, complete half-seen ones, write a page
	$(BIN)/undirected demo $(ARGS)

test: $(STAMP)-test  ## run the tests on the CPU; ARGS="-k name" picks some, "-n 0" for one process
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n auto --maxprocesses=4 --dist loadfile --no-loadscope-reorder -m "not slow and not smoke" $(ARGS)

slow: $(STAMP)-test $(STAMP)-slow $(AXE)  ## run the long tests, and every experiment at its smallest size
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -n auto --maxprocesses=4 -m "slow or smoke" $(ARGS)

mutate: $(STAMP)-test $(STAMP)-mutate  ## how many small changes of the code the tests notice; takes hours
	$(BIN)/python tools/mutate.py $(ARGS)

lint: $(STAMP)-dev  ## style, types and the import rules of the rooms
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMP)-dev  ## put the code in standard form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(STAMP)-docs  ## build the documentation into docs/_build/html
	JAX_PLATFORMS=cpu $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Built docs/_build/html/index.html"

readme: $(STAMP)-demo  ## run the commands and the code of README.md and of docs/
	set -e; for page in README.md $(RUNNABLE); do $(BIN)/python tools/run_readme.py $$page; done

bench: $(STAMP)-demo  ## this library beside its peers, which go into build/peers; ARGS=--quick for less
	$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove the environment and everything built
	rm -rf $(VENV) dist build docs/_build docs/_generated .import_linter_cache .pytest_cache .ruff_cache
	find src tests tools docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP)-venv:
	@sh tools/venv.sh $(VENV)
	@touch $@

# $(call install,what,pip arguments): a stamp is left only when pip succeeded.
define install
@echo "Installing $(1) (a minute or so the first time)"
@$(BIN)/python -m pip install --quiet $(2) || { \
	echo "Could not install $(1): see pip's message above." >&2; \
	echo "Packages come from PyPI: check the network and pip's settings, then run make again." >&2; \
	exit 1; }
@touch $@
endef

$(STAMP)-demo: $(STAMP)-venv pyproject.toml
	$(call install,the program,-e ".[demo]")

$(STAMP)-test: $(STAMP)-venv pyproject.toml
	$(call install,the program and its tests,-e ".[arviz$(COMMA)demo$(COMMA)parquet]" --group test --group peers --group browser)

$(STAMP)-slow: $(STAMP)-venv pyproject.toml
	$(call install,what the long tests need beside,--group notebooks)

# Without npm, or without its registry, the tests of accessibility are skipped, and say so.
$(AXE):
	@npm install --silent --prefix build axe-core@4 || echo "axe-core is not installed: see CONTRIBUTING.md"

$(STAMP)-mutate: $(STAMP)-venv pyproject.toml
	$(call install,the mutation tools,--group mutate)

$(STAMP)-docs: $(STAMP)-venv pyproject.toml
	$(call install,the program and the documentation tools,-e . --group docs)

$(STAMP)-dev: $(STAMP)-venv pyproject.toml
	$(call install,the program and the developer tools,-e ".[arviz$(COMMA)demo]" --group dev)
