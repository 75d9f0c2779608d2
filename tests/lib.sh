# Shared by tests/run and .ci/run (sourced): where things are kept, and what has to be installed.
# shellcheck shell=bash

cache="${POSTERN_CACHE:-$HOME/.cache/postern}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/target}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"

say() {
    printf '== %s %s\n' "$(date +%H:%M:%S)" "$*"
}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Installs the named Debian packages that are not there yet.
debian_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    if [ "${#missing[@]}" -eq 0 ]; then
        return
    fi
    [ "$(id -u)" -eq 0 ] || die "these Debian packages are missing, and only root can install them: ${missing[*]}"
    say "installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update --quiet --quiet
    apt-get install --quiet --quiet --yes --no-install-recommends "${missing[@]}" >/dev/null
}

need_cargo() {
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH="$HOME/.cargo/bin:$PATH"
        export PATH
    fi
    command -v cargo >/dev/null || die "cargo is missing: install the Rust tool chain that Cargo.toml names as rust-version, or a newer one"
}

# A Python environment with the MCP client that the tests drive the program with.
python_environment() {
    local requirements="$1" folder="$cache/python" wanted
    wanted="$(sha256sum <"$requirements")"
    if [ ! -x "$folder/bin/python" ] || [ "$(cat "$folder/requirements.sha256" 2>/dev/null)" != "$wanted" ]; then
        say "making the Python environment in $folder"
        rm -rf "$folder"
        /usr/bin/python3 -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
        printf '%s\n' "$wanted" >"$folder/requirements.sha256"
    fi
    export POSTERN_TESTS_PYTHON="$folder/bin/python"
}

# Node with the conformance suite and the MCP clients of package.json in the named folder; the lock names their versions.
# (What package.json overrides is for Windows alone and not published any more.)
node_environment() {
    local packages="$1" folder="$cache/node" wanted
    wanted="$(cat "$packages/package.json" "$packages/package-lock.json" | sha256sum)"
    if [ "$(cat "$folder/packages.sha256" 2>/dev/null)" != "$wanted" ]; then
        command -v npm >/dev/null || debian_packages npm
        say "making the Node environment in $folder"
        rm -rf "$folder"
        mkdir -p "$folder"
        cp "$packages/package.json" "$packages/package-lock.json" "$folder"
        # Node itself is one of the packages, so what npm says of the version that it runs on itself does not matter.
        (cd "$folder" && npm ci --ignore-scripts --include=optional --no-audit --no-fund --loglevel=error)
        printf '%s\n' "$wanted" >"$folder/packages.sha256"
    fi
    export POSTERN_TESTS_NODE="$folder"
}

# A program from a Go module, built once into the cache as $cache/tools/bin/NAME. The module's own go.mod and go.sum would not
# hold it to its versions when it is installed by name, so it is a tool of a module made for it.
go_program() {
    local name="$1" package="$2" version="$3" folder
    if [ "$(cat "$cache/tools/bin/$name.version" 2>/dev/null)" = "$version" ]; then
        return
    fi
    command -v go >/dev/null || debian_packages golang-go
    say "building $name $version into $cache/tools"
    mkdir -p "$cache/tools/bin"
    folder="$(mktemp --directory)"
    (
        cd "$folder"
        go mod init postern.invalid/tool
        go get -tool "$package@$version"
        CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$cache/tools/bin/$name" "$package"
    ) >"$cache/tools/$name.log" 2>&1 || { tail -n 20 "$cache/tools/$name.log" >&2; die "$name could not be built"; }
    printf '%s\n' "$version" >"$cache/tools/bin/$name.version"
    rm -rf "$folder"
}

# Jaeger, all of it in one program with its store in memory. Its web page is not in the module; its query API is.
jaeger_program() {
    go_program jaeger github.com/jaegertracing/jaeger/cmd/jaeger v1.76.0
}
