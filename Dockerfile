# syntax=docker/dockerfile:1
# Build: compiles with the toolchain alone; the only network use is fetching the locked dependencies.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs* ./
# dependencies first: they change seldom, so this layer is kept when only our own source changes
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    mkdir -p src benches && echo 'fn main() {}' > src/main.rs && touch src/lib.rs benches/plan.rs benches/http.rs && rm -f build.rs && \
    cargo build --release --locked --bin shardwise && \
    rm -rf src benches target/release/shardwise target/release/deps/*shardwise* target/release/.fingerprint/shardwise-*
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo build --release --locked --bin shardwise && mkdir -p /out/data && cp target/release/shardwise /out/

# Run: libc and certificates, no shell, not root.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="shardwise" \
      org.opencontainers.image.description="Planning service for LLM inference capacity" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/shardwise /usr/local/bin/shardwise
# the embedded database, when no DATABASE_URL is given
COPY --from=build --chown=nonroot:nonroot /out/data /data
WORKDIR /data
USER nonroot
# inside a container the outside reaches in through published ports only
ENV SHARDWISE_SERVER_LISTEN=0.0.0.0:8080 \
    SHARDWISE_SERVER_METRICS_LISTEN=0.0.0.0:9090 \
    SHARDWISE_DATABASE_PATH=/data/shardwise.sqlite \
    SHARDWISE_LOG_FORMAT=json
EXPOSE 8080 9090
# the binary asks its own port: the image has no shell and no curl
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["shardwise", "health"]
ENTRYPOINT ["shardwise"]
CMD ["serve"]
