# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
# The commit and its date for `faber --version`: --build-arg FABER_BUILD="$(git log -1 --abbrev=12 --format='%h %cs')"
ARG FABER_BUILD=
COPY . .
# The target folder is a cache and not part of the image, so the binary is copied out of it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --profile dist --locked --bin faber \
    && cp target/dist/faber /usr/local/bin/faber \
    && mkdir /state

# The C library and certificates of Debian 12, and no shell. `nonroot` is the user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /usr/local/bin/faber /usr/local/bin/faber
# A new volume takes over the owner of this folder.
COPY --from=build --chown=65532:65532 /state /var/lib/faber
# A number, because Kubernetes checks `runAsNonRoot` by number.
USER 65532:65532
WORKDIR /var/lib/faber
# The container's host is another machine, so callers need a token: see docs/operating/deploying.md. With `--read-only`,
# Faber writes into this volume only. Temporary files are there, too.
ENV HOME=/var/lib/faber TMPDIR=/var/lib/faber FABER_LISTEN=0.0.0.0:8080
# Contains the embedded store, unless the configuration names another store, and the demo's file.
VOLUME /var/lib/faber
EXPOSE 8080
# Checks that Faber can work. It does not check toolsets, because a broken toolset must not restart the service.
HEALTHCHECK --interval=10s --timeout=10s --start-period=20s --retries=6 \
    CMD ["faber", "doctor", "--ready", "--server", "http://127.0.0.1:8080"]
ENTRYPOINT ["faber"]
CMD ["serve"]
