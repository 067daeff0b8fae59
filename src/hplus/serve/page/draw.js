// Elements from answers. Texts of documents come in by textContent alone, so they stay text.

const COLOURS = 8;
// Characters that command a terminal or turn the direction of a text are shown, not obeyed.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  const { text, ...rest } = properties;
  if (text !== undefined) element.textContent = shown(text);
  for (const [name, value] of Object.entries(rest)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "dir") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const shown = (text) => String(text).replace(UNSEEN, "\ufffd");
export const thousandths = (value) => (value / 1000).toFixed(3);

// One colour and one number for each unit of the query that some hit names, the heaviest first.
export class Palette {
  constructor(units, answers) {
    this.known = new Map();
    const lines = answers.flatMap((answer) => answer.hits.flatMap((one) => one.shown.lines || []));
    const named = new Set(lines.map((line) => JSON.stringify(line.spans)));
    for (const unit of units) if (named.has(JSON.stringify(unit.spans))) this.of(unit.spans);
  }

  has(spans) {
    return this.known.has(JSON.stringify(spans));
  }

  of(spans) {
    const key = JSON.stringify(spans);
    if (!this.known.has(key)) this.known.set(key, this.known.size);
    return this.known.get(key);
  }

  name(spans) {
    return `c${this.of(spans) % COLOURS}`;
  }
}

// Where bars begin and end: at an average document of the index, since any two texts are similar to
// some degree, and at a copy of the query. Of an index with few documents no average is known.
export class Ground {
  constructor(average, weights) {
    this.known = average !== undefined;
    this.fused = average?.fused ?? 0;
    this.shares = average?.shares ?? {};
    this.whole = 1000 * weights.reduce((sum, weight) => sum + weight, 0);
    this.units = new Map((average?.units ?? []).map((unit) => [JSON.stringify(unit.spans), unit]));
  }

  similarity(line) {
    return this.units.get(JSON.stringify(line.spans))?.similarity ?? 0;
  }

  // How far a match is on the way from the average to a copy, from 0 to 1.
  height(line) {
    const usual = this.similarity(line);
    return Math.min(1, Math.max(0, (line.similarity - usual) / Math.max(1 - usual, 1e-9)));
  }
}

const number = (palette, spans) =>
  make("span", { className: "number", text: palette.of(spans) + 1, "aria-hidden": "true" });

// The units of a text as chips in reading order, each with a bar for its weight.
export function chips(units, { palette = null, known = null } = {}) {
  const most = Math.max(...units.map((unit) => unit.weight), 1e-9);
  const ordered = [...units].sort((a, b) => start(a) - start(b));
  return ordered.map((unit) => {
    const share = unit.weight / most;
    const named = palette !== null && unit.kept && palette.has(unit.spans);
    const bar = make("span", { className: "weight" });
    bar.style.width = `${Math.round(100 * share)}%`;
    const label = make("bdi", { text: unit.text });
    const chip = make(
      "span",
      { className: "unit", title: `weight ${unit.weight.toFixed(2)}` },
      make("span", {}, label, named ? number(palette, unit.spans) : null),
      bar,
      make("span", { className: "hidden", text: `, weight ${unit.weight.toFixed(1)}` }),
    );
    if (unit.kept === false) chip.classList.add("gone");
    if (named) chip.classList.add(palette.name(unit.spans));
    else if (palette) chip.classList.add("light");
    if (known && !known.has(unit.text + ":" + unit.start)) chip.classList.add("new");
    return chip;
  });
}

const start = (unit) => (unit.spans ? unit.spans[0][0] : unit.start);

