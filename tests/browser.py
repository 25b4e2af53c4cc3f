"""The Chromium that shows pages to tests."""

import os
import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """Its path, that of CUBINERY_CHROMIUM before all; None: there is none."""
    return os.environ.get("CUBINERY_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
