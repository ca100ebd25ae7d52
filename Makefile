# The commands people type. Two set a machine up: `make serve` and `make test`.
# They expect Debian 12 or a relative of it and Rust from https://rustup.rs; the rest they install.

SHELL  := /bin/bash
# LISTEN: serve: address and port [127.0.0.1:8080]
LISTEN ?= 127.0.0.1:8080
# SITE: serve: the directory that is served [examples/site]
SITE   ?= examples/site
# ARGS: serve, lab, bench, bench-…: more options for the program, such as "--engine pool"
ARGS   ?=
# PREFIX: install: where to [/usr/local]
PREFIX ?= /usr/local
# FEATURES: build, install: cargo's options, such as "--no-default-features" []
FEATURES ?=
# STRIP: install: what takes debug symbols away; "true" leaves them [strip]
STRIP ?= strip
# CARGO_TARGET_DIR: all: where cargo builds [target]

export PATH := $(PATH):$(HOME)/.cargo/bin
# The commit that /status and /metrics name.
export FOREBAY_REVISION := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
BIN    := $(TARGET)/release/forebay

# SET: lab: whose turn it is, papers, peers or library [papers]
SET    ?= papers

BENCHES := bench bench-engines bench-shift bench-keepalive bench-reload bench-overload bench-crashes \
           bench-profile bench-receivers bench-calibration bench-stages

.PHONY: help serve test test-all check audit lab lab-quick lab-report lab-build $(BENCHES) fuzz manual manual-site install package build example clean
.DEFAULT_GOAL := help

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24
	@echo
	@echo "Variables, as in: make serve SITE=/srv/www LISTEN=:8080"
	@sed -n 's/^# \([A-Z_]*\): \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

serve: build example ## Build a release and serve SITE on LISTEN: http://127.0.0.1:8080
	@echo "Ctrl-C stops the server. Its first line says what to open in a browser."
	@exec $(BIN) serve $(SITE) --listen $(LISTEN) $(ARGS)

test: ## Style, documentation, licences, unit and end-to-end tests
	@scripts/install build test
	@scripts/test test

test-all: ## The same, in every way on every engine, with the release that users get
	@scripts/install build test machine go
	@scripts/test all

check: ## The fast part: formatting, lints, unit tests
	@scripts/install build check
	@scripts/test check

audit: ## Licences, sources and published advisories of all dependencies (needs the network)
	@scripts/install build test
	cargo deny check

lab: lab-build ## One round of the Laboratory, kept in lab/runs; goes on where it was interrupted (as root)
	$(TARGET)/release/lab check
	$(TARGET)/release/lab round --set $(SET) $(ARGS)

lab-quick: lab-build ## The Laboratory in short forms: the shape only, can fail (as root)
	$(TARGET)/release/lab check
	$(TARGET)/release/lab round --quick $(ARGS)

lab-report: lab-build ## What all kept rounds come to: target/lab/report.html
	$(TARGET)/release/lab report $(ARGS)

lab-build:
	@scripts/install build bench
	cargo build --release --locked -p forebay-cli --features gate
	cargo build --release --locked -p forebay-lab
	cargo build --release --locked -p forebay-fiber --example fiber-bench
	cargo build --release --locked -p forebay-gate --example packet_cost --example flood_cost
	$(if $(filter library,$(SET)),cargo build --release --locked -p forebay-window --features gtk)

bench: ## Measure Forebay beside nginx, lighttpd, h2o and Apache; options in ARGS
bench-engines: ## Measure the engines beside one another; options in ARGS
bench-shift: ## Threads that move against threads that stay, under a load that shifts (as root)
bench-keepalive: ## Clients that want one object and stay silent, by the law that keeps them
bench-profile: ## Where the time of a request goes, and what opening a socket takes; options in ARGS
bench-reload: ## Reloads under keep-alive clients, beside nginx; options in ARGS
bench-overload: ## More load than a server can do: goodput, classes, voigt's figures; options in ARGS
bench-calibration: ## Constants that are wrong on purpose, calibrated: how much comes back?
bench-receivers: ## A thousand receivers, fast and slow, by the order in which answers go on (as root)
bench-stages: ## CPU per request of three stages beside one process and three chained nginx; options in ARGS
bench-crashes: ## Processes killed, frozen and cut off under load: who loses what (as root); options in ARGS

$(BENCHES):
	@scripts/install build bench
	cargo build --release --locked -p forebay-cli
	cargo build --release --locked -p forebay-lab
	$(TARGET)/release/forebay-bench $(if $(filter bench,$@),static,$(@:bench-%=%)) $(ARGS)

fuzz: ## Every fuzz target for 60 seconds
	@scripts/install build fuzz
	fuzz/run 60

manual: ## Write the generated pages of the manual, the man pages and the sample anew
	UPDATE_MANUAL=1 cargo test --locked -p forebay-server --test manual
	UPDATE_MANUAL=1 cargo test --locked -p forebay-cli --bin forebay pages

manual-site: ## Build the manual as a site in target/manual-site: forebay run -c examples/manual.toml serves it
	@scripts/manual-site $(TARGET)/manual-site

install: build ## Install program, man pages, completions, units and sample below PREFIX
	install -Dm755 -s --strip-program=$(STRIP) $(BIN) $(DESTDIR)$(PREFIX)/bin/forebay
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man1 packaging/man/*.1
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man5 packaging/man/*.5
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/doc/forebay examples/forebay.toml packaging/systemd/notify-reload.conf
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/forebay/welcome packaging/welcome/index.html
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/forebay/prometheus packaging/prometheus/forebay.rules.yml
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/forebay/grafana packaging/grafana/forebay.json
	install -Dm644 packaging/logrotate/forebay $(DESTDIR)$(PREFIX)/share/doc/forebay/logrotate
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/sysusers.d packaging/sysusers.d/forebay.conf
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/tmpfiles.d packaging/tmpfiles.d/forebay.conf
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system packaging/systemd/forebay.socket
	sed 's|/usr/bin/|$(PREFIX)/bin/|' packaging/systemd/forebay.service \
	  > $(DESTDIR)$(PREFIX)/lib/systemd/system/forebay.service
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(BIN) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/forebay
	$(BIN) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_forebay
	$(BIN) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/forebay.fish

package: ## Packages for Debian and Fedora, static programs, a container image: target/packages
	@scripts/install build package
	@scripts/package all

build:
	@scripts/install build
	cargo build --release --locked -p forebay-cli $(FEATURES)

example:
	@scripts/make-example

clean: ## Remove what was built
	cargo clean
	rm -f examples/site/files/large.bin
