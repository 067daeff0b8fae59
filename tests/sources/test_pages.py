"""Web pages and PDFs: their text and title, and files that are not what they seem."""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hplus.errors import InputError, MissingExtraError
from hplus.sources import page_reader, pages
from hplus.sources.document import Document
from hplus.sources.read import count, read

PAGE = """<!doctype html><html><head><title>Type 2 &amp; more</title>
<style>p {color: red}</style><script>var x = "never";</script></head>
<body><nav>Home</nav><h1>Metformin</h1><p>It treats type <b>2</b> diab<i>etes</i>,
as a first   drug.</p><ul><li>one<li>two</ul><p>Three<br>four</p>
<table><tr><td>5 mg</td><td>daily</td></tr></table><noscript>never</noscript>
<pre>a\n  b</pre><!-- never --><template>never</template></body></html>"""
TEXT = """Type 2 & more

Home

Metformin

It treats type 2 diabetes, as a first drug.

one

two

Three
four

5 mg daily

a
b"""


def pdf(*contents: str, title: str = "", packed: bool = False, root: str = "") -> bytes:
    """A PDF with a page for each of the texts."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(contents)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {root} >>".encode(),
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, content in enumerate(contents):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /Contents {5 + 2 * i} 0 R /MediaBox [0 0 600 800] "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        lines = "".join(f"({line}) Tj T* " for line in content.split("\n"))
        stream = f"BT /F1 12 Tf 14 TL 50 700 Td {lines} ET".encode()
        objects.append(flate(zlib.compress(stream)) if packed else plain(stream))
    objects.append(f"<< /Title ({title}) >>".encode())
    out, places = b"%PDF-1.4\n", []
    for number, content_ in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + content_ + b"\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n{trailer}\n"
    return out + f"{end}startxref\n{len(out)}\n%%EOF".encode()


def plain(stream: bytes) -> bytes:
    return b"<< /Length %d >>\nstream\n" % len(stream) + stream + b"\nendstream"


def flate(stream: bytes) -> bytes:
    head = b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(stream)
    return head + stream + b"\nendstream"


def problem(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read(path))
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.html", "a.htm", "A.XHTML", "a.html.gz"])
def test_a_page(tmp_path: Path, name: str) -> None:
    content = PAGE.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (document,) = read(tmp_path / name)
    assert document == Document(name, TEXT, {"path": name, "title": "Type 2 & more"})
    assert count(tmp_path / name) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_pdf(tmp_path: Path, packed: bool) -> None:
    content = pdf("Metformin treats\ntype 2 diabetes.", "Page two.", title="Drugs", packed=packed)
    (tmp_path / "a.pdf").write_bytes(content)
    (document,) = read(tmp_path / "a.pdf")
    text = "Metformin treats\ntype 2 diabetes.\n\nPage two."
    assert document == Document("a.pdf", text, {"path": "a.pdf", "title": "Drugs"})


@pytest.mark.parametrize(
    ("page", "text", "title"),
    [
        ("<title>T</title><p>T is here", "T is here", "T"),
        ("<p>no title", "no title", ""),
        ("plain text", "plain text", ""),
        ("", "", ""),
        ("<title>only</title>", "only", "only"),
        ("a<script>x", "a", ""),
        ("<div>a<div>b</div>c</div>d", "a\nb\nc\nd", ""),
        ("a&nbsp;&lt;b&gt;&#0;", "a <b>\ufffd", ""),
    ],
)
def test_texts_and_titles(page: str, text: str, title: str) -> None:
    assert page_reader.read_html(page.encode()) == (text, title)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("é".encode(), "é"),
        ("\ufeffé".encode(), "é"),
        ("\ufeffé".encode("utf-16-le"), "é"),
        (b"<meta charset='iso-8859-1'>\xe9", "é"),
        (b'<meta http-equiv=x content="text/html; charset=windows-1252">\x80', "€"),
        (b"<meta charset=nonsense>\xc3\xa9", "é"),
        (b"<meta charset=utf-8>\x93x\x94", "“x”"),
        (b"<meta charset=hex>6869", "6869"),
        (b"<meta charset='gb2312'>\xcc\xc7", "糖"),
    ],
)
def test_the_characters_of_a_page(content: bytes, text: str) -> None:
    assert page_reader.read_html(content)[0] == text


def test_a_tree_has_both_and_counts_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>page")
    (tmp_path / "b.pdf").write_bytes(pdf("paper"))
    (tmp_path / "c.txt").write_text("text")
    for name in ("x.docx", "y.DOCX", "z.png", "Makefile", "deep/w.csv", ".hidden.xyz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"?")
    others: list[str] = []
    found = list(read(tmp_path, passed_over=others.append))
    assert [(document.id, document.text) for document in found] == [
        ("a.html", "page"),
        ("b.pdf", "paper"),
        ("c.txt", "text"),
    ]
    assert sorted(others) == ["", ".csv", ".docx", ".docx", ".png"]
    assert count(tmp_path) == 3


def test_without_the_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None if name == "pypdf" else object())
    (tmp_path / "a.html").write_text("<p>page")
    (tmp_path / "b.txt").write_text("text")
    with pytest.raises(MissingExtraError, match=r"pip install 'hplus\[documents\]'"):
        list(read(tmp_path / "a.html"))
    others: list[str] = []
    assert [document.id for document in read(tmp_path, passed_over=others.append)] == ["b.txt"]
    assert others == [".html"]
    (tmp_path / "b.txt").unlink()
    assert problem(tmp_path).endswith("run: pip install 'hplus[documents]'")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pdf", b"", "cannot read it as PDF: "),
        ("a.pdf", b"not a PDF at all", "cannot read it as PDF: "),
        ("a.pdf", pdf("x")[:300], "cannot read it as PDF: "),
        ("a.pdf", pdf(""), "cannot read it as PDF: it has no text; are its pages images?"),
        ("a.pdf", pdf("x").replace(b"5 0 obj\n<<", b"5 0 obj\n" + b"[" * 100_000), "as PDF"),
        ("a.pdf", pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]"), "cannot read it as PDF: "),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    found = problem(tmp_path / name)
    assert found.startswith(f"{tmp_path / name}: ")
    assert said in found
    assert "\n" not in found
    assert "Traceback" not in found


def test_a_file_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements within elements take the parser quadratic time."""
    monkeypatch.setattr(pages, "SECONDS", 0.5)
    (tmp_path / "a.html").write_text("<div>" * 300_000)
    assert problem(tmp_path / "a.html").endswith("reading it as HTML took longer than 0.5 seconds")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit memory so")
