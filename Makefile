# Everything runs in .venv, which `make venv` makes and fills. `make demo` and `make test` need
# python3 (with venv), a C compiler and make.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := test
MAKEFLAGS += --no-builtin-rules
.SECONDARY:

PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)
LOGS := build/logs
ACCEPTANCE := $(or $(HEADRACE_ACCEPTANCE),../shared/acceptance)
JOBS ?= 2
FUZZ_SECONDS ?= 60

C_FILES := $(wildcard csrc/*.c csrc/*.h tests/csrc/*.c tests/csrc/*.h benchmarks/loadgen/*.[ch])
CYTHON_FILES := $(shell find src benchmarks -name '*.pyx' -o -name '*.pxd' | sort)
STUBBED := $(shell find src/headrace/core -name '*.pyi' -printf 'headrace.core.%f\n' | sed 's/\.pyi$$//' | sort)
BENCH_ROWS := $(filter-out benchmarks/bench_promtext.py,$(wildcard benchmarks/bench_*.py))
C_TESTS := $(patsubst tests/csrc/test_%.c,%,$(wildcard tests/csrc/test_*.c))
C_OBJECTS := $(patsubst csrc/%.c,%.o,$(wildcard csrc/*.c))
C_FLAGS := -std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -fno-omit-frame-pointer -Icsrc -Itests/csrc
ASAN := -fsanitize=address,undefined -fno-sanitize-recover=all
TSAN := -fsanitize=thread

# $(call need,COMMAND,PACKAGE): one clear line for a tool that is missing
need = command -v $(1) >/dev/null || { echo "$(1) is missing: install the package $(2)" >&2; exit 1; }

.PHONY: lint lint-python lint-types lint-cython lint-c lint-stubs
.PHONY: venv build demo test ctest pytest accept bench bench-quick soak fuzz dist clean \
        acceptance-1 acceptance-0 acceptance-2 ctest-arm64 counts image

# -- environment and build

venv: .venv/.dev

.venv/.base: pyproject.toml
	@$(call need,$(PYTHON),python3)
	@$(call need,cc,gcc)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "venv is missing: install the package python3-venv" >&2; exit 1; }
	@test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || { echo "Python.h is missing: install the package python3-dev" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1" "setuptools>=77" "Cython>=3.3"
	HEADRACE_PURE=1 $(BIN)/python -m pip install -q --no-build-isolation -e . --group demo
	@touch $@

.venv/.dev: .venv/.base
	$(BIN)/python -m pip install -q --group dev
	@touch $@

build: .venv/.base
	HEADRACE_WERROR=1 $(BIN)/python setup.py -q build_ext --inplace --parallel $(JOBS)

# -- the two commands of the README

demo: build
	$(BIN)/python demo/run.py

test: lint ctest ctest-arm64 pytest acceptance-1
	@$(MAKE) -s --no-print-directory counts

# the closing line of each part
counts:
	@for log in $(LOGS)/*.log; do \
	    [ ! -e "$$log" ] || echo "$$(basename $$log .log): $$(tail -n 1 $$log)"; \
	done

$(LOGS):
	@mkdir -p $@

# -- the parts of `make test`

lint: lint-python lint-types lint-cython lint-c lint-stubs

lint-python: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: .venv/.dev
	$(BIN)/mypy

lint-cython: .venv/.dev
	$(BIN)/cython-lint $(CYTHON_FILES)

lint-c: .venv/.dev
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)

lint-stubs: build .venv/.dev
	$(BIN)/python -m mypy.stubtest --ignore-missing-stub --ignore-disjoint-bases \
	    --ignore-unused-allowlist --allowlist tests/stubtest.allow $(STUBBED)

ctest: $(addprefix build/ctest/,$(addsuffix .ok,$(C_TESTS))) | $(LOGS)
	@echo "$(words $(C_TESTS)) C test programs passed" | tee $(LOGS)/ctest.log

# csrc/ is compiled once for each sanitizer; every program links all of it
build/ctest/asan/%.o: csrc/%.c $(wildcard csrc/*.h)
	@mkdir -p $(@D)
	@$(call need,cc,gcc)
	$(CC) $(C_FLAGS) $(ASAN) -c -o $@ $<

build/ctest/tsan/%.o: csrc/%.c $(wildcard csrc/*.h)
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) $(TSAN) -c -o $@ $<

build/ctest/%.ok: tests/csrc/test_%.c $(C_OBJECTS:%=build/ctest/asan/%) $(wildcard tests/csrc/*.h)
	$(CC) $(C_FLAGS) $(ASAN) -o build/ctest/$* $< $(C_OBJECTS:%=build/ctest/asan/%) -lm -lpthread
	./build/ctest/$*
	@if grep -q pthread_create $<; then $(MAKE) --no-print-directory build/ctest/$*.tsan; fi
	@touch $@

build/ctest/%.tsan: tests/csrc/test_%.c $(C_OBJECTS:%=build/ctest/tsan/%)
	$(CC) $(C_FLAGS) $(TSAN) -o $@ $< $(C_OBJECTS:%=build/ctest/tsan/%) -lm -lpthread
	./$@

# The same programs for arm64 under emulation, where the cross compiler and qemu are installed
ARM64_TOOLS := $(shell command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64 && ls /usr/aarch64-linux-gnu/include/stdio.h)

ifeq ($(words $(ARM64_TOOLS)),3)
ctest-arm64: $(C_TESTS:%=build/arm64/%.ok) | $(LOGS)
	@echo "$(words $(C_TESTS)) C test programs passed on arm64" | tee $(LOGS)/ctest-arm64.log
else
ctest-arm64: | $(LOGS)
	@echo "not run: needs the packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user" | tee $(LOGS)/ctest-arm64.log
endif

build/arm64/%.o: csrc/%.c $(wildcard csrc/*.h)
	@mkdir -p $(@D)
	aarch64-linux-gnu-gcc $(C_FLAGS) -c -o $@ $<

build/arm64/%.ok: tests/csrc/test_%.c $(C_OBJECTS:%=build/arm64/%) $(wildcard tests/csrc/*.h)
	aarch64-linux-gnu-gcc -static $(C_FLAGS) -o build/arm64/$* $< $(C_OBJECTS:%=build/arm64/%) -lm -lpthread
	qemu-aarch64 build/arm64/$*
	@touch $@

pytest: build .venv/.dev | $(LOGS)
	{ $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile -m "not slow" || \
	    { echo "what failed, once more and alone:"; $(BIN)/python -m pytest -q -m "not slow" --last-failed; }; \
	} 2>&1 | tee $(LOGS)/pytest.log

acceptance-1 acceptance-0 acceptance-2: acceptance-%: build .venv/.dev | $(LOGS)
	@if [ -d "$(ACCEPTANCE)" ]; then \
	    $(BIN)/python tests/run_acceptance.py "$(ACCEPTANCE)" --processes $* --command "$(BIN)/headrace serve" \
	        2>&1 | tee $(CURDIR)/$(LOGS)/acceptance-$*.log; \
	else \
	    echo "not run: no acceptance suite at $(ACCEPTANCE) (set HEADRACE_ACCEPTANCE)" | tee $(LOGS)/acceptance-$*.log; \
	fi

accept: acceptance-0 acceptance-2
	@$(MAKE) -s --no-print-directory counts

# -- longer runs

bench: build .venv/.dev
	$(BIN)/python -m pytest -q --benchmark-enable --benchmark-only -p no:xdist --timeout 900 $(BENCH_ROWS)
	$(BIN)/python benchmarks/bench_promtext.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/idle_streams.py
	$(BIN)/python benchmarks/scrape.py

bench-quick: build .venv/.dev
	$(BIN)/python benchmarks/overhead.py --quick
	$(BIN)/python benchmarks/quality.py --seeds 1 --requests 2000

# a quarter of an hour with the acceptance suite, ten minutes without
soak: build .venv/.dev
	$(BIN)/python -m pytest -q -m slow --timeout 900
	@[ ! -d "$(ACCEPTANCE)" ] || { cd "$(ACCEPTANCE)" && PYTHONDONTWRITEBYTECODE=1 HEADRACE_CMD="$(BIN)/headrace serve" \
	    $(BIN)/python -m pytest -q -p no:cacheprovider -n 4 --tb=short --run-slow -m slow; }

fuzz: build .venv/.dev
	@for program in tests/fuzz/fuzz_*.py; do \
	    echo "$$program for $(FUZZ_SECONDS) s"; $(BIN)/python $$program --seconds $(FUZZ_SECONDS); \
	done

# -- packages

dist: .venv/.dev
	rm -rf build/dist build/dist-venv
	$(BIN)/python -m build -q --outdir build/dist .
	$(PYTHON) -m venv build/dist-venv
	build/dist-venv/bin/pip install -q build/dist/*.whl
	cd build && dist-venv/bin/headrace --version
	cd build && dist-venv/bin/python -c "import headrace, headrace.core.segment"

# the Dockerfile without an engine, as root; the result is a folder
image:
	deploy/build-image.sh build/image

clean:
	rm -rf build dist .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find src -name '*.so' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +
