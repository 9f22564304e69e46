# fencegate - build, run, test.  `make help` lists the targets.
#
# Variants live side by side, each in a folder of its own:
#     make                                build/        gcc -O2
#     make SANITIZE=address,undefined     build/asan/   with sanitizers
#     make CC=clang                       build/        everything is rebuilt when flags change
# Sources are found by wildcard: a new file in gateway/, storage/ or tests/*/ needs no line here.

.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:

ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --no-print-directory -j$(shell nproc 2>/dev/null || echo 2)
endif
ifeq ($(origin CC),default)
CC := gcc
endif
PYTHON := /usr/bin/python3

# ---- Packages (Debian 12) ------------------------------------------------------------------------

# What building, running and the demo need; then the tests. Where all of it is there by other means:
# make DEPS= DEPS_TEST= DEPS_LINT= DEPS_VALGRIND=
DEPS := gcc libc6-dev pkg-config libmicrohttpd-dev libhiredis-dev libjansson-dev libsqlite3-dev \
	libev-dev libcurl4-openssl-dev redis-server redis-tools curl sqlite3
DEPS_TEST     := libcmocka-dev procps python3 python3-jsonschema python3-yaml faketime systemd man-db
DEPS_LINT     := clang clang-format clang-tidy cppcheck shellcheck
DEPS_FUZZ     := libclang-rt-14-dev
DEPS_VALGRIND := valgrind
# Load generators; then what the benchmark compares with, where it is there.
DEPS_BENCH    := wrk nghttp2-client redis-tools python3
DEPS_PEERS    := etcd-server postgresql
ifneq ($(findstring clang,$(CC)),)
DEPS += clang
endif

.PHONY: deps deps-test deps-lint deps-fuzz deps-valgrind deps-bench
deps: ## install the missing Debian packages (build, run, demo)
	@.ci/deps $(DEPS)

deps-test: | deps
	@.ci/deps $(DEPS_TEST)

deps-lint: | deps-test
	@.ci/deps $(DEPS_LINT)

deps-fuzz: | deps-lint
	@.ci/deps $(DEPS_FUZZ)

deps-valgrind: | deps-lint
	@.ci/deps $(DEPS_VALGRIND)

deps-bench: | deps
	@.ci/deps $(DEPS_BENCH)

# ---- Flags ---------------------------------------------------------------------------------------

SANITIZE ?=
COVERAGE ?=
FAULTS   ?=

BUILD := build
ifneq ($(SANITIZE),)
ifneq ($(findstring thread,$(SANITIZE)),)
BUILD := build/tsan
else
BUILD := build/asan
endif
endif
ifneq ($(COVERAGE),)
BUILD := build/coverage
endif
# The fault build (gateway/faults.h) of a variant lies inside the variant's folder.
ifneq ($(FAULTS),)
BUILD := $(BUILD)/faults
FAULT_FLAGS := -DFG_FAILPOINTS
endif

# With FUZZ=1 the programs of tests/fuzz/ are libFuzzer's (make fuzz).
FUZZ ?=
ifneq ($(FUZZ),)
BUILD := build/fuzz
CC    := clang
endif

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
STANDARD := -std=gnu17 -D_GNU_SOURCE -I.
HARDEN   := -fstack-protector-strong

ifneq ($(SANITIZE),)
OPTIMIZE := -O1 -g -fsanitize=$(SANITIZE) -fno-sanitize-recover=all
else ifneq ($(FUZZ),)
OPTIMIZE := -O1 -g -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow \
	-fno-sanitize-recover=all
else ifneq ($(COVERAGE),)
OPTIMIZE := -O0 -g --coverage
else
OPTIMIZE := -O2 -g
HARDEN   += -D_FORTIFY_SOURCE=2
endif

# Asked only once, and only when something is compiled: by then `deps` has installed pkg-config.
LIBRARIES  := libmicrohttpd hiredis jansson sqlite3 libcurl
PKG_CFLAGS  = $(eval PKG_CFLAGS := $$(shell pkg-config --cflags $(LIBRARIES)))$(PKG_CFLAGS)
PKG_LIBS    = $(eval PKG_LIBS := $$(shell pkg-config --libs $(filter-out libcurl,$(LIBRARIES))))$(PKG_LIBS)

