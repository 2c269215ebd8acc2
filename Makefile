# frostline: one non-recursive Makefile. It calls itself only to build again with other settings, never folder by folder.
#
#: make run          set up, build, run configs/quickstart.yaml, say where table and picture are
#: make test         set up, build, run the whole test suite
#: make              build build/release/frostline
#: make setup        only the set-up: Debian packages (as root or with sudo) and the default model
#: make check        build and run the tests without set-up (TEST=test_name for one program)
#: make check-full   the same with the long tests (FROSTLINE_FULL=1)
#: make asan         the suite under the address sanitizer; likewise make ubsan, make tsan
#: make fuzz         every fuzz target for FUZZ_SECONDS seconds each (clang)
#: make lint         floors, headers alone, names; cppcheck and clang-tidy where installed
#: make format       clang-format over every .c (headers are laid out by hand)
#: make cuda-setup   the pinned CUDA compiler from PyPI (104 MB, no GPU and no driver needed); make cuda then builds
#:                   libfrostline_cuda.so beside the program (or NVCC=/path/to/nvcc make cuda), make cuda-check also checks it
#: make portable     build/portable.tar.xz: programs, device tests and libraries for a GPU machine that has none
#: make bench        build, measure this machine and how much of it each part of the work uses (BENCH=--quick: flags)
#: make install      program, completions, man page, configs, texts and the model that is there under $(DESTDIR)$(PREFIX)
#: make clean        remove build/ (the model, the results and your configs stay)
#: make help         this list
#:
#: Settings: CONFIG (release, debug, asan, ubsan, tsan), CC, CFLAGS, LDFLAGS, PREFIX, DESTDIR, V=1 (show commands)

CONFIG ?= release
PREFIX ?= /usr/local
CC = gcc
FUZZ_SECONDS ?= 30
BUILD = build/$(CONFIG)
MODEL = models/smollm2-135m.gguf

STANDARD_FLAGS = -std=c11 -D_POSIX_C_SOURCE=200809L -ffp-contract=off -I.
WARNINGS = -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wwrite-strings -Wundef -Wvla -Werror
OPTIMISE_release = -O2 -g
OPTIMISE_debug = -O0 -g3
OPTIMISE_asan = -O1 -g -fno-omit-frame-pointer -fsanitize=address
OPTIMISE_ubsan = -O1 -g -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=all
OPTIMISE_tsan = -O1 -g -fno-omit-frame-pointer -fsanitize=thread
# Only through `make fuzz`, with clang, whose other ideas of a warning must not stop it.
OPTIMISE_fuzz = -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -Wno-error
ifeq ($(filter $(CONFIG),release debug asan ubsan tsan fuzz),)
$(error CONFIG=$(CONFIG) is not one of release, debug, asan, ubsan, tsan)
endif

# Asked for once, when the first recipe needs it, so that a machine without the libraries can still run `make setup`.
LIBRARIES = yaml-0.1 libcjson hdf5-serial libpcre2-8 libutf8proc libxxhash openblas
LIBRARY_CFLAGS = $(eval LIBRARY_CFLAGS := $(shell pkg-config --cflags $(LIBRARIES)))$(LIBRARY_CFLAGS)
LIBRARY_LDLIBS = $(eval LIBRARY_LDLIBS := $(shell pkg-config --libs $(LIBRARIES)) -lhdf5_serial_hl -lm -lpthread)$(LIBRARY_LDLIBS)
BUILD_INFO = -DFL_BUILD_FLAGS='"$(OPTIMISE_$(CONFIG)) -ffp-contract=off"' -DFL_BUILD_CONFIG='"$(CONFIG)"'
CFLAGS_ALL = $(STANDARD_FLAGS) $(WARNINGS) $(OPTIMISE_$(CONFIG)) $(LIBRARY_CFLAGS) $(CFLAGS)

LIBRARY_FOLDERS = harness/base harness/config harness/model harness/compute attn_variants harness/engine \
                  harness/measure harness/eval harness/store analysis harness/run harness/bench
LIBRARY_SOURCES = $(wildcard $(addsuffix /*.c,$(LIBRARY_FOLDERS)))
CLI_SOURCES = $(wildcard harness/cli/*.c)
SUPPORT_SOURCES = $(filter-out %/fuzz_driver.c,$(wildcard tests/support/*.c))
TEST_SOURCES = $(wildcard tests/unit/test_*.c)
FUZZ_SOURCES = $(wildcard tests/fuzz/fuzz_*.c)

object = $(patsubst %.c,$(BUILD)/%.o,$(1))
FUZZ_SUPPORT = $(call object,tests/fuzz/data_file.c)
LIBRARY = $(BUILD)/libfrostline.a
PROGRAM = $(BUILD)/frostline
TESTS = $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(TEST_SOURCES))
# Fuzz targets with a corpus in the tree are replayed as tests, by a plain driver and any compiler.
REPLAYS = $(foreach name,$(patsubst tests/fuzz/%.c,%,$(FUZZ_SOURCES)),\
            $(if $(wildcard tests/fuzz/corpus/$(patsubst fuzz_%,%,$(name))/*),$(BUILD)/tests/$(name)))
FUZZERS = $(patsubst tests/fuzz/%.c,$(BUILD)/fuzzers/%,$(FUZZ_SOURCES))

Q = $(if $(V),,@)
# All processors, unless the user said -j.
AGAIN = $(MAKE) --no-print-directory $(if $(findstring j,$(firstword -$(MAKEFLAGS))),,$(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)))

.PHONY: all help
all: $(LIBRARY) $(if $(CLI_SOURCES),$(PROGRAM))

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

# Set-up -------------------------------------------------------------------------------------------------------------

MODEL_SET = $(if $(wildcard $(MODEL)),,model)

.PHONY: setup run test
setup:
	@harness/setup/packages.sh build run $(MODEL_SET)
	@harness/setup/default_model.sh

run: setup
	@$(AGAIN) all
	@$(PROGRAM) run configs/quickstart.yaml --out results/quickstart

# Without the model (no network) the suite still runs; the tests that need it say so and skip.
test:
	@harness/setup/packages.sh build run test $(MODEL_SET)
	@harness/setup/default_model.sh || echo "make test: going on without the default model"
	@harness/setup/packs.sh
	@$(AGAIN) check

# Program and library ------------------------------------------------------------------------------------------------

$(LIBRARY): $(call object,$(LIBRARY_SOURCES))
	$(Q)rm -f $@
	$(Q)ar rcs $@ $^

$(PROGRAM): $(call object,$(CLI_SOURCES)) $(LIBRARY)
	@echo "link $@"
	$(Q)$(CC) $(OPTIMISE_$(CONFIG)) $(LDFLAGS) -o $@ $^ $(LIBRARY_LDLIBS)

# An archive, so that a test links only the support it uses.
SUPPORT = $(BUILD)/libsupport.a
$(SUPPORT): $(call object,$(SUPPORT_SOURCES))
	$(Q)rm -f $@
	$(Q)ar rcs $@ $^

# What the command line is tested with from inside.
$(BUILD)/tests/test_progress_line: $(call object,harness/cli/columns.c harness/cli/progress_line.c)
$(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(SUPPORT) $(LIBRARY)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPTIMISE_$(CONFIG)) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBRARY_LDLIBS)

$(BUILD)/tests/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(FUZZ_SUPPORT) $(call object,tests/support/fuzz_driver.c) $(LIBRARY)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPTIMISE_$(CONFIG)) $(LDFLAGS) -o $@ $^ $(LIBRARY_LDLIBS)

$(BUILD)/fuzzers/%: $(BUILD)/tests/fuzz/%.o $(FUZZ_SUPPORT) $(LIBRARY)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPTIMISE_$(CONFIG)) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(LIBRARY_LDLIBS)

# Kernels for one instruction set live in files named after it; everything else is baseline x86-64 (or whatever the target is).
# Short loops run at half their speed where they cross a cache line.
$(BUILD)/%_avx2.o: TARGET_FLAGS = -mavx2 -mfma -falign-loops=32
# The address sanitizer's frames for finding uses after return are aligned to 32 bytes where gcc lays out 64.
FRAMES_asan = $(shell $(CC) -Werror -fsanitize=address --param asan-use-after-return=0 -E -x c /dev/null >/dev/null 2>&1 && \
    echo --param asan-use-after-return=0)
$(BUILD)/%_avx512.o: TARGET_FLAGS = -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -falign-loops=32 $(FRAMES_$(CONFIG))

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "cc $<"
	$(Q)$(CC) $(CFLAGS_ALL) $(TARGET_FLAGS) $(BUILD_INFO) -MMD -MP -c -o $@ $<

# The code's revision, for provenance: rewritten, and its one reader recompiled, only when it changes.
REVISION = $(BUILD)/generated/build_revision.h
.PHONY: revision
$(REVISION): revision
	@harness/setup/revision.sh $@
$(BUILD)/harness/base/build_info.o: $(REVISION)
$(BUILD)/harness/base/build_info.o: TARGET_FLAGS = -I$(BUILD)/generated

# Hashes of the sources that numbers depend on: likewise.
SOURCE_HASHES = $(BUILD)/generated/source_hashes.h
$(SOURCE_HASHES): revision
	@harness/setup/source_hashes.sh $@
$(BUILD)/harness/store/fingerprint.o: $(SOURCE_HASHES)
$(BUILD)/harness/store/fingerprint.o: TARGET_FLAGS = -I$(BUILD)/generated

# The page of `frostline lab --page`: the program carries it.
LAB_PAGE = $(BUILD)/generated/lab_page_parts.h
LAB_PAGE_FOLDER = harness/cli/lab_page
$(LAB_PAGE): harness/setup/embed_text.sh $(wildcard $(LAB_PAGE_FOLDER)/*)
	@harness/setup/embed_text.sh $@ lab_style=$(LAB_PAGE_FOLDER)/style.css lab_body=$(LAB_PAGE_FOLDER)/body.html \
	    lab_arithmetic=$(LAB_PAGE_FOLDER)/arithmetic.js lab_script=$(LAB_PAGE_FOLDER)/page.js
$(BUILD)/harness/cli/lab_page.o: $(LAB_PAGE)
$(BUILD)/harness/cli/lab_page.o: TARGET_FLAGS = -I$(BUILD)/generated

-include $(patsubst %.o,%.d,$(call object,$(LIBRARY_SOURCES) $(CLI_SOURCES) $(SUPPORT_SOURCES) $(TEST_SOURCES) \
             $(FUZZ_SOURCES) tests/support/fuzz_driver.c tests/fuzz/data_file.c))
.SECONDARY:

# CUDA ----------------------------------------------------------------------------------------------------------------

# The device's side is C++ that two compilers take: nvcc for a GPU, g++ for an emulation that the unit tests run.
CUDA_FOLDER = harness/compute/cuda
CUDA_SOURCES = $(wildcard $(CUDA_FOLDER)/*.cu)
CUDA_ENV = build/cuda-env
CUDA_PACKAGES = nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 \
                nvidia-cuda-cccl==13.0.85
NVCC = $(or $(firstword $(wildcard $(CUDA_ENV)/lib/python3.*/site-packages/nvidia/cu13/bin/nvcc)),nvcc)
CUDA_LIBRARIES = $(wildcard $(patsubst %/bin/nvcc,%/lib,$(NVCC)))
CUDA_TARGETS = -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
NVCC_FLAGS = -std=c++17 -O3 -I. -I$(BUILD) -cudart static -Xcompiler -fPIC,-fvisibility=hidden --resource-usage $(CUDA_TARGETS)
CXX = g++
CXX_FLAGS = -std=c++17 -I. -I$(BUILD) -fPIC -fvisibility=hidden -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers -Werror $(OPTIMISE_$(CONFIG))
CUDA_OBJECT = $(BUILD)/libfrostline_cuda.so
CUDA_EMULATED = $(BUILD)/libfrostline_cuda_emulated.so

