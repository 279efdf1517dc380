// The run as a space-time diagram: time from left to right, a lane for every actor, an arrow for each message. `run.js`
// provides the elements.
// ---- The visible part.
const LEFT = 92, RULER = 24, FAULT = 15, MAX_ARROWS = 9000;
let t0 = begin, t1 = end;
let chosen = -1, hovered = null, pointer = null;
const view = document.getElementById("view"), overview = document.getElementById("overview");
const tip = document.getElementById("tip"), note = document.getElementById("note"), box = document.getElementById("lines");
let width = 0, height = 0, drawn = { arrows: [], marks: [], faults: [] };
const x_of = (t) => LEFT + (t - t0) / (t1 - t0) * (width - LEFT - 8);
const t_of = (x) => t0 + (x - LEFT) / (width - LEFT - 8) * (t1 - t0);

function first_view() {
  const asked = /^#([\d.]+)-([\d.]+)$/.exec(location.hash);
  if (asked && Number(asked[2]) > Number(asked[1])) return [Number(asked[1]) * 1e9, Number(asked[2]) * 1e9];
  const last = failure === null ? Math.min(end, begin + 2e9) : failure;
  if (failure === null) return [begin, last];
  // Two seconds, or less with too many events to read. The part begins at a pause, if there is one.
  let index = below(arrows, last, (one) => one.t0), from = last;
  for (let many = 1; index > 0 && many <= 160; index--, many++) {
    const t = arrows[index - 1].t0;
    if (last - t > 2e9 || (many > 30 && from - t > (last - from) * 0.4)) break;
    from = t;
  }
  const span = Math.max((last - from) * 1.05, 2e6);
  return [last - span, last + span * 0.06];
}
function below(items, t, time) {
  let low = 0, high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time(items[middle]) < t) low = middle + 1; else high = middle;
  }
  return low;
}
function look(from, to) {
  const span = Math.min(Math.max(to - from, 2000), (end - begin) * 1.2);
  const middle = Math.min(Math.max((from + to) / 2, begin), end);
  t0 = middle - span / 2;
  t1 = middle + span / 2;
  try { history.replaceState(null, "", "#" + (t0 / 1e9).toFixed(6) + "-" + (t1 / 1e9).toFixed(6)); } catch (e) { /* not allowed here */ }
  paint();
}
function zoom(factor, x) {
  const at = t_of(x === undefined ? (LEFT + width) / 2 : x);
  look(at - (at - t0) * factor, at + (t1 - at) * factor);
}

// ---- Drawing.
let waiting = false;
function paint() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); draw_overview(); });
}
function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1, frame = canvas.getBoundingClientRect();
  canvas.width = Math.round(frame.width * ratio);
  canvas.height = Math.round(frame.height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return [pen, frame.width, frame.height];
}
let by_subject = false;
/** The same colour for all that speaks of the same block. */
function subject_colour(row) {
  const subject = text[data.subject[row]];
  return subject ? `hsl(${parseInt(subject.slice(0, 6), 16) * 47 % 360}, 75%, 42%)` : "#c3cad4";
}
function view_colour(number, alpha) { return `hsla(${(210 + number * 67) % 360}, 70%, 60%, ${alpha})`; }

function draw() {
  const [pen, w, h] = prepare(view);
  width = w; height = h;
  drawn = { arrows: [], marks: [], faults: [] };
  const shown = lanes.filter((lane) => lane.on);
  const top = RULER + 4 + busy.length * FAULT + 16;
  // Lanes of clients have half the height, because they have fewer events.
  const share = (lane) => (lane.is_client ? 0.5 : 1);
  const unit = (height - top - 20) / Math.max(1, shown.reduce((sum, lane) => sum + share(lane), 0));
  let next = top;
  for (const lane of shown) {
    lane.gap = unit * share(lane);
    lane.y = next + lane.gap / 2;
    next += lane.gap;
  }
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, width - LEFT, height);
  pen.clip();
  draw_ruler(pen);
  draw_faults(pen);
  draw_lanes(pen);
  draw_arrows(pen);
  draw_marks(pen);
  draw_failure(pen);
  pen.restore();
  draw_names(pen);
}
function draw_ruler(pen) {
  const rough = (t1 - t0) / Math.max(3, (width - LEFT) / 130);
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((times) => times * power).find((value) => value >= rough);
  const digits = Math.max(0, Math.min(9, 9 - Math.floor(Math.log10(step))));
  pen.textAlign = "center";
  for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step) {
    const x = x_of(t);
    pen.strokeStyle = "#edf0f4";
    pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(x, RULER); pen.lineTo(x, height); pen.stroke();
    pen.fillStyle = "#6b7686";
    if (x > LEFT + 30) pen.fillText((t / 1e9).toFixed(digits) + " s", x, RULER / 2);
  }
}
function draw_faults(pen) {
  pen.textAlign = "left";
  for (const fault of faults) {
    if (fault.from > t1 || fault.to < t0) continue;
    const from = Math.max(LEFT, x_of(fault.from)), to = Math.min(width, x_of(Math.min(fault.to, end)));
    const y = RULER + 2 + fault.line * FAULT;
    pen.fillStyle = "#fde8c8";
    pen.fillRect(from, y, Math.max(2, to - from), FAULT - 2);
    pen.strokeStyle = "#e0a33e";
    pen.strokeRect(from + 0.5, y + 0.5, Math.max(1, to - from - 1), FAULT - 3);
    drawn.faults.push({ x: from, y, w: Math.max(4, to - from), h: FAULT, row: fault.row });
    pen.save();
    pen.beginPath(); pen.rect(from, y, Math.max(0, to - from - 2), FAULT); pen.clip();
    pen.fillStyle = "#7a4b00";
    pen.fillText(fault.label, from + 4, y + FAULT / 2);
    pen.restore();
  }
}
function draw_lanes(pen) {
  pen.textAlign = "left";
  lanes.forEach((lane, index) => {
    if (!lane.on) return;
    const band = Math.min(lane.gap * 0.36, 15);
    for (const span of views[index]) {
      if (span.from > t1 || span.to < t0) continue;
      const from = Math.max(LEFT, x_of(span.from)), to = Math.min(width, x_of(span.to));
      pen.fillStyle = view_colour(span.view, 0.25);
      pen.fillRect(from, lane.y - band, Math.max(1, to - from), band * 2);
      if (to - from > 22) {
        pen.fillStyle = "#46536a";
        pen.fillText("v" + span.view, from + 3, lane.y - band - 6);
      }
    }
    pen.strokeStyle = lane.is_client ? "#94a3b8" : "#334155";
    pen.lineWidth = lane.is_client ? 1 : 1.5;
    pen.beginPath(); pen.moveTo(LEFT, lane.y); pen.lineTo(width, lane.y); pen.stroke();
    for (const span of downs[index]) {
      if (span.from > t1 || span.to < t0) continue;
      const from = Math.max(LEFT, x_of(span.from)), to = Math.min(width, x_of(Math.min(span.to, end)));
      pen.fillStyle = "#fff";
      pen.fillRect(from, lane.y - band - 1, to - from, band * 2 + 2);
      pen.fillStyle = "#f0f0f0";
      pen.fillRect(from, lane.y - band, to - from, band * 2);
      pen.strokeStyle = "#c9ced6";
      pen.setLineDash([4, 4]);
      pen.strokeRect(from, lane.y - band, to - from, band * 2);
      pen.setLineDash([]);
      if (to - from > 40) {
        pen.fillStyle = "#8a94a3";
        pen.fillText("down", Math.max(from, LEFT) + 6, lane.y);
      }
    }
  });
}
function visible_arrows() {
  const found = [];
  const upto = below(arrows, t1, (one) => one.t0);
  for (let block = 0; block * BLOCK < upto; block++) {
    if (latest[block] + usual < t0) continue;
    for (let index = block * BLOCK; index < Math.min(upto, (block + 1) * BLOCK); index++) {
      const one = arrows[index];
      if (one.t1 + usual < t0 || !one.kind.on || !lanes[one.a].on || !lanes[one.b].on) continue;
      found.push(one);
    }
  }
  return found;
}
function place(one) {
  const ya = lanes[one.a].y, yb = lanes[one.b].y, xa = x_of(one.t0);
  if (one.fate === ARRIVED) return [xa, ya, x_of(one.t1), yb];
  // The arrow covers part of its way, at the usual speed.
  return [xa, ya, x_of(one.t0 + usual * 0.55), ya + (yb - ya) * 0.55];
}
function draw_arrows(pen) {
  const all = visible_arrows();
  const every = Math.ceil(all.length / MAX_ARROWS);
  note.hidden = every <= 1;
  note.textContent = `one in ${every} of ${all.length} arrows is drawn, and only the most important marks: zoom in to see all`;
  const heads = all.length < 1500, alpha = all.length < 400 ? 0.95 : all.length < 2500 ? 0.7 : 0.4;
  all.forEach((one, index) => {
    if (index % every !== 0 && one.fate === ARRIVED) return;
    const [xa, ya, xb, yb] = place(one);
    pen.globalAlpha = one === hovered ? 1 : alpha;
    pen.strokeStyle = pen.fillStyle = one.fate === LOST ? "#c81e1e" : by_subject ? subject_colour(one.from) : one.kind.colour;
    pen.lineWidth = one === hovered ? 3 : all.length < 400 ? 1.3 : 0.8;
    if (one.fate === OPEN) pen.setLineDash([3, 3]);
    pen.beginPath(); pen.moveTo(xa, ya); pen.lineTo(xb, yb); pen.stroke();
    pen.setLineDash([]);
    if (one.fate === LOST) cross(pen, xb, yb, 4, 1.8);
    else if (one.fate === OPEN) ring(pen, xb, yb, 2.5);
    else if (heads) head(pen, xa, ya, xb, yb);
    drawn.arrows.push({ one, xa, ya, xb, yb });
  });
  pen.globalAlpha = 1;
}
function head(pen, xa, ya, xb, yb) {
  const angle = Math.atan2(yb - ya, xb - xa), size = 7;
  pen.beginPath();
  pen.moveTo(xb, yb);
  pen.lineTo(xb - size * Math.cos(angle - 0.35), yb - size * Math.sin(angle - 0.35));
  pen.lineTo(xb - size * Math.cos(angle + 0.35), yb - size * Math.sin(angle + 0.35));
  pen.fill();
}
function cross(pen, x, y, size, thick) {
  pen.lineWidth = thick;
  pen.beginPath();
  pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size);
  pen.moveTo(x - size, y + size); pen.lineTo(x + size, y - size);
  pen.stroke();
}
function ring(pen, x, y, size) {
  pen.lineWidth = 1.3;
  pen.beginPath(); pen.arc(x, y, size, 0, 7); pen.stroke();
}
function disc(pen, x, y, size) {
  pen.beginPath(); pen.arc(x, y, size, 0, 7); pen.fill();
}
function draw_marks(pen) {
  const from = below(marks, t0 - 1, (one) => one.t), upto = below(marks, t1, (one) => one.t);
  const many = upto - from, few = many < 700, crowded = many > 2500;
  const ends = new Map();
  for (let index = from; index < upto; index++) {
    const mark = marks[index];
    const big = MARKS[mark.sort].big;
    // A distant view shows only the most important marks, and decisions as a dense line.
    if (!shownMarks.get(mark.sort) || (crowded && (!big || (mark.sort === "decides" && index % Math.ceil(many / 2500))))) continue;
    if (mark.lane >= 0 && !lanes[mark.lane].on) continue;
    const lane = mark.lane >= 0 ? lanes[mark.lane] : null;
    const x = x_of(mark.t), y = lane ? lane.y : RULER + 10 + busy.length * FAULT;
    const off = lane ? Math.min(lane.gap * 0.22, 9) : 0;
    pen.fillStyle = pen.strokeStyle = MARKS[mark.sort].colour;
    const at = shape(pen, crowded && mark.sort === "decides" ? "executes" : mark.sort, x, y, off);
    drawn.marks.push({ mark, x, y: at });
    if (few) label(pen, mark, x, at, lane, ends);
  }
}
/** Draws one mark. Where it stands. */
function shape(pen, sort, x, y, off) {
  switch (sort) {
    case "decides": disc(pen, x, y, 4.5); return y;
    case "executes": pen.fillRect(x - 1, y - 5, 2, 10); return y;
    case "believes": disc(pen, x, y, 3.5); return y;
    case "calls": pen.fillStyle = "#fff"; disc(pen, x, y, 3.5); ring(pen, x, y, 3.5); return y;
    case "gives up": cross(pen, x, y, 4, 2); return y;
    case "crashes": cross(pen, x, y, 7, 3); return y;
    case "starts":
      pen.beginPath(); pen.moveTo(x - 4, y - 6); pen.lineTo(x + 7, y); pen.lineTo(x - 4, y + 6); pen.fill();
      return y;
    case "behaves": diamond(pen, x, y - off, 6); return y - off;
    case "withholds": pen.fillRect(x - 3, y - off - 1, 6, 2.5); return y - off;
    case "timer":
      pen.lineWidth = 1.3; ring(pen, x, y - off, 4);
      pen.beginPath(); pen.moveTo(x, y - off - 3); pen.lineTo(x, y - off); pen.lineTo(x + 2, y - off); pen.stroke();
      return y - off;
    case "enters": pen.fillRect(x - 1, y - off * 2, 2, off * 4); return y;
    case "refuses": cross(pen, x, y + off, 2.5, 1.4); return y + off;
    case "notes": diamond(pen, x, y + off, 3); return y + off;
    case "syncs": pen.fillRect(x - 2, y + off - 2, 4, 4); return y + off;
    case "network": diamond(pen, x, y - off, 3); return y - off;
    default: pen.fillRect(x - 1, y - 4, 2, 8); return y;
  }
}
function diamond(pen, x, y, size) {
  pen.beginPath();
  pen.moveTo(x, y - size); pen.lineTo(x + size, y); pen.lineTo(x, y + size); pen.lineTo(x - size, y);
  pen.fill();
}
/** A word beside a mark, where there is room. */
function label(pen, mark, x, y, lane, ends) {
  const row = mark.row, at_height = " " + height_text(row);
  let words = "";
  if (mark.sort === "notes") words = (text[data.kind[row]] || text[data.text[row]]) + at_height;
  else if (mark.sort === "decides") words = "decides" + at_height;
  else if (mark.sort === "refuses") words = text[data.text[row]].split(",")[0];
  else if (["timer", "calls", "believes"].includes(mark.sort)) words = text[data.text[row]].slice(0, 28);
  else if (mark.sort === "behaves" || mark.sort === "world") words = (mark.sort === "world" ? what(row) + " " : "") + text[data.text[row]].slice(0, 60);
  if (!words || (lane && lane.gap < 24)) return;
  const below_lane = mark.sort === "notes" || mark.sort === "refuses";
  const key = mark.lane + (below_lane ? "b" : "a");
  if ((ends.get(key) || 0) > x - 4) return;
  const at = below_lane ? y + 11 : mark.lane < 0 ? y : y - 12;
  const from = mark.lane < 0 ? x + 5 : x;
  pen.textAlign = "left";
  pen.font = "10px system-ui, sans-serif";
  const wide = pen.measureText(words).width;
  pen.fillStyle = "rgba(255, 255, 255, 0.8)";
  pen.fillRect(from - 1, at - 6, wide + 2, 12);
  pen.fillStyle = MARKS[mark.sort].colour;
  pen.fillText(words, from, at);
  pen.font = "11px system-ui, sans-serif";
  ends.set(key, from + wide + 6);
}
function draw_failure(pen) {
  if (failure === null || failure < t0 || failure > t1) return;
  const x = x_of(failure);
  pen.strokeStyle = "#c81e1e";
  pen.lineWidth = 2;
  pen.beginPath(); pen.moveTo(x, RULER); pen.lineTo(x, height); pen.stroke();
  pen.textAlign = "right";
  const words = data.oracle, wide = pen.measureText(words).width;
  pen.fillStyle = "#c81e1e";
  pen.fillRect(x - wide - 10, height - 18, wide + 10, 18);
  pen.fillStyle = "#fff";
  pen.fillText(words, x - 5, height - 9);
}
function draw_names(pen) {
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, LEFT, height);
  pen.textAlign = "right";
  pen.fillStyle = "#7a4b00";
  if (faults.length) pen.fillText("faults", LEFT - 8, RULER + 2 + FAULT / 2);
  pen.fillStyle = "#6b7686";
  pen.fillText("world", LEFT - 8, RULER + 10 + busy.length * FAULT);
  for (const lane of lanes) {
    if (!lane.on) continue;
    pen.fillStyle = lane.host ? "#a21caf" : "#1c2430";
    pen.font = "600 13px system-ui, sans-serif";
    pen.fillText(lane.name, LEFT - 8, lane.y);
    pen.font = "11px system-ui, sans-serif";
    if (lane.host) pen.fillText(lane.host, LEFT - 8, lane.y + 14);
  }
}
function draw_overview() {
  const [pen, w, h] = prepare(overview);
  const at = (t) => LEFT + (t - begin) / (end - begin) * (w - LEFT - 8);
  const bins = new Float64Array(Math.max(1, Math.floor(w - LEFT - 8)));
  for (const one of arrows) {
    const bin = Math.floor((one.t0 - begin) / (end - begin) * (bins.length - 1));
    if (bin >= 0 && bin < bins.length) bins[bin]++;
  }
  const most = Math.max(1, ...bins);
  pen.fillStyle = "#b9c6d8";
  bins.forEach((many, index) => {
    const tall = Math.sqrt(many / most) * (h - 16);
    pen.fillRect(LEFT + index, h - tall, 1, tall);
  });
  pen.fillStyle = "#e0a33e";
  for (const fault of faults) {
    const from = at(fault.from);
    pen.fillRect(from, 2 + (fault.line % 4) * 3, Math.max(1, at(Math.min(fault.to, end)) - from), 2);
  }
  for (const mark of marks) {
    if (mark.sort !== "crashes" && mark.sort !== "enters") continue;
    pen.fillStyle = mark.sort === "crashes" ? "#c81e1e" : "#1d4ed8";
    pen.fillRect(at(mark.t), mark.sort === "crashes" ? 14 : 19, 2, 4);
  }
  if (failure !== null) {
    pen.fillStyle = "#c81e1e";
    pen.fillRect(at(failure) - 1, 0, 2, h);
  }
  pen.strokeStyle = "#1d4ed8";
  pen.fillStyle = "rgba(29, 78, 216, 0.12)";
  const from = Math.max(LEFT - 2, at(t0)), to = Math.min(w - 2, at(t1));
  pen.fillRect(from, 1, Math.max(3, to - from), h - 2);
  pen.strokeRect(from, 1, Math.max(3, to - from), h - 2);
  pen.fillStyle = "#6b7686";
  pen.textAlign = "right";
  pen.fillText("whole run", LEFT - 8, h / 2 - 7);
  pen.fillText(((end - begin) / 1e9).toFixed(1) + " s", LEFT - 8, h / 2 + 7);
}

