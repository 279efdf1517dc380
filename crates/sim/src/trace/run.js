"use strict";
// The drawable elements of a run: lanes, arrows, marks, spans, and lines of text. `view.js` follows, and draws them.

const data = JSON.parse(document.getElementById("data").textContent);
const count = data.at.length;
const text = data.strings;
const times = new Float64Array(count);
for (let row = 0, at = 0; row < count; row++) { at += data.at[row]; times[row] = at; }
const begin = data.begin, end = Math.max(data.end, begin + 1);
const failure = data.failure;

// ---- Lanes of actors.
const what = (row) => text[data.what[row]];
const who = (row) => text[data.who[row]];
const seen = new Set();
for (let row = 0; row < count; row++) seen.add(who(row));
const lanes = data.lanes.map((name) => ({
  name, host: data.hosts[name] || "", is_client: name[0] === "c", on: name[0] !== "c" || seen.has(name), y: 0, gap: 0,
}));
const laneOf = new Map(lanes.map((lane, index) => [lane.name, index]));
const list = (index) => (index === 0 ? [] : text[index].split(" "));

// ---- Kinds and their colours: the most frequent kinds get the first colours.
const PALETTE = ["#2563eb", "#d97706", "#059669", "#9333ea", "#0891b2", "#be185d", "#65a30d", "#7c4a1e", "#4f46e5",
  "#b45309", "#0f766e", "#a21caf", "#57534e"];
const QUIET = { bundle: "#b8c0cc", payload: "#a3adba", "host.heights": "#cbd2da" };
const kinds = new Map();
const MESSAGE = new Set(["sends", "says"]);
for (let row = 0; row < count; row++) {
  if (!MESSAGE.has(what(row))) continue;
  const kind = text[data.kind[row]];
  const known = kinds.get(kind) || { count: 0, on: true, colour: "" };
  known.count += Math.max(1, list(data.to[row]).length);
  kinds.set(kind, known);
}
let given = 0;
for (const [kind, known] of [...kinds].sort((a, b) => b[1].count - a[1].count)) {
  known.colour = QUIET[kind] || PALETTE[given++ % PALETTE.length];
}

// ---- Arrows: from a departure to an arrival, a loss, or nowhere.
const ARRIVED = 0, LOST = 1, OPEN = 2;
const arrows = [];
const sent = new Map();
for (let row = 0; row < count; row++) {
  const number = data.number[row], word = what(row);
  if (!number) continue;
  if (MESSAGE.has(word)) {
    const to = new Set(list(data.to[row]));
    sent.set(number, { row, to });
  } else if (word === "gets" || word === "hears") {
    const start = sent.get(number);
    if (!start) continue;
    start.to.delete(who(row));
    arrow(start.row, row, who(start.row), who(row), ARRIVED);
  } else if (word === "loses" || word === "drops") {
    const start = sent.get(number), [to] = list(data.to[row]);
    if (!start || !to) continue;
    start.to.delete(to);
    arrow(start.row, row, who(start.row), to, LOST);
  }
}
for (const start of sent.values()) {
  for (const to of start.to) arrow(start.row, -1, who(start.row), to, OPEN);
}
function arrow(from, to, source, target, fate) {
  const a = laneOf.get(source), b = laneOf.get(target);
  if (a === undefined || b === undefined) return;
  const kind = kinds.get(text[data.kind[from]]);
  arrows.push({ from, to, a, b, fate, kind, t0: times[from], t1: to >= 0 ? times[to] : times[from] });
}
arrows.sort((x, y) => x.t0 - y.t0);
// The latest end in each block of arrows: blocks that have ended are skipped.
const BLOCK = 128;
const latest = [];
arrows.forEach((one, index) => {
  const block = Math.floor(index / BLOCK);
  latest[block] = Math.max(latest[block] || 0, one.t1);
});
const delays = arrows.filter((one) => one.fate === ARRIVED).map((one) => one.t1 - one.t0).sort((a, b) => a - b);
const usual = delays.length ? delays[Math.floor(delays.length / 2)] : 1e6;

