# Short names for the usual commands; anything longer is Rust in xtask/.

# List the recipes.
default:
    @just --list

# Format, lints, build, tests, docs, house rules: what CI runs.
test *ARGS:
    cargo xtask test {{ARGS}}

# While writing: does it compile?
check:
    cargo check --workspace --all-targets

# Format everything.
fmt:
    cargo fmt --all

# The house rules, one finding per line.
tidy:
    cargo xtask tidy

# Write docs/reference from the binary.
gen:
    cargo xtask gen

# Measurements on a release build.
bench *NAMES:
    cargo xtask bench {{NAMES}}

# The offline tour, no account needed.
demo:
    cargo run --quiet -- demo

# The binary for use.
release:
    cargo build --release --package mainstem
