"""One very long text: how much time and memory does its encoding take?

    python benchmarks/long_text.py 250 500
    python benchmarks/long_text.py 1250 2500 5000 --model MODEL

Sizes are kilobytes of made-up English (sentences of random words, paragraphs of ten of them), each
encoded in a process of its own. The bars: 5 MB under 1 GB at the peak, and time in proportion.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time

import numpy as np

from hplus import HPlus

WORDS = (
    "the of in and with for patient chronic acute kidney disease heart failure type 2 diabetes "
    "insulin sodium therapy dose protein gene cancer treatment renal response cell trial placebo "
    "risk cohort receptor mutation infection antibody clinical outcome baseline randomised"
)


def text_of(size: int, seed: int = 13) -> str:
    """About `size` characters of sentences in paragraphs."""
    random = np.random.default_rng(seed)
    words = np.array(WORDS.split())
    sentences: list[str] = []
    length = 0
    while length < size:
        sentence = " ".join(random.choice(words, random.integers(6, 25))).capitalize() + "."
        sentences.append(sentence + ("\n\n" if len(sentences) % 10 == 9 else " "))
        length += len(sentences[-1])
    return "".join(sentences)[:size]


def measure(source: str, kilobytes: int) -> None:
    """Encode one text and print a line."""
    model = HPlus(source)
    text = text_of(kilobytes * 1000)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    before = usage.ru_utime + usage.ru_stime
    started = time.perf_counter()
    encoded = model.encode_document([text])
    seconds = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)  # Linux: kilobytes of 1,024 bytes
    cpu = usage.ru_utime + usage.ru_stime - before
    tokens, windows = int(encoded.coverage.tokens[0]), int(encoded.coverage.windows[0])
    print(
        f"| {kilobytes:,} | {tokens:,} | {windows:,} | {len(encoded.units.weights)} "
        f"| {seconds:.1f} | {cpu:.1f} | {1000 * cpu / kilobytes:.1f} "
        f"| {usage.ru_maxrss * 1024 / 1e6:,.0f} |",
        flush=True,
    )


def main() -> None:
    """A table of all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", type=int, nargs="+", metavar="KILOBYTES")
    parser.add_argument("--model", default="mini")
    options = parser.parse_args()
    print("| kB | tokens | windows | vectors | s | CPU s | CPU s per MB | peak MB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for size in options.sizes:
        process = multiprocessing.get_context("spawn").Process(
            target=measure, args=(options.model, size)
        )
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
