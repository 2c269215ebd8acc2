# frostline: one non-recursive Makefile.
#
#   make run      set up, build, run configs/quickstart.yaml, say where the results are
#   make test     set up, build, run the whole test suite
#   make help     every target
#
# Settings a user may change: CONFIG (release, debug, asan, ubsan, tsan), CC, PREFIX, V=1 (show commands).

CONFIG ?= release
PREFIX ?= /usr/local
CC = gcc
BUILD = build/$(CONFIG)

STANDARD_FLAGS = -std=c11 -D_POSIX_C_SOURCE=200809L -ffp-contract=off -I.
WARNINGS = -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wwrite-strings -Wundef -Werror
OPTIMISE_release = -O2 -g
OPTIMISE_debug = -O0 -g3
OPTIMISE_asan = -O1 -g -fno-omit-frame-pointer -fsanitize=address
OPTIMISE_ubsan = -O1 -g -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=all
OPTIMISE_tsan = -O1 -g -fno-omit-frame-pointer -fsanitize=thread

# Evaluated when a recipe runs, so that a machine without the libraries can still run `make setup`.
LIBRARIES = yaml-0.1 libcjson hdf5-serial libpcre2-8 libutf8proc libxxhash openblas
LIBRARY_CFLAGS = $(shell pkg-config --cflags $(LIBRARIES))
LIBRARY_LDLIBS = $(shell pkg-config --libs $(LIBRARIES)) -lhdf5_serial_hl -lm -lpthread
BUILD_INFO = -DFL_BUILD_FLAGS='"$(OPTIMISE_$(CONFIG)) -ffp-contract=off"' -DFL_BUILD_CONFIG='"$(CONFIG)"'
CFLAGS_ALL = $(STANDARD_FLAGS) $(WARNINGS) $(OPTIMISE_$(CONFIG)) $(LIBRARY_CFLAGS) $(CFLAGS)

LIBRARY_FOLDERS = harness/base harness/config harness/model harness/compute attn_variants harness/engine \
                  harness/measure harness/eval harness/store analysis
LIBRARY_SOURCES = $(wildcard $(addsuffix /*.c,$(LIBRARY_FOLDERS)))
CLI_SOURCES = $(wildcard harness/cli/*.c)
SUPPORT_SOURCES = $(wildcard tests/support/*.c)
TEST_SOURCES = $(wildcard tests/unit/test_*.c)

object = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIBRARY = $(BUILD)/libfrostline.a
PROGRAM = $(BUILD)/frostline
TESTS = $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(TEST_SOURCES))

Q = $(if $(V),,@)

.PHONY: all help
all: $(PROGRAM)

help:
	@sed -n 's/^#: //p' Makefile

$(LIBRARY): $(call object,$(LIBRARY_SOURCES))
	$(Q)rm -f $@
	$(Q)ar rcs $@ $^

$(PROGRAM): $(call object,$(CLI_SOURCES)) $(LIBRARY)
	@echo "link $@"
	$(Q)$(CC) $(OPTIMISE_$(CONFIG)) $(LDFLAGS) -o $@ $^ $(LIBRARY_LDLIBS)

$(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(call object,$(SUPPORT_SOURCES)) $(LIBRARY)
	@mkdir -p $(dir $@)
	$(Q)$(CC) $(OPTIMISE_$(CONFIG)) $(LDFLAGS) -o $@ $^ -lcmocka $(LIBRARY_LDLIBS)

# Kernels for one instruction set live in files named after it; everything else is baseline x86-64 (or whatever the target is).
$(BUILD)/%_avx2.o: TARGET_FLAGS = -mavx2 -mfma
$(BUILD)/%_avx512.o: TARGET_FLAGS = -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(dir $@)
	@echo "cc $<"
	$(Q)$(CC) $(CFLAGS_ALL) $(TARGET_FLAGS) $(BUILD_INFO) -MMD -MP -c -o $@ $<

-include $(patsubst %.o,%.d,$(call object,$(LIBRARY_SOURCES) $(CLI_SOURCES) $(SUPPORT_SOURCES)))
-include $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%.d,$(TEST_SOURCES))
.SECONDARY:

.PHONY: check tests
tests: $(TESTS)
#: make check        build and run the tests without set-up (TEST=name for one binary)
check: $(PROGRAM) $(TESTS)
	@FROSTLINE=$(PROGRAM) tests/run_tests.sh $(if $(TEST),$(BUILD)/tests/$(TEST),$(TESTS))