# CFLAGS and LDFLAGS are the caller's, and come last.
ALL_CFLAGS  = $(STANDARD) $(OPTIMIZE) -fno-omit-frame-pointer $(HARDEN) $(WARNINGS) $(PKG_CFLAGS) \
	$(FAULT_FLAGS) $(CFLAGS)
ALL_LDFLAGS = $(OPTIMIZE) -Wl,-z,relro,-z,now $(LDFLAGS)
LIBS        = $(PKG_LIBS) -lev -lpthread -lm

# The client needs neither the gateway nor what it is made of.
CLIENT_CFLAGS   = -fPIC -fvisibility=hidden
CLIENT_PACKAGES := libcurl jansson
CLIENT_LIBS      = $(eval CLIENT_LIBS := $$(shell pkg-config --libs $(CLIENT_PACKAGES)) -lpthread)$(CLIENT_LIBS)

# ---- Sources -------------------------------------------------------------------------------------

MAIN         := gateway/main.c
LIB_SOURCES  := $(filter-out $(MAIN),$(sort $(wildcard gateway/*.c storage/*.c gateway/*.S)))
COMMAND_SOURCES := $(sort client/fence_cli.c $(wildcard client/cli/*.c))
EXAMPLE      := client/example.c
CLIENT_SOURCES := $(filter-out $(COMMAND_SOURCES) $(EXAMPLE),$(sort $(wildcard client/*.c)))
SUPPORT      := $(sort $(wildcard tests/support/*.c))
TEST_SOURCES := $(sort $(wildcard tests/api/test_*.c tests/lua/test_*.c tests/unit/test_*.c))
CLIENT_TESTS := $(sort $(wildcard tests/client/test_*.c))
FUZZ_SOURCES := $(sort $(wildcard tests/fuzz/fuzz_*.c))
SCENARIOS    := $(sort $(wildcard tests/scenarios/*.sh))
FAULT_TESTS  := $(sort $(wildcard tests/fault/test_*.py))

object       = $(addprefix $(BUILD)/obj/,$(addsuffix .o,$(basename $(1))))
LIB_OBJECTS := $(call object,$(LIB_SOURCES))
CLIENT_OBJECTS := $(call object,$(CLIENT_SOURCES))
COMMAND_OBJECTS := $(call object,$(COMMAND_SOURCES) $(EXAMPLE))
OBJECTS     := $(call object,$(MAIN) $(SUPPORT) $(TEST_SOURCES) $(CLIENT_TESTS) $(FUZZ_SOURCES) tests/fuzz/replay.c) \
	$(LIB_OBJECTS) $(CLIENT_OBJECTS) $(COMMAND_OBJECTS)
BINARY      := $(BUILD)/fencegate
COMMAND     := $(BUILD)/fence
LIBRARY     := $(BUILD)/libfencegate.a
LIBFENCE    := $(BUILD)/libfence.a
VERSION     := $(shell sed -n 's/.*FG_VERSION "\(.*\)"/\1/p' gateway/version.h)
SONAME      := libfence.so.$(firstword $(subst ., ,$(VERSION)))
SHARED      := $(BUILD)/libfence.so.$(VERSION)
SUPPORT_LIB := $(BUILD)/libsupport.a
TESTS       := $(patsubst %.c,$(BUILD)/%,$(TEST_SOURCES) $(CLIENT_TESTS) $(FUZZ_SOURCES))

# ---- Build ---------------------------------------------------------------------------------------

.PHONY: build build-faults tests FORCE
build: $(BINARY) $(COMMAND) $(SHARED) $(LIBFENCE) ## compile build/fencegate, build/fence and libfence (also plain `make`)

build-faults: | deps ## compile build/faults/fencegate, with failpoints and planted bugs
	@$(MAKE) build FAULTS=1

tests: $(BINARY) $(TESTS) ## compile the tests, run none

$(BINARY): $(call object,$(MAIN)) $(LIBRARY)
	@echo "LD  $@"
	@$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$(COMMAND): $(call object,$(COMMAND_SOURCES) gateway/digits.c) $(CLIENT_OBJECTS)
	@echo "LD  $@"
	@$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CLIENT_LIBS)

$(CLIENT_OBJECTS) $(COMMAND_OBJECTS): private CFLAGS += $(CLIENT_CFLAGS)

# One object in which only the names of fence.h are left: an archive knows no hidden ones.
$(LIBFENCE): $(CLIENT_OBJECTS) $(BUILD)/sources
	@rm -f $@
	@ld -r -o $(BUILD)/obj/client/libfence.o $(CLIENT_OBJECTS)
	@objcopy --localize-hidden $(BUILD)/obj/client/libfence.o
	@ar rcs $@ $(BUILD)/obj/client/libfence.o

$(SHARED): $(CLIENT_OBJECTS) $(BUILD)/sources
	@echo "LD  $@"
	@$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,$(SONAME) -o $@ $(CLIENT_OBJECTS) $(CLIENT_LIBS)
	@ln -sf $(@F) $(BUILD)/$(SONAME)
	@ln -sf $(@F) $(BUILD)/libfence.so

# Everything but main(), for the tests to link.
$(LIBRARY): $(LIB_OBJECTS) $(BUILD)/sources
	@rm -f $@
	@ar rcs $@ $(LIB_OBJECTS)

$(SUPPORT_LIB): $(call object,$(SUPPORT)) $(BUILD)/sources
	@rm -f $@
	@ar rcs $@ $(filter %.o,$^)

$(BUILD)/tests/client/%: $(BUILD)/obj/tests/client/%.o $(SUPPORT_LIB) $(LIBFENCE) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "LD  $@"
	@$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS) $(CLIENT_LIBS) -lcmocka

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(SUPPORT_LIB) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "LD  $@"
	@$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

$(call object,$(SUPPORT) $(TEST_SOURCES) $(CLIENT_TESTS) $(FUZZ_SOURCES) tests/fuzz/replay.c): | deps-test

# A fuzz target with a main() that runs the inputs under tests/fuzz/corpus/, or libFuzzer's.
FUZZ_MAIN := $(if $(FUZZ),,$(call object,tests/fuzz/replay.c))
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(FUZZ_MAIN) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "LD  $@"
	@$(CC) $(ALL_LDFLAGS) $(if $(FUZZ),-fsanitize=fuzzer) -o $@ $^ $(LIBS)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags | deps
	@mkdir -p $(@D)
	@echo "CC  $<"
	@$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: %.S $(BUILD)/flags | deps
	@mkdir -p $(@D)
	@echo "AS  $<"
	@$(CC) $(STANDARD) -g -MMD -MP -c -o $@ $<

# .incbin is invisible to -MMD.
$(BUILD)/obj/gateway/embedded.o: $(wildcard lua/*.lua storage/schema.sql openapi/openapi.yaml)

# Two files that change only when the flags, or the lists of sources, do.
$(BUILD)/flags: FORCE | deps
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' | cmp -s - $@ || \
	    echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' >$@

$(BUILD)/sources: FORCE
	@mkdir -p $(@D)
	@echo '$(LIB_SOURCES) $(CLIENT_SOURCES) $(SUPPORT)' | cmp -s - $@ || \
	    echo '$(LIB_SOURCES) $(CLIENT_SOURCES) $(SUPPORT)' >$@

-include $(OBJECTS:.o=.d)

# How tests and scenarios find the program.
USE_BINARY = FENCEGATE_BIN='$(CURDIR)/$(BINARY)' GATEWAY='$(CURDIR)/$(BINARY)' \
	FENCE_BIN='$(CURDIR)/$(COMMAND)'

# ---- Run -----------------------------------------------------------------------------------------

.PHONY: run demo
run: build ## serve on 127.0.0.1:8080 (options: make run ARGS="--log-level debug")
	@$(BINARY) $(ARGS)

demo: build ## a paused worker charges a card twice, and with the fence once
	@$(USE_BINARY) tests/scenarios/gc_pause.sh

# ---- Test ----------------------------------------------------------------------------------------

# Longest first, so that no core idles at the end. check_exchanges.py validates what the API tests
# exchanged with the gateway, so it runs when they are through.
CHECKS   := $(sort $(wildcard tests/contract/check_docs.py tests/contract/check_install.py \
	tests/contract/check_libfence.py tests/contract/check_readme.* tests/contract/test_contract.py))
EXCHANGES = $(BUILD)/exchanges.jsonl
AFTER     = $(patsubst %,--after '$(PYTHON) % --quiet $(EXCHANGES)', \
	$(wildcard tests/contract/check_exchanges.py))
BY_SPEED := $(FAULT_TESTS) $(filter $(BUILD)/tests/api/%,$(TESTS)) $(SCENARIOS) \
	$(filter-out $(BUILD)/tests/api/%,$(TESTS))
SELECTED  = $(if $(ONLY),$(foreach test,$(BY_SPEED) $(CHECKS),$(if $(findstring $(ONLY),$(test)),$(test))), \
	$(BY_SPEED) $(CHECKS) $(AFTER))

VALGRIND := valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
	--errors-for-leak-kinds=definite,indirect --num-callers=30 --fair-sched=yes

.PHONY: test test-asan test-tsan test-valgrind soak fuzz fuzz-run coverage
test: build build-faults tests ## every test: unit, lua, API, faults, scenarios, contract (ONLY=leases: some)
	@$(USE_BINARY) FENCEGATE_EXCHANGES=$(EXCHANGES) tests/run $(TEST_FLAGS) $(SELECTED)

test-asan: ## the same with AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) test SANITIZE=address,undefined TEST_FLAGS='--slower 3' \
	    ASAN_OPTIONS=halt_on_error=1:detect_leaks=1:detect_stack_use_after_return=1 \
	    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

test-tsan: ## the same with ThreadSanitizer
	@$(MAKE) test SANITIZE=thread TEST_FLAGS='--slower 5' TSAN_OPTIONS=halt_on_error=1

test-valgrind: build tests deps-valgrind ## unit, script and API tests under valgrind
	@$(USE_BINARY) FENCEGATE_WRAPPER='$(VALGRIND)' \
	    tests/run --slower 10 --wrap '$(VALGRIND)' $(filter-out $(SCENARIOS) $(FAULT_TESTS),$(BY_SPEED))

soak: build build-faults tests fuzz ## fuzzing, and the fault tests for about an hour (SEED=n: the same random choices)
	@$(USE_BINARY) SOAK=1 HISTORY_ROUNDS=20 tests/run --jobs 2 --timeout 7200 $(FAULT_TESTS) \
	    $(BUILD)/tests/client/test_races

FUZZ_SECONDS ?= 60
fuzz: | deps-fuzz ## libFuzzer, FUZZ_SECONDS=60 for each target; findings are left in build/fuzz/
	@$(MAKE) fuzz-run FUZZ=1

fuzz-run: $(patsubst %.c,$(BUILD)/%,$(FUZZ_SOURCES))
	@failed=0; for target in $(FUZZ_SOURCES:tests/fuzz/%.c=%); do \
	    echo "$$target, $(FUZZ_SECONDS) s"; mkdir -p $(BUILD)/corpus/$$target; \
	    $(BUILD)/tests/fuzz/$$target -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 \
	        -rss_limit_mb=1024 -verbosity=0 -dict=tests/fuzz/$$target.dict \
	        -artifact_prefix=$(BUILD)/$$target- $(BUILD)/corpus/$$target \
	        tests/fuzz/corpus/$$target >$(BUILD)/$$target.log 2>&1 || \
	        { failed=1; tail -n 40 $(BUILD)/$$target.log; }; \
	done; exit $$failed

coverage: ## lines and branches of gateway/ and storage/ that the tests take
	@rm -rf build/coverage/obj
	@$(MAKE) test COVERAGE=1
	@cd build/coverage/obj && find gateway storage -name '*.gcda' | sort | \
	    xargs gcov -b -r -n -s '$(CURDIR)' 2>/dev/null | \
	    awk -F"[:%']" '/^File/ { file = $$2 } /^Lines/ { lines = $$2 } \
	        /^Taken/ && file ~ /^(gateway|storage)/ { \
	            printf "%6.2f %% of lines  %6.2f %% of branches  %s\n", lines, $$2, file; file = "" }'

# ---- Benchmarks ----------------------------------------------------------------------------------

# The reference programs (tests/bench/README.md) and what several of them are made of.
BENCH_SOURCES := $(sort $(wildcard tests/bench/*.c))
BENCH_SHARED  := $(sort $(wildcard tests/bench/bare_*.c))
BENCH_SHARED  := $(filter-out tests/bench/bare_loop.c,$(BENCH_SHARED))
BENCH_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(filter-out $(BENCH_SHARED),$(BENCH_SOURCES)))
USE_BENCH      = $(USE_BINARY) BENCH_PROGRAMS='$(CURDIR)/$(BUILD)/tests/bench' \
	BENCH_OUT='$(CURDIR)/$(BUILD)'

.PHONY: bench bench-waiting bench-holding bench-growth bench-check bench-deps bench-programs
bench: build bench-programs | deps-bench ## against the bare limit and the peers, in one run (BENCH_ONLY=writes,grants: some)
	@$(USE_BENCH) $(PYTHON) tests/bench/bench.py
	@$(if $(BENCH_ONLY),,$(USE_BENCH) $(PYTHON) tests/bench/waiting.py)
	@$(if $(BENCH_ONLY),,$(USE_BENCH) $(PYTHON) tests/bench/holding.py)

bench-waiting: build bench-programs | deps-bench ## the part of it that is about waiting, in a minute
	@$(USE_BENCH) $(PYTHON) tests/bench/waiting.py

bench-holding: build | deps-bench ## what `fence run` adds to a job, in ten seconds
	@$(USE_BENCH) $(PYTHON) tests/bench/holding.py

bench-growth: build | deps-bench ## with many resources, a long ledger, large values
	@$(USE_BENCH) $(PYTHON) tests/bench/growth.py

bench-check: build | deps-bench ## instructions of a write and of a grant, against tests/bench/BASELINE.md
	@.ci/deps $(DEPS_VALGRIND)
	@$(USE_BENCH) $(PYTHON) tests/bench/instructions.py

bench-deps: | deps-bench ## install the load generators, and etcd and PostgreSQL to compare with
	@.ci/deps $(DEPS_PEERS)

bench-programs: $(BENCH_PROGRAMS)

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(call object,$(BENCH_SHARED)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "LD  $@"
	@$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

-include $(patsubst %.o,%.d,$(call object,$(BENCH_SOURCES)))

# ---- Lint ----------------------------------------------------------------------------------------

C_FILES  := $(sort $(wildcard gateway/*.[ch] storage/*.[ch] client/*.[ch] client/cli/*.[ch] tests/*/*.[ch]))
C_UNITS  := $(filter %.c,$(C_FILES))
PRODUCT  := $(filter gateway/% storage/% client/%,$(C_UNITS))
SCRIPTS   = $(shell grep -rlE '^\#!.*\b(ba)?sh$$' .ci tests --include='*' 2>/dev/null)
NPROC    := $(shell nproc 2>/dev/null || echo 2)

.PHONY: lint lint-format lint-clang lint-tidy lint-analyzer lint-cppcheck lint-shell format
lint: lint-format lint-clang lint-tidy lint-analyzer lint-cppcheck lint-shell tests ## style, warnings of two compilers, static analysis
	@echo "lint: nothing found"

lint-format: | deps-lint
	@echo "clang-format"
	@clang-format --dry-run -Werror $(C_FILES)

lint-clang: | deps-lint
	@echo "clang -Werror"
	@printf '%s\n' $(C_UNITS) | xargs -P $(NPROC) -n 8 clang $(ALL_CFLAGS) -fsyntax-only

lint-tidy: | deps-lint
	@echo "clang-tidy"
	@printf '%s\n' $(PRODUCT) | xargs -P $(NPROC) -n 1 sh -c \
	    'clang-tidy --quiet "$$@" -- $(STANDARD) $(PKG_CFLAGS) 2>/dev/null' clang-tidy

lint-analyzer: | deps
	@echo "gcc -fanalyzer"
	@printf '%s\n' $(PRODUCT) | xargs -P $(NPROC) -n 1 gcc $(STANDARD) $(PKG_CFLAGS) -O2 -fanalyzer \
	    -Werror -c -o /dev/null

lint-cppcheck: | deps-lint
	@echo "cppcheck"
	@cppcheck --quiet -j $(NPROC) --std=c11 -D_GNU_SOURCE -I. --error-exitcode=1 --inline-suppr \
	    --enable=warning,performance,portability --suppress=missingIncludeSystem \
	    --suppress=missingInclude --suppress=varFuncNullUB $(PRODUCT)

lint-shell: | deps-lint
	@echo "shellcheck"
	@shellcheck -x $(SCRIPTS)

format: | deps-lint ## put every C file into the style of .clang-format
	@clang-format -i $(C_FILES)

# ---- Install -------------------------------------------------------------------------------------

# As the GNU coding standards have it: DESTDIR stands before every path and is stored in no file.
DESTDIR      ?=
PREFIX       ?= /usr/local
BINDIR       ?= $(PREFIX)/bin
LIBDIR       ?= $(PREFIX)/lib
INCLUDEDIR   ?= $(PREFIX)/include
MANDIR       ?= $(PREFIX)/share/man
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
UNITDIR      ?= $(PREFIX)/lib/systemd/system
INSTALL      ?= install

at        = '$(DESTDIR)$(1)'
MANUALS  := client/fence.1 client/libfence.3 gateway/fencegate.8
INSTALLED = $(BINDIR)/fencegate $(BINDIR)/fence $(addprefix $(LIBDIR)/,libfence.a libfence.so \
	$(SONAME) $(notdir $(SHARED))) $(INCLUDEDIR)/fence.h $(PKGCONFIGDIR)/libfence.pc \
	$(foreach page,$(MANUALS),$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(notdir $(page))) \
	$(UNITDIR)/fencegate.service

# What lies under the prefix is written relative to it, so that the tree can be moved.
under_prefix = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))

