"""Builds the C library of csrc/ once and links every Cython module of headrace against it.

Environment toggles (all off by default):
  HEADRACE_DEBUG=1      -O0 -g
  HEADRACE_SANITIZE=1   ASan and UBSan (run Python with libasan preloaded)
  HEADRACE_COVERAGE=1   gcov counters and Cython line tracing
  HEADRACE_ANNOTATE=1   Cython's annotated HTML beside the generated C
  HEADRACE_WERROR=1     warnings in csrc/ are errors
  HEADRACE_PURE=1       installs the Python part alone; `build_ext --inplace` brings the rest
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent


def toggle(name: str) -> bool:
    return os.environ.get(f"HEADRACE_{name}", "") not in ("", "0")


def flags() -> tuple[list[str], list[str]]:
    compile_flags = ["-std=c11", "-fvisibility=hidden", "-fno-math-errno"]
    link_flags = []
    compile_flags += ["-O0", "-g"] if toggle("DEBUG") else ["-O2"]
    if toggle("SANITIZE"):
        sanitizers = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
        compile_flags += sanitizers
        link_flags += sanitizers
    if toggle("COVERAGE"):
        compile_flags += ["--coverage", "-DCYTHON_TRACE_NOGIL=1"]
        link_flags += ["--coverage"]
    return compile_flags, link_flags


COMPILE, LINK = flags()
STRICT = ["-Wall", "-Wextra", *(["-Werror"] if toggle("WERROR") else [])]
C_SOURCES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").glob("*.c"))
C_HEADERS = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").glob("*.h"))
LIBRARY = (
    "headrace_c",
    {
        "sources": C_SOURCES,
        "include_dirs": ["csrc"],
        "cflags": [*COMPILE, *STRICT, "-fPIC"],
        "obj_deps": {"": C_HEADERS},
    },
)


def extensions() -> list[Extension]:
    found = []
    for path in sorted((ROOT / "src" / "headrace").rglob("*.pyx")):
        relative = path.relative_to(ROOT / "src")
        found.append(
            Extension(
                ".".join(relative.with_suffix("").parts),
                [str(Path("src") / relative)],
                include_dirs=["csrc"],
                libraries=["m"],
                depends=C_HEADERS + C_SOURCES,
                extra_compile_args=[*COMPILE, "-Wno-unused-function", "-Wno-sign-compare"],
                extra_link_args=LINK,
            )
        )
    return found


class BuildExt(build_ext):
    """build_ext that builds csrc/ first, so that in-place builds need one command too."""

    def run(self) -> None:
        self.run_command("build_clib")
        super().run()


setup(
    ext_modules=[]
    if toggle("PURE")
    else cythonize(
        extensions(),
        build_dir="build/cython",
        include_path=["src"],
        annotate=toggle("ANNOTATE"),
        nthreads=0,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "binding": False,
            "embedsignature": False,
            "linetrace": toggle("COVERAGE"),
        },
    ),
    libraries=[] if toggle("PURE") else [LIBRARY],
    cmdclass={"build_ext": BuildExt},
)
