# Everything a newcomer or a build machine needs; each target installs what it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONFIG ?= examples/configs/demo.yaml
TORTURE ?= --seconds 1200
# Two files of tests beside each other; a file stays in one process, since what it makes for all its tests is dear.
SIDE ?= -n 2 --dist loadfile

.PHONY: demo test test-all torture lint models docs box clean

demo: $(STAMP)  ## install, fetch SmolLM2-135M-Instruct, serve it on 127.0.0.1:8000
	PYTHON=$(BIN)/python tools/models.sh smollm2
	$(BIN)/halogend run --config $(CONFIG)

test: $(VENV)/.installed-dev models box lint  ## what a change must pass
	$(BIN)/python -m pytest $(SIDE)

test-all: $(VENV)/.installed-dev models box lint  ## with the slow ones
	$(BIN)/python -m pytest -m "slow or not slow"

torture: $(VENV)/.installed-dev models  ## 20 minutes of changes under load; `make torture TORTURE="--minutes 60"` soaks
	PYTHONPATH=tools:tests $(BIN)/python -m torture $(TORTURE) \
		--models .cache/models/SmolLM2-135M-Instruct.Q4_1.gguf .cache/models/gemma-3-270m-q4_k_m.gguf

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

models: $(STAMP)  ## both real models, into .cache/models
	PYTHON=$(BIN)/python tools/models.sh all

box:  ## systemd, unshare and openssl, for the tests of units and certificates; where they cannot be had the tests say so
	@if ! command -v unshare >/dev/null || ! command -v openssl >/dev/null || ! test -x /usr/lib/systemd/systemd; then \
		if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; \
		then apt-get update -q && apt-get install -q -y --no-install-recommends systemd util-linux openssl; \
		else echo "no systemd here: the tests of its units cannot run"; fi; fi

docs: $(STAMP)  ## the generated pages
	$(BIN)/halogend schema --markdown > docs/config.md
	$(BIN)/halogend explain --markdown > docs/errors.md
	mkdir -p crds
	$(BIN)/halogend crd > crds/halogenmodels.halogen.dev.yaml
	$(BIN)/python -m halogen_operator.reference docs/kubernetes.md

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("halogend needs Python 3.11 or newer; run make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (PyTorch for the CPU is most of it) ..."
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[engine]'
	touch $@

$(VENV)/.installed-dev: $(STAMP)
	@echo "installing what the tests need ..."
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[engine,dev]'
	touch $@
