# What a person wants, as verbs. Meson builds; no rule here compiles.
SEED   ?= 1
REWARD ?= exact
T      ?= 60

# Folders are newer when a file in them comes or goes: then the build is configured again.
FOLDERS = src $(wildcard src/*/) tests $(wildcard tests/*/) tools
CONFIGURE = meson setup $(if $(wildcard $@),--reconfigure) $(@D)

.PHONY: all setup test slow demo bench asan tsan valgrind fuzz mutants tidy format install clean
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

build/build.ninja: $(FOLDERS)
	@$(CONFIGURE) && touch $@
build-asan/build.ninja: $(FOLDERS)
	@CC=clang $(CONFIGURE) -Dbuildtype=debugoptimized -Db_sanitize=address,undefined \
	    -Db_lundef=false && touch $@
build-tsan/build.ninja: $(FOLDERS)
	@CC=clang $(CONFIGURE) -Dbuildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false && touch $@
build-fuzz/build.ninja: $(FOLDERS)
	@CC=clang $(CONFIGURE) -Dbuildtype=debugoptimized -Db_sanitize=address,undefined \
	    -Db_lundef=false -Dfuzz=true && touch $@
