// What the page does: its state is in the address after #, which no server sees or logs.

import { ServiceError, curl, get, place, post } from "./api.js";
import { Ground, Palette, chips, hit, make, shown, state, thousandths, three, title } from "./draw.js";

const K = 10;
const WAIT = 150; // milliseconds without a key before a search
const SLOW = 400; // after which the page says that it is still searching
const VIEWS = ["global", "phrase", "lexical"];
const EXAMPLES = {
  demo: [
    "irreversible inhibition of platelets by aspirin",
    "ECG changes in hypokalaemia",
    "first-line drug for diabetes",
    "anaemia of chronic disease in rheumatoid arthritis",
  ],
};
const of = (id) => document.getElementById(id);
const indexes = new Map();
const settings = { index: "", query: "", where: "", alphas: {}, budget: null, width: null,
  compare: false, like: null };
let smaller = [];
let asked = 0;
let waiting = false;
let abort = new AbortController();
let last = { path: "", body: {} };

// The address

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  settings.index = indexes.has(given.get("index")) ? given.get("index") : [...indexes.keys()][0];
  settings.query = given.get("q") || "";
  settings.where = given.get("where") || "";
  settings.budget = Number(given.get("budget")) || null;
  settings.width = Number(given.get("width")) || null;
  settings.compare = given.has("compare");
  settings.like = given.get("like");
  settings.alphas = {};
  for (const view of VIEWS) {
    if (given.has(view)) settings.alphas[view] = Math.min(2, Math.max(0, Number(given.get(view)) || 0));
  }
}

function write() {
  const out = new URLSearchParams();
  if (indexes.size > 1) out.set("index", settings.index);
  if (settings.query) out.set("q", settings.query);
  if (settings.like) out.set("like", settings.like);
  if (settings.where) out.set("where", settings.where);
  for (const [view, weight] of Object.entries(settings.alphas)) out.set(view, weight);
  if (settings.budget) out.set("budget", settings.budget);
  if (settings.width) out.set("width", settings.width);
  if (settings.compare) out.set("compare", "");
  history.replaceState(null, "", `#${out}`);
}

// Settings

const fusion = () => ({ ...Object.fromEntries(VIEWS.map((view) => [view, 0])),
  ...indexes.get(settings.index).fusion, ...settings.alphas });
const budgets = () => [...new Set(smaller.map((one) => one.budget))].sort((a, b) => a - b);
const widths = () => {
  const about = indexes.get(settings.index);
  if (about.format === "int4") return [about.width]; // its vectors have no prefixes
  return [...new Set(smaller.map((one) => one.width))].sort((a, b) => a - b);
};

function fill() {
  of("index").value = settings.index;
  of("query").value = settings.query;
  of("where").value = settings.where;
  of("compare").checked = settings.compare;
  const about = indexes.get(settings.index);
  const noun = about.documents === 1 ? "document" : "documents";
  of("about").textContent = `${about.documents.toLocaleString("en")} ${noun}, model ${shown(about.model)}`;
  for (const view of VIEWS) of(view).value = fusion()[view];
  for (const [name, steps] of [["budget", budgets()], ["width", widths()]]) {
    const slider = of(name);
    slider.max = Math.max(0, steps.length - 1);
    slider.disabled = steps.length < 2;
    const place = steps.indexOf(settings[name]);
    slider.value = settings[name] === null || place < 0 ? slider.max : place;
    if (place < 0) settings[name] = null;
  }
  figures();
}

function figures() {
  for (const view of VIEWS) of(`${view}-out`).textContent = fusion()[view].toFixed(2);
  const [b, w] = [budgets(), widths()];
  const about = indexes.get(settings.index);
  const budget = settings.budget ?? b.at(-1) ?? about.budget;
  const width = settings.width ?? w.at(-1) ?? about.width;
  of("budget-out").textContent = settings.budget === null ? `all (${budget ?? 0})` : `${budget}`;
  of("width-out").textContent = settings.width === null ? `all (${width ?? 0})` : `${width}`;
  of("budget").setAttribute("aria-valuetext", of("budget-out").textContent);
  of("width").setAttribute("aria-valuetext", of("width-out").textContent);
  const size = (x, y) => smaller.find((one) => one.budget === x && one.width === y)?.bytes ?? 0;
  const [own, all] = [size(budget, width), size(b.at(-1), w.at(-1))];
  const share = all ? `${megabytes(own)} of ${megabytes(all)} (${Math.round((100 * own) / all)}%)` : "";
  const took = figures.took ? `${figures.took.search.toFixed(1)} ms to search` : "";
  of("bytes").textContent = [share, took].filter(Boolean).join(", ");
}