// ---- The element under the pointer.
function under(x, y) {
  let best = null, nearest = 7;
  for (const { mark, x: mx, y: my } of drawn.marks) {
    const far = Math.hypot(mx - x, my - y);
    if (far < nearest) { nearest = far; best = { rows: [mark.row], arrow: null }; }
  }
  if (best) return best;
  for (const { x: fx, y: fy, w, h, row } of drawn.faults) {
    if (x >= fx && x <= fx + w && y >= fy && y <= fy + h) return { rows: [row], arrow: null };
  }
  nearest = 5;
  for (const { one, xa, ya, xb, yb } of drawn.arrows) {
    if (y < Math.min(ya, yb) - 4 || y > Math.max(ya, yb) + 4) continue;
    const dx = xb - xa, dy = yb - ya, long = dx * dx + dy * dy || 1;
    const part = Math.max(0, Math.min(1, ((x - xa) * dx + (y - ya) * dy) / long));
    const far = Math.hypot(x - xa - part * dx, y - ya - part * dy);
    if (far < nearest) {
      nearest = far;
      best = { rows: one.to >= 0 ? [one.from, one.to] : [one.from], arrow: one };
    }
  }
  return best;
}
function show_tip(event) {
  const found = under(event.offsetX, event.offsetY);
  const before = hovered;
  hovered = found ? found.arrow : null;
  if (hovered !== before) paint();
  if (!found) { tip.style.display = "none"; return; }
  tip.textContent = found.rows.map(line).map((one) => one.trim().replace(/ {3,}/g, "   ")).join("\n")
    + (found.arrow && found.arrow.fate === OPEN ? "\nnever arrived in what is shown here" : "");
  tip.style.display = "block";
  const frame = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - frame.width - 8)) + "px";
  tip.style.top = (event.clientY + 18 + frame.height > window.innerHeight ? event.clientY - frame.height - 10 : event.clientY + 18) + "px";
}
view.addEventListener("mousedown", (event) => { pointer = { x: event.clientX, from: t0, to: t1, moved: false }; });
window.addEventListener("mousemove", (event) => {
  if (!pointer) return;
  const away = (event.clientX - pointer.x) / (width - LEFT - 8) * (pointer.to - pointer.from);
  if (Math.abs(event.clientX - pointer.x) > 3) pointer.moved = true;
  if (pointer.moved) { view.className = "drag"; look(pointer.from - away, pointer.to - away); }
});
window.addEventListener("mouseup", () => { pointer = null; view.className = ""; });
view.addEventListener("mousemove", (event) => { if (!pointer || !pointer.moved) show_tip(event); });
view.addEventListener("mouseleave", () => { tip.style.display = "none"; });
view.addEventListener("click", (event) => {
  const found = under(event.offsetX, event.offsetY);
  show_lines(found ? found.rows[0] : below(times, t_of(event.offsetX), (t) => t));
});
view.addEventListener("wheel", (event) => {
  event.preventDefault();
  const sideways = event.shiftKey ? event.deltaY : event.deltaX;
  if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
    const away = sideways / width * (t1 - t0);
    look(t0 + away, t1 + away);
  } else zoom(Math.exp(event.deltaY * 0.002), event.offsetX);
}, { passive: false });
function jump(event) {
  const frame = overview.getBoundingClientRect();
  const t = begin + (event.clientX - frame.left - LEFT) / (frame.width - LEFT - 8) * (end - begin), half = (t1 - t0) / 2;
  look(t - half, t + half);
}
overview.addEventListener("mousedown", (event) => {
  jump(event);
  const stop = () => { window.removeEventListener("mousemove", jump); window.removeEventListener("mouseup", stop); };
  window.addEventListener("mousemove", jump);
  window.addEventListener("mouseup", stop);
});
window.addEventListener("keydown", (event) => {
  const away = (t1 - t0) * 0.2;
  const keys = {
    ArrowLeft: () => look(t0 - away, t1 - away), ArrowRight: () => look(t0 + away, t1 + away),
    "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4),
  };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
window.addEventListener("resize", paint);

// ---- The lines around the selected element.
function show_lines(row) {
  chosen = Math.max(0, Math.min(row, count - 1));
  box.textContent = "";
  const heading = document.createElement("div");
  heading.className = "heading";
  heading.textContent = data.heading;
  box.append(heading);
  let here = null;
  const wanted = (at) => at === chosen || who(at) === "world" || !laneOf.has(who(at)) || lanes[laneOf.get(who(at))].on;
  const rows = [];
  for (let at = chosen; at >= 0 && rows.length < 150; at--) if (wanted(at)) rows.unshift(at);
  for (let at = chosen + 1; at < count && rows.length < 300; at++) if (wanted(at)) rows.push(at);
  for (const at of rows) {
    const item = document.createElement("div");
    item.textContent = line(at);
    if (at === chosen) { item.className = "here"; here = item; }
    if (what(at) === "fails") item.className = "fails";
    item.addEventListener("click", () => {
      const half = (t1 - t0) / 2;
      if (times[at] < t0 || times[at] > t1) look(times[at] - half, times[at] + half);
    });
    box.append(item);
  }
  if (here) box.scrollTop = here.offsetTop - box.clientHeight / 2;
}

// ---- Buttons.
const bar = document.getElementById("bar");
function heading(words) { const b = document.createElement("b"); b.textContent = words; bar.append(b); }
function button(words, act, says) {
  const one = document.createElement("button");
  one.textContent = words;
  one.title = says || "";
  one.addEventListener("click", () => act(one));
  bar.append(one);
  return one;
}
/** Buttons that switch things on and off; a double click leaves only one of them on. */
function switches(items) {
  const all = items.map((item) => {
    const one = button(item.words, () => { item.set(!item.on()); refresh(); }, item.says);
    if (item.colour) {
      const dot = document.createElement("i");
      dot.style.background = item.colour;
      one.prepend(dot);
    }
    if (item.count) {
      const small = document.createElement("small");
      small.textContent = item.count;
      one.append(small);
    }
    one.addEventListener("dblclick", () => { items.forEach((other) => other.set(other === item)); refresh(); });
    return [one, item];
  });
  function refresh() {
    for (const [one, item] of all) one.className = item.on() ? "" : "off";
    if (chosen >= 0) show_lines(chosen);
    paint();
  }
  for (const [one, item] of all) one.className = item.on() ? "" : "off";
}
heading("go to");
if (failure !== null) button("failure", () => look(...first_at_failure()), "the finding of the oracle");
button("start", () => { const span = t1 - t0; look(begin, begin + span); });
button("end", () => { const span = t1 - t0; look(end - span, end); });
button("all", () => look(begin, end), "the whole run");
button("−", () => zoom(1.6), "zoom out (wheel, or -)");
button("+", () => zoom(0.6), "zoom in (wheel, or +)");
function first_at_failure() { history.replaceState(null, "", "#"); return first_view(); }
heading("who");
switches(lanes.map((lane) => ({ words: lane.name, says: lane.host, on: () => lane.on, set: (on) => { lane.on = on; } })));
heading("messages");
switches([...kinds].sort((a, b) => b[1].count - a[1].count).map(([kind, known]) => ({
  words: kind, colour: known.colour, count: known.count, says: "double click: only this",
  on: () => known.on, set: (on) => { known.on = on; },
})));
heading("marks");
switches(Object.keys(MARKS).filter((sort) => markCounts.has(sort)).map((sort) => ({
  words: sort, colour: MARKS[sort].colour, count: markCounts.get(sort), says: MARKS[sort].says,
  on: () => shownMarks.get(sort), set: (on) => { shownMarks.set(sort, on); },
})));

heading("colour");
button("by subject", (one) => { by_subject = !by_subject; one.className = by_subject ? "" : "off"; paint(); },
  "arrows about the same block have the same colour").className = "off";

const verdict = document.getElementById("verdict");
verdict.textContent = data.verdict;
if (failure !== null) verdict.className = "bad";
document.getElementById("facts").textContent = data.facts;
document.getElementById("about").textContent = data.about;

const [from, to] = first_view();
look(from, to);
let start = below(times, failure === null ? from : failure, (t) => t);
if (failure !== null) {
  for (let row = 0; row < count; row++) if (what(row) === "fails") { start = row; break; }
}
show_lines(start);
