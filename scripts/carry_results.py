#!/usr/bin/env python3
"""Carries measured results over an edit of templates that leaves the compiled kernels as they were: where all kernels
of a result are equal in a base tree and in this one, the digest of their templates in its line becomes today's.

    scripts/carry_results.py BASE [FILE...]

BASE: a git revision, which is built under build/carry, or the program `cubinery` of the other tree.  It must have the
command `result-kernels`: older trees cannot be compared.  FILE: results/measured/*.results.jsonl unless named; these
lines are looked up in both trees.  Needs NVRTC, the version that the results were measured with, but no GPU; cubins
come from the cache of cubinery where it has them.  Exits with 1 where a result stays stale.

Equal are cubins whose instructions, registers, shared memory and constants are; see code_of().  A struct of parameters may
have grown: instructions say where they read it.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import re
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEASURED = ROOT / "results" / "measured"

# Sections that say nothing of what runs: names and symbols, which hold the key's text; who compiled it with which
# options; where debuggers unwind; who calls whom, by the numbers of symbols.
NAMES = re.compile(r"|\.(shstrtab|strtab|symtab|symtab_shndx)|\.note\..*|(\.rela?)?\.debug_.*|\.nv\.(callgraph|prototype)")
# Variables, and the table of their addresses: the compiler keeps every constexpr there, the key itself among them,
# though instructions hold the values.  Those larger than a register may be read from memory: tables() has them.
VARIABLES = re.compile(r"\.nv\.global(\.init)?|(\.rela?)?\.nv\.constant4")
SCALAR_BYTES = 8
KEY = b"kKey"
# Bytes of parameters, and where they begin; the section that they are copied to is as large.
PARAMETERS = {0x0A, 0x17, 0x19}
PARAMETER_SECTION = re.compile(r"\.nv\.constant0\..*")
SYMBOL_FIRST = {0x11, 0x12, 0x23, 0x2F}  # attributes of .nv.info that begin with the number of a symbol


def sections(cubin):
    """(name, type, flags, size, contents, index of the section that it refers to) of each."""
    table, = struct.unpack_from("<Q", cubin, 40)
    stride, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * stride) for i in range(count)]
    text = headers[names][4]
    for name, kind, flags, _, offset, size, link, *_ in headers:
        end = cubin.index(b"\0", text + name)
        contents = b"" if kind == 8 else cubin[offset:offset + size]
        yield cubin[text + name:end].decode(), kind, flags, size, contents, link


def tables(found):
    """The contents of variables that are no scalars, and not the key, in the order of their bytes."""
    symbols = next(section for section in found if section[0] == ".symtab")
    names = found[symbols[5]][4]
    for at in range(0, symbols[3], 24):
        name, info, _, index, value, size = struct.unpack_from("<IBBHQQ", symbols[4], at)
        is_variable = info & 15 == 1 and index < len(found) and found[index][0].startswith(".nv.global")
        if is_variable and size > SCALAR_BYTES and names[name:names.index(b"\0", name)] != KEY:
            yield found[index][4][value:value + size] or bytes(size)


def attributes(contents):
    """Of .nv.info, without the numbers of symbols, which count variables, and without parameters."""
    at = 0
    while at < len(contents):
        form, kind, size = struct.unpack_from("<BBH", contents, at)
        end = at + 4 + (size if form == 4 else 0)
        if kind not in PARAMETERS:
            yield contents[at:at + 4] + contents[at + (8 if kind in SYMBOL_FIRST else 4):end]
        at = end


def code_of(entry):
    """A digest of what matters for speed of the cubin in a cache entry (docs/cache_format.md): every section that is
    not NAMES or VARIABLES, an unknown one too, and tables()."""
    data = pathlib.Path(entry).read_bytes()
    identity, metadata, size = struct.unpack_from("<III", data, 12)
    begin = 24 + identity + metadata
    found = list(sections(data[begin:begin + size]))
    digest = hashlib.sha256()
    for name, kind, flags, size, contents, _ in found:
        if NAMES.fullmatch(name) or VARIABLES.fullmatch(name) or PARAMETER_SECTION.fullmatch(name):
            continue
        if name.startswith(".nv.info"):
            contents = b"".join(attributes(contents))
            size = len(contents)
        digest.update(f"{name} {kind} {flags} {size};".encode() + contents)
    for table in sorted(tables(found)):
        digest.update(b"table;" + table)
    return digest.hexdigest()


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
    return done.stdout


def program_of(revision):
    """The command line of a git revision."""
    commit = run(["git", "rev-parse", "--verify", revision + "^{commit}"], cwd=ROOT).strip()
    folder = ROOT / "build" / "carry" / commit
    if not (folder / "CMakeLists.txt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    off = [f"-DCUBINERY_{part}=OFF" for part in ("TESTS", "BENCHMARKS", "C")]
    subprocess.run(["cmake", "--preset", "default", *off], cwd=folder, check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", "build", "--target", "cubinery_cli"], cwd=folder, check=True, stdout=sys.stderr)
    return folder / "build" / "cli" / "cubinery"


def kernels_of(program, files, options):
    """What `cubinery result-kernels` says, by file and line."""
    known = [json.loads(line) for line in run([program, "result-kernels", *options, *files]).splitlines()]
    return {(one["file"], one["line"]): one for one in known}


CODES = {}


def codes_of(decision):
    for kernel in decision["kernels"]:
        if "error" in kernel:
            raise ValueError(kernel["error"])
        entry = kernel["entry"]
        if entry not in CODES:
            CODES[entry] = code_of(entry)
        yield kernel["canonical"].split(";")[0], CODES[entry]


def why_not(result, base, here):
    """Why a result cannot be carried; None: it can."""
    for tree, known in (("base", base), ("here", here)):
        if "error" in known:
            return f"{tree}: {known['error']}"
        if known["nvrtc"] != result["nvrtc"]:
            return f"{tree}: measured with NVRTC {result['nvrtc']}, compiled with {known['nvrtc']}"
    for member, old, new in zip(MEMBERS, base["decisions"], here["decisions"]):
        if result[member] == new["templates"]:
            continue
        if result[member] != old["templates"]:
            return "was stale in the base already"
        try:
            before, after = list(codes_of(old)), list(codes_of(new))
        except ValueError as error:
            return str(error)
        if before != after:
            changed = [name for name, code in after if (name, code) not in before]
            return f"other code of {', '.join(changed) or 'its kernels'}"
    return None


MEMBERS = ("templates", "agreed_templates")


def carry(file, base, here, counts):
    lines = pathlib.Path(file).read_text().split("\n")
    for number, line in enumerate(lines, 1):
        new = here.get((file, number))
        if new is None:
            continue
        result = json.loads(line)
        digests = [decision["templates"] for decision in new.get("decisions", [])]
        if digests and all(result[member] == digest for member, digest in zip(MEMBERS, digests)):
            counts["current"] += 1
            continue
        reason = why_not(result, base[file, number], new)
        if reason:
            counts["not carried"] += 1
            print(f"{file}:{number}: {result['op']} {result['bucket']}: {reason}")
            continue
        for member, digest in zip(MEMBERS, digests):
            line = line.replace(f'"{member}":"{result[member]}"', f'"{member}":"{digest}"')
        lines[number - 1] = line
        counts["carried"] += 1
    pathlib.Path(file).write_text("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("files", nargs="*", default=sorted(map(str, MEASURED.glob("*.results.jsonl"))))
    parser.add_argument("--here", type=pathlib.Path, help="this tree's cubinery [built in build]")
    parser.add_argument("--jobs", "-j", help="kernels that are compiled at a time")
    arguments = parser.parse_args()
    here = arguments.here
    if here is None:
        subprocess.run(["cmake", "--build", "build", "--target", "cubinery_cli"], cwd=ROOT, check=True, stdout=sys.stderr)
        here = ROOT / "build" / "cli" / "cubinery"
    base = arguments.base if pathlib.Path(arguments.base).is_file() else program_of(arguments.base)
    options = ["--jobs", arguments.jobs] if arguments.jobs else []
    before, after = (kernels_of(program, arguments.files, options) for program in (base, here))
    counts = collections.Counter({"carried": 0, "current": 0, "not carried": 0})
    for file in arguments.files:
        carry(file, before, after, counts)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["not carried"] else 0


if __name__ == "__main__":
    sys.exit(main())
