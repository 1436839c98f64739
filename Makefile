# ddipfs: one Makefile, no recursion into folders. `make help` lists the targets.
#
# Variables: V=1 shows every command; WERROR=1 makes warnings errors; PYTHON=/path/python uses that
# environment instead of .venv; SAN=asan|tsan builds into build/asan or build/tsan; FAULT=1 builds
# into build/fault, with places that fail when told to (include/util.h); T=PATTERN picks tests, parts
# of lint, measures; ROWS=NAMES adds rows of tests/matrix/rows to the tests;
# OLD=DIR is a build directory that `bench` measures beside this one;
# DESTDIR= and PREFIX= say where `install` puts things.

# The only place that has it. What is compiled with it depends on $(BUILD)/version.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' magics/ddip/__init__.py)
SAN     :=
FAULT   :=
BUILD   := build$(if $(SAN),/$(SAN))$(if $(FAULT),/fault)
PREFIX  := /usr/local
PYTHON  :=
T       :=
ROWS    :=
OLD     :=
V       :=
WERROR  :=

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(patsubst $(CURDIR)/%,%,$(2))')

# ---- what is compiled from what -------------------------------------------------------------

SHARED_SRC := $(wildcard include/*.c)
FS_SRC     := $(wildcard fs/*.c fs/*/*.c) $(BUILD)/skill.c
# engine/rank and engine/py live in a process with Python: the shared object. The launcher and
# engine/agent and engine/line never load it.
SO_SRC     := $(wildcard engine/rank/*.c engine/py/*.c)
ENGINE_SRC := $(wildcard engine/*.c engine/agent/*.c engine/line/*.c) $(BUILD)/bring_script.c
# What both sides use has one source, in the package of the notebooks.
ENGINE_PY  := $(sort $(wildcard engine/ddip_engine/*.py engine/ddip_engine/*/*.py)) $(addprefix magics/ddip/,p5.py interface.py interrupts.py known_bad.py patches.py)

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
SHARED_OBJ := $(call objects,$(SHARED_SRC))
FS_OBJ     := $(call objects,$(FS_SRC))
ENGINE_OBJ := $(call objects,$(ENGINE_SRC))
SO_OBJ     := $(patsubst %.c,$(BUILD)/so/%.o,$(SO_SRC) $(SHARED_SRC)) $(BUILD)/so/engine_py.o

# ---- flags ----------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wcast-qual -Wwrite-strings -Wvla -Wformat=2 -Wundef -Wno-unused-parameter \
	$(if $(WERROR),-Werror)
CC       := gcc
OPT      := -O2 -g
# _FORTIFY_SOURCE hides from the sanitizers what they would report better; they make frames larger.
# A user's `ulimit -s` may be small: an array of every possible rank's number fits, no more.
HARDEN   := -fstack-protector-strong \
	$(if $(SAN)$(COVER),,-D_FORTIFY_SOURCE=2 -Wframe-larger-than=40960)
SAN_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SAN_tsan := -fsanitize=thread -fno-omit-frame-pointer
COVER    :=
SANITIZE := $(SAN_$(SAN)) $(if $(COVER),--coverage -O0)
CPPFLAGS := -Iinclude -D_GNU_SOURCE= -DDDIP_VERSION='"$(VERSION)"' $(if $(FAULT),-DDDIP_FAULT)
CFLAGS    = -std=gnu11 $(OPT) $(WARN) $(HARDEN) -fPIE
LDFLAGS  := -pie -Wl,-z,relro,-z,now
LIBS     := -pthread -ldl -lm

# Asked once, and only when something is compiled that needs the answer: `make setup` must run
# where neither pkg-config nor Python is installed yet.
FUSE_CFLAGS = $(eval FUSE_CFLAGS := $$(shell pkg-config --cflags 'fuse3 >= 3.13' | sed 's/-I/-isystem /g'))$(FUSE_CFLAGS)
FUSE_LIBS   = $(eval FUSE_LIBS := $$(shell pkg-config --libs fuse3))$(FUSE_LIBS)
PY_INCLUDE  = $(eval PY_INCLUDE := $$(shell scripts/python-include '$(PYTHON)'))$(PY_INCLUDE)

