# The commands people use; each works as the first one on a fresh Debian 12 machine.
PRESET ?= cpu
BUILD_DIR = $(if $(filter cpu cuda,$(PRESET)),build,build-$(patsubst cpu-%,%,$(PRESET)))
JOBS ?= $(shell nproc)

.PHONY: help setup configure build demo test bench bench-eager format clean

help:
	@echo "make build | demo | test | bench | bench-eager | format | clean      (PRESET=cpu | cpu-debug | asan | cuda)"

setup:
	@scripts/setup.sh

# cpu and cuda share build/, where the program is; changing between them starts it anew.
configure: setup
	@if [ -f $(BUILD_DIR)/preset ] && [ "$$(cat $(BUILD_DIR)/preset)" != $(PRESET) ]; then \
	  echo "make: $(BUILD_DIR) was for $$(cat $(BUILD_DIR)/preset), starting anew"; rm -rf $(BUILD_DIR); fi
	@mkdir -p $(BUILD_DIR) && echo $(PRESET) > $(BUILD_DIR)/preset
	@cmake --preset $(PRESET) --log-level=WARNING

build: configure
	@cmake --build --preset $(PRESET) -j $(JOBS)

# Only what it runs: the tests take most of a whole build.
demo: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target quickstart gluon_program
	@$(BUILD_DIR)/examples/quickstart
	@$(BUILD_DIR)/gluon train --steps 400 --sample 300

test: build
	@ctest --preset $(PRESET) -j $(JOBS)

bench: build
	@$(BUILD_DIR)/gluon bench step --model gpt124m --device cpu

# Whole training steps beside PyTorch eager. Debian's python3 by its path: another one would not have its torch.
bench-eager: build
	@scripts/setup.sh python3-torch python3-numpy
	@/usr/bin/python3 benchmarks/eager_train.py

format:
	@scripts/setup.sh clang-format
	@scripts/format.sh

clean:
	rm -rf build build-debug build-asan