const megabytes = (bytes) =>
  bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

function options() {
  const body = { k: K, readable: true };
  if (settings.where.trim()) body.where = settings.where;
  if (settings.budget !== null) body.budget = settings.budget;
  if (settings.width !== null) body.width = settings.width;
  if (Object.keys(settings.alphas).length && !settings.compare) {
    body.alphas = Object.fromEntries(Object.entries(fusion()).filter(([, weight]) => weight > 0));
  }
  return body;
}

// Searching

async function search() {
  waiting = false;
  write();
  const mine = (asked += 1);
  abort.abort();
  abort = new AbortController();
  of("tools").hidden = !settings.query.trim() && !settings.like;
  if (of("tools").hidden) return welcome();
  busy(true);
  const slow = setTimeout(() => {
    of("progress").hidden = false;
    of("status").textContent = "Still searching …";
    of("hits").classList.add("stale");
  }, SLOW);
  try {
    const base = { ...options(), ...(settings.like ? {} : { query: settings.query }) };
    const rest = settings.like ? `more-like/${encodeURIComponent(settings.like)}` : "search";
    const path = place(settings.index, rest);
    last = { path, body: base };
    const asking = settings.compare
      ? VIEWS.map((view) => post(path, { ...base, view }, abort.signal))
      : [post(path, base, abort.signal)];
    const found = await Promise.all(asking);
    if (mine === asked) show(found);
  } catch (error) {
    if (mine !== asked || error.name === "AbortError") return;
    fail(error);
  } finally {
    clearTimeout(slow);
    if (mine === asked) {
      of("progress").hidden = true;
      of("hits").classList.remove("stale");
      busy(waiting); // something was typed since, which is not asked yet
    }
  }
  return undefined;
}

const busy = (on) => of("hits").setAttribute("aria-busy", String(on));

function show(found) {
  const answers = found.map(({ value }) => value);
  of("hits").classList.remove("old");
  const took = found[0].took;
  figures.took = took.search === undefined ? null : took;
  figures();
  complain(null);
  const palette = new Palette(answers[0].units || [], answers);
  of("units").replaceChildren(...chips(answers[0].units || [], { palette }));
  banner();
  const count = answers[0].hits.length;
  const many = answers[0].candidates;
  const time = took.search === undefined ? took.total
    : took.encode + took.search;
  const noun = many === 1 ? "candidate" : "candidates";
  const said = settings.compare ? "the best of each view"
    : `${count} of ${many.toLocaleString("en")} ${noun}`;
  of("status").textContent = `${count ? said : "no hits"}, ${time.toFixed(1)} ms`;
  if (!answers.some((answer) => answer.hits.length)) return nothing(answers[0].hint);
  const note = answers[0].hint ? [state("", "A hint", make("p", { text: sentence(answers[0].hint) }))] : [];
  if (settings.compare) {
    const named = Object.fromEntries(VIEWS.map((view, i) => [view, answers[i]]));
    of("hits").replaceChildren(...note, three(named, palette));
    return undefined;
  }
  const actions = { like, open };
  of("where").placeholder = example(answers[0].hits[0].metadata) ?? of("where").placeholder;
  const ground = new Ground(answers[0].average, Object.values(fusion()));
  of("hits").replaceChildren(...note, ...key(ground),
    ...answers[0].hits.map((one, i) => hit(one, i + 1, palette, ground, actions)));
  return undefined;
}

// What the bars and colours mean.
function key(ground) {
  if (!ground.known) return [];
  const noun = indexes.get(settings.index).passage_tokens === null ? "document" : "passage";
  return [make("p", { className: "key", text: `Bars run from an average ${noun} of this index, ${thousandths(ground.fused)}, to a copy of the query, ${thousandths(ground.whole)}. The stronger a colour, the closer the match.` })];
}

