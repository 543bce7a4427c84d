"""The pages of the documentation on a telephone, in the Chromium of the console's tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from selenium import webdriver

from tests.console.test_browser import emulate

ROOT = Path(__file__).parents[2]
PAGES = ("celery", "command", "spark", "sql")
"""Pages with wide tables and long lines of code."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of these pages alone, without search and reference: all of it takes ten seconds."""
    docs, built = tmp_path_factory.mktemp("docs"), tmp_path_factory.mktemp("site")
    for name in PAGES:
        shutil.copy(ROOT / "docs" / f"{name}.md", docs)
    links = dict.fromkeys(("anchors", "not_found", "omitted_files", "unrecognized_links"), "ignore")
    build(
        load_config(
            str(ROOT / "mkdocs.yml"),
            docs_dir=str(docs),
            site_dir=str(built),
            nav=None,
            not_in_nav=None,
            plugins=[],
            strict=False,
            use_directory_urls=False,
            validation={"nav": {}, "links": links} | links,
        )
    )
    return built


@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_a_telephone(browser: webdriver.Chrome, site: Path, name: str) -> None:
    emulate(browser, width=390)
    browser.get((site / f"{name}.html").as_uri())
    assert browser.execute_script("return document.querySelectorAll('article table, article pre').length") > 0
    assert browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]") == [390, 390]
