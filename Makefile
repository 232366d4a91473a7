# Every target is one task of a user or developer. `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help deps build test models conformance random-programs random-programs-broken test-rocm test-hip-cuda test-hip-cuda-races test-clients test-operations test-field test-old-kernel test-races fuzz lint fmt docs book \
	check-exports demo demo-faults kfd-faults kfd-soak soak bench bench-gpu bench-corun bench-pairs bench-ipc bench-launch-path bench-policies bench-preempt bench-sim \
	example-manual example-gpreempt install uninstall dist test-dist test-service wheel test-python soak-python clean

# What hipcc compiles examples for.
OFFLOAD_ARCH ?= gfx90a

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## Install what the demo and the tests need (HIP and hipcc from the distribution, unless AMD's ROCm is installed)
	@scripts/deps

build: ## Build everything, optimized; installs nothing
	cargo build --release --workspace

test: deps ## Run all tests (root: the simulated GPU mounts its devices in a private namespace)
	cargo build --workspace --all-targets
	GIVEWAY_TEST_BUILT=yes cargo test --workspace

models: ## Run the loom models of the queue's threads (docs/adr/0005), two minutes
	RUSTFLAGS="--cfg loom" cargo test --package xqueue --lib --release --target-dir $${CARGO_TARGET_DIR:-target}/loom

# `make conformance ARGS="events --mode defer"`: a part of the programs and modes.
conformance: deps ## Compare every test program natively and under the shim; last line "N passed, N failed"
	cargo build --workspace --all-targets
	cargo test --workspace --test conformance -- $(ARGS)

# `make random-programs N=20000 SEED=5000`: other ones, and for longer.
N ?= 2000
SEED ?= 1
random-programs: deps ## Compare random valid HIP programs natively and under the shim; last line "N passed, N failed"
	cargo build --workspace --all-targets
	@$${CARGO_TARGET_DIR:-target}/debug/random-programs --count $(N) --seed $(SEED) $(ARGS)

random-programs-broken: deps ## Check that random programs find each of five broken orders within 200 programs
	cargo build --workspace --all-targets
	cargo build --package shim --features broken-order --target-dir $${CARGO_TARGET_DIR:-target}/broken-order
	@$${CARGO_TARGET_DIR:-target}/debug/random-programs --broken $${CARGO_TARGET_DIR:-target}/broken-order/debug/libshimhip.so

# `make test-rocm ROCM=7 ARGS="events --mode defer"`, likewise. See docs/newer-runtimes.md.
test-rocm: deps ## Run the conformance suite on HIP 6.4 or 7.2 (ROCM=6 or 7) in a root directory of its own, 1.3 GB under ~/.cache
	@scripts/test-rocm "$(ROCM)" $(ARGS)

# `make test-field ARGS=b1`: the cases with this in their names.
test-field: deps ## Run one case for each failure outside the test bed; last line "N passed, N failed"
	cargo build --workspace --all-targets
	@scripts/test-field $(ARGS)

# `make test-old-kernel ARGS=all`: everything, with faults. `ARGS="all field"`: the suites with this in their names.
test-old-kernel: deps ## Run tests as on Linux 4.18 (docs/old-kernels.md); last line "N passed, N failed"
	@scripts/test-old-kernel $(ARGS)

# `make test-operations ARGS=metrics`: the cases with this in their names.
test-operations: deps ## Run the server for all users as an operator does, with Prometheus and an older library; "N passed, N failed"
	cargo build --workspace --all-targets
	@scripts/test-operations $(ARGS)

# `make test-hip-cuda ARGS="events --mode defer"`: a part of the programs and modes. ARGS=--against-amd: the answers beside AMD's.
# ROCM=6 or 7: as HIP 6.4 or 7.2, as for `make test-rocm`.
test-hip-cuda: deps ## Compare the test programs on hip-cuda over a CUDA driver on the CPU (docs/hip-cuda.md); "N passed, N failed"
	@scripts/test-hip-cuda $(if $(ROCM),--rocm "$(ROCM)") $(ARGS)

test-hip-cuda-races: deps ## Run ThreadSanitizer on the library on hip-cuda (docs/hip-cuda.md); last line "N passed, N failed"
	@scripts/test-races --hip-cuda $(ARGS)

