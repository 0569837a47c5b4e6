# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
COPY . .
# The target folder is a cache and not part of the image, so the binary is copied out of it.
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
# A client outside the container needs a token (see docs/reference/access.md). docker-compose.yml shows how to set one.
ENV HOME=/var/lib/faber FABER_LISTEN=0.0.0.0:8080
# Contains the embedded store, unless the configuration names another store, and the demo's file.
VOLUME /var/lib/faber
EXPOSE 8080
ENTRYPOINT ["faber"]
CMD ["serve"]