// The title of a hit and the rest of its excerpt, with their marks. A text that begins with its title
// does not repeat it. Offsets count characters, not the halves of them that JavaScript counts.
function marked(one, palette, ground) {
  const { text, marks } = one.shown.excerpt;
  const characters = Array.from(text);
  const ranks = new Array(characters.length).fill(-1);
  for (const mark of marks) ranks.fill(mark.rank, mark.start, mark.end);
  const draw = (out, begin, end) => {
    let first = begin;
    for (let i = begin + 1; i <= end; i += 1) {
      if (i < end && ranks[i] === ranks[first]) continue;
      const piece = characters.slice(first, i).join("");
      const line = (one.shown.lines || [])[ranks[first]];
      if (line === undefined) out.append(shown(piece));
      else {
        const mark = make("mark", { text: piece, title: `matches “${line.text}”` });
        mark.classList.add(palette.name(line.spans));
        // Half-way is as good as it gets for other words with the same meaning.
        const strength = ground.known ? Math.min(1, 2 * ground.height(line)) : 1;
        mark.style.setProperty("--strength", `${Math.round(100 * strength)}%`);
        mark.append(number(palette, line.spans));
        out.append(mark);
      }
      first = i;
    }
    return out;
  };
  const name = title(one).replace(/\s/g, " ");
  const length = text.startsWith(`${name} `) ? Array.from(name).length : 0;
  const heading = length ? draw(make("bdi"), 0, length) : make("bdi", { text: title(one) });
  const rest = make("p", { className: "excerpt", dir: "auto" });
  return { heading, rest: draw(rest, length ? length + 1 : 0, characters.length) };
}

// What each view gave beyond the average document: a bar whose parts add up to the score with it.
function shares(found, ground) {
  const bar = make("div", { className: "shares", "aria-hidden": "true" });
  const legend = make("div", { className: "legend" });
  const entry = (kind, text) =>
    legend.append(make("span", {}, make("span", { className: `dot ${kind}` }), text));
  if (ground.known) entry("average", `average ${thousandths(ground.fused)}`);
  for (const [view, own] of Object.entries(found.shares)) {
    const more = own - (ground.shares[view] ?? 0);
    const part = make("span", { className: view });
    part.style.width = `${(100 * Math.max(0, more)) / Math.max(ground.whole - ground.fused, 1)}%`;
    bar.append(part);
    const sign = !ground.known ? "" : more < 0 ? "−" : "+";
    entry(view, `${view} ${sign}${thousandths(ground.known ? Math.abs(more) : own)}`);
  }
  return { bar, legend };
}

// Phrase by phrase: what matched what, how well, and what it gave. The track of a bar is what a copy
// of the phrase would give beyond the average document, its filled part what this match gives.
export function why(found, palette, ground) {
  const room = (line) =>
    (line.similarity > 0 ? line.thousandths / line.similarity : 0) * (1 - ground.similarity(line));
  const most = Math.max(...found.lines.map(room), 1e-9);
  const rows = found.lines.map((line) => {
    const bar = make("span", { className: palette.name(line.spans) });
    bar.style.width = `${100 * ground.height(line)}%`;
    const track = make("span", { className: "track" }, bar);
    track.style.width = `${(100 * room(line)) / most}%`;
    const swatch = make("bdi", { className: `swatch ${palette.name(line.spans)}`, text: line.text });
    swatch.append(number(palette, line.spans));
    const match = make("td", {}, make("bdi", { text: line.found || "nothing" }));
    if (line.merged > 1) match.append(make("span", { className: "id", text: ` merged of ${line.merged}` }));
    return make(
      "tr", {},
      make("td", {}, swatch), match,
      make("td", { className: "figure", text: line.similarity.toFixed(2) }),
      ground.known
        ? make("td", { className: "figure usual", text: ground.similarity(line).toFixed(2) }) : null,
      make("td", { className: "bar-cell", "aria-hidden": "true" }, track),
      make("td", { className: "figure", text: thousandths(line.thousandths) }),
    );
  });
  const heads = [["query", ""], ["document", ""], ["similar", "figure"],
    ...(ground.known ? [["average", "figure usual"]] : []), ["", "bar-cell"], ["gives", "figure"]];
  const head = make("tr", {}, ...heads.map(([text, className]) =>
    make("th", { text, scope: "col", className })));
  const notes = [];
  if (found.light.texts.length) {
    notes.push(`small words ${thousandths(found.light.thousandths)}: ${found.light.texts.join(", ")}`);
  }
  const words = found.words.map((word) => `${word.text} ${thousandths(word.thousandths)}`);
  if (found.rest.count) words.push(`${found.rest.count} more ${thousandths(found.rest.thousandths)}`);
  if (words.length) notes.push(`exact words: ${words.join(", ")}`);
  if (found.dropped.length) notes.push(`dropped by the budget: ${found.dropped.join(", ")}`);
  const table = found.lines.length
    ? make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))
    : null;
  return make("div", { className: "why" }, table, ...notes.map((text) => make("p", { text })));
}