BACKEND_HASH = $(BUILD)/generated/backend_hash.h
$(BACKEND_HASH): revision
	@harness/setup/backend_hash.sh $@
$(BUILD)/harness/compute/load_backend.o: $(BACKEND_HASH)
$(BUILD)/harness/compute/load_backend.o: TARGET_FLAGS = -I$(BUILD)

.PHONY: cuda-setup cuda cuda-check cuda-emulated
cuda-setup:
	@python3 -m venv $(CUDA_ENV)
	@$(CUDA_ENV)/bin/pip install -q $(CUDA_PACKAGES)

cuda: $(CUDA_OBJECT)

$(BUILD)/cuda/backend.o $(BUILD)/cuda_emulated/backend.o: $(BACKEND_HASH)
$(BUILD)/cuda/%.o: $(CUDA_FOLDER)/%.cu
	@mkdir -p $(@D)
	@command -v $(NVCC) >/dev/null || { echo "make cuda: no nvcc: make cuda-setup, or NVCC=/path/to/nvcc" >&2; exit 1; }
	@echo "nvcc $<"
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< >$(@:.o=.resources) 2>&1 || { cat $(@:.o=.resources); exit 1; }

$(CUDA_OBJECT): $(patsubst $(CUDA_FOLDER)/%.cu,$(BUILD)/cuda/%.o,$(CUDA_SOURCES))
	@echo "link $@"
	$(Q)$(NVCC) -shared -cudart static $(addprefix -L,$(CUDA_LIBRARIES)) -Xlinker --version-script=$(CUDA_FOLDER)/exports.map -o $@ $^ -ldl

