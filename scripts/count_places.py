#!/usr/bin/env python3
"""Counts the files that a change of each kind touches, by what an earlier change of that kind touched: the hand-kept
files whose code (not comments) names an existing field, option, operator or path.

    scripts/count_places.py            # a table
    scripts/count_places.py --files    # and the files
    scripts/count_places.py --check    # fails where a count has grown

Not counted: tests, documents, examples (also those of the command line's help: raw strings that begin with
"Examples:"), benchmarks, records of measurements, what scripts/print_fields.py prints, and the adapters to other
libraries, the engines' plugins and the table of what engines launch, which choose among options but need not know a new
one.

Where a count is above its aim, this is why.  A tuned field: the kernel's own text, which uses stages in three files
beside its key and table.  An option of every operator: eleven templates, each with its own arithmetic for it.  A tensor
of every operator: the public arguments of five operators, and three templates.  An operator: headers that a user reads
(gdn.h, gdn_models.h, c_api.h, gdn.py), its part in a model's forms, and the harness that tests it.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = re.compile(r"^(tests|docs|examples|benchmarks|results/measured|python/tests|python/cubinery/(compat|plugins))/"
                     r"|^python/cubinery/(problems|_launch|_functions)\.py$|^include/cubinery/c_args\.h$"
                     r"|^runtime/gdn/shared/engine_(forms|problems)\.|^cli/model_config\.|\.md$|^scripts/")
COMMENTS = {".py": r"#[^\n]*|\"\"\".*?\"\"\"", "": r"//[^\n]*|/\*.*?\*/|R\"\(Examples:.*?\)\""}


def code_of(path):
    text = (ROOT / path).read_text(errors="replace")
    pattern = COMMENTS.get(pathlib.Path(path).suffix, COMMENTS[""])
    return re.sub(pattern, " ", text, flags=re.S)


def hand_kept():
    paths = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    return {path: code_of(path) for path in paths
            if not SKIPPED.search(path) and pathlib.Path(path).suffix in (".h", ".cc", ".cu", ".cuh", ".py", ".txt", ".sh")}


def naming(files, *words):
    patterns = [re.compile(rf"(?<![A-Za-z0-9_]){word}(?![A-Za-z0-9_])") for word in words]
    return sorted(path for path, code in files.items() if all(p.search(code) for p in patterns))


def shared(paths):
    """Those that are no operator's own, which a new one would have of its own too: harness/decode.h, gdn_prefill_scan/."""
    own = re.compile(r"(^|/)(gdn_)?(decode|prefill|verify|commit|conv)(_\w+)?[./]")
    return [path for path in paths if not own.search(path)]


def toy_path():
    """Files of the toy operator that name its second path, without those that are the path's own."""
    own = re.compile(r"scale_wide\.cc$|/scale_rows_wide/|_test\.cc$")
    paths = subprocess.check_output(["git", "ls-files", "tests/toy", "tests/CMakeLists.txt"], cwd=ROOT, text=True).split()
    return sorted(p for p in paths if "scale_wide" in code_of(p) and not own.search(p))


def main():
    if not shutil.which("git") or subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True).returncode != 0:
        print("count_places.py: no git checkout")
        return 77
    files = hand_kept()
    either = [r"\w*[dD]ecode\w*", r"\w*[pP]refill\w*"]
    rows = [  # what, files, what we aim at, and the most that --check lets pass: today's
        ("a tuned field of one kernel (stages of gdn_prefill_scan)", naming(files, "stages"), 3, 6),
        ("an option without a tensor, of one operator (token_layout)", naming(files, "token_layout"), 5, 4),
        ("likewise, of every operator (use_qk_l2norm)", naming(files, "use_qk_l2norm"), 8, 19),
        ("an option with a tensor, of one operator (norm_weight)", naming(files, "norm_weight"), 6, 5),
        ("likewise, of every operator (A_log)", naming(files, "A_log"), 10, 12),
        ("a new operator: shared files that name both", shared(naming(files, *either)), 8, 10),
        ("a second path (the toy operator's), without its own files", toy_path(), 3, 3),
    ]
    too_many = False
    print(f"{'change':60}  files  aim  most")
    for change, found, aim, most in rows:
        print(f"{change:60}  {len(found):5}  {aim:3}  {most:4}")
        too_many |= len(found) > most
        if "--files" in sys.argv[1:] or len(found) > most:
            print("".join(f"    {path}\n" for path in found), end="")
    return 1 if too_many and "--check" in sys.argv[1:] else 0


sys.exit(main())