// A filter that some document passes, so that the first one tried finds something.
function example(metadata) {
  const plain = Object.entries(metadata).filter(([name]) => /^[a-z_]\w{0,11}$/i.test(name));
  for (const [name, value] of plain) if (Number.isInteger(value)) return `${name} >= ${value}`;
  for (const [name, value] of plain) {
    if (typeof value === "string" && /^[^"\\]{1,12}$/.test(value)) return `${name} = "${value}"`;
  }
  return null;
}

function banner() {
  of("like").hidden = !settings.like;
  if (!settings.like) return;
  of("like").replaceChildren(
    "More like ", make("strong", {}, make("bdi", { text: settings.like })),
    make("button", { type: "button", className: "quiet", text: "Back to the query",
      onclick: () => { settings.like = null; search(); of("query").focus(); } }));
}

function like(one) {
  settings.like = one.id;
  of("units").replaceChildren();
  search().then(() => {
    of("results").focus({ preventScroll: true });
    scrollTo(0, 0);
  });
}

async function open(id) {
  try {
    const { value } = await get(place(settings.index, `documents/${encodeURIComponent(id)}`));
    of("document-title").textContent = shown(title(value));
    of("document-text").textContent = shown(value.text);
    of("document-metadata").hidden = !Object.keys(value.metadata).length;
    of("document-metadata").textContent = shown(JSON.stringify(value.metadata, null, 2));
    of("document").showModal();
  } catch (error) {
    fail(error);
  }
}

// States

function welcome() {
  of("units").replaceChildren();
  banner();
  busy(false);
  complain(null);
  of("status").textContent = "";
  const examples = (EXAMPLES[settings.index] || []).map((text) =>
    make("button", { type: "button", text, onclick: () => {
      of("query").value = settings.query = text;
      search();
      of("query").focus();
    } }));
  of("hits").replaceChildren(state("first", "Type what you are looking for",
    make("p", { text: "The query is cut into units, and each unit looks for its best match. A match has the colour of its unit, and what it gave to the score is shown." }),
    make("ul", {},
      make("li", {}, make("span", { className: "dot global" }), "global: the meaning of the whole text"),
      make("li", {}, make("span", { className: "dot phrase" }), "phrase: phrases that mean the same"),
      make("li", {}, make("span", { className: "dot lexical" }), "lexical: exact words")),
    make("div", { className: "examples" }, ...examples)));
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

function nothing(hint) {
  const parts = [make("p", { text: sentence(hint || "no document passes the filter") })];
  if (settings.where.trim()) {
    parts.push(make("button", { type: "button", text: "Search without the filter", onclick: () => {
      of("where").value = settings.where = "";
      search();
    } }));
  }
  of("hits").replaceChildren(state("empty", "Nothing found", ...parts));
}

function fail(error) {
  if (error.field === "where") {
    complain(error.message);
    of("controls").open = true; // closed on phones
    of("status").textContent = "The filter has a mistake; it is not applied yet.";
    of("hits").classList.add("old");
    return undefined;
  }
  if (error.status === 503) {
    of("status").textContent = "The service is busy, trying again …";
    setTimeout(search, 1000);
    return undefined;
  }
  const said = error instanceof ServiceError ? error.message : "The service cannot be reached.";
  of("status").textContent = "";
  of("units").replaceChildren();
  of("hits").replaceChildren(state("failed", "That did not work", make("p", { text: said }),
    make("button", { type: "button", text: "Try again", onclick: () => search() })));
  return undefined;
}

function complain(message) {
  const [sentence, ...drawing] = (message ?? "").split("\n");
  of("where-error").replaceChildren(...(message === null ? [] : [
    make("p", { text: sentence }), make("pre", { text: drawing.join("\n") })]));
  of("where").setAttribute("aria-invalid", String(message !== null));
}

// Terms

async function tryTerms() {
  const terms = of("terms").value.split("\n").map((term) => term.trim()).filter(Boolean);
  const text = of("terms-text").value;
  if (!terms.length || !text.trim()) return of("terms-out").replaceChildren();
  try {
    const body = { terms, texts: [text], index: settings.index };
    const { value } = await post("/terms/check", body);
    const known = new Set(value.before[0].map((unit) => `${unit.text}:${unit.start}`));
    const row = (heading, units, given) => [make("h3", { text: heading }),
      make("div", { className: "units" }, ...chips(units, given))];
    of("terms-out").replaceChildren(
      ...row("without the terms", value.before[0], {}), ...row("with the terms", value.after[0], { known }));
  } catch (error) {
    of("terms-out").replaceChildren(make("p", { className: "caret", text: error.message }));
  }
  return undefined;
}

// Wiring

function soon(action) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(action, WAIT); };
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not over plain HTTP from another machine
    const area = make("textarea", { value: text, className: "hidden" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}

function step(by) {
  const hits = [...document.querySelectorAll(".hit")];
  if (!hits.length) return;
  const at = hits.indexOf(document.activeElement.closest(".hit"));
  if (at + by < 0) of("query").focus();
  else hits[Math.min(hits.length - 1, at + by)].focus();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || of("document").open) return;
  const on = event.target;
  const typing = on.matches("input, textarea, select");
  const hitAt = on.closest(".hit");
  if (event.key === "/" && !typing) { of("query").focus(); of("query").select(); }
  else if (event.key === "Escape" && on !== of("query")) of("query").focus();
  else if (event.key === "ArrowDown" && (on === of("query") || hitAt)) step(1);
  else if (event.key === "ArrowUp" && hitAt) step(-1);
  else if (event.key === "Enter" && on === hitAt && hitAt) hitAt.querySelector(".toggle").click();
  else if (event.key === "m" && on === hitAt && hitAt) hitAt.querySelector(".more").click();
  else return;
  event.preventDefault();
}

function theme(choice) {
  const root = document.documentElement;
  if (choice === "auto") delete root.dataset.theme;
  else root.dataset.theme = choice;
  of("theme").textContent = `Theme: ${choice}`;
  try { localStorage.setItem("theme", choice); } catch { /* no storage, no memory */ }
}

async function choose() {
  settings.alphas = {};
  settings.budget = settings.width = null;
  await load();
  fill();
  search();
}

async function load() {
  const { value } = await get(place(settings.index, "stats"));
  smaller = value.smaller;
  indexes.set(settings.index, { ...indexes.get(settings.index), documents: value.documents });
}

function wire() {
  const searchSoon = soon(search);
  const later = () => { waiting = true; busy(true); searchSoon(); };
  of("form").addEventListener("submit", (event) => { event.preventDefault(); search(); });
  of("query").addEventListener("input", () => {
    settings.query = of("query").value;
    settings.like = null;
    later();
  });
  of("where").addEventListener("input", () => { settings.where = of("where").value; later(); });
  for (const view of VIEWS) {
    of(view).addEventListener("input", () => {
      settings.alphas = { ...fusion(), [view]: Number(of(view).value) };
      if (!Object.values(settings.alphas).some((weight) => weight > 0)) settings.alphas[view] = 0.05;
      figures();
      later();
    });
  }
  for (const [name, steps] of [["budget", budgets], ["width", widths]]) {
    of(name).addEventListener("input", () => {
      const at = Number(of(name).value);
      settings[name] = at === steps().length - 1 ? null : steps()[at];
      figures();
      later();
    });
  }
  of("compare").addEventListener("change", () => { settings.compare = of("compare").checked; search(); });
  of("reset").addEventListener("click", () => {
    Object.assign(settings, { where: "", alphas: {}, budget: null, width: null, compare: false });
    fill();
    search();
  });
  of("index").addEventListener("change", () => { settings.index = of("index").value; settings.like = null; choose(); });
  of("link").addEventListener("click", () => copy(of("link"), location.href));
  of("curl").addEventListener("click", () => copy(of("curl"), curl(last.path, last.body)));
  of("theme").addEventListener("click", () => {
    const order = ["auto", "light", "dark"];
    theme(order[(order.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3]);
  });
  const terms = soon(tryTerms);
  of("terms").addEventListener("input", terms);
  of("terms-text").addEventListener("input", terms);
  of("terms-box").addEventListener("toggle", () => {
    if (!of("terms-text").value) of("terms-text").value = settings.query;
  });
  document.addEventListener("keydown", keys);
  window.addEventListener("hashchange", async () => { read(); await load(); fill(); search(); });
  if (matchMedia("(max-width: 52rem)").matches) of("controls").open = false;
}

async function begin() {
  let stored = "auto";
  try { stored = localStorage.getItem("theme") || "auto"; } catch { /* none */ }
  theme(["auto", "light", "dark"].includes(stored) ? stored : "auto");
  try {
    const { value } = await get("/indexes");
    for (const one of value.indexes) {
      indexes.set(one.name, one);
      of("index").append(make("option", { value: one.name, text: one.name }));
    }
    of("index").parentElement.hidden = indexes.size < 2;
    read();
    await load();
    fill();
    wire();
    search();
  } catch (error) {
    fail(error);
  }
}

begin();