cuda-check: $(CUDA_OBJECT)
	@harness/setup/cuda_check.sh $(CUDA_OBJECT) $(BUILD)/cuda

cuda-emulated: $(CUDA_EMULATED)

# For a machine with a GPU and none of our libraries: build/portable.tar.xz (bench/device/check.sh). `make cuda` before it.
PORTABLE_TESTS = test_cuda_operations test_cuda_attention test_cuda_recurrence test_cuda_run test_backends test_recurrence
.PHONY: portable
portable: all $(addprefix $(BUILD)/tests/,$(PORTABLE_TESTS))
	@harness/setup/portable.sh $(BUILD) $(PORTABLE_TESTS)

$(BUILD)/cuda_emulated/%.o: $(CUDA_FOLDER)/%.cu Makefile
	@mkdir -p $(@D)
	@echo "c++ $<"
	$(Q)$(CXX) $(CXX_FLAGS) -MMD -MP -c -x c++ -o $@ $<

$(BUILD)/cuda_emulated/%.o: $(CUDA_FOLDER)/%.cc Makefile
	@mkdir -p $(@D)
	@echo "c++ $<"
	$(Q)$(CXX) $(CXX_FLAGS) -MMD -MP -c -o $@ $<

$(CUDA_EMULATED): $(patsubst $(CUDA_FOLDER)/%.cu,$(BUILD)/cuda_emulated/%.o,$(CUDA_SOURCES)) $(BUILD)/cuda_emulated/emulation.o
	@echo "link $@"
	$(Q)$(CXX) $(OPTIMISE_$(CONFIG)) -shared -o $@ $^

# Without g++ these tests say so and skip.
ifneq ($(shell command -v $(CXX) 2>/dev/null),)
$(filter $(BUILD)/tests/test_cuda_% $(BUILD)/tests/test_backends,$(TESTS)): | $(CUDA_EMULATED)
endif