def test_a_file_that_needs_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MEMORY", 200 * 2**20)
    (tmp_path / "a.html").write_bytes(b"<p>x" * 2_000_000)
    assert re.search("memory|Can't parse", problem(tmp_path / "a.html"))
    bomb = flate(zlib.compress(b" " * 150_000_000, 1))
    content = pdf("x").replace(plain(b"BT /F1 12 Tf 14 TL 50 700 Td (x) Tj T*  ET"), bomb)
    assert bomb in content
    (tmp_path / "a.pdf").write_bytes(content)
    assert re.search("memory|[Ll]imit", problem(tmp_path / "a.pdf"))


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 1000)
    (tmp_path / "a.html").write_bytes(b"x" * 1001)
    assert problem(tmp_path / "a.html").endswith("the file has more than 1000 bytes")
    (tmp_path / "a.html").write_bytes(gzip.compress(b"x" * 1001))
    assert problem(tmp_path / "a.html").endswith("the file has more than 1000 bytes")


def test_a_reader_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    (tmp_path / "a.html").write_text("x")
    assert "its reader ended with code 1" in problem(tmp_path / "a.html")


def test_bad_pages_of_a_tree_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"junk")
    (tmp_path / "b.html").write_text("<p>page")
    told: list[str] = []
    found = read(tmp_path, on_error="skip", report=told.append)
    assert [document.id for document in found] == ["b.html"]
    assert len(told) == 1
    assert told[0].startswith(f"{tmp_path / 'a.pdf'}: cannot read it as PDF: ")


words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["p", "div", "b", "li", "td", "script"]), words)))
def test_the_words_of_a_page_are_all_there(parts: list[tuple[str, str]]) -> None:
    """By escaping each word and putting it into an element of its own."""
    escaped = [
        (tag, word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
        for tag, word in parts
    ]
    page = "<body>" + "".join(f"<{tag}>{word}</{tag}>" for tag, word in escaped)
    text, _ = page_reader.read_html(page.encode())
    kept = "".join(word for tag, word in parts if tag != "script")
    assert "".join(text.split()) == "".join(kept.split())


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=300) | st.text("<>/=-!'\" abdiv&;", max_size=300).map(str.encode))
def test_any_bytes_are_a_page(content: bytes) -> None:
    text, title = page_reader.read_html(content)
    Document("a", page_reader.cleaned(text), {"title": page_reader.cleaned(title)})


def test_the_memory_of_a_deep_page_is_not_the_stack() -> None:
    text, _ = page_reader.read_html(b"<b>" * 20_000 + b"deep")
    assert text == "deep"