export const title = (hit) =>
  typeof hit.metadata.title === "string" && hit.metadata.title ? hit.metadata.title : hit.id;

export function hit(one, rank, palette, ground, actions) {
  const found = one.shown;
  const { bar, legend } = shares(found, ground);
  const box = why(found, palette, ground);
  box.hidden = true;
  const toggle = make("button", {
    type: "button", className: "quiet toggle", text: "Why?", "aria-expanded": "false",
    onclick: () => {
      box.hidden = !box.hidden;
      toggle.setAttribute("aria-expanded", String(!box.hidden));
    },
  });
  const { heading, rest } = marked(one, palette, ground);
  const name = make("h2", {}, heading);
  if (title(one) !== one.id) name.append(" ", make("bdi", { className: "id", text: one.id }));
  const article = make(
    "article", { className: "hit", tabIndex: -1, "aria-label": `${rank}: ${shown(title(one))}` },
    make("div", { className: "head" },
      make("span", { className: "rank", text: rank }), name,
      make("span", { className: "score", text: thousandths(found.fused), title: "score" })),
    rest, bar,
    make("div", { className: "foot" }, legend,
      make("div", { className: "actions" }, toggle,
        make("button", { type: "button", className: "quiet more", text: "More like this",
          onclick: () => actions.like(one) }),
        make("button", { type: "button", className: "quiet open", text: "Open",
          onclick: () => actions.open(one.id) }))),
    box,
  );
  return article;
}

// The three rankings side by side; a document has the same frame in all of them.
export function three(answers, palette) {
  const ranks = {};
  for (const [view, answer] of Object.entries(answers)) {
    answer.hits.forEach((one, i) => { (ranks[one.id] ||= {})[view] = i + 1; });
  }
  const columns = Object.entries(answers).map(([view, answer]) => {
    const ground = new Ground(answer.average, [1]);
    const rows = answer.hits.map((one, i) => {
      const others = Object.entries(ranks[one.id]).filter(([other]) => other !== view);
      const said = others.map(([other, rank]) => `${other} ${rank}`).join(", ");
      const { heading, rest } = marked(one, palette, ground);
      const row = make("li", { "data-id": one.id },
        make("div", { className: "head" },
          make("span", { className: "rank", text: i + 1 }),
          make("b", {}, heading),
          make("span", { className: "score", text: thousandths(one.shown.fused) })),
        rest,
        make("div", { className: "elsewhere", text: said || "in no other view" }));
      row.addEventListener("mouseenter", () => same(one.id, true));
      row.addEventListener("mouseleave", () => same(one.id, false));
      return row;
    });
    const dot = make("span", { className: `dot ${view}` });
    return make("section", {}, make("h2", {}, dot, view), make("ol", {}, ...rows));
  });
  const all = make("div", { className: "three" }, ...columns);
  function same(id, on) {
    for (const row of all.querySelectorAll("li")) {
      row.classList.toggle("same", on && row.dataset.id === id);
    }
  }
  return all;
}

export const state = (kind, heading, ...children) =>
  make("div", { className: `state ${kind}` }, make("h2", { text: heading }), ...children);
