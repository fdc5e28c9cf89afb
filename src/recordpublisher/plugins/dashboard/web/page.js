"use strict";
const POLL_MS = 2000, HISTORY_MS = 30 * 60000, ROW_PX = 28, SPARE_ROWS = 10;
const element = (id) => document.getElementById(id);
let snapshot = null, receivedAt = 0, failedSince = null, sortBy = "lag", descending = true, shown = [], drawnTree = "";
const history = [];

const known = (value) => value !== null && value !== undefined;
function duration(ms) {
  if (!known(ms)) return "-";
  if (ms < 0) return "-" + duration(-ms);
  if (ms < 1000) return ms ? Math.round(ms) + " ms" : "0 s";
  for (const [size, unit, next] of [[1000, "s", 120], [60000, "min", 120], [3600000, "h", 48]])
    if (ms / size < next) return (ms / size).toFixed(1) + " " + unit;
  return (ms / 86400000).toFixed(1) + " d";
}
function number(value) {
  if (!known(value)) return "-";
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });
}
function bytes(value) {
  if (!known(value)) return "-";
  const unit = ["B", "kB", "MB", "GB"], at = value < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(value) / 3));
  return number(value / 1000 ** at) + " " + unit[at];
}
const yesNo = (value) => known(value) ? (value ? "yes" : "no") : "-";
const ahead = (shard) => known(shard.watermark) && known(snapshot.globalWatermark) ? shard.watermark - snapshot.globalWatermark : null;
const signed = (ms) => (ms > 0 ? "+" : "") + duration(ms);

// name, title, what it sorts by, its text; text columns are aligned to the left
const COLUMNS = [
  ["shard", "Shard", (s) => s.stream + "/" + s.shard, (s) => (isOneStream() ? "" : s.stream + "/") + s.shard],
  ["worker", "Worker", (s) => s.worker ?? s.process, (s) => s.worker ?? (known(s.process) ? String(s.process) : "-")],
  ["lag", "Lag", (s) => s.lagMs, (s) => duration(s.lagMs)],
  ["records", "Records/s", (s) => s.recordsPerSecond, (s) => number(s.recordsPerSecond)],
  ["bytes", "Bytes/s", (s) => s.bytesPerSecond, (s) => bytes(s.bytesPerSecond)],
  ["watermark", "Watermark", ahead, (s) => signed(ahead(s))],
  ["idle", "Idle", (s) => s.isIdle, (s) => yesNo(s.isIdle)],
  ["held", "Held", (s) => s.isHeld, (s) => yesNo(s.isHeld)],
  ["loss", "Lost in", (s) => s.lossMs, (s) => duration(s.lossMs)],
  ["alarm", "Alarm", (s) => s.hasAlarm, (s) => yesNo(s.hasAlarm)],
];
const LOSS = "In this time the stream's retention may delete the oldest record that this job has not written.";
const isOneStream = () => new Set(snapshot.shards.map((s) => s.stream)).size < 2;

function make(name, text, className) {
  const made = document.createElement(name);
  if (known(text)) made.textContent = text;
  if (className) made.className = className;
  return made;
}
const knownValues = (name, rows) => (rows ?? snapshot.shards).map((s) => s[name]).filter(known);
const sum = (name, rows) => { const all = knownValues(name, rows); return all.length ? all.reduce((a, b) => a + b, 0) : null; };
const most = (name) => { const all = knownValues(name); return all.length ? all.reduce((a, b) => Math.max(a, b)) : null; };
const least = (name) => { const all = knownValues(name); return all.length ? all.reduce((a, b) => Math.min(a, b)) : null; };

