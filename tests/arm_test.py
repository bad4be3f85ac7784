"""The kernels' tests, cross-compiled for 64-bit Arm and run in an emulator (NEON, 4 lanes).

  arm_test.py REPOSITORY BUILD_FOLDER

Exit code 77, "skipped", where Debian's packages for it are missing.
"""

import os
import shutil
import subprocess
import sys

PACKAGES = "g++-aarch64-linux-gnu qemu-user libhwy-dev:arm64 libfmt-dev:arm64 libgtest-dev:arm64"
# An emulator is some twenty times slower: of the sweeps over hundreds of shapes it runs these.
CASES = ":".join((
    "*NothingToDo*", "AdamW*", "QnALayerFold.*", "Product*", "MlpBranch/*NearTheReference*",
    "QnALayer/Operator/0.NearTheReference", "WindowAttention/Operator/0.NearTheReference"))


def missing():
    for program in ("aarch64-linux-gnu-g++", "qemu-aarch64"):
        if not shutil.which(program):
            return program
    for library in ("libhwy.so", "libfmt.so", "libgtest.a"):
        if not os.path.exists(f"/usr/lib/aarch64-linux-gnu/{library}"):
            return f"{library} for arm64"
    return None


def main():
    repository, folder = map(os.path.abspath, sys.argv[1:])
    what = missing()
    if what:
        print(f"skipped: there is no {what}. To have the kernels' tests run for Arm:\n"
              f"  sudo dpkg --add-architecture arm64 && sudo apt-get update\n"
              f"  sudo apt-get install {PACKAGES}")
        return 77
    run = lambda *command: subprocess.run(command, check=True)
    run("cmake", "-S", f"{repository}/tests/arm", "-B", folder, "-G", "Ninja",
        f"-DCMAKE_TOOLCHAIN_FILE={repository}/cmake/aarch64.cmake", "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -g0 -DNDEBUG")
    run("cmake", "--build", folder, "--target", "kernels_test")
    test = f"{folder}/tests/kernels_test"
    run("qemu-aarch64", test, "--gtest_brief=1", f"--gtest_filter={CASES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
