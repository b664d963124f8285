# Each target calls the package in a line or two. CONTRIBUTING.md explains each.
#   make lab [LAB=06] [HEADLESS=1] [TORCH=pip|cpu|auto] [PYTHON=python3.12]
SHELL := bash
.SHELLFLAGS := -o pipefail -c

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
LAB ?= 00
# empty: the small build if no GPU can use CUDA and the build is available, else pip's; pip: pip's; cpu or auto: uv takes the
# build without CUDA, or the build for the GPU's driver, or says why it cannot
TORCH ?=

# pip's PyTorch for Linux on x86 brings CUDA's libraries: gigabytes that a machine without an NVIDIA GPU never loads. A login
# node has no GPU either, but its jobs' nodes may, so it gets pip's build, like a machine with a GPU.
CPU_BUILDS := https://download.pytorch.org/whl/cpu
MAY_USE_CUDA = $(shell nvidia-smi -L 2> /dev/null | head -n 1; command -v sbatch)$(wildcard /proc/driver/nvidia/version)
TRY_SMALL = $(if $(TORCH),,$(and $(filter Linux,$(shell uname)),$(if $(MAY_USE_CUDA),,yes)))

# Tests wait for a part of their time (limits, links, declared work), so three workers fill two cores. A worker runs whole files,
# and tests of executed notebooks stay last.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder

# on two busy cores the spinning threads of OpenMP and OpenBLAS take a fifth of a suite's time
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

