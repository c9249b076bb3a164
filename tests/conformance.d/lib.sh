# Sourced by the steps: clients and suites from their registries into $CACHE, or exit 77 with the reason.

# not_run REASON
not_run() { echo "$1"; exit 77; }

# python_with NAME PACKAGE...: a Python of its own with these packages, in $python
python_with() {
    local venv=$CACHE/venv-$1
    shift
    python=$venv/bin/python
    if [ ! -f "$venv/complete" ] || [ "$(cat "$venv/complete")" != "$*" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" || not_run "pip cannot install $*"
        echo "$*" >"$venv/complete"
    fi
}

# node_with NAME PACKAGE...: a folder with these npm packages, in $modules
node_with() {
    modules=$CACHE/npm-$1
    shift
    command -v npm >/dev/null || not_run "there is no npm"
    if [ ! -f "$modules/complete" ] || [ "$(cat "$modules/complete")" != "$*" ]; then
        rm -rf "$modules" && mkdir -p "$modules"
        (cd "$modules" && npm init --yes >/dev/null && npm install --silent --no-audit --no-fund --ignore-scripts "$@") ||
            not_run "npm cannot install $*"
        echo "$*" >"$modules/complete"
    fi
}

# crate_source NAME VERSION: an unpacked, writable copy of a crate with its tests, in $source
crate_source() {
    source=$CACHE/crate-$1-$2
    [ -f "$source/complete" ] && return
    rm -rf "$source" "$source.get" && mkdir -p "$source.get/src"
    printf '[package]\nname = "get"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = { version = "=%s", default-features = false }\n' \
        "$1" "$2" >"$source.get/Cargo.toml"
    touch "$source.get/src/lib.rs"
    (cd "$source.get" && cargo vendor --quiet vendor >/dev/null) || not_run "cargo cannot fetch $1 $2"
    mv "$source.get/vendor/$1" "$source"
    # Built by the compiler that is here, whichever its developers use.
    rm -rf "$source.get" "$source/.cargo-checksum.json" "$source/rust-toolchain" "$source/rust-toolchain.toml"
    touch "$source/complete"
}

# checkout NAME URL [REF]: a clone of a repository, at a branch or tag, from $CONFORMANCE_GIT_<NAME> if that is set, in $source
checkout() {
    local from=CONFORMANCE_GIT_${1^^}
    from=${from//-/_}
    source=$CACHE/git-$1${3:+-$3}
    [ -f "$source/.complete" ] && return
    rm -rf "$source"
    GIT_TERMINAL_PROMPT=0 timeout 300 git clone --quiet --depth 1 ${3:+--branch "$3"} "${!from:-$2}" "$source" ||
        not_run "cannot clone $1 from ${!from:-$2}; set $from to a copy of it"
    touch "$source/.complete"
}

# skipped FILE: the names in a list of skipped tests, without their reasons, one a line
skipped() { sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$ROOT/tests/conformance.d/skipped/$1"; }
