"""The page in a real browser; skipped where there is no Chromium."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from hplus import HPlus, Index
from service import DOCUMENTS, on_loopback
from tiny import WORDS

playwright = pytest.importorskip("playwright.sync_api", reason="the page needs playwright")
CHROMIUM = os.environ.get("HPLUS_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt install chromium")
# What a hostile document does: markup, handlers, control characters, a turn of direction.
HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    "<style>body{display:none}</style>&lt;b&gt; javascript:alert(1) \u202egnp.exe\u202c "
    "\x00\x1b[31m "
)
HOSTILE_ID = "<svg onload='window.hacked=3'>"
TITLED = {"id": "t", "title": "Cell and gene", "text": "A protein of the cell binds the gene."}


@pytest.fixture(scope="module")
def address(served_model: HPlus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page") / "med.hplus"
    with Index.create(folder, served_model) as made:
        made.add([dict(row) for row in [*DOCUMENTS, TITLED]])
        text = HOSTILE + "gene therapy" + " " * 1_000_000 + "the end of a long document"
        made.add([{"id": HOSTILE_ID, "text": text, "metadata": {"title": HOSTILE}}])
    many = folder.with_name("many.hplus")  # enough documents to know an average one
    with Index.create(many, served_model) as made:
        words = WORDS.split()
        made.add([{"id": f"{i}", "text": " ".join(words[i : i + 6])} for i in range(20)])
    with on_loopback(folder, many, model=served_model, read_only=True) as (found, _):
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        made = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that fails its test if a script fails, if its policy is broken, or if it asks anyone
    but the service for anything."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", lambda said: "Content Security" in said.text and wrong.append(said.text))
    made.on(
        "request", lambda sent: sent.url.startswith((address, "data:,")) or wrong.append(sent.url)
    )
    made.goto(f"{address}/")
    made.wait_for_selector(".first")
    yield made
    context.close()
    assert wrong == []


def ask(page: Any, query: str) -> None:
    page.fill("#query", query)
    settled(page)
    page.wait_for_selector(".hit")


def settled(page: Any) -> None:
    """The answer to what was typed last is there."""
    page.wait_for_selector("#hits[aria-busy=false]")


def ids(page: Any) -> list[str]:
    return list(
        page.eval_on_selector_all(".hit h2 bdi:last-child", "all => all.map(e => e.textContent)")
    )


def test_type_and_see_hits_in_the_colours_of_the_query(page: Any) -> None:
    page.locator("#query").press_sequentially("chronic heart failure", delay=5)
    page.wait_for_selector(".hit")
    settled(page)
    colours = page.evaluate(
        """() => {
          const number = (e) => e.querySelector(".number").textContent;
          const of = (all, colour) => [...document.querySelectorAll(all)].map(
            (e) => [number(e), getComputedStyle(e)[colour]]);
          return { units: of("#units .unit:not(.light)", "backgroundColor"),
                   marks: of(".hit mark", "borderBottomColor") };
        }"""
    )
    units = dict(colours["units"])
    assert len(units) >= 1
    assert len(set(units.values())) == len(units)
    assert len(colours["marks"]) >= 3
    assert all(units[number] == colour for number, colour in colours["marks"])


def test_a_title_is_shown_once_with_its_marks(page: Any) -> None:
    ask(page, "cell and gene")
    (hit,) = page.locator(".hit", has=page.locator(".id", has_text="t")).all()[:1]
    assert re.sub(r"\d", "", hit.locator("h2").inner_text()) == "Cell and gene t"
    assert hit.locator("h2 mark").count() >= 1
    assert re.sub(r"\d", "", hit.locator(".excerpt").inner_text()) == TITLED["text"]


def test_bars_add_up_to_the_score(page: Any) -> None:
    ask(page, "insulin therapy")
    first = page.locator(".hit").first
    first.locator(".toggle").click()
    assert first.locator(".toggle").get_attribute("aria-expanded") == "true"
    views = [float(text.split()[1]) for text in first.locator(".legend > span").all_inner_texts()]
    score = float(first.locator(".score").inner_text())
    assert round(1000 * sum(views)) == round(1000 * score)
    assert first.locator(".why tbody tr").count() >= 1


def test_bars_begin_at_an_average_document(page: Any) -> None:
    page.select_option("#index", "many")
    ask(page, "chronic heart failure")
    found = page.evaluate(
        """() => [...document.querySelectorAll(".hit")].map((hit) => {
          const all = (selector, value) => [...hit.querySelectorAll(selector)].map(value);
          return {
            score: hit.querySelector(".score").textContent,
            parts: all(".legend > span", (e) => e.textContent),
            bar: all(".shares span", (e) => parseFloat(e.style.width)),
            marks: all("mark", (e) => parseInt(e.style.getPropertyValue("--strength"))),
          };
        })"""
    )
    key = page.inner_text(".key")
    bars = []
    for hit in found:
        parts = {text.split()[0]: float(text.split()[1].replace("−", "-")) for text in hit["parts"]}
        assert sum(parts.values()) == pytest.approx(float(hit["score"]))
        assert f"{parts.pop('average'):.3f}" in key
        assert len(parts) == 3
        assert [width > 0 for width in hit["bar"]] == [more > 0 for more in parts.values()]
        bars.append(sum(hit["bar"]))
        assert all(0 <= strength <= 100 for strength in hit["marks"])
    assert max(bars) < 100  # a copy of the query is the end
    assert bars[0] > bars[-1]
    page.locator(".toggle").first.click()
    heads = page.locator(".hit").first.locator("th").all_inner_texts()
    assert heads == ["query", "document", "similar", "average", "", "gives"]


def test_sliders_change_the_ranking(page: Any, served_model: HPlus, address: str) -> None:
    ask(page, "heart disease dose")
    before = ids(page)
    for view in ("global", "phrase"):
        page.focus(f"#{view}")
        page.keyboard.press("Home")
    settled(page)
    after = ids(page)
    found = page.request.post(
        f"{address}/indexes/med/search",
        data={"query": "heart disease dose", "alphas": {"lexical": 0.2}},
    ).json()
    assert after == [hit["id"] for hit in found["hits"]]
    assert after != before
    assert page.inner_text("#global-out") == "0.00"
    page.click("#reset")
    settled(page)
    assert ids(page) == before
    page.focus("#width")
    bytes_before = page.inner_text("#bytes")
    assert "ms to search" in bytes_before
    assert served_model.dim == 32  # one width only, so its slider rests
    assert page.is_disabled("#width")


@pytest.mark.parametrize("format", ["int8", "int4"])
def test_a_width_is_chosen_where_vectors_have_prefixes(
    page: Any, address: str, format: str
) -> None:
    """The tiny model has one width, so a second one and the format are put into the answers."""

    def two_widths(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        found["smaller"] += [{**one, "width": 16} for one in found["smaller"]]
        route.fulfill(response=answer, json=found)

    def in_format(route: Any) -> None:
        answer = route.fetch()
        found = [{**one, "format": format} for one in answer.json()["indexes"]]
        route.fulfill(response=answer, json={"indexes": found})

    page.route("**/indexes/*/stats", two_widths)
    page.route("**/indexes", in_format)
    page.goto(f"{address}/")
    page.wait_for_selector(".first")
    ask(page, "heart disease dose")
    assert page.is_enabled("#width") == (format == "int8")
    assert page.inner_text("#width-out") == "all (32)"


def test_a_hostile_document_is_text(page: Any) -> None:
    ask(page, "gene therapy")
    hit = page.locator(".hit", has_text="<script>window.hacked").first
    assert hit.count() == 1
    assert HOSTILE_ID in hit.inner_text()
    assert "\u202e" not in hit.inner_text()
    assert page.evaluate("window.hacked") is None
    assert page.locator("#hits script, #hits img, #hits style, #hits svg").count() == 0
    hit.locator(".toggle").click()
    hit.locator(".open").click()
    page.wait_for_selector("#document[open]")
    whole = page.text_content("#document-text")
    assert whole.startswith("<script>window.hacked = 1</script>")
    assert whole.endswith("the end of a long document")
    assert len(whole) > 1_000_000
    page.keyboard.press("Escape")
    hit.locator(".more").click()
    page.wait_for_selector("#like:not([hidden])")
    assert HOSTILE_ID in page.inner_text("#like")
    assert page.evaluate("window.hacked") is None


def test_a_filter_and_its_caret(page: Any) -> None:
    ask(page, "heart failure")
    page.fill("#where", "year >= 2000 and tag == 'x'")
    page.wait_for_selector("#where-error pre")
    lines = page.inner_text("#where-error pre").split("\n")
    assert lines[0][lines[1].index("^") :].startswith("==")
    assert page.get_attribute("#where", "aria-invalid") == "true"
    assert "not applied" in page.inner_text("#status")
    assert page.get_attribute("#hits", "class") == "old"  # the hits of the request before
    (year,) = [row["year"] for row in DOCUMENTS if row["id"] == ids(page)[0]]
    assert page.get_attribute("#where", "placeholder") == f"year >= {year}"  # the best hit's
    page.fill("#where", "year > 2020")
    page.wait_for_selector("#where-error pre", state="detached")
    settled(page)
    assert set(ids(page)) == {"a", "d/e f"}
    assert page.get_attribute("#hits", "class") == ""
    page.fill("#where", "year > 3000")
    page.wait_for_selector(".state.empty")
    page.click(".state.empty button")
    page.wait_for_selector(".hit")


def test_only_the_keyboard(page: Any) -> None:
    page.locator("#theme").focus()
    page.keyboard.press("/")
    page.keyboard.type("heart failure")
    page.wait_for_selector(".hit")
    settled(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    focused = "document.activeElement.querySelector('.rank')?.textContent"
    assert page.evaluate(focused) == "2"
    page.keyboard.press("Enter")
    assert page.locator(".hit").nth(1).locator(".why").is_visible()
    wanted = ids(page)[1]
    page.keyboard.press("m")
    page.wait_for_selector("#like:not([hidden])")
    settled(page)
    assert wanted not in ids(page)
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "query"


def test_a_link_shows_the_same(page: Any, address: str) -> None:
    ask(page, "heart failure")
    page.check("#compare")
    page.wait_for_selector(".three")
    settled(page)
    assert page.locator(".three section").count() == 3
    page.uncheck("#compare")
    page.fill("#where", "year < 2020")
    settled(page)
    link, found = page.url, ids(page)
    assert link.startswith(f"{address}/#")  # behind #, so that no log has the query
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector(".hit")
    assert ids(page) == found
    assert page.input_value("#where") == "year < 2020"


def test_terms_change_units(page: Any) -> None:
    page.click("#terms-box summary")
    page.fill("#terms", "the heart")
    page.fill("#terms-text", "of the heart failure")
    page.wait_for_selector("#terms-out .new")
    new = page.eval_on_selector_all("#terms-out .new bdi", "all => all.map(e => e.textContent)")
    assert new == ["the heart", "failure"]


def test_slow_and_failed(page: Any) -> None:
    page.route("**/search", lambda _: None)  # no answer at all
    page.fill("#query", "heart")
    page.wait_for_selector("#progress:not([hidden])")
    assert "Still searching" in page.inner_text("#status")
    page.unroute("**/search")
    page.route("**/search", lambda route: route.abort())
    page.fill("#query", "heart failure")
    page.wait_for_selector(".state.failed")
    page.unroute("**/search")
    page.click(".state.failed button")
    page.wait_for_selector(".hit")


def test_a_phone(browser: Any, address: str) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, color_scheme="dark"
    )
    page = context.new_page()
    page.goto(f"{address}/#q=gene+therapy")
    page.wait_for_selector(".hit")
    for toggle in page.locator(".toggle").all():
        toggle.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.click("#controls summary")
    assert page.is_visible("#compare")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.goto("about:blank")
    page.goto(f"{address}/#q=gene+therapy&where=year+==+1")
    page.wait_for_selector("#where-error pre")  # though settings are closed on a phone
    assert page.is_visible("#where")
    context.close()
