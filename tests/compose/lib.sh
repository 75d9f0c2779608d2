# Shared by tests/compose/stack and tests/run (sourced after tests/lib.sh): a Docker engine, and images where none can be pulled.
# shellcheck shell=bash

compose_packages=(binutils debootstrap docker.io docker-compose iptables postgresql)
# shellcheck disable=SC2154 # set in tests/lib.sh
docker_home="$cache/docker"
images_home="$cache/images"
export POSTERN_CI_IMAGES="$images_home/contexts"
# The classic builder: it needs no plug-in, and takes the stages in their order, so it stops before the one that builds.
export DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0

# Finds a Docker engine that answers, or starts one.
docker_engine() {
    if docker version >/dev/null 2>&1; then
        return
    fi
    export DOCKER_HOST="unix://$docker_home/docker.sock"
    if docker version >/dev/null 2>&1; then
        return
    fi
    [ "$(id -u)" -eq 0 ] || die "no Docker engine answers, and only root can start one; start it, or name it in DOCKER_HOST"
    say "starting a Docker engine in $docker_home"
    mkdir -p "$docker_home"
    rm -f "$docker_home/pid"
    setsid dockerd --data-root "$docker_home/data" --exec-root "$docker_home/exec" --pidfile "$docker_home/pid" \
        --host "$DOCKER_HOST" >"$docker_home/log" 2>&1 </dev/null 9>&- &
    local tries
    for tries in $(seq 1 300); do
        if docker version >/dev/null 2>&1; then
            return
        fi
        kill -0 $! 2>/dev/null || break
        sleep 0.2
    done
    tail -n 20 "$docker_home/log" >&2
    die "the Docker engine did not start ($tries looks); its log is $docker_home/log"
}

# Ends the engine that docker_engine started.
docker_engine_stop() {
    local pid
    pid="$(cat "$docker_home/pid" 2>/dev/null || true)"
    [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] || return 0
    say "ending the Docker engine"
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.1
    done
}

# Compose's second generation, `docker compose`: a plug-in of the docker command, from its Go module.
compose_plugin() {
    go_program docker-compose github.com/docker/compose/v2/cmd v2.40.3
    mkdir -p "$docker_home/client"
    printf '{"cliPluginsExtraDirs": ["%s"]}\n' "$cache/tools/bin" >"$docker_home/client/config.json"
}

# Makes the folders that the images are built from. Each is made again when what it is made of has changed.
compose_images() {
    local program="$1"
    [ -x "$program" ] || die "there is no program '$program': build it first (cargo build --workspace --bins --tests --locked)"
    mkdir -p "$POSTERN_CI_IMAGES"
    debian_image
    postern_context "$program"
    postgres_context
    jaeger_context
}

# debian:bookworm-slim, as Dockerfile expects it, from Debian's own packages.
debian_image() {
    mkdir -p "$images_home"
    if [ -n "$(docker images --quiet debian:bookworm-slim)" ]; then
        return
    fi
    local archive="$images_home/debian.tar" root
    if [ ! -f "$archive" ]; then
        say "making a Debian base image (debootstrap)"
        root="$(mktemp --directory)"
        debootstrap --variant=minbase bookworm "$root/root" >"$images_home/debootstrap.log" 2>&1 ||
            { tail -n 20 "$images_home/debootstrap.log" >&2; die "debootstrap failed"; }
        rm -rf "$root"/root/var/cache/apt/archives/*.deb "$root"/root/var/lib/apt/lists/* "$root"/root/usr/share/{doc,locale,man}
        tar --create --file "$archive.new" --directory "$root/root" .
        mv "$archive.new" "$archive"
        rm -rf "$root"
    fi
    docker import "$archive" debian:bookworm-slim >/dev/null
}

# The program as it was built, without what is for a debugger.
postern_context() {
    local folder="$POSTERN_CI_IMAGES/postern"
    mkdir -p "$folder"
    cp Dockerfile "$folder/Dockerfile"
    if [ ! "$folder/postern" -nt "$1" ]; then
        strip --strip-debug -o "$folder/postern.new" "$1"
        mv "$folder/postern.new" "$folder/postern"
    fi
}

# A PostgreSQL that takes the environment of the official image: the programs of this machine with the libraries they need.
postgres_context() {
    local folder="$POSTERN_CI_IMAGES/postgres" programs file target
    mkdir -p "$folder"
    cp tests/compose/postgres/* "$folder"
    programs="$(find /usr/lib/postgresql -maxdepth 2 -name bin | sort --version-sort | tail -n 1)"
    [ -n "$programs" ] || die "PostgreSQL is not installed"
    if [ "$(cat "$folder/version" 2>/dev/null)" = "$("$programs/postgres" --version)" ]; then
        return
    fi
    rm -rf "$folder/root"
    mkdir -p "$folder/root"
    {
        find "$programs" "${programs%/bin}/lib" -type f -name '*.so' -o -path "$programs/*" -type f
        # Stored procedures and just-in-time compilation would bring LLVM.
        find "/usr/share/postgresql/$(basename "${programs%/bin}")" -type f
        ldd "$programs"/* "${programs%/bin}"/lib/dict_snowball.so | awk '$3 ~ /^\// { print $3 }' | sort --unique
    } | grep -v llvmjit | while read -r file; do
        # /lib is a link in the base image, which a folder of that name would take the place of.
        target="$folder/root$(realpath "$(dirname "$file")")"
        mkdir -p "$target"
        cp --dereference "$file" "$target"
    done
    ln -s "$programs" "$folder/root/programs"
    "$programs/postgres" --version >"$folder/version"
}

# Jaeger, from its Go module.
jaeger_context() {
    local folder="$POSTERN_CI_IMAGES/jaeger"
    mkdir -p "$folder"
    cp tests/compose/jaeger/* "$folder"
    jaeger_program
    cmp --silent "$cache/tools/bin/jaeger" "$folder/jaeger" || cp "$cache/tools/bin/jaeger" "$folder/jaeger"
}
