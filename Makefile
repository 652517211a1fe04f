# Two commands from a bare machine: `make demo` and `make test`. Both need python3 >= 3.11 and
# nothing else; PYTHON=python3.12 picks another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all check clean

help:
	@echo "make demo      install into $(VENV), build a demo clip, swap a face in it"
	@echo "make test      install into $(VENV), lint, types and quick tests (what CI runs)"
	@echo "make test-all  the same with the long tests"
	@echo "make check     lint, format and types alone"
	@echo "make clean     remove $(VENV), $(DEMO) and caches"

# A stamp is touched only when its step has succeeded, so an interrupted step is done again.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "ffx needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.demo $(VENV)/.test: $(VENV)/.%: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

$(DEMO)/target.mp4: $(addprefix scripts/,make_demo_media.py actors.py talking_head.py warping.py) $(VENV)/.demo
	$(BIN)/python scripts/make_demo_media.py $(DEMO)
	@touch $@

demo: $(DEMO)/target.mp4
	$(BIN)/ffx swap $(DEMO)/source.jpg $(DEMO)/target.mp4 -o $(DEMO)/result.mp4 --overwrite
	@echo
	@echo "The face of   $(CURDIR)/$(DEMO)/source.jpg"
	@echo "was put into  $(CURDIR)/$(DEMO)/target.mp4"
	@echo "the result is $(CURDIR)/$(DEMO)/result.mp4"

check: $(VENV)/.test
	FFX_BIN=$(BIN) scripts/check

test: check
	FFX_BIN=$(BIN) scripts/test

test-all: check
	FFX_BIN=$(BIN) scripts/test --all

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find facefusion_cli scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