function countTotals() {  // the titles are those that the job gives, so that a new counter is shown without a change here
  const total = new Map();
  for (const counts of knownValues("counts", snapshot.workers ?? []))
    for (const [title, count] of Object.entries(counts)) total.set(title, (total.get(title) ?? 0) + count);
  return [...total].map(([title, count]) => [title[0].toUpperCase() + title.slice(1), number(count)]);
}
function drawTotals() {
  const alarms = sum("alarms", snapshot.workers ?? []) ?? sum("hasAlarm"), mark = snapshot.globalWatermark;
  const totals = [
    ["Shards", number(snapshot.shards.length)], ["Largest lag", duration(most("lagMs"))],
    ["Records/s", number(sum("recordsPerSecond"))], ["Bytes/s", bytes(sum("bytesPerSecond"))],
    ["Watermark age", known(mark) ? duration(snapshot.timeMs - mark) : "-"],
    ["Idle", number(sum("isIdle"))], ["Held", number(sum("isHeld"))],
    ...countTotals(),
    ...(sum("inFlight") ? [["In flight", number(sum("inFlight")), "", "records of a queue that are not acknowledged"]] : []),
    ["First loss in", duration(least("lossMs")), "", LOSS], ["Alarms", number(alarms), alarms ? "bad" : ""],
  ];
  element("totals").replaceChildren(...totals.map(([title, text, className, explanation]) => {
    const pair = make("div");
    pair.append(make("dt", title), make("dd", text, className));
    if (explanation) pair.title = explanation;
    return pair;
  }));
}
function drawWorkers() {
  const owned = new Map();
  const readerOf = (shard) => shard.worker ?? shard.process;
  for (const each of snapshot.shards) if (known(readerOf(each))) owned.set(readerOf(each), (owned.get(readerOf(each)) ?? 0) + 1);
  const listed = snapshot.workers ?? [...owned.keys()].sort((a, b) => a < b ? -1 : 1).map((worker) => ({ worker }));
  const lines = listed.map((each) => {
    const shards = owned.get(each.worker ?? each.process) ?? 0, reasons = each.notReady ?? [];
    const health = !known(each.responds) ? "health -" : !each.responds ? "does not respond" : reasons.length ? "not ready: " + reasons.join("; ") : "ready";
    const checkpoint = known(each.checkpointAgeMs) ? `checkpoint ${duration(each.checkpointAgeMs)} ago` : "checkpoint -";
    const last = each.commit, files = last?.files ? ` (${number(last.files)} ${last.files === 1 ? "file" : "files"}, ${bytes(last.bytes)})` : "";
    const commit = last ? `, last commit ${known(last.ageMs) ? `${duration(last.ageMs)} ago${files}` : "-"}, ${number(last.waitingRecords)} records wait` : "";
    return make("li", `${each.worker ?? each.process}: ${shards} ${shards === 1 ? "shard" : "shards"}, ${checkpoint}${commit}, ${health}`, each.responds === false || reasons.length ? "bad" : "");
  });
  element("workers").replaceChildren(...(lines.length ? lines : [make("li", "-")]));
}
function drawChart(name, index, text) {
  const values = history.map((point) => point[index]), last = values.at(-1);
  element(name + "-now").textContent = text(last);
  const [first, end] = [history[0].timeMs, history.at(-1).timeMs], span = Math.max(end - first, 1);
  const top = values.filter(known).reduce((a, b) => Math.max(a, b), 1);
  let path = "", pen = "M";  // a value that is not known is a gap
  history.forEach((point, at) => {
    if (known(values[at])) { path += `${pen}${((point.timeMs - first) / span * 300).toFixed(1)} ${(58 - values[at] / top * 54).toFixed(1)}`; pen = "L"; } else pen = "M";
  });
  const chart = element(name + "-chart");
  chart.firstElementChild.setAttribute("d", path);
  chart.nextElementSibling.replaceChildren(make("span", `${duration(end - first)} ago`), make("span", `at most ${text(top)}`), make("span", "now"));
}

// A shard with two parents stands below the first of them.
function drawTree() {
  const keyOf = (shard) => `${shard.stream}/${shard.shard}`, parentsOf = (shard) => (shard?.parents ?? []).map((id) => `${shard.stream}/${id}`);
  const shards = new Map(snapshot.shards.map((shard) => [keyOf(shard), shard])), children = new Map();
  for (const shard of snapshot.shards) for (const parent of parentsOf(shard)) children.set(parent, [...(children.get(parent) ?? []), keyOf(shard)]);
  const drawn = JSON.stringify([[...children], [...shards.values()].map((shard) => shard.stage)]);
  if (drawn === drawnTree) return;
  drawnTree = drawn;
  const name = (key) => isOneStream() ? key.slice(key.lastIndexOf("/") + 1) : key;
  const stage = (shard) => !shard ? "no longer read" : (shard.stage ?? "-").toLowerCase();
  const list = (keys) => { const made = make("ul"); made.append(...keys.sort().map(branch)); return made; };
  const branch = (key) => {
    const shard = shards.get(key), parents = parentsOf(shard), below = children.get(key) ?? [], item = make("li", name(key) + " ");
    const elsewhere = below.filter((child) => parentsOf(shards.get(child))[0] !== key);
    const notes = [stage(shard), ...(parents.length > 1 ? ["from a merge with " + name(parents[1])] : []), ...elsewhere.map((child) => "merged into " + name(child))];
    const rest = below.filter((child) => !elsewhere.includes(child));
    item.append(make("span", notes.join(", ")), ...(rest.length ? [list(rest)] : []));
    return item;
  };
  const roots = [...children.keys()].filter((key) => !parentsOf(shards.get(key)).length), isKnown = knownValues("parents").length > 0;
  element("tree").replaceChildren(roots.length ? list(roots) : make("span", isKnown ? "No shard was split or merged." : "-"));
}

