# Short names for the usual work. Each installs what is missing, then calls a CMake preset.

MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.DEFAULT_GOAL := help

# $(call cmake,preset[,target]): configure, then build. CMake's report goes to a file; its warnings
# and errors are shown.
define cmake
	@cmake --preset $(1) > build/$(1)-configure.log
	@cmake --build --preset $(1) $(if $(2),--target $(2))
endef

.PHONY: help setup build qna train demo test wheel bench asan tsan fuzz check clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## install what the build needs (the other targets do this too)
	@tools/setup

build: setup ## build everything, optimised
	$(call cmake,release)

qna: ## build only the program qna and the C library, without LibTorch, into build/run
	@tools/setup --run
	$(call cmake,run)
	@printf '      build/run/qna predict PICTURE  what is in a picture\n'
	@printf '      build/run/qna --help           what else the program does\n'

train: ## build what trains: qna, qna-train and qna-finetune, into build/release
	@tools/setup
	$(call cmake,release,qna qna-train qna-finetune)
	@printf '      build/release/qna finetune FOLDER   a network for your own pictures\n'
	@printf '      build/release/qna recipes           what else can be trained\n'

demo: ## train a small network on Fashion-MNIST for about three minutes, and show it
	@tools/setup --demo
	$(call cmake,release,qna qna-train)
	@rm -rf build/demo
	@build/release/qna train recipes/fashion_mnist.toml --out build/demo
	@build/release/qna data preview recipes/fashion_mnist.toml --out build/demo/preview.png
	@printf '      open build/demo/report.html    curves, confusion, samples, attention\n'
	@printf '      make test                      all tests\n'
	@printf '      build/release/qna --help       what else the program does\n'

test: build ## build and run all tests, the torch-free ones also under sanitizers
	@tools/setup --test
	@ctest --preset release --output-junit tests.xml
	@$(MAKE) asan
	@tools/skipped build/release/tests.xml build/asan/tests.xml

wheel: ## build the Python package as a wheel, into build/wheel
	@tools/setup
	@tools/wheel

bench: setup ## run the full timing tables: window sizes, then the models' layers
	$(call cmake,release,qna qna-bench)
	@build/release/qna bench layer
	@build/release/qna bench layer --models

asan: setup ## run the torch-free tests under the address and undefined-behaviour sanitizers
	$(call cmake,asan)
	@ctest --preset asan --output-junit tests.xml

tsan: setup ## run the tests of engine and data under the thread sanitizer
	$(call cmake,tsan)
	@ctest --preset tsan

fuzz: setup ## feed a million mutated weights files, and others, to their readers (RUNS=, about 20 minutes)
	$(call cmake,asan,qna-fuzz)
	@build/asan/qna-fuzz tests/fuzz/seeds --runs $(or $(RUNS),1000000)

check: ## format check, build and all tests: what a change must pass
	@tools/check

clean: ## remove what was built, keep what was installed in build/venv
	@rm -rf build/release build/debug build/run build/asan build/tsan build/*-configure.log

distclean: ## remove the whole build folder
	@rm -rf build
