#!/bin/sh
# Installs what building LoCo needs on Debian and Ubuntu, and only what is missing: when nothing is,
# it returns at once and needs no rights. usage: tools/setup.sh [ci]   (ci: the checkers as well)

missing=
need_program() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need_library() { # PKG-CONFIG-NAME PACKAGE
    pkg-config --exists "$1" 2>/dev/null || missing="$missing $2"
}

need_program "${CC:-cc}" build-essential
need_program meson meson
need_program ninja ninja-build
need_program pkg-config pkg-config
need_library cmocka libcmocka-dev
need_library jansson libjansson-dev
need_library yaml-0.1 libyaml-dev
need_library libutf8proc libutf8proc-dev
need_library gmp libgmp-dev
if [ "$1" = ci ]; then
    need_program clang clang
    need_program clang-format clang-format
    need_program valgrind valgrind
    need_program patch patch
fi
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: missing:$missing (Debian's names); install them with this system's tools" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
else
    echo "setup: packages are missing and this needs root; run:" >&2
    echo "    apt-get update && apt-get install -y$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
$as_root apt-get update -q >/dev/null
# shellcheck disable=SC2086 # the list is words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    $missing >/dev/null
status=$?
[ $status -eq 0 ] || echo "setup: apt-get could not install$missing" >&2
exit $status