// ---- Marks: events of one lane.
const MARKS = {
  decides: { colour: "#15803d", says: "a block is decided", big: true },
  executes: { colour: "#15803d", says: "blocks are executed" },
  enters: { colour: "#1d4ed8", says: "a replica enters another view" },
  notes: { colour: "#64748b", says: "a transition of the protocol" },
  timer: { colour: "#7c3aed", says: "a timer has expired" },
  refuses: { colour: "#ea580c", says: "a message is refused" },
  withholds: { colour: "#a21caf", says: "a Byzantine replica withholds a message" },
  behaves: { colour: "#a21caf", says: "a Byzantine replica changes its behaviour", big: true },
  executor: { colour: "#b45309", says: "an executor becomes slow, or normal again" },
  syncs: { colour: "#0e7490", says: "the log is durable" },
  crashes: { colour: "#c81e1e", says: "a replica crashes", big: true },
  starts: { colour: "#15803d", says: "a replica is started", big: true },
  calls: { colour: "#334155", says: "a client submits an operation" },
  believes: { colour: "#15803d", says: "a client accepts an answer" },
  "gives up": { colour: "#c81e1e", says: "a client cannot learn an outcome", big: true },
  network: { colour: "#b45309", says: "connections: lost and resent, stalled, broken, dialled" },
  world: { colour: "#334155", says: "other events of the world" },
};
const NETWORK = new Set(["resends", "stalls", "breaks", "dials", "link", "closed", "doubles", "holds", "delays", "alters", "releases"]);
const marks = [];
const markCounts = new Map();
for (let row = 0; row < count; row++) {
  const word = what(row);
  if (MESSAGE.has(word) || ["gets", "hears", "loses", "drops", "begins", "ends", "fails"].includes(word)) continue;
  const sort = MARKS[word] ? word : NETWORK.has(word) ? "network" : "world";
  let lane = laneOf.get(who(row));
  if (lane === undefined && data.from[row]) lane = laneOf.get(text[data.from[row]]);
  marks.push({ row, lane: lane === undefined ? -1 : lane, sort, t: times[row] });
  markCounts.set(sort, (markCounts.get(sort) || 0) + 1);
}
const shownMarks = new Map([...markCounts.keys()].map((sort) => [sort, sort !== "syncs" && sort !== "executes"]));

// ---- Spans: views and outages of each lane, faults of the world.
const views = lanes.map(() => []), downs = lanes.map(() => []), faults = [];
const open = new Map();
for (let row = 0; row < count; row++) {
  const word = what(row), lane = laneOf.get(who(row)), t = times[row];
  if (word === "enters" && lane !== undefined) {
    const of = views[lane];
    if (of.length) of[of.length - 1].to = t;
    of.push({ from: t, to: end, view: data.view[row] - 1, row });
  } else if (word === "crashes" && lane !== undefined) {
    const of = downs[lane], seen = views[lane];
    if (!of.length || of[of.length - 1].to !== Infinity) of.push({ from: t, to: Infinity, row });
    if (seen.length) seen[seen.length - 1].to = Math.min(seen[seen.length - 1].to, t);
  } else if (word === "starts" && lane !== undefined) {
    const of = downs[lane];
    if (of.length && of[of.length - 1].to === Infinity) of[of.length - 1].to = t;
  } else if (word === "begins") {
    const fault = { from: t, to: Infinity, row, line: 0, label: label_of(row) };
    faults.push(fault);
    open.set(data.number[row], fault);
  } else if (word === "ends" && open.has(data.number[row])) {
    open.get(data.number[row]).to = t;
    open.delete(data.number[row]);
  } else if (word === "heals") {
    for (const fault of open.values()) fault.to = t;
    open.clear();
  }
}
function label_of(row) {
  return text[data.kind[row]] + (data.text[row] ? " " + text[data.text[row]] : "");
}
const busy = [];
for (const fault of faults) {
  let line = busy.findIndex((until) => until <= fault.from);
  if (line < 0) line = busy.length;
  busy[line] = fault.to;
  fault.line = line;
}

// ---- A row as the line that `--trace` prints.
const height_text = (row) => (data.height[row] ? "h" + (data.height[row] - 1) : "");
const pad = (value, width) => value + " ".repeat(Math.max(0, width - value.length));
function seconds(t) {
  const whole = Math.floor(t / 1e9);
  return whole + "." + String(Math.round(t - whole * 1e9)).padStart(9, "0");
}
function compact_names(names) {
  const parts = [];
  for (let at = 0; at < names.length;) {
    const sort = names[at][0], number = Number(names[at].slice(1));
    let run = 1;
    while (at + run < names.length && names[at + run] === sort + (number + run)) run++;
    parts.push(run > 1 ? names[at] + "-" + (number + run - 1) : names[at]);
    at += run;
  }
  return parts.join(" ");
}
function line(row) {
  const word = what(row), from = text[data.from[row]], to = compact_names(list(data.to[row]));
  const whom = from ? (to ? from + " -> " + to : "<- " + from) : to ? "-> " + to : "";
  const sign = word === "begins" || word === "ends" ? "f" : "m";
  const number = data.number[row] ? sign + data.number[row] : "";
  const rest = [number, text[data.text[row]]].filter((part) => part).join(", ");
  const view = data.view[row] ? "v" + (data.view[row] - 1) : "";
  const height = height_text(row);
  const widths = data.columns;
  const cells = [who(row), word, whom, text[data.kind[row]], view, height, text[data.subject[row]]];
  let out = (word === "fails" ? ">>" : "  ") + seconds(times[row]).padStart(widths[0] - 2);
  cells.forEach((cell, index) => { out += "  " + pad(cell, widths[index + 1]); });
  return (out + "  " + rest).trimEnd();
}
