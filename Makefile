# The commands people use; each works as the first one on a fresh Debian 12 machine.
PRESET ?= cpu
BUILD_DIR = $(if $(filter cpu cuda,$(PRESET)),build,build-$(patsubst cpu-%,%,$(PRESET)))
JOBS ?= $(shell nproc)

# The Python package is part of the cpu build, for Debian's python3 and its torch; make GLUON_PYTHON=OFF goes without.
GLUON_PYTHON ?= $(if $(filter cpu,$(PRESET)),AUTO,OFF)
PYTHON_EXECUTABLE ?= $(if $(filter cuda,$(PRESET)),$(shell command -v python3),/usr/bin/python3)
PYTHON_PACKAGES = python3-torch python3-dev python3-numpy python3-pytest pybind11-dev

.PHONY: help setup test-setup configure build demo test fuzz lint python bench bench-eager torture soak format clean

help:
	@echo "make build | demo | test | fuzz | lint | python | bench | bench-eager | torture | soak | format | clean"
	@echo "  PRESET=cpu|cpu-debug|asan|tsan|cuda"

setup:
	@scripts/setup.sh $(if $(filter ON AUTO,$(GLUON_PYTHON)),$(PYTHON_PACKAGES))

# All packages of make test at once. Chromium has to be there before configuring, which looks for it.
test-setup:
	@scripts/setup.sh --browser --lint libfaketime $(if $(filter ON AUTO,$(GLUON_PYTHON)),$(PYTHON_PACKAGES))

# cpu and cuda share build/, where the program is; changing between them starts it anew.
configure: setup
	@if [ -f $(BUILD_DIR)/preset ] && [ "$$(cat $(BUILD_DIR)/preset)" != $(PRESET) ]; then \
	  echo "make: $(BUILD_DIR) was for $$(cat $(BUILD_DIR)/preset), starting anew"; rm -rf $(BUILD_DIR); fi
	@mkdir -p $(BUILD_DIR) && echo $(PRESET) > $(BUILD_DIR)/preset
	@cmake --preset $(PRESET) --log-level=NOTICE -DGLUON_PYTHON=$(GLUON_PYTHON) -DPython_EXECUTABLE=$(PYTHON_EXECUTABLE)

build: configure
	@cmake --build --preset $(PRESET) -j $(JOBS)

# Only what it runs: the tests take most of a whole build.
demo: GLUON_PYTHON = OFF
demo: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target quickstart gluon_program
	@OMP_WAIT_POLICY=$${OMP_WAIT_POLICY:-passive} $(BUILD_DIR)/examples/quickstart
	@$(BUILD_DIR)/gluon train --steps 400 --sample 300

# One test more than cores: several wait for processes of theirs most of the time.
test: test-setup lint build
	@ctest --preset $(PRESET) -j $$(($(JOBS) + 1))

# Every parser with libFuzzer for SECONDS_EACH: eleven targets, so the default takes two hours (docs/reliability.md).
SECONDS_EACH ?= 600
fuzz:
	@scripts/setup.sh --fuzz
	@cmake --preset fuzz --log-level=NOTICE
	@cmake --build --preset fuzz -j $(JOBS)
	@scripts/fuzz.py --seconds $(SECONDS_EACH)

lint:
	@scripts/setup.sh --lint
	@scripts/lint.sh

# The package where it was built; pip install . puts it beside the other packages.
python: GLUON_PYTHON = ON
python: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target gluon_python
	@PYTHONPATH=$(BUILD_DIR)/python $(PYTHON_EXECUTABLE) -c 'import gluon; print("gluon", gluon.__version__)'
	@echo "PYTHONPATH=$(CURDIR)/$(BUILD_DIR)/python $(PYTHON_EXECUTABLE) finds it"

bench: build
	@$(BUILD_DIR)/gluon bench step --model gpt124m --device cpu

# Whole training steps beside PyTorch eager. Debian's python3 by its path: another one would not have its torch.
bench-eager: build
	@scripts/setup.sh python3-torch python3-numpy
	@/usr/bin/python3 benchmarks/eager_train.py

# Breaks real runs 200 times, resumes each and compares it with the undisturbed run: docs/reliability.md.
torture: build
	@scripts/setup.sh libfaketime
	@/usr/bin/python3 tests/torture/driver.py $(BUILD_DIR)/gluon --faults 200 --jobs $(JOBS)

soak: build
	@/usr/bin/python3 tests/torture/soak.py $(BUILD_DIR)/gluon

format:
	@scripts/setup.sh clang-format
	@scripts/format.sh

clean:
	rm -rf build build-debug build-asan build-tsan build-fuzz
