# Postern in a container: one program, one image for every role (docker-compose.yml, deploy/kubernetes).
#
#   docker build --tag postern .                                   from source
#   docker build --tag postern --build-arg BASE=my-tools:latest .  with the tools that commands shall find
#   docker build --tag postern --target prebuilt folder            with a program that is built already: folder/postern
#
# BuildKit builds it: with Docker before version 23, or docker-compose, set DOCKER_BUILDKIT=1.
# The base needs glibc 2.36 or newer and /bin/sh, nothing else. The image runs as any user; its own is 10001.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS runtime
# Folders that volumes are mounted on: a new volume takes their owner. They hold what docs/containers.md says.
RUN for folder in /data /tls /spool /project /secrets; do \
        mkdir -p "$folder" && chown 10001:10001 "$folder" && chmod 700 "$folder" || exit 1; \
    done
ENV HOME=/tmp
USER 10001:10001
ENTRYPOINT ["/usr/local/bin/postern"]
CMD ["--help"]

# Before the stage that builds, so that a builder which takes the stages in their order builds nothing for it.
FROM runtime AS prebuilt
COPY postern /usr/local/bin/postern

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
# Kept between builds: what was downloaded, and what was compiled. cargo goes by the times of files, and these may come from
# another checkout, older than what is kept and yet different; so what differs from the last build is new, and all else old.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target,sharing=locked \
    find . -path ./target -prune -o -type f -exec sha256sum {} + | sort >/tmp/sources \
    && find . -path ./target -prune -o -type f -exec touch --date=2000-01-01 {} + \
    && { cp target/sources /tmp/built 2>/dev/null || : >/tmp/built; } \
    && comm -13 /tmp/built /tmp/sources | cut --characters=67- | xargs --no-run-if-empty --delimiter='\n' touch \
    && cargo build --release --locked --package postern \
    && cp /tmp/sources target/sources \
    && install -D target/release/postern /out/postern

FROM runtime
COPY --from=build /out/postern /usr/local/bin/postern