test-clients: deps ## Run Triton, CuPy, JAX, llama.cpp and others natively and under xcli run on HIP 7.2 and 6.4, 15 GB under ~/.cache
	@scripts/test-clients $(ARGS)

test-races: deps ## Run ThreadSanitizer on the library, under random programs and some of tests/programs (docs/races.md)
	@scripts/test-races $(ARGS)

# `make fuzz SECONDS=600 ARGS=pages`: this target only, for ten minutes.
SECONDS ?= 60
fuzz: ## Run each fuzz target for SECONDS=60 (fuzz/README.md); last line "N targets, N findings"
	@scripts/fuzz --seconds $(SECONDS) $(ARGS)

lint: ## Check format and lints
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt: ## Format the code
	cargo fmt --all

# Private items are documented too, so links to them are not broken.
docs: ## Build the API documentation; broken links are errors
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --document-private-items

book: ## Build the documents as a book (target/book/html) and check their links; installs mdBook into target/tools
	cargo test --workspace --test documents
	@scripts/book

demo: deps build ## Run two urgent models beside a batch model on the simulated GPU, 4 minutes: tables, plots, target/demo/result.json
	@scripts/corun demo

bench-corun: build ## Run the demo at length, at preemption levels 1, 2 and 3, 24 minutes: target/bench/corun.json
	@scripts/corun bench

bench-pairs: build ## Judge five pairs of models at levels 1 and 3, 1,000 requests each, 32 minutes: target/bench/pairs.json
	@scripts/corun pairs

bench-ipc: build ## Measure the way between programs and xserver, its load and memory, 3 minutes: target/bench/ipc.json
	mkdir -p target/bench
	target/release/xbench ipc --json target/bench/ipc.json

bench-launch-path: build ## Measure what the preloaded library adds to a launch
	target/release/xbench launch-path

bench-sim: build ## Judge the simulated GPU by the host's clock
	target/release/xbench sim

bench-preempt: build ## Measure how long an urgent launch waits at each preemption level, 4 minutes: target/bench/preempt.json, .svg
	target/release/xbench preempt

# Shares are measured where one program fills the device. With shared compute units two programs gain by overlapping, which no policy
# with slices can keep.
bench-policies: build ## Measure policies on the simulated GPU and in simulation, 50 minutes: target/bench/policies.json, prepreempt.json, policy-sim.svg
	mkdir -p target/bench
	target/release/xbench scenario shares --cu-model fcfs --json target/bench/shares.json
	target/release/xbench scenario test3 test4 two-models three-priorities bursts --json target/bench/policies.json
	target/release/xbench scenario test3 test4 two-models --level 3 --policy HPF --json target/bench/policies-level3.json
	target/release/xbench scenario tokens tokens-two tokens-long --level 3 --policy HPF --json target/bench/tokens.json
	target/release/xbench prepreempt --json target/bench/prepreempt.json
	target/release/xbench policy-sim disb-e --policy all --plot target/bench/policy-sim.svg
	cargo bench -p policies --bench decide
	cargo bench -p xserver --bench idle_queues

# `make bench-gpu ARGS="calibrate bert"`: some parts.
bench-gpu: ## Measure the machine's own GPU in ten minutes and write docs/performance.md (docs/real.md); nobody else must use it
	@scripts/bench-gpu $(ARGS)

bench: bench-launch-path bench-ipc bench-sim bench-preempt bench-policies bench-corun ## Run all measurements, 85 minutes; the machine must be idle otherwise

check-exports: ## Build for glibc 2.28; check what libshimhip.so exports and what library and programs need; "N passed, N failed"
	scripts/dist-build
	@scripts/check-built

# As root, after `make build` as the user that builds.
PREFIX ?= /usr/local
install: ## Install what was built below PREFIX (/usr/local), in front of which DESTDIR is put; builds nothing (docs/install.md)
	@scripts/make-install --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

uninstall: ## Remove what `make install` put below PREFIX, and nothing else
	@packaging/install --uninstall --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

dist: ## Make target/dist/giveway-VERSION-x86_64.tar.gz and giveway_VERSION_amd64.deb, for Linux 4.18 and glibc 2.28 and newer
	@scripts/dist

