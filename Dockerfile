# Postern in a container: one program, one image for every role (docker-compose.yml, deploy/kubernetes).
#
#   docker build --tag postern .                                   from source
#   docker build --tag postern --build-arg BASE=my-tools:latest .  with the tools that commands shall find
#   docker build --tag postern --target prebuilt folder            with a program that is built already: folder/postern
#
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
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --package postern \
    && install -D target/release/postern /out/postern

FROM runtime
COPY --from=build /out/postern /usr/local/bin/postern
