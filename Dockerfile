# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
COPY . .
# The caches outlive the image, so the binary is copied out of the cached target folder.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --profile dist --locked --bin faber \
    && cp target/dist/faber /usr/local/bin/faber

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/faber --shell /usr/sbin/nologin faber
COPY --from=build /usr/local/bin/faber /usr/local/bin/faber
USER faber
WORKDIR /var/lib/faber
# Whoever connects from outside the container needs a token: see docs/reference/access.md, and docker-compose.yml for how.
ENV HOME=/var/lib/faber FABER_LISTEN=0.0.0.0:8080
# The embedded store and the demo's file, where no other store is named.
VOLUME /var/lib/faber
EXPOSE 8080
ENTRYPOINT ["faber"]
CMD ["serve"]