# `make test-dist ARGS="12 sid"`: on these only. ARGS=--no-build: what `make dist` made before.
test-dist: ## Install both on clean Debian 11, 12 and sid, run programs, remove them; 2 GB under ~/.cache; "N passed, N failed"
	@scripts/test-dist $(ARGS)

# `make test-service ARGS=--no-build`: with the package that `make dist` made before.
test-service: deps ## Install the package on Debian 12 with systemd, run the server for all users with podman; 2 GB under ~/.cache; "N passed, N failed"
	@scripts/test-service $(ARGS)

wheel: ## Make target/dist/giveway-VERSION-py3-none-manylinux_2_28_x86_64.whl: the Python package with library and programs
	@scripts/wheel

# `make test-python ARGS="--source target/debug"`: the source tree with a debug build. ARGS=--no-build: with what `make dist` built before.
test-python: deps ## Test the Python package from its wheel on the simulated GPU, and check its types; "N passed, N failed"
	@scripts/test-python $(ARGS)

# `make soak-python MINUTES=1 SEED=7 ARGS="--source target/debug"`: shorter, with this seed, on a debug build.
soak-python: export SEED :=
soak-python: deps ## Suspend a Python server with two models and four workers at random, 10 minutes by fork and by spawn (MINUTES=N)
	@scripts/test-python $(ARGS) --soak $$(($(MINUTES) * 60))

example-manual: deps ## Build examples/4_manual_sched, linked against libshimhip.so, and gpu-sim to run it on
	cargo build --release --package shim --package gpu-sim
	mkdir -p target/examples
	ln -sf libshimhip.so target/release/libshimhip.so.1
	hipcc --offload-arch=$(OFFLOAD_ARCH) -O2 -I include -I examples/kernels examples/4_manual_sched/manual.hip \
		-L target/release -Wl,--no-as-needed -lshimhip -Wl,-rpath,$(CURDIR)/target/release -o target/examples/manual

example-gpreempt: deps ## Build examples/11_gpreempt_poc: libgpreempt_poc.so, what measures it, and gpu-sim to run it on
	cargo build --release --package shim --package gpu-sim
	mkdir -p target/examples
	ln -sf libshimhip.so target/release/libshimhip.so.1
	cc -std=c99 -O2 -Wall -Wextra -Werror -shared -fPIC -D_POSIX_C_SOURCE=200809L -I include \
		examples/11_gpreempt_poc/gpreempt_poc.c -L target/release -lshimhip -lpthread \
		-Wl,-rpath,$(CURDIR)/target/release -o target/examples/libgpreempt_poc.so
	hipcc --offload-arch=$(OFFLOAD_ARCH) -O2 -I examples/kernels -I examples/11_gpreempt_poc \
		examples/11_gpreempt_poc/measure.hip -L target/examples -lgpreempt_poc -L target/release -Wl,--no-as-needed \
		-lshimhip -Wl,-rpath,$(CURDIR)/target/examples -Wl,-rpath,$(CURDIR)/target/release -o target/examples/measure

demo-faults: build ## Kill and stop the server and the programs under it, and check that the others go on
	@$${CARGO_TARGET_DIR:-target}/release/demo-faults

# `make soak ARGS="--each 1000"`; `make soak ARGS='--each 20 "server "'`: the kinds with this in their names, here faults of the server.
soak: build ## Inject faults of 21 kinds, 50 times each, under two programs, 30 minutes; last line "N passed, N failed"
	@$${CARGO_TARGET_DIR:-target}/release/soak $(ARGS)

# `make kfd-faults ARGS="SIGKILL, debug-trap"`: the cases with this in their names.
kfd-faults: build ## Inject faults while a program's queues are evicted; last line "N passed, N failed"
	@$${CARGO_TARGET_DIR:-target}/release/kfd-faults $(if $(ARGS),"$(ARGS)")

MINUTES ?= 10
kfd-soak: build ## Evict and restore 24 programs at random for 10 minutes (MINUTES=N), and check that nothing leaks
	@$${CARGO_TARGET_DIR:-target}/release/kfd-faults --soak $(MINUTES)

clean: ## Remove what was built
	cargo clean