PY := $(VENV)/bin/python
# nbgrader starts programs of the virtual environment by name
RUN := PATH="$(abspath $(VENV))/bin:$$PATH"
NOTEBOOK = $(or $(wildcard labs/$(LAB)_*.ipynb),$(error There is no lab $(LAB). Expected the number of one that is \
  ready, got LAB=$(LAB). The folder labs/ has: $(sort $(notdir $(wildcard labs/*.ipynb)))))
HEADLESSLY := $(filter-out 0,$(HEADLESS))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# with this variable each of a suite's hundreds of processes would compile the package anew
unexport PYTHONDONTWRITEBYTECODE

FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
# where `python3` does not fit, and the user has not said which
OTHER_PYTHONS := $(if $(filter file,$(origin PYTHON)),python3.13 python3.12 python3.11 python3.14)

define no_python
{ printf '%s\n' "World Size needs Python 3.11, 3.12, 3.13 or 3.14 with its venv module." \
  "Got: $(PYTHON), which says: $$($(PYTHON) --version 2>&1 | tail -n 1)" \
  "On Debian and Ubuntu install the packages that the README names, python3-venv among them. Where the machine" \
  "has one of these versions under another name, say so, for example: make $(or $(MAKECMDGOALS),lab) PYTHON=python3.12" \
  "Or install uv (https://docs.astral.sh/uv), which brings a Python of its own, and call make again." >&2; exit 1; }
endef

# $(call install,what): one line of progress in a terminal; the whole log is kept beside the environment. An interrupted install
# leaves half-installed packages, which pip accepts as whole, so the next one begins anew, from pip's cached downloads.
WITH_UV = $(filter-out pip,$(TORCH))
PIP_INSTALL = $(if $(WITH_UV),$(PY) -m uv pip install --torch-backend=$(TORCH),$(PY) -m pip install)
comma := ,
define small_torch
	@echo "No NVIDIA GPU: PyTorch without CUDA, which is 4 GB smaller on disk (TORCH=pip: with CUDA)"
	@$(PY) -m pip install -q --timeout 15 --retries 1 --no-deps -i $(CPU_BUILDS) -c $(CONSTRAINTS) torch \
	  > $(VENV)/torch.log 2>&1 || echo "It cannot be had from $(CPU_BUILDS) (why: $(VENV)/torch.log): pip's PyTorch comes instead"
endef
define install
	@echo "Installing $(1) into $(VENV): some minutes the first time. Log: $(VENV)/install.log"
	@if [ -e $(VENV)/.unfinished ]; then echo "The last install was cut short: this one begins anew"; \
	  python="$$(sed -n 's/^executable = //p' $(VENV)/pyvenv.cfg 2> /dev/null)"; \
	  "$${python:-$(PYTHON)}" -m venv --clear $(VENV) || exit 1; fi; touch $(VENV)/.unfinished
	$(if $(TRY_SMALL),$(small_torch))
	$(if $(WITH_UV),@$(PY) -m pip install -q -c $(CONSTRAINTS) uv)
	@$(PIP_INSTALL) -c $(CONSTRAINTS) -e '$(1)' 2>&1 | tee $(VENV)/install.log | \
	  while IFS= read -r line; do if [ -t 1 ]; then printf '\r\033[K%.76s' "$$line"; fi; done \
	  || { tail -n 12 $(VENV)/install.log; exit 1; }
	@if [ -t 1 ]; then printf '\r\033[K'; fi; rm $(VENV)/.unfinished; touch $@
endef

.PHONY: lab known-lab setup test quick soak matrix build pages site bench support constraints clean

lab: known-lab setup
	@$(RUN) worldsize doctor
	$(if $(HEADLESSLY),@$(RUN) worldsize run $(NOTEBOOK),$(RUN) python -m worldsize.course.opening $(NOTEBOOK) $(ARGS))

known-lab:
	@: $(NOTEBOOK)

setup: $(VENV)/.lab

test: $(VENV)/.dev
	$(RUN) $(ONE_THREAD) pytest $(SIDE_BY_SIDE) --cpu=20 $(ARGS)

quick: $(VENV)/.dev
	$(RUN) $(ONE_THREAD) pytest -m quick $(SIDE_BY_SIDE) $(ARGS)

# PART=answers|draws|words|labs|engines|hosts|grading|browser|site: the long campaign of some rooms only (tests/support/parts.py)
# two tests of a part that measures no time run side by side; one by one they would take more than an hour
soak: $(VENV)/.dev
	$(RUN) $(ONE_THREAD) pytest -m soak $(if $(PART),--part=$(PART)) $(if $(filter answers draws words grading,$(PART)),-n 2) --durations=20 $(ARGS)

# CORNER=oldest|constraints|newest|next|colab: one combination of versions; without it all whose Python is there (noxfile.py)
matrix: $(VENV)/.dev
	$(RUN) $(ONE_THREAD) python -m nox --envdir build/matrix $(if $(CORNER),-s $(CORNER)) $(ARGS)

build: $(VENV)/.dev
	@$(RUN) worldsize build $(ARGS)

# what documents tell of exercises, checks and wrong answers
pages: $(VENV)/.dev
	@$(RUN) python -m tests.support.written

# build/site, from the full runs that `make soak PART=labs` left; a lab without a run is run now
site: $(VENV)/.dev
	@$(RUN) worldsize site $(ARGS)

bench: $(VENV)/.dev
	@for peer in $$(grep -l __main__ bench/*.py); do $(RUN) python "$$peer" || exit 1; done

# Run every TensorFlow strategy in every way and write datasets/support.json, which lab 09 shows
support: $(VENV)/.dev
	@$(RUN) python -m bench.tf_support

# The newest versions that pyproject.toml admits, in a fresh environment. Test them, then commit.
constraints:
	rm -rf build/constraints
	$(MAKE) build/constraints/.dev VENV=build/constraints CONSTRAINTS=/dev/null TORCH=pip
	@{ sed -n '/^#/p' constraints.txt; build/constraints/bin/pip freeze --all --exclude pip --exclude-editable \
	  | sed 's/+[^ ]*$$//'; } > build/constraints.txt && mv build/constraints.txt constraints.txt

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .import_linter_cache

$(VENV)/.lab: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(call install,.[lab$(comma)tensorflow])

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(call install,.[dev])
	@touch $(VENV)/.lab

# pip is installed last into a virtual environment, so its presence means that the environment is complete
$(VENV)/bin/pip:
	@for python in $(PYTHON) $(OTHER_PYTHONS); do \
	  if "$$python" -c '$(FITS)' 2> /dev/null; then break; fi; python=; done; \
	if [ -z "$$python" ] && [ -n "$(OTHER_PYTHONS)" ] && command -v uv > /dev/null; then \
	  uv python install -q 3.13 && python="$$(uv python find --no-project 3.13)"; fi; \
	if [ -z "$$python" ]; then $(no_python); fi; \
	if [ "$$python" != "$(PYTHON)" ]; then \
	  echo "$(PYTHON) does not fit ($$($(PYTHON) --version 2>&1 | tail -n 1)): $$python, $$("$$python" --version), is used"; fi; \
	"$$python" -m venv $(VENV) || $(no_python)
