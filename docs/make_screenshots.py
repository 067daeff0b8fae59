"""Take the pictures of the page, docs/page-*.png, in Chromium.

hplus serve --demo --port 8123 & python docs/make_screenshots.py http://127.0.0.1:8123
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
QUERY = "ECG changes in hypokalaemia"


def take(page: Any, name: str) -> None:
    """A picture of few colours: the page has no photographs."""
    page.wait_for_selector("#hits[aria-busy=false]")
    path = FOLDER / f"page-{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(224, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


def main(address: str) -> None:
    with sync_playwright() as engine:
        chromium = shutil.which("chromium")
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 760})
        page.goto(address)
        page.wait_for_selector(".first")
        take(page, "first")
        page.fill("#query", QUERY)
        page.wait_for_selector(".hit")
        page.locator(".toggle").first.click()
        take(page, "hits")
        page.check("#compare")
        page.wait_for_selector(".three")
        take(page, "views")
        page.uncheck("#compare")
        page.fill("#where", "year == 2020")
        page.wait_for_selector("#where-error pre")
        take(page, "filter")
        phone = browser.new_page(viewport={"width": 360, "height": 760}, color_scheme="dark")
        phone.goto(f"{address}/#q=first-line+drug+for+diabetes")
        phone.wait_for_selector(".hit")
        phone.locator(".toggle").first.click()
        take(phone, "phone")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
