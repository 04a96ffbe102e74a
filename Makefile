# What a person wants, as verbs. Meson builds; no rule here compiles.
SEED   ?= 1
REWARD ?= exact
T      ?= 60

# Folders are newer when a file in them comes or goes: then the build is configured again.
FOLDERS = src $(wildcard src/*/) tests $(wildcard tests/*/) tools
COMMA = ,
define configure
@mkdir -p $(@D)
@$(1) meson setup $(if $(wildcard $@),--reconfigure) $(@D) $(2) >$(@D)/configure.log || \
    { cat $(@D)/configure.log; exit 1; }
@touch $@
endef

.PHONY: all setup test slow demo bench clang asan tsan valgrind fuzz mutants tidy format install \
    clean
all: build/build.ninja
	@ninja -C build
setup:
	@tools/setup.sh
test: setup
	@$(MAKE) --no-print-directory build/build.ninja
	@tools/test.sh build --no-suite slow
slow: all
	@tools/test.sh build --suite slow
demo: setup
	@$(MAKE) --no-print-directory all
	@SEED=$(SEED) REWARD=$(REWARD) tools/demo.sh
bench: all
	@build/loco bench
clang: build-clang/build.ninja
	@ninja -C build-clang
asan: build-asan/build.ninja
	@tools/test.sh build-asan --suite unit --suite fuzz -t 4
tsan: build-tsan/build.ninja
	@tools/test.sh build-tsan --suite unit -t 8
valgrind: all
	@tools/test.sh build --suite unit -t 20 --wrap \
	    'valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite'
fuzz: build-fuzz/build.ninja
	@tools/fuzz.sh build-fuzz $(T)
mutants: all
	@tools/mutants.sh
tidy: all
	@nm -A -g --defined-only build/libloco_*.a >build/symbols.txt
	@build/tools/tidy . build/symbols.txt
format:
	@find src tests tools -name '*.[ch]' -o -name '*.inc' | xargs clang-format -i
install: all
	@meson install -C build --no-rebuild
clean:
	@rm -rf build build-*

SANITIZE = -Dbuildtype=debugoptimized -Db_lundef=false -Db_sanitize=
build/build.ninja: $(FOLDERS)
	$(call configure)
build-clang/build.ninja: $(FOLDERS)
	$(call configure,CC=clang)
build-asan/build.ninja: $(FOLDERS)
	$(call configure,CC=clang,$(SANITIZE)address$(COMMA)undefined)
build-tsan/build.ninja: $(FOLDERS)
	$(call configure,CC=clang,$(SANITIZE)thread)
build-fuzz/build.ninja: $(FOLDERS)
	$(call configure,CC=clang,$(SANITIZE)address$(COMMA)undefined -Dfuzz=true)