# It compiles nothing: root, who installs, is not who builds.
.PHONY: install uninstall
install: ## after make: copy what users need to PREFIX=/usr/local (DESTDIR= for packagers)
	@for file in $(BINARY) $(COMMAND) $(LIBFENCE) $(SHARED); do \
	    test -e $$file || { echo "$$file is missing: call make first" >&2; exit 1; }; done
	@$(INSTALL) -d $(foreach folder,$(sort $(dir $(INSTALLED))),$(call at,$(folder)))
	@$(INSTALL) -m 755 $(BINARY) $(COMMAND) $(call at,$(BINDIR)/)
	@$(INSTALL) -m 644 $(LIBFENCE) $(SHARED) $(call at,$(LIBDIR)/)
	@ln -sf $(notdir $(SHARED)) $(call at,$(LIBDIR)/$(SONAME))
	@ln -sf $(SONAME) $(call at,$(LIBDIR)/libfence.so)
	@$(INSTALL) -m 644 client/fence.h $(call at,$(INCLUDEDIR)/)
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(call under_prefix,$(LIBDIR))|' \
	    -e 's|@INCLUDEDIR@|$(call under_prefix,$(INCLUDEDIR))|' -e 's|@VERSION@|$(VERSION)|' \
	    client/libfence.pc.in | $(INSTALL) -m 644 /dev/stdin $(call at,$(PKGCONFIGDIR)/libfence.pc)
	@$(foreach page,$(MANUALS),$(INSTALL) -m 644 $(page) \
	    $(call at,$(MANDIR)/man$(subst .,,$(suffix $(page)))/) &&) true
	@sed 's|^ExecStart=.*|ExecStart=$(BINDIR)/fencegate|' deploy/fencegate.service | \
	    $(INSTALL) -m 644 /dev/stdin $(call at,$(UNITDIR)/fencegate.service)

uninstall: ## remove what `make install` has put there, given the same variables
	@rm -f $(foreach file,$(INSTALLED),$(call at,$(file)))

# ---- The rest ------------------------------------------------------------------------------------

.PHONY: clean help
clean: ## remove build/
	@rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/    make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24
