"""The build backend of ddipfs (PEP 517, PEP 660) for pip and its like: `make` builds, this packs.

Needs make, what make needs, and the standard library. Run as a program it packs what
scripts/portable-tree has built: build_backend.py TREE VERSION-OF-LIBFUSE FOLDER (`make wheel`).

A wheel has the tree that `make install` makes: its programs go to the environment's bin, the rest
beside it under libexec and share, where they look for each other. The Python package goes where
Python imports from.
"""

import ast
import base64
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("ddipfs needs Python 3.10 or newer, and this is %d.%d." % sys.version_info[:2])

HOME = Path(__file__).resolve().parent.parent
PACKAGE = HOME / "magics"
TOOL = PACKAGE / "__main__.py"
PROGRAM, PLAIN = 0o100755, 0o100644  # modes in the archive
LONG_AGO = 315532800  # 1980: the same files make the same archive

# What the build needs: its name, a command that succeeds where it is there, and the packages of
# Debian and Fedora that bring it.
NEEDED = (
    ("make", ["make", "--version"], "make", "make"),
    ("gcc and the C library's headers", ["gcc", "-E", "-include", "stdio.h", "-xc", os.devnull],
     "gcc libc6-dev", "gcc glibc-devel"),
    ("pkg-config", ["pkg-config", "--version"], "pkg-config", "pkgconf"),
    ("libfuse 3.13 or newer", ["pkg-config", "--exists", "fuse3 >= 3.13"],
     "libfuse3-dev", "fuse3-devel"),
    ("Python.h", ["scripts/python-include", sys.executable], "python3-dev", "python3-devel"),
)  # fmt: skip

# in the archive: in the tree of a program that has libfuse linked into it
LIBFUSE_LICENSES = {
    "libfuse3/copyright": "share/doc/libfuse3/copyright",
    "libfuse3/LGPL-2.1": "share/doc/libfuse3/LGPL-2.1",
}
# What an archive of the source has.
SOURCE = (
    "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "HACKING.md", "LICENSE", "Makefile",
    "README.md", "SECURITY.md", "pyproject.toml", "ruff.toml",
    "engine", "fs", "include", "magics", "scripts", "tests",
)  # fmt: skip
# The kernel that Jupyter finds in the environment: its `python` is that of the environment.
KERNEL = {
    "argv": ["python", "-Xfrozen_modules=off", "-m", "ddip.kernel", "-f", "{connection_file}"],
    "display_name": "DDP (ddipfs)",
    "language": "python",
    "metadata": {"debugger": True},
}
# A file for each directory that has none of ours itself, as pip uninstall removes only directories
# with a file of the package in them. Those of others have none: a prefix such as /usr/local has
# them before anything is installed, and pip would remove them with all that is empty in them.
MARK = (".ddipfs", b"pip removes this directory with ddipfs if nothing else is in it.\n")
OTHERS = ("share", "share/man")
WRAPPER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
if [ -z "${{VIRTUAL_ENV:-}}" ] && [ -e "$here/../pyvenv.cfg" ]; then
	export VIRTUAL_ENV="${{here%/*}}"
