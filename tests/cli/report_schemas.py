#!/usr/bin/env python3
"""Validates what cubinery report writes for other tools against tests/data/schemas.

    report_schemas.py CUBINERY TEST_DIR

Also checks what a schema cannot say: names of entries, values that were tuned, how the file ends.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: the Python module jsonschema is missing (package python3-jsonschema)")
    sys.exit(77)


def write_all(cubinery, data, kind, folder):
    """One file for each setting of the recorded results."""
    subprocess.run([cubinery, "report", "--dir", data, "--format", kind, "-o", folder + "/"], check=True)
    files = sorted(pathlib.Path(folder).iterdir())
    assert files, f"no file of {kind} was written"
    return [file.read_text() for file in files]


def check_kernel_tuner(text):
    """Names of entries are the values joined; every value is among those that were tuned."""
    document = json.loads(text)
    # Where it adds entries, Kernel Tuner cuts these three characters off.
    assert text.strip().endswith("}\n}"), text[-20:]
    names = document["tune_params_keys"]
    assert names == list(document["tune_params"])
    for name, entry in document["cache"].items():
        values = [entry[field] for field in names]
        assert name == ",".join(str(value) for value in values), name
        for field, value in zip(names, values):
            assert value in document["tune_params"][field], (field, value)


def main():
    cubinery, tests = sys.argv[1], pathlib.Path(sys.argv[2])
    for kind, name in (("t4", "t4"), ("kernel-tuner", "kernel_tuner_cache")):
        schema = json.loads((tests / f"data/schemas/{name}.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        with tempfile.TemporaryDirectory() as folder:
            texts = write_all(cubinery, str(tests / "data/tuning"), kind, folder)
        for text in texts:
            validator.validate(json.loads(text))
            if kind == "kernel-tuner":
                check_kernel_tuner(text)
            # The schema must be able to fail.
            broken = json.loads(text)
            del broken["results" if kind == "t4" else "cache"]
            assert not validator.is_valid(broken)
        print(f"{kind}: {len(texts)} files")


main()
