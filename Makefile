# Fencegate. `make help` lists the targets; `make run` and `make test` need nothing but this file and make.
CC ?= cc
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
PKGS = libmicrohttpd libcurl jansson lmdb
WARN = -Wall -Wextra -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes
WERROR ?=
OPT ?= -O2 -g
SAN ?=
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE -I. -pthread $(WARN) $(WERROR) $(OPT) $(SAN) $(shell pkg-config --cflags $(PKGS) 2>/dev/null) $(CPPFLAGS) $(CFLAGS)
LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -pthread $(LDFLAGS)

SRC := $(wildcard gateway/*.c config/*.c store/*.c)
OBJ := $(SRC:%.c=$(BUILD)/%.o)
LIBOBJ := $(filter-out $(BUILD)/gateway/main.o,$(OBJ))
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))

.PHONY: all clean unit
all: $(BUILD)/fencegate

$(BUILD)/fencegate: $(OBJ)
	$(CC) $(SAN) -o $@ $^ $(LIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(BUILD)/unit/%: tests/unit/%.c $(LIBOBJ)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -o $@ $^ $(LIBS) -lcmocka

unit: $(UNIT)
	@set -e; for t in $(UNIT); do echo "== $$t"; $$t; done

clean:
	rm -rf $(BUILD)

-include $(OBJ:.o=.d) $(UNIT:%=%.d)
