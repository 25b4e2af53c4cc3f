"""``python -m cubinery`` is the command ``cubinery`` that the package brings."""

import os
import sys
from importlib import metadata


def main() -> None:
    installed = metadata.files("cubinery") or []
    command = next((str(one.locate()) for one in installed if one.name == "cubinery"), None)
    if command is None:
        sys.exit("cubinery: no command line: CLI11 or Chart.js was missing where this was built")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
