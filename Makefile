# Two commands do all: `make book` and `make test`. Everything else is a convenience.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python
CHAPTERS ?=
LAB ?= lab
HTML := _build/html
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest --quiet --numprocesses 2
JB := $(BIN)/jupyter-book build book --config _config.yml --toc "$(CURDIR)/_toc.yml" --path-output .

.PHONY: help book test lab execute course reproduce clean

help:  ## this list
	@echo "Working Papers. Start with 'make book' (the HTML book) or 'make lab' (JupyterLab)."
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## ?/\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

.venv/pyvenv.cfg:
	@echo "Making a virtual environment in .venv ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed (PYTHON=/path/to/python3.12 make ...)"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "error: no virtual environment could be made (on Debian: apt install python3-venv)"; exit 1; }
	@echo "$(CURDIR)" > .venv/.home

# An environment holds the place where it was made: after a move it is made anew.
ifneq ($(wildcard .venv/.home),)
ifneq ($(shell cat .venv/.home),$(CURDIR))
$(shell rm -rf .venv)
endif
endif

# Pages that did not change would keep the old table of contents.
_build/.contents: _toc.yml _config.yml
	@rm -rf _build && mkdir _build && touch $@

.PHONY: chapter chapters
chapter:
	@test -n "$(CH)" || { echo "error: say which chapter: make $(MAKECMDGOALS) CH=fair_bandits"; exit 2; }
chapters:
	@test -n "$(CHAPTERS)" || { echo 'error: say which chapters: make course CHAPTERS="fair_bandits"'; exit 2; }

.venv/.book: .venv/pyvenv.cfg pyproject.toml constraints.txt
	@echo "Installing what the book needs (once; a minute or two) ..."
	@$(PIP) --editable ".[book]"
	@touch $@

.venv/.test: .venv/pyvenv.cfg pyproject.toml constraints.txt
	@echo "Installing what the tests need (once; a minute or two) ..."
	@$(PIP) --editable ".[book,course,distributed,test]"
	@touch .venv/.book $@

book: .venv/.book _build/.contents  ## build the HTML book from the stored outputs (runs no notebook)
	@echo "Building the book ..."
	@$(JB) --quiet >/dev/null
	@echo "Done. Open this page in a browser: $$(pwd)/$(HTML)/index.html"

test: .venv/.test _build/.contents  ## run every check: style, imports, units, notebooks, HTML, browser, course
	@echo "1/6 style";     $(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet .
	@echo "2/6 imports";   $(BIN)/lint-imports --no-cache | tail -n 3
	@echo "3/6 units";     $(PYTEST) tests --ignore tests/browser
	@echo "4/6 notebooks"; PYTHONPATH=tests/closed_network TQDM_DISABLE=1 $(PYTEST) --nbval --nbval-sanitize-with tests/sanitise.cfg --nbval-cell-timeout 300 book --dist loadfile
	@echo "5/6 HTML";      $(JB) --quiet --all -W --keep-going >/dev/null
	@echo "6/6 browser";   $(PY) -m pytest --quiet tests/browser
	@echo "All checks passed."

lab: .venv/.book  ## open copies of the chapters in JupyterLab (the book itself: make lab LAB=book)
	@test "$(LAB)" = book || { mkdir -p $(LAB)/exercises; cp -n book/*.ipynb $(LAB)/; cp -n book/exercises/*.ipynb $(LAB)/exercises/; }
	@echo "Starting JupyterLab on $(LAB)/ (stop it with Ctrl-C) ..."
	@$(BIN)/jupyter lab --notebook-dir $(LAB) $(if $(filter 0,$(shell id -u)),--allow-root)

execute: chapter .venv/.book  ## run a chapter's notebooks and store their outputs: make execute CH=fair_bandits
	@$(BIN)/workingpapers execute "$(CH)"
	@echo "Next: look at the difference (git diff --stat), then 'make book'."

course: chapters .venv/.test  ## make student and instructor folders: make course CHAPTERS="fair_bandits"
	@$(BIN)/workingpapers course make $(CHAPTERS) --output course

reproduce: chapter .venv/.book  ## measure a chapter's claims anew: make reproduce CH=fair_bandits
	@$(BIN)/workingpapers reproduce "$(CH)" --scale laptop

clean:  ## remove what was built; the environment, courses and your copies of notebooks stay
	@rm -rf _build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@echo "Removed what was built. 'rm -r .venv' removes the virtual environment as well;"
	@echo "course/ may hold students' work and $(LAB)/ yours: they stay."