-include $(wildcard $(BUILD)/cuda/*.d $(BUILD)/cuda_emulated/*.d)

# Checks -------------------------------------------------------------------------------------------------------------

.PHONY: tests check check-full asan ubsan tsan fuzz fuzzers lint format bench
tests: $(TESTS) $(REPLAYS)

check: all $(if $(TEST),$(BUILD)/tests/$(TEST),$(TESTS) $(REPLAYS))
	@FROSTLINE=$(PROGRAM) tests/run_tests.sh $(if $(TEST),$(BUILD)/tests/$(TEST),$(TESTS) $(REPLAYS))

check-full:
	@FROSTLINE_FULL=1 TEST_TIMEOUT=7200 $(AGAIN) check
	@for script in tests/full/*.sh; do FROSTLINE=$(PROGRAM) $$script || exit 1; done

asan ubsan tsan:
	@ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 \
	    TSAN_OPTIONS=suppressions=$(CURDIR)/tests/support/tsan.supp:halt_on_error=1 $(AGAIN) CONFIG=$@ check

fuzzers: $(FUZZERS)

fuzz:
	@harness/setup/packages.sh build fuzz
	@$(AGAIN) CONFIG=fuzz CC=clang fuzzers
	@for fuzzer in $(FUZZ_SOURCES:tests/fuzz/%.c=%); do \
	    name=$${fuzzer#fuzz_}; mkdir -p build/fuzz/corpus/$$name build/fuzz/found; \
	    echo "fuzz $$name, $(FUZZ_SECONDS) s"; \
	    build/fuzz/fuzzers/$$fuzzer -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
	        -artifact_prefix=build/fuzz/found/$$name- build/fuzz/corpus/$$name \
	        $$(ls -d tests/fuzz/corpus/$$name 2>/dev/null) >build/fuzz/$$name.log 2>&1 \
	        || { tail -n 40 build/fuzz/$$name.log; exit 1; }; \
	    grep -h number_of_executed_units build/fuzz/$$name.log; \
	done

lint:
	@harness/setup/lint_floors.sh $(CC) $(STANDARD_FLAGS) $(WARNINGS) $(LIBRARY_CFLAGS)
	@if command -v cppcheck >/dev/null; then echo "cppcheck"; \
	    cppcheck -q --std=c11 --error-exitcode=1 --enable=warning,portability --inline-suppr \
	        --suppressions-list=harness/setup/cppcheck.txt -j$(shell nproc) -I. $(LIBRARY_SOURCES) $(CLI_SOURCES); \
	 else echo "cppcheck is not installed"; fi
	@if command -v clang-tidy >/dev/null; then echo "clang-tidy"; \
	    harness/setup/lint_tidy.sh $(LIBRARY_SOURCES) $(CLI_SOURCES) -- $(STANDARD_FLAGS) $(LIBRARY_CFLAGS) $(BUILD_INFO) \
	        -I$(BUILD)/generated; \
	 else echo "clang-tidy is not installed"; fi

format:
	@harness/setup/packages.sh format
	@git ls-files '*.c' | xargs clang-format -i

# Nothing else should run meanwhile. BENCH: further flags (docs/performance.md).
bench:
	@$(AGAIN) all
	@$(PROGRAM) bench $(wildcard $(MODEL)) --json $(BUILD)/bench.json $(BENCH)

# Install and clean --------------------------------------------------------------------------------------------------

# The program finds ../share/frostline from its own folder, so that what is installed may be moved.
SHARE = $(DESTDIR)$(PREFIX)/share
.PHONY: install clean
install: $(LIBRARY) $(if $(CLI_SOURCES),$(PROGRAM))
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/frostline
	@for file in $$(git ls-files configs datasets results 2>/dev/null || find configs datasets results -name '*.[ymt][adx]*') \
	    $(wildcard $(MODEL)); do install -D -m 644 "$$file" "$(SHARE)/frostline/$$file"; done
	@for folder in bash-completion/completions zsh/site-functions man/man1; do install -d "$(SHARE)/$$folder"; done
	$(PROGRAM) completion bash >$(SHARE)/bash-completion/completions/frostline
	$(PROGRAM) completion zsh >$(SHARE)/zsh/site-functions/_frostline
	$(PROGRAM) manual >$(SHARE)/man/man1/frostline.1
	install -D -m 644 README.md $(SHARE)/doc/frostline/README.md
	install -D -m 644 docs/configuration.md $(SHARE)/doc/frostline/configuration.md
	install -D -m 644 LICENSE $(SHARE)/doc/frostline/LICENSE

clean:
	rm -rf build