function chooseShards() {
  const words = element("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const marks = { idle: "isIdle", held: "isHeld", alarm: "hasAlarm" };
  const fits = (shard) => words.every((word) => marks[word] ? shard[marks[word]] : `${shard.stream}/${shard.shard}`.toLowerCase().includes(word));
  const value = COLUMNS.find(([name]) => name === sortBy)[2], sign = descending ? -1 : 1;
  shown = snapshot.shards.filter(fits).map((shard) => [value(shard), shard]).sort(([a, one], [b, other]) => {
    if (known(a) !== known(b)) return known(a) ? -1 : 1;  // what is not known comes last, in both orders
    return a === b ? (one.shard < other.shard ? -1 : 1) : sign * (a < b ? -1 : 1);
  }).map(([, shard]) => shard);
  element("count").textContent = `${number(shown.length)} of ${number(snapshot.shards.length)}`;
  drawRows();
}
function drawRows() {
  const scroll = element("scroll"), from = Math.max(0, Math.min(Math.floor(scroll.scrollTop / ROW_PX), shown.length) - SPARE_ROWS);
  const to = Math.min(shown.length, from + Math.ceil(innerHeight / ROW_PX) + 2 * SPARE_ROWS);
  const space = (rows) => { const row = make("tr", null, "space"); row.ariaHidden = "true"; const cell = make("td"); cell.colSpan = COLUMNS.length; cell.style.height = rows * ROW_PX + "px"; row.append(cell); return row; };
  const rows = shown.slice(from, to).map((shard, at) => {
    const row = make("tr", null, shard.hasAlarm ? "alarm" : shard.stage === "ENDED" ? "ended" : "");
    row.ariaRowIndex = from + at + 2;
    row.append(...COLUMNS.map(([name, , , text]) => make("td", text(shard), name === "shard" ? "text" : "")));
    return row;
  });
  element("rows").closest("table").ariaRowCount = shown.length + 1;
  element("rows").replaceChildren(space(from), ...rows, space(shown.length - to));
}
function drawHead() {
  element("head").replaceChildren(...COLUMNS.map(([name, title]) => {
    const cell = make("th", null, name === "shard" ? "text" : ""), button = make("button", title);
    cell.scope = "col";
    button.dataset.column = name;
    button.addEventListener("click", () => {
      [descending, sortBy] = [sortBy === name ? !descending : name !== "shard", name];
      markSorted();
      element("scroll").scrollTop = 0;
      if (snapshot) chooseShards();
    });
    cell.append(button);
    return cell;
  }));
  markSorted();
}
function markSorted() {  // the buttons stay, so that the focus does
  for (const button of element("head").querySelectorAll("button"))
    button.parentElement.ariaSort = button.dataset.column === sortBy ? (descending ? "descending" : "ascending") : null;
}

function draw() {
  const streams = [...new Set(snapshot.shards.map((s) => s.stream))].join(", "), name = snapshot.job ?? (streams || "Job");
  element("job").textContent = name;
  element("streams").textContent = name === streams ? "" : streams;
  document.title = name + " - recordpublisher";
  element("alignment").textContent = snapshot.alignment ?? "What alignment waits for: -";
  drawTotals();
  drawWorkers();
  drawChart("rate", "recordsPerSecond", number);
  drawChart("lag", "lagMs", duration);
  drawTree();
  chooseShards();
}
function drawAge() {
  const age = element("age");
  age.className = failedSince === null ? "" : "old";
  if (!snapshot) return;
  const read = new Date(snapshot.timeMs).toISOString().slice(11, 19), seconds = Math.round((performance.now() - receivedAt) / 1000);
  age.textContent = `Read at ${read} UTC` + (seconds > 2 || failedSince !== null ? `, ${duration(seconds * 1000)} ago` : "");
}
function fail(reason) {
  failedSince ??= new Date();
  element("error").hidden = false;
  element("error").textContent = `Unknown since ${failedSince.toISOString().slice(11, 19)} UTC: ${reason}` + (snapshot ? " The values below are old." : "");
}
async function read() {
  let response, found;
  try {
    response = await fetch("snapshot.json", { cache: "no-store" });
    found = await response.json();
  } catch {
    return fail("the process that serves this page does not respond.");
  }
  if (!response.ok) return fail(found.error.replace(/\.?$/, "."));
  failedSince = null;
  element("error").hidden = true;
  if (!snapshot || found.timeMs !== snapshot.timeMs) {
    snapshot = found;
    receivedAt = performance.now();
    history.push({ timeMs: found.timeMs, recordsPerSecond: sum("recordsPerSecond"), lagMs: most("lagMs") });
    while (history[0].timeMs < found.timeMs - HISTORY_MS) history.shift();
    draw();
  }
}
async function poll() {
  await read();
  drawAge();
  setTimeout(poll, POLL_MS);
}
async function begin() {  // The history that the process has kept comes first.
  try {
    const response = await fetch("history.json", { cache: "no-store" });
    history.push(...(await response.json()).slice(0, -1));  // the last point is that of the first reading
  } catch { /* the first reading says what is wrong */ }
  poll();
}
drawHead();
element("filter").addEventListener("input", () => { element("scroll").scrollTop = 0; if (snapshot) chooseShards(); });
element("scroll").addEventListener("scroll", () => requestAnimationFrame(drawRows));
addEventListener("resize", drawRows);
addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== element("filter")) { event.preventDefault(); element("filter").focus(); }
});
setInterval(drawAge, 1000);
begin();
