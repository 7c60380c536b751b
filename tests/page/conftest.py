"""A browser for the tests of the page."""

import shutil

import pytest


# Of a module: while it runs, no test of another one can run an event loop.
@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or pytest.skip("chromium is missing")
    with sync_api.sync_playwright() as playwright:
        arguments = {"executable_path": program, "args": ["--no-sandbox"]}
        with playwright.chromium.launch(**arguments) as browser:
            yield browser
