# Fencegate. `make help` lists the targets. A fresh Debian 12 or 13 needs nothing but make: packages come by apt-get.
# V=1 shows the commands; CPPFLAGS, CFLAGS and LDFLAGS are added to ours.
CC ?= cc
PREFIX ?= /usr/local
BUILD ?= build
PKGS = libmicrohttpd libcurl libssl libcrypto jansson libidn2 lmdb zlib
WARN = -Wall -Wextra -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes
OPT ?= -O2 -g -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE
LINK ?= -pie -Wl,-z,relro,-z,now
# Read at first use, not at parse time: on a fresh machine pkg-config arrives with `deps`.
PKG_CFLAGS = $(eval PKG_CFLAGS := $$(shell pkg-config --cflags $(PKGS)))$(PKG_CFLAGS)
PKG_LIBS = $(eval PKG_LIBS := $$(shell pkg-config --libs $(PKGS)))$(PKG_LIBS)
COMPILE = $(CC) -std=c11 -D_GNU_SOURCE -I. -pthread $(WARN) $(WERROR) $(OPT) $(PKG_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP

DEPS_BUILD = gcc libc6-dev pkg-config libmicrohttpd-dev libcurl4-openssl-dev libssl-dev libjansson-dev libidn2-dev liblmdb-dev zlib1g-dev
DEPS_RUN = python3 ca-certificates curl
DEPS_LINT = libcmocka-dev clang clang-format cppcheck openssl
DEPS_TEST = $(DEPS_LINT) groff-base python3-pytest python3-pytest-xdist python3-aiosmtpd strace lmdb-utils libfaketime e2fsprogs mount spin \
    chromium chromium-driver python3-selenium
DEPS_BENCH = nginx libnginx-mod-http-lua lua-resty-core lua-nginx-redis redis-server haproxy wrk openssl python3-matplotlib
# Packages that would start a service when installed are only unpacked, into this folder.
DEPS_UNPACKED = etcd-server
export FENCEGATE_PACKAGES ?= $(abspath $(BUILD))/packages
SUDO = $(shell [ "$$(id -u)" = 0 ] || echo sudo)
APT = $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0
FETCH = apt-get -qq -o APT::Sandbox::User=root download

# Instrumented code draws warnings that the code itself does not: they never stop these builds.
ASAN = BUILD=$(BUILD)/asan SANITIZED=1 WERROR= LINK= OPT="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
TSAN = BUILD=$(BUILD)/tsan SANITIZED=1 WERROR= LINK= OPT="-O1 -g -fno-omit-frame-pointer -fsanitize=thread"
FUZZ = BUILD=$(BUILD)/fuzz CC=clang WERROR= LINK= OPT="-O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"
CLANG = BUILD=$(BUILD)/clang CC=clang WERROR=-Werror OPT=-O1 LINK=
# Some kernels place memory where ThreadSanitizer does not expect it, unless addresses are not randomised.
NORANDOM = $(shell setarch -R true 2>/dev/null && echo setarch -R)
THREADED = $(filter test_store% test_gate% test_places test_metrics test_stats test_histogram test_token_watch test_inbox test_settings test_log test_log_queue,$(notdir $(UNIT)))
# Sizes, system calls and what a supervisor sees are judged without a sanitizer; a browser is slow enough.
E2E_PLAIN = $(wildcard tests/e2e/test_memory.py tests/e2e/test_durability.py tests/e2e/test_dashboard.py tests/e2e/test_demo.py)
E2E_THREADS = $(wildcard $(patsubst %,tests/e2e/test_%.py,forwarding once order command operate))
export ASAN_OPTIONS ?= detect_leaks=1:detect_stack_use_after_return=1
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1
export UBSAN_OPTIONS ?= print_stacktrace=1

SRC := $(wildcard gateway/*.c config/*.c store/*.c)
OBJ := $(SRC:%.c=$(BUILD)/%.o)
LIB := $(BUILD)/fencegate.a
SHIM = $(BUILD)/tests/sweep/fail.so
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(wildcard tests/fuzz/*.c))
# Tests mostly wait, so several files run side by side; what a file shares (a gateway, a browser) stays in one process.
PYTEST = /usr/bin/python3 -B -m pytest -q --tb=short -p no:cacheprovider -n 4 --dist loadfile
FILES = $(wildcard tests/e2e/test_*.py)
FORMATTED = $(SRC) $(wildcard gateway/*.h config/*.h store/*.h tests/unit/*.[ch] tests/fuzz/*.[ch]) tests/sweep/fail.c tests/bench/fill.c tests/bench/pace.c \
    $(wildcard gateway/dashboard/*.js) tests/e2e/names.c
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc) --no-print-directory
endif
say = $(if $(filter-out 0,$(V)),,@printf '  %-6s %s\n' '$1' '$2';)

.PHONY: all run demo test test-clients model model-long sweep sweep-long harness test-long deps deps-run deps-lint deps-test lint layers format install image image-test bench bench-mail bench-store unit fuzz fuzz-corpora fuzzers e2e objects clean help
all: $(BUILD)/fencegate ## build build/fencegate (the default)

$(BUILD)/fencegate: $(OBJ)
	$(call say,LINK,$@)$(CC) $(OPT) $(LINK) -o $@ $^ $(PKG_LIBS) -pthread $(LDFLAGS)
$(BUILD)/%.o: %.c | deps
	@mkdir -p $(@D)
	$(call say,CC,$@)$(COMPILE) -c -o $@ $<
$(BUILD)/gateway/dashboard.o: $(wildcard gateway/dashboard/*.html gateway/dashboard/*.css gateway/dashboard/*.js)
$(LIB): $(filter-out $(BUILD)/gateway/main.o,$(OBJ))
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^
$(SHIM): tests/sweep/fail.c | deps
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) -std=c11 -D_GNU_SOURCE $(WARN) $(WERROR) -O2 -g -fPIC -ftls-model=initial-exec -shared -o $@ $< -ldl -pthread
$(UNIT): %: %.o $(LIB)
	$(call say,LINK,$@)$(CC) $(OPT) $(LINK) -o $@ $^ $(PKG_LIBS) -pthread $(LDFLAGS) -lcmocka
$(FUZZERS): %: %.o $(LIB)
	$(call say,LINK,$@)$(CC) $(OPT) -fsanitize=fuzzer -o $@ $^ $(PKG_LIBS) -pthread $(LDFLAGS)

run: all deps-run ## play the story against a stand-in partner, then keep serving until Ctrl-C
	@exec env FENCEGATE_BIN=$(BUILD)/fencegate tests/demo.sh run # exec: make's SIGTERM goes to demo.sh, not to a shell around it
demo: all deps-run ## like run, but ends by itself
	@exec env FENCEGATE_BIN=$(BUILD)/fencegate tests/demo.sh demo
# $(call install,packages) asks apt-get for those that dpkg doesn't list as installed; normally none.
define install
	@missing=$$(printf '%s\n' $1 | grep -vxF "$$(dpkg-query -W -f '$${db:Status-Status} $${Package}\n' $1 2>/dev/null | \
	    sed -n 's/^installed //p')"); [ -z "$$missing" ] || { set -e; \
	    command -v apt-get >/dev/null || { echo "no apt-get here; the build needs:" $$missing; exit 0; }; \
	    echo "  APT    " $$missing; $(APT) update; $(APT) install -y --no-install-recommends $$missing >/dev/null; }
endef
# $(call unpack,packages) puts them into FENCEGATE_PACKAGES, a folder each.
define unpack
	@set -e; command -v apt-get >/dev/null || exit 0; mkdir -p $(FENCEGATE_PACKAGES); cd $(FENCEGATE_PACKAGES); \
	for package in $1; do [ -d $$package ] || { echo "  APT    $$package (unpacked)"; rm -rf $${package}_*.deb $$package.part; \
	    $(FETCH) $$package 2>/dev/null || { $(APT) update; $(FETCH) $$package; }; \
	    dpkg -x $${package}_*.deb $$package.part; rm $${package}_*.deb; mv $$package.part $$package; }; done
endef
deps: ## install what the build needs (every target that builds does this itself)
	$(call install,$(DEPS_BUILD))
deps-run: deps
	$(call install,$(DEPS_RUN))
deps-lint: deps
	$(call install,$(DEPS_LINT))
deps-test: deps-run
	$(call install,$(DEPS_TEST))
	$(call install,libclang-rt-$$(clang -dumpversion | cut -d. -f1)-dev)
	$(call unpack,$(DEPS_UNPACKED))

test: deps-test ## everything that has to hold before a release, in under ten minutes
	@$(MAKE) lint
	@$(MAKE) unit
	@$(MAKE) $(ASAN) unit
	@$(MAKE) $(TSAN) unit ONLY="$(THREADED)"
	@$(MAKE) fuzz-corpora
	@$(MAKE) model
	@$(MAKE) demo
	@$(MAKE) $(ASAN) sweep
	@$(MAKE) $(ASAN) e2e FILES="$(filter-out $(E2E_PLAIN),$(FILES))"
	@$(MAKE) e2e FILES="$(E2E_PLAIN)"
	@$(MAKE) $(TSAN) e2e FILES="$(E2E_THREADS)"
	@$(MAKE) harness
	@echo "make test: lint, unit tests (plain, ASan+UBSan, TSan), fuzz corpora, model, demo, sweep and end-to-end tests (ASan+UBSan, plain, TSan), harnesses passed"

unit: $(UNIT) ## build and run the unit tests; ONLY="test_store test_gate" picks some
	@tests/run-unit.sh $(if $(ONLY),$(ONLY:%=$(BUILD)/tests/unit/%),$(UNIT))
fuzz: deps-test ## inputs that change at random, a minute for each reader (libFuzzer); FUZZ_SECONDS=600 ONLY="head wire" pick
	@$(MAKE) $(FUZZ) fuzzers
	@tests/fuzz/run.sh grow $(BUILD)/fuzz $(ONLY)
fuzz-corpora: deps-test ## the inputs that are kept (tests/fuzz/corpus), once each
	@$(MAKE) $(FUZZ) fuzzers
	@tests/fuzz/run.sh replay $(BUILD)/fuzz $(ONLY)
fuzzers: $(FUZZERS)
model: deps-test ## order and durability in every interleaving, and planted mistakes that must be found (spin)
	@MODEL_BUILD=$(BUILD)/model tests/model/check.sh
model-long: deps-test ## the same with four requests, and with every fault at once (some minutes, up to 12 GB)
	@MODEL_BUILD=$(BUILD)/model tests/model/check.sh long
e2e: all deps-test ## run the end-to-end tests; FILES="tests/e2e/test_once.py" picks some
	@printf '  E2E    %s\n' '$(BUILD)/fencegate'
	@$(if $(SANITIZED),$(NORANDOM)) env FENCEGATE_BIN=$(abspath $(BUILD)/fencegate) FENCEGATE_SANITIZED=$(SANITIZED) $(PYTEST) $(FILES)
objects: $(OBJ) $(UNIT:%=%.o) $(FUZZERS:%=%.o) $(SHIM)
sweep: all $(SHIM) deps-test ## let the Nth malloc, write, send ... fail for many N; SWEEP="--only malloc --nth 7" picks
	@printf '  SWEEP  %s\n' '$(BUILD)/fencegate'
	@$(if $(SANITIZED),$(NORANDOM)) env FENCEGATE_BIN=$(abspath $(BUILD)/fencegate) FENCEGATE_SANITIZED=$(SANITIZED) \
	    SWEEP_SHIM=$(abspath $(SHIM)) /usr/bin/python3 -B tests/sweep/sweep.py $(SWEEP)
sweep-long: ## the same for every N, also three failures in a row, with and without sanitizers (an hour)
	@$(MAKE) sweep SWEEP=--every
	@$(MAKE) $(ASAN) sweep SWEEP=--every
	@$(MAKE) $(ASAN) sweep SWEEP="--every --many 3"
harness: all deps-test ## histories, idle limit, last look, floods, kills, power cuts (root); HARNESS="long --seed 7" for the evidence
	@printf '  HARN   %s\n' '$(BUILD)/fencegate'
	@env FENCEGATE_BIN=$(abspath $(BUILD)/fencegate) /usr/bin/python3 -B tests/harness/run.py $(or $(HARNESS),short)
test-long: ## fuzzing, 1,000 histories of 2,000 requests, 2,000 power cuts, 2,000 kills, planted mistakes (half an hour)
	@$(MAKE) fuzz
	@$(MAKE) harness HARNESS="$(or $(HARNESS),long)"

# What npm brings stays in the build folder; it is asked again only when the pinned versions change.
CLIENTS = $(BUILD)/clients
test-clients: all deps-run ## partners' own SDKs against the gateway (npm, from its registry; versions are pinned), and Postfix
	$(if $(shell command -v npm),,$(call install,nodejs npm))
	@printf '  TEST   clients\n'; mkdir -p $(CLIENTS); cp tests/clients/* $(CLIENTS)/
	@cd $(CLIENTS) && { cmp -s package-lock.json node_modules/.pinned || { npm ci --ignore-scripts --no-audit --no-fund \
	    --loglevel=error && cp package-lock.json node_modules/.pinned; }; }
	@FENCEGATE_BIN=$(abspath $(BUILD)/fencegate) node --test $(CLIENTS)/clients.test.mjs
	@FENCEGATE_BIN=$(abspath $(BUILD)/fencegate) tests/clients/postfix.sh $(CLIENTS)/postfix

lint: layers deps-lint ## layer rule, clang -Werror, cppcheck, clang-format
	@$(MAKE) $(CLANG) objects
	@printf '  LINT   cppcheck\n'; mkdir -p $(BUILD)/cppcheck; cppcheck --quiet --error-exitcode=1 --std=c11 -j2 \
	    --cppcheck-build-dir=$(BUILD)/cppcheck --enable=warning,performance,portability --inline-suppr \
	    --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches -D_GNU_SOURCE -I. gateway config store
	@if clang-format --version | grep -q 'version 14\.'; then printf '  LINT   clang-format\n'; \
	    clang-format --dry-run -Werror $(FORMATTED); else printf '  LINT   clang-format: skipped, not version 14\n'; fi
layers: ## modules include each other one way only, and each library's header has one place
	@tests/layers.sh
format: deps-lint ## rewrite the sources as .clang-format says (version 14: others differ in places)
	clang-format -i $(FORMATTED)
# The documents and the files that they link to keep their places relative to each other: every link works.
DOCS = README.md ARCHITECTURE.md CHANGELOG.md LICENSE config/REFERENCE.md config/example.json config/fencegate.service \
    $(wildcard docs/* config/example/* docker/*.* docker/prometheus/* docker/grafana/*/*.* docker/grafana/*/*/*) \
    gateway/dashboard/screenshot.png tests/bench/fence.lua
DOC = $(DESTDIR)$(PREFIX)/share/doc/fencegate
install: all ## install under $(DESTDIR)$(PREFIX)
	install -D -m 755 $(BUILD)/fencegate $(DESTDIR)$(PREFIX)/bin/fencegate
	for file in $(DOCS); do install -D -m 644 $$file $(DOC)/$$file || exit 1; done
	install -D -m 644 config/fencegate.1 $(DESTDIR)$(PREFIX)/share/man/man1/fencegate.1
	install -D -m 644 config/fencegate.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fencegate
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's,/usr/local/,$(PREFIX)/,' config/fencegate.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/fencegate.service

image: ## build the container image (docker, podman or buildah)
	@tests/image-test.sh build
image-test: ## build the image without a Docker engine and try it: forward, drop, restart (root)
	@tests/image-test.sh test
$(BUILD)/fill: $(BUILD)/tests/bench/fill.o $(LIB)
	$(call say,LINK,$@)$(CC) $(OPT) $(LINK) -o $@ $^ $(PKG_LIBS) -pthread $(LDFLAGS)
$(BUILD)/pace: $(BUILD)/tests/bench/pace.o
	$(call say,LINK,$@)$(CC) $(OPT) $(LINK) -o $@ $^ $(LDFLAGS)
BENCH_ENV = env FENCEGATE_BIN=$(BUILD)/fencegate FENCEGATE_FILL=$(BUILD)/fill FENCEGATE_PACE=$(BUILD)/pace
bench: all deps-run $(BUILD)/fill $(BUILD)/pace ## beside nginx, HAProxy, nginx+Lua+Redis (installs them); BENCH="same --rounds 2" picks
	$(call install,$(DEPS_BENCH))
	@$(BENCH_ENV) /usr/bin/python3 -B tests/bench/run.py $(BENCH)
	@$(if $(BENCH),,$(MAKE) bench-mail)
bench-mail: all deps-run ## mails through a mail route, beside curl straight to the same relay (unpacks Postfix for its test relay)
	$(call install,wrk)
	$(call unpack,postfix)
	$(call install,$$(apt-cache depends postfix | sed -n 's/^ *Depends: \(lib.*\)/\1/p'))
	@$(BENCH_ENV) /usr/bin/python3 -B tests/bench/mail.py $(BENCH_MAIL)
bench-store: all deps-run $(BUILD)/fill ## start, waiting, draining; queries of an audit of 10,000,000 records under load
	$(call install,$(DEPS_BENCH))
	@$(BENCH_ENV) /usr/bin/python3 -B tests/bench/order.py
	@$(BENCH_ENV) /usr/bin/python3 -B tests/bench/audit.py

clean: ## remove what was built
	rm -rf $(BUILD)
help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

-include $(OBJ:.o=.d) $(UNIT:%=%.d) $(FUZZERS:%=%.d) $(wildcard $(BUILD)/tests/bench/*.d)