# The shared object is loaded into interpreters that know nothing of our sanitizers, so it is built
# without them; hidden symbols, or those of torch's libraries could take their place.
SO_CFLAGS   = -std=gnu11 $(OPT) $(WARN) -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
	-fPIC -fvisibility=hidden -DPy_LIMITED_API=0x030a0000 -DPY_SSIZE_T_CLEAN -isystem '$(PY_INCLUDE)'

# ---- build ----------------------------------------------------------------------------------

# The shell tool: the program, and its parts, which lie beside it here and in libexec/ddipfs installed.
# ddip_tool is the Python of it: magics/, whose package ddip the notebooks use, too.
TOOL     := ddip ddip-demo ddip-verbs
PROGRAMS := $(BUILD)/ddipfs $(BUILD)/ddip-engine $(BUILD)/ddip_engine.so \
	$(addprefix $(BUILD)/,$(TOOL) examples ddip_tool)

.PHONY: all
all: $(PROGRAMS)

$(BUILD)/ddipfs: $(FS_OBJ) $(SHARED_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(SANITIZE) -o $@ $^ $(FUSE_LIBS) $(LIBS)

# The daemon for machines without libfuse.
FUSE_STATIC = $(eval FUSE_STATIC := $$(shell pkg-config --variable=libdir fuse3)/libfuse3.a)$(FUSE_STATIC)
$(BUILD)/static/ddipfs: $(FS_OBJ) $(SHARED_OBJ)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(SANITIZE) -o $@ $^ $(FUSE_STATIC) $(LIBS)

$(BUILD)/ddip-engine: $(ENGINE_OBJ) $(SHARED_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(SANITIZE) -o $@ $^ $(LIBS)

$(BUILD)/ddip_engine.so: $(SO_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-z,relro,-z,now -Wl,-Bsymbolic -o $@ $^ $(LIBS)

$(addprefix $(BUILD)/,$(TOOL)): $(BUILD)/%: scripts/%
	$(call say,COPY,$@)
	$(Q)mkdir -p $(@D)
	$(Q)cp -p $< $@

# Looked at each time: the tree may have been moved or copied since.
$(BUILD)/examples: LINKED := scripts/examples
$(BUILD)/ddip_tool: LINKED := magics
$(BUILD)/examples $(BUILD)/ddip_tool: FORCE
	$(Q)mkdir -p $(@D)
	$(Q)[ $@ -ef $(LINKED) ] || ln -sfnr $(LINKED) $@

$(BUILD)/obj/fs/%.o: CPPFLAGS += -Ifs -DFUSE_USE_VERSION=312 $(FUSE_CFLAGS)
$(BUILD)/obj/engine/%.o: CPPFLAGS += -Iengine
# What depends on what names no folder, for objects that are copied.
$(BUILD)/obj/%.o: %.c Makefile $(BUILD)/version
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(SANITIZE) -MMD -MP -MT '$$(BUILD)/obj/$*.o' -c -o $@ $<

$(BUILD)/so/%.o: CPPFLAGS += -Iengine
$(BUILD)/so/%.o: %.c Makefile $(BUILD)/version
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(SO_CFLAGS) -MMD -MP -MT '$$(BUILD)/so/$*.o' -c -o $@ $<

$(BUILD)/so/engine_py.o: $(BUILD)/engine_py.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(SO_CFLAGS) -c -o $@ $<

# Written when their text changes. A file that was removed must leave the table of those that are embedded.
$(BUILD)/version: TEXT = $(VERSION)
$(BUILD)/engine_py.list: TEXT = $(EMBED_MAGIC) $(ENGINE_PY)
$(BUILD)/version $(BUILD)/engine_py.list: FORCE
	$(Q)mkdir -p $(@D)
	$(Q)echo '$(TEXT)' | cmp -s - $@ || echo '$(TEXT)' > $@

# What `SKILL.md` in a mount and `ddip skill` show.
$(BUILD)/skill.c: scripts/ddip-skill.md
	$(call say,EMBED,$@)
	$(Q)mkdir -p $(@D)
	$(Q){ echo 'extern const char skill_text[];' && echo 'const char skill_text[] =' && \
		sed -e 's/\\/&&/g' -e 's/"/\\"/g' -e 's/.*/\t"&\\n"/' $< && echo '	;'; } > $@.new && mv $@.new $@

# What a remote shell runs: in one line, without comments.
$(BUILD)/bring_script.c: engine/line/bring.sh
	$(call say,EMBED,$@)
	$(Q){ echo 'extern const char bring_script[];' && echo 'const char bring_script[] =' && \
		sed -e '/^[[:space:]]*#/d' -e '/^$$/d' -e 's/^[[:space:]]*//' -e 's/"/\\"/g' -e 's/.*/\t"& "/' $< && \
		echo '	;'; } > $@.new && mv $@.new $@

# With code for the interpreter that is most likely to run it. Another one whose code has the same form changes nothing: tests
# that install, each with a Python of its own, share a build with others.
EMBED_PYTHON := $(or $(PYTHON),$(wildcard .venv/bin/python),python3)
EMBED_MAGIC = $(shell $(EMBED_PYTHON) -I -S -c 'import importlib.util as i; print(i.MAGIC_NUMBER.hex())')
$(BUILD)/engine_py.c: $(ENGINE_PY) $(BUILD)/engine_py.list scripts/embed
	$(call say,EMBED,$@)
	$(Q)$(EMBED_PYTHON) scripts/embed engine/ddip_engine $(ENGINE_PY) > $@.new && mv $@.new $@

.PHONY: FORCE
FORCE:

# ---- tests ----------------------------------------------------------------------------------

# A unit test is one file of tests/unit with the shared sources, always under ASan and UBSan. One
# that tests a file of fs/ or engine/ names it here: UNIT_ctl := fs/base/words.c
UNIT_SRC  := $(filter-out tests/unit/fake_%,$(wildcard tests/unit/*.c))
UNIT_BIN  := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT_SRC))
UNIT_OBJ  := $(patsubst %.c,$(BUILD)/unit/obj/%.o,$(SHARED_SRC))
UNIT_ctl := fs/base/words.c
UNIT_stream := fs/base/stream.c
UNIT_whole := fs/object/whole.c
UNIT_names := fs/object/varname.c fs/object/var_table.c
UNIT_var_table := fs/object/var_table.c fs/object/varname.c
UNIT_patience := fs/base/patience.c
UNIT_ninep := fs/ninep/message.c
UNIT_client := fs/session/client.c
UNIT_cuda := $(addprefix engine/rank/,cuda.c nccl.c library.c)
UNIT_device := $(addprefix engine/rank/,cuda.c library.c device_thread.c rank_device.c rank_pin.c \
	rank_request.c)
UNIT_nccl := $(addprefix engine/rank/,cuda.c nccl.c nccl_link.c nccl_measure.c \
	nccl_combine.c rank_nccl.c rank_combine.c rank_device.c rank_pin.c rank_request.c \
	rank_queue.c library.c device_thread.c)
UNIT_combine := $(addprefix engine/rank/,cuda.c nccl.c nccl_link.c nccl_combine.c library.c)
UNIT_revoke := $(addprefix engine/rank/,cuda.c nccl.c nccl_link.c library.c rank_revoke.c)
UNIT_combine_jobs := $(UNIT_nccl)
UNIT_push := $(addprefix fs/object/,push.c pages.c write_behind.c) fs/base/req.c fs/base/ahead.c
UNIT_verdict := $(addprefix fs/group/,verdict.c straggler.c rank_set.c)
UNIT_straggler := $(addprefix fs/group/,straggler.c rank_set.c)
UNIT_said := $(addprefix fs/group/,said.c alike.c rank_set.c)
UNIT_profile := engine/rank/profile.c
UNIT_flight := engine/rank/flight.c
UNIT_rank_set := fs/group/rank_set.c
UNIT_looks := fs/group/looks.c fs/group/frames.c
UNIT_frames := fs/group/frames.c
UNIT_last_words := fs/group/last_words.c fs/group/frames.c
UNIT_rank_flight := engine/rank/cuda.c engine/rank/library.c engine/rank/flight.c engine/rank/rank_collective.c engine/rank/profile.c
UNIT_ticks := fs/host/ticks.c
UNIT_line := $(addprefix engine/line/,line.c carrier.c) tests/unit/fake_streams.c
UNIT_away := engine/agent/away.c
UNIT_peer := engine/rank/peer.c
UNIT_line_direct := $(UNIT_line)
UNIT_direct := engine/line/direct.c
UNIT_outbox := fs/host/outbox.c
UNIT_remote := fs/object/remote.c
UNIT_source := fs/base/req.c fs/base/ahead.c
UNIT_ahead := fs/base/ahead.c
# The daemon but for its front ends; tests/unit/fake_agent.c stands in for the rest.
GROUP_ROOM := $(filter-out fs/main.c fs/options.c fs/base/req.c fs/front/% fs/session/% fs/ninep/%,$(FS_SRC)) tests/unit/fake_agent.c
UNIT_queue := $(GROUP_ROOM)
UNIT_report := $(GROUP_ROOM)
UNIT_lifecycle := $(GROUP_ROOM)
UNIT_facts := $(GROUP_ROOM)
UNIT_escalation := $(GROUP_ROOM)
UNIT_stall := $(GROUP_ROOM)
UNIT_lies := $(GROUP_ROOM)
UNIT_host_gpus := $(GROUP_ROOM)
UNIT_answers := $(GROUP_ROOM)
UNIT_agent := $(filter-out engine/agent/agent.c,$(wildcard engine/agent/*.c))
UNIT_rank := $(wildcard engine/rank/*.c)
UNIT_relay := $(filter-out engine/line/near.c,$(wildcard engine/line/*.c)) $(BUILD)/bring_script.c
UNIT_selftest := $(GROUP_ROOM)
UNIT_tree := $(GROUP_ROOM)
UNIT_caller := $(GROUP_ROOM)
UNIT_output := $(GROUP_ROOM)
UNIT_stderr_of := $(GROUP_ROOM)
UNIT_server := $(GROUP_ROOM) $(filter fs/base/req.c fs/front/% fs/ninep/%,$(FS_SRC))
UNIT_FLAGS = -std=gnu11 -O1 -g $(WARN) $(if $(COVER),--coverage) $(if $(filter tsan,$(SAN)),$(SAN_tsan),$(SAN_asan))

.PHONY: unit
unit: $(UNIT_BIN)

$(BUILD)/unit/obj/%.o: CPPFLAGS += -Ifs -Iengine
$(BUILD)/unit/obj/%.o: %.c Makefile
	$(call say,CC,$< (sanitized))
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(UNIT_FLAGS) -MMD -MP -c -o $@ $<

.SECONDARY:
.SECONDEXPANSION:
$(BUILD)/unit/%: $(BUILD)/unit/obj/tests/unit/%.o $(UNIT_OBJ) \
		$$(patsubst $$(percent).c,$(BUILD)/unit/obj/$$(percent).o,$$(UNIT_$$*))
	$(call say,LINK,$@)
	$(Q)$(CC) $(UNIT_FLAGS) -o $@ $^ $(LIBS)
percent := %

UNIT_gpus := fs/host/gpus.c engine/agent/nvml.c
UNIT_hosts := $(addprefix fs/host/,hostlist.c launcher.c gpus.c) fs/base/words.c
$(BUILD)/unit/gpus: | $(BUILD)/fake/libnvidia-ml.so.1 $(BUILD)/fake/libnvidia-ml-old.so.1

UNIT_ON_NCCL := $(addprefix $(BUILD)/unit/,nccl combine combine_jobs revoke)
$(BUILD)/unit/cuda $(BUILD)/unit/device $(UNIT_ON_NCCL): | $(BUILD)/fake/libcudart.so.13
$(UNIT_ON_NCCL): | $(BUILD)/fake/libnccl.so.2

# What the tests put in the place of a machine's NVML: a new one, and one of an old driver.
FAKE_NVML := $(BUILD)/fake/libnvidia-ml.so.1 $(BUILD)/fake/libnvidia-ml-old.so.1
FAKES     := $(FAKE_NVML)

$(FAKE_NVML): tests/fake/nvml.c Makefile
	$(call say,FAKE,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O1 -g $(WARN) -D_GNU_SOURCE= $(if $(findstring -old,$(@F)),-DFAKE_OLD) \
		-fPIC -shared -o $@ $<

# A CUDA runtime; what tests do with it is told in tests/fake/cudart.h.
FAKE_CUDA := $(BUILD)/fake/libcudart.so.13
FAKES += $(FAKE_CUDA)

$(FAKE_CUDA): $(addprefix tests/fake/,cudart.c cudart_stream.c cudart_control.c cudart_inside.h \
		cudart.h) engine/rank/cuda_api.h Makefile
	$(call say,FAKE,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O1 -g $(WARN) -D_GNU_SOURCE= -Iengine -fPIC -shared \
		-fvisibility=default -Wl,-soname,$(@F) -o $@ $(filter %.c,$^) -pthread

# NCCL for several processes on that runtime: tests/fake/nccl.h.
FAKE_NCCL := $(BUILD)/fake/libnccl.so.2
FAKES += $(FAKE_NCCL)

$(FAKE_NCCL): $(addprefix tests/fake/,nccl.c nccl_control.c nccl_link.c nccl_inside.h nccl.h) \
		engine/rank/nccl_api.h Makefile
	$(call say,FAKE,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O1 -g $(WARN) -D_GNU_SOURCE= -Iengine -fPIC -shared \
		-fvisibility=default -Wl,-soname,$(@F) -o $@ $(filter %.c,$^) -pthread

# The CUDA build of torch on fakes, where $(PYTHON) has it: tests/fake/cuda. The reason why not is for people, and no failure.
.PHONY: fake-cuda
fake-cuda: $(FAKE_NVML)
	$(call say,FAKE,$(BUILD)/cuda)
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' tests/fake/cuda/make-environment || [ $$? -eq 77 ]

# The agent without Python that tests of the daemon use.
FAKE_ENGINE := $(BUILD)/fake/engine
FAKE_SRC    := $(addprefix tests/fake/,fake-engine.c engines.c requests.c words.c child.c)

$(FAKE_ENGINE): $(call objects,$(FAKE_SRC)) $(SHARED_OBJ)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(SANITIZE) -o $@ $^ $(LIBS)

# Fuzzers: with clang's libFuzzer where there is one, else the plain driver replays the corpus.
FUZZ_SRC := $(filter-out tests/fuzz/driver.c,$(wildcard tests/fuzz/*.c))
FUZZ_BIN := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))
SECS     := # of the fuzzers (60; 15 in the tests) and the soak test (15)
FUZZ_CC   = $(eval FUZZ_CC := $$(shell scripts/fuzz-compiler $(CC)))$(FUZZ_CC)
# libFuzzer wants all compiled for it; else the objects of the unit tests do.
FUZZ_PARTS = $(if $(findstring fuzzer,$(FUZZ_CC)),$(UNIT_$(1)) $(SHARED_SRC),$(patsubst \
	%.c,$(BUILD)/unit/obj/%.o,$(UNIT_$(1)) $(SHARED_SRC)))

$(BUILD)/fuzz/%: tests/fuzz/%.c tests/fuzz/driver.c tests/fuzz/frames.h $$(call FUZZ_PARTS,$$*) Makefile
	$(call say,FUZZ,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(CPPFLAGS) -Ifs -Iengine $(filter-out $(WARN),$(UNIT_FLAGS)) -o $@ $< $(call FUZZ_PARTS,$*) $(LIBS)

# What tests/model/faults.py makes fail. Only files with such places, and the one that makes them fail, need be compiled.
FAULTLESS = $(filter-out include/util.c $(BUILD)/%,$(shell grep -Lw fault $(FS_SRC) $(SHARED_SRC) $(ENGINE_SRC) $(FAKE_SRC)))
FAULTLESS_SO = $(filter-out include/util.c,$(shell grep -Lw fault $(SO_SRC) $(SHARED_SRC)))
.PHONY: faulty
faulty: all $(FAKE_ENGINE)
	$(Q)mkdir -p $(BUILD)/fault
	$(Q)cd $(BUILD) && cp -pu --parents version $(foreach to,o d,$(patsubst %.c,obj/%.$(to),$(FAULTLESS)) \
		$(patsubst %.c,so/%.$(to),$(FAULTLESS_SO))) fault
	$(Q)$(MAKE) --no-print-directory FAULT=1 BUILD=$(BUILD)/fault $(BUILD)/fault/ddipfs \
		$(BUILD)/fault/fake/engine $(BUILD)/fault/ddip-engine \
		$(BUILD)/fault/ddip_engine.so

.PHONY: check check-fast check-built matrix check-gpu check-cuda bench-gpu fuzz asan tsan cover bench lint fmt docs
check-built: all unit $(FAKES) $(FAKE_ENGINE) $(FUZZ_BIN) faulty fake-cuda

check: check-built
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' SECS='$(or $(SECS),15)' ROWS='$(ROWS)' tests/run $(T)

# What to run after each change: in a minute on two cores.
FAST := unit/ $(addprefix fs/,cancel cell_errno cell_nonblock cell_write clone editors errnos foreign gone groups input \
	inside interrupt json launchers left lies limits listing live locks names ninep_end odd_objects offsets output \
	python queue removal stream told vars) engine/test_nccl_graphs engine/test_selftest tool/caller tool/versions

check-fast: all unit $(FAKES) $(FAKE_ENGINE)
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' tests/run $(FAST)

# Each row of tests/matrix/rows has an environment and a build of its own, in MATRIX_DIR=build/matrix.
matrix: all
	$(Q)BUILD='$(BUILD)' ROWS='$(or $(ROWS),all)' JOBS="$${JOBS:-1}" LIMIT="$${LIMIT:-7200}" tests/run matrix/row

check-gpu: all
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' tests/gpu/run check-gpu $(T)

check-cuda: all fake-cuda
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' tests/run tests/cuda/$(T)

bench-gpu: all
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' tests/gpu/run bench-gpu

fuzz: $(FUZZ_BIN)
	$(Q)BUILD='$(BUILD)' SECS='$(SECS)' tests/fuzz/run

# ThreadSanitizer delays signals and starts a thread in zygotes, so the tests of the engine fail with it.
tsan: T := fs/ unit/ model/

asan tsan:
	$(Q)ASAN_OPTIONS=allocator_may_return_null=1 \
		TSAN_OPTIONS=allocator_may_return_null=1:die_after_fork=0:suppressions="'$(CURDIR)/tests/races'" \
		LSAN_OPTIONS="suppressions='$(CURDIR)/tests/leaks'":print_suppressions=0 \
		$(MAKE) --no-print-directory SAN=$@ check T='$(T)'

cover:
	$(Q)$(MAKE) --no-print-directory BUILD=build/cover COVER=1 check
	$(Q)gcovr -r . --exclude tests --html-details build/cover/index.html --print-summary

$(BUILD)/bench/one_buffer: tests/bench/one_buffer.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS) $(FUSE_CFLAGS) -o $@ $< $(FUSE_LIBS)

bench: all $(FAKE_ENGINE) $(BUILD)/bench/one_buffer
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' OLD='$(OLD)' tests/bench/run $(T)

lint:
	$(Q)PYTHON='$(PYTHON)' scripts/setup --lint
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' scripts/lint $(T)

fmt:
	$(Q)git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' | xargs clang-format -i

docs:
	$(Q)$(or $(PYTHON),$(firstword $(wildcard .venv/bin/python) python3)) scripts/make-docs $(BUILD)/docs
	@echo $(BUILD)/docs/index.html

# ---- the two commands -----------------------------------------------------------------------

.PHONY: setup run test
setup:
	$(Q)PYTHON='$(PYTHON)' scripts/setup

# setup may install what the rest of this file asks for: hence a make of its own after it, on all cores.
ALL_CORES = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

run: setup
	$(Q)$(MAKE) --no-print-directory $(ALL_CORES) all
	$(Q)PYTHON='$(PYTHON)' build/ddip demo build/fashion-mnist.png

# What pip brings takes as long as the compilers do: both at once. A shell's background job ignores Ctrl-C, and so
# would pip: it gets a process group of its own, which ends with this shell.
test:
	$(Q)PYTHON='$(PYTHON)' scripts/setup --test --system
	$(Q)PYTHON='$(PYTHON)' setsid scripts/setup --test & setup=$$!; \
		trap '{ kill -- -$$setup || kill $$setup; } 2>/dev/null; exit 1' HUP INT TERM; \
		$(MAKE) --no-print-directory $(ALL_CORES) check-built; built=$$?; \
		wait $$setup && exit $$built
	$(Q)$(MAKE) --no-print-directory $(ALL_CORES) check

# ---- install and package --------------------------------------------------------------------

D := $(DESTDIR)$(PREFIX)
PAGES := $(wildcard fs/*.[1-8] scripts/*.[1-8])
# STRIP=1: without symbols, for packages
INSTALL_PROGRAM := install $(if $(STRIP),-s)
# The shell tool's Python. With PYTHON= all is also installed into that environment, for notebooks.
TOOL_PY := $(patsubst magics/%,%,$(wildcard $(addprefix magics/,__main__.py ddip/*.py ddip/*/*.py)))
.PHONY: install uninstall deb wheel bundle clean picture screenshots version help
install: all
	install -d $(D)/bin $(D)/libexec/ddipfs/ddip_tool $(addprefix $(D)/share/man/man,1 4 7) \
		$(D)/share/bash-completion/completions $(D)/share/zsh/site-functions \
		$(D)/share/fish/vendor_completions.d $(D)/share/ddipfs/examples $(D)/share/doc/ddipfs
	$(INSTALL_PROGRAM) -m 755 $(BUILD)/ddipfs $(D)/bin
	$(INSTALL_PROGRAM) -m 755 $(BUILD)/ddip-engine $(D)/libexec/ddipfs
	$(INSTALL_PROGRAM) -m 644 $(BUILD)/ddip_engine.so $(D)/libexec/ddipfs
	install -m 755 $(BUILD)/ddip $(D)/bin
	install -m 755 $(BUILD)/ddip-demo $(D)/libexec/ddipfs
	install -m 644 $(BUILD)/ddip-verbs $(D)/libexec/ddipfs
	for file in $(TOOL_PY); do install -D -m 644 magics/$$file $(D)/libexec/ddipfs/ddip_tool/$$file || exit 1; done
	for page in $(PAGES); do sed 's/^\.Os$$/.Os ddipfs $(VERSION)/' $$page | \
		install -m 644 /dev/stdin $(D)/share/man/man$${page##*.}/$${page##*/} || exit 1; done
	install -m 644 scripts/ddip.bash-completion $(D)/share/bash-completion/completions/ddip
	install -m 644 scripts/ddip.zsh-completion $(D)/share/zsh/site-functions/_ddip
	install -m 644 scripts/ddip.fish-completion $(D)/share/fish/vendor_completions.d/ddip.fish
	install -m 644 $(wildcard $(addprefix scripts/examples/*.,py md ipynb yaml)) $(D)/share/ddipfs/examples
	install -m 755 $(wildcard scripts/examples/*.sh) $(D)/share/ddipfs/examples
	install -m 644 scripts/ddipfs.service $(D)/share/ddipfs
	install -m 644 README.md CHANGELOG.md LICENSE $(D)/share/doc/ddipfs
	$(if $(PYTHON),$(PYTHON) -m pip install $(if $(DESTDIR),--root '$(DESTDIR)') \
		$(if $(filter-out build,$(BUILD)),--config-settings build='$(BUILD)') .)

uninstall:
	rm -rf $(D)/libexec/ddipfs $(D)/share/ddipfs $(D)/share/doc/ddipfs
	rm -f $(D)/bin/ddipfs $(D)/bin/ddip $(D)/share/bash-completion/completions/ddip \
		$(D)/share/zsh/site-functions/_ddip $(D)/share/fish/vendor_completions.d/ddip.fish \
		$(foreach page,$(PAGES),$(D)/share/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))

deb: all
	$(Q)BUILD='$(BUILD)' VERSION='$(VERSION)' scripts/make-deb

# Without a network the cross-compiler may be missing: the wheel says what it needs.
wheel:
	$(Q)scripts/setup --wheel || true
	$(Q)BUILD='$(BUILD)' V='$(V)' scripts/make-wheel

bundle:
	$(Q)scripts/setup --wheel || true
	$(Q)BUILD='$(BUILD)' VERSION='$(VERSION)' V='$(V)' scripts/make-bundle

# The pictures of the README: from runs, and by a browser.
picture: all
	$(Q)PYTHON='$(PYTHON)' scripts/setup --test
	$(Q)BUILD='$(BUILD)' $(or $(PYTHON),.venv/bin/python) scripts/make-picture

screenshots: all
	$(Q)PYTHON='$(PYTHON)' scripts/setup --picture
	$(Q)BUILD='$(BUILD)' PYTHON='$(PYTHON)' build/picture-venv/bin/python scripts/make-picture-notebook scripts/examples

clean:
	rm -rf build

version:
	@echo $(VERSION)

help:
	@echo 'make            build the programs into build/'
	@echo 'make run        install what is missing, build, and run a DDP training on a mount'
	@echo 'make test       install what is missing, build, run all tests'
	@echo 'make check      build and run the tests (T=fs/cell picks some); check-fast: in a minute; check-gpu, bench-gpu: on GPUs'
	@echo 'make check-cuda PYTHON=/path/to/python   the tests with its CUDA build of torch, on fakes: no GPU is needed'
	@echo 'make lint fmt   check style and layers; format the C sources'
	@echo 'make matrix     the essentials with other torches and Pythons (ROWS=, MATRIX_DIR=)'
	@echo 'make asan tsan  the tests with sanitizers;  make fuzz SECS=60;  make cover'
	@echo 'make bench      measure, beside ipyparallel and torchrun; OLD=DIR: beside another build'
	@echo 'make install DESTDIR= PREFIX=/usr/local; make uninstall; make deb; make wheel; make bundle;  make picture screenshots;  make clean'
	@echo 'make docs       README, the other documents and the man pages as HTML, in build/docs'

-include $(shell find $(BUILD)/obj $(BUILD)/so $(BUILD)/unit -name '*.d' 2>/dev/null)