fi
exec {program} "$@"
"""
LIBFUSE = """\
The program `ddipfs` has libfuse {fuse} (https://github.com/libfuse/libfuse) linked into it. It is
under the GNU LGPL 2.1, whose text is among the licences of this package. To use another libfuse,
build ddipfs from its source, which is under the MIT licence, by `make` or `make wheel`.

"""


# ---- what the package says of itself


def version():
    """The version, from the only place that has it."""
    text = (PACKAGE / "ddip" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.*)"$', text, re.M)[1]


def project():
    """The tables [project…] of pyproject.toml: {table: {key: value}}. Python 3.10 cannot read TOML;
    strings and lists of strings, which are all that is in these, are the same in Python."""
    text = (HOME / "pyproject.toml").read_text(encoding="utf-8")
    tables = re.split(r"^\[(.*)\]$", text, flags=re.M)[1:]
    assignment = re.compile(r"^([\w-]+) = (.*?)$(?=\n[\w-]|\n*\Z)", re.M | re.S)
    return {
        name: {key: ast.literal_eval(value) for key, value in assignment.findall(body)}
        for name, body in zip(tables[::2], tables[1::2], strict=True)
        if name.startswith("project")
    }


def metadata(fuse=None):
    """The text of METADATA. fuse: the version of the libfuse that is linked into the program."""
    tables = project()
    about = tables["project"]
    licenses = [*about["license-files"], *(LIBFUSE_LICENSES if fuse else ())]
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", about["name"]),
        ("Version", version()),
        ("Summary", about["description"]),
        ("License-Expression", about["license"] + (" AND LGPL-2.1-only" if fuse else "")),
        *(("License-File", name) for name in licenses),
        ("Requires-Python", about["requires-python"]),
        *(("Requires-Dist", name) for name in about["dependencies"]),
    ]
    for extra, names in tables["project.optional-dependencies"].items():
        fields.append(("Provides-Extra", extra))
        fields += (("Requires-Dist", f'{name}; extra == "{extra}"') for name in names)
    fields.append(("Description-Content-Type", "text/markdown"))
    readme = (HOME / about["readme"]).read_text(encoding="utf-8")
    header = "".join(f"{name}: {value}\n" for name, value in fields)
    return header + "\n" + (LIBFUSE.format(fuse=fuse) if fuse else "") + readme


# ---- archives


def local_tag():
    """The tag of a wheel for this machine."""
    return "py3-none-" + re.sub(r"[.-]", "_", sysconfig.get_platform())


def glibc_of(files):
    """The newest glibc that a program among these asks for, as (2, minor)."""
    asked = {0}
    for data in (file.read_bytes() for file in files if file.is_file()):
        if data.startswith(b"\x7fELF"):
            asked.update(int(m) for m in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", data))
    return 2, max(asked)


def source_files():
    """The files of the source, without what was made in it."""
    for name in SOURCE:
        top = HOME / name
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            names = file.relative_to(HOME).parts
            if file.is_file() and not any(n.startswith((".", "__pycache__")) for n in names):
                yield file


def python_files():
    """The Python packages, without what begins the tool: (path, bytes, mode) of each file."""
    for file in sorted({*PACKAGE.rglob("*.py"), *PACKAGE.rglob("py.typed")} - {TOOL}):
        yield str(file.relative_to(PACKAGE)), file.read_bytes(), PLAIN


def kernel_files():
    """What shows Jupyter the kernel: (path, bytes, mode) of each file."""
    place = f"ddipfs-{version()}.data/data/share/jupyter/kernels/ddipfs/kernel.json"
    yield place, (json.dumps(KERNEL, indent=1) + "\n").encode(), PLAIN


def tree_files(tree):
    """What is installed beside the package: (path, bytes, mode) of each file of a tree."""
    for file in sorted(path for path in tree.rglob("*") if path.is_file()):
        place = file.relative_to(tree)
        if str(place) in LIBFUSE_LICENSES.values():
            continue
        if place.parts[0] == "bin":
            place = Path("scripts", *place.parts[1:])
        else:
            place = Path("data", *place.parts)
        mode = PROGRAM if file.stat().st_mode & 0o100 else PLAIN
        yield f"ddipfs-{version()}.data/{place}", file.read_bytes(), mode


def with_marks(files):
    """These files, and the marks of the directories that are installed in the prefix with them."""
    files = list(files)
    data = PurePosixPath(f"ddipfs-{version()}.data/data")
    places = {PurePosixPath(name) for name, _, _ in files}
    folders = {folder for place in places if data in place.parents for folder in place.parents}
    unmarked = {data, *data.parents, *(data / name for name in OTHERS)}
    unmarked |= {place.parent for place in places}
    name, text = MARK
    return files + [(str(folder / name), text, PLAIN) for folder in sorted(folders - unmarked)]


def info_files(tag, tree=None, fuse=None):
    """What the wheel says of itself: (path, bytes, mode) of each file."""
    info = f"ddipfs-{version()}.dist-info"
    yield f"{info}/licenses/LICENSE", (HOME / "LICENSE").read_bytes(), PLAIN
    for name, file in LIBFUSE_LICENSES.items() if fuse else ():
        yield f"{info}/licenses/{name}", (tree / file).read_bytes(), PLAIN
    yield f"{info}/METADATA", metadata(fuse).encode(), PLAIN
    wheel = (
        f"Wheel-Version: 1.0\nGenerator: ddipfs {version()}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    )
    yield f"{info}/WHEEL", wheel.encode(), PLAIN


def write_wheel(folder, tag, files):
    """Writes the wheel, with a list of its files in it. Returns its path."""
    path = Path(folder, f"ddipfs-{version()}-{tag}.whl")
    record = f"ddipfs-{version()}.dist-info/RECORD"
    rows = []
    part = path.with_suffix(".new")  # what stops on its way leaves no wheel
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:

        def add(name, data, mode):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)

        for name, data, mode in with_marks(files):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, mode)
        add(record, "".join([*rows, f"{record},,\n"]).encode(), PLAIN)
    part.replace(path)
    return path


# ---- the programs


def check_tools():
    """Ends the build with a sentence if something that it needs is missing."""
    if sys.platform != "linux":
        sys.exit(f"ddipfs runs on Linux only, and this is {sys.platform}.")
    missing = [row for row in NEEDED if ask(row[1]) is None]
    if missing:
        what = ", ".join(row[0] for row in missing)
        debian, fedora = (" ".join(row[n] for row in missing) for n in (2, 3))
        old = ask(["pkg-config", "--modversion", "fuse3"])
        here = (
            f"; libfuse is {old} here, and a wheel has its own" if old and "libfuse" in what else ""
        )
        sys.exit(
            f"To compile ddipfs, install {what}: apt-get install {debian}"
            f" (on Fedora: dnf install {fedora}){here}."
        )


def ask(command):
    """What a command prints; None if it fails, or is not there."""
    try:
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


def make(config_settings, *words):
    """Runs make in the root; it builds into build/, or into what `-C build=FOLDER` names."""
    check_tools()
    folder = (config_settings or {}).get("build", "build")
    # if a make runs this, its targets and variables are not those of this one
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", f"-j{os.cpu_count()}", f"BUILD={folder}", *words]
    if subprocess.run(command, cwd=HOME, env=env, check=False).returncode:
        sys.exit(f"ddipfs could not be built: {shlex.join(command)} failed, see above.")
    return HOME / folder


def wrappers(programs):
    """Programs that run those of the build folder, with the Python of the environment that they are
    in: (path, bytes, mode) of each."""
    for name in ("ddip", "ddipfs"):
        text = WRAPPER.format(program=shlex.quote(str(programs / name)))
        yield f"ddipfs-{version()}.data/scripts/{name}", text.encode(), PROGRAM


# ---- what pip calls


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes what is said of the wheel, before it is built."""
    for name, data, _ in info_files(local_tag()):
        file = Path(metadata_directory, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return f"ddipfs-{version()}.dist-info"


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel for this machine, whose libfuse the daemon uses."""
    programs = make(config_settings, f"PYTHON={sys.executable}", "all")
    # a path relative to the root has no blanks, with which make cannot do
    with tempfile.TemporaryDirectory(dir=programs, prefix="wheel.") as tree:
        root = os.path.relpath(tree, HOME)
        make(config_settings, f"DESTDIR={root}", "PREFIX=", "STRIP=1", "install")
        files = [*python_files(), *kernel_files(), *tree_files(Path(tree))]
        files += info_files(local_tag())
    return write_wheel(wheel_directory, local_tag(), files).name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that leads to this tree: to its Python, and to the programs of the build folder."""
    programs = make(config_settings, f"PYTHON={sys.executable}", "all")
    path = ("ddipfs.pth", f"{PACKAGE}\n".encode(), PLAIN)
    files = [path, *kernel_files(), *wrappers(programs), *info_files(local_tag())]
    return write_wheel(wheel_directory, local_tag(), files).name


def build_sdist(sdist_directory, config_settings=None):
    """An archive of the source."""
    name = f"ddipfs-{version()}"
    path = Path(sdist_directory, f"{name}.tar.gz")
    files = {str(file.relative_to(HOME)): file.read_bytes() for file in source_files()}
    files["PKG-INFO"] = metadata().encode()
    with (
        gzip.GzipFile(path, "wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for file, data in files.items():
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mtime = len(data), LONG_AGO
            entry.mode = 0o755 if os.access(HOME / file, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return path.name


def main(tree, fuse, folder):
    """Packs a tree as a wheel for other machines, and says what it needs."""
    tree = Path(tree)
    major, minor = glibc_of(tree.rglob("*"))
    tag = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"
    files = [*python_files(), *kernel_files(), *tree_files(tree), *info_files(tag, tree, fuse)]
    path = write_wheel(folder, tag, files)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB, for glibc {major}.{minor} and newer")


if __name__ == "__main__":
    main(*sys.argv[1:])
