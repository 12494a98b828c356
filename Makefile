# The commands of the workbook; `make` lists them. What they need is installed into .venv the first time.
SHELL := /bin/bash
PY := .venv/bin/python
CHAPTERS ?=
.DEFAULT_GOAL := help
.PHONY: help lab test check book nbs export clean-nbs bench constraints

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

lab:  ## open the workbook in JupyterLab; options: make lab ARGS="--no-browser --port 8899"
	@tools/install.sh lab
	@# a clone is not trusted, and shows no drawings until it is
	@.venv/bin/jupyter trust nbs/*.ipynb nbs/more/*.ipynb >/dev/null
	@# Jupyter refuses root unless told; in a container one often is
	@exec .venv/bin/jupyter lab $$([ $$(id -u) = 0 ] && echo --allow-root) \
	  --ServerApp.root_dir=nbs --LabApp.default_url=/lab/tree/index.ipynb $(ARGS)

test:  ## run the checks, as CI does; every one: make test ARGS=--everything; only what is chosen: make test ARGS="-k planner"
	@tools/install.sh test
	@tools/test.sh $(ARGS)

check:  ## in 90 seconds, while you work: package and README fresh, house, form, names, the quickest tests
	@tools/install.sh test
	@tools/test.sh --quick $(ARGS)

book:  ## build the book as pages in _book/html, from the committed outputs; then to see it: make book ARGS=serve
	@tools/install.sh book
	@$(PY) tools/book.py $(or $(ARGS),build)

nbs:  ## run every notebook again and keep its outputs; one: make nbs CHAPTERS="nbs/01_arithmetic.ipynb"
	@tools/install.sh test
	@$(PY) tools/notebooks.py export
	@$(PY) tools/notebooks.py run $(CHAPTERS)
	@$(PY) tools/notebooks.py export
	@$(PY) tools/notebooks.py readme
	@$(PY) tools/notebooks.py map

export:  ## write mlinfra/, README.md and docs/house.md from the notebooks
	@tools/install.sh test
	@$(PY) tools/notebooks.py export
	@$(PY) tools/notebooks.py readme
	@$(PY) tools/notebooks.py map

clean-nbs:  ## bring the notebooks into the form in which they are committed
	@tools/install.sh test
	@$(PY) tools/notebooks.py clean $(CHAPTERS)

bench:  ## measure against other libraries; options: make bench ARGS="..."
	@tools/install.sh test
	@$(PY) tests/bench/run.py $(ARGS)

constraints:  ## write constraints.txt from what is installed now
	@$(PY) tools/constraints.py > constraints.txt.new && mv constraints.txt.new constraints.txt
