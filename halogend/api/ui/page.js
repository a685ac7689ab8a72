// Shows what the admin API says. Every value goes into the page as text; nothing is ever changed from here.
"use strict";

const SOON_MS = 150; // several events in a row are one look
const EVERY_MS = 2000; // numbers tell of themselves to nobody
const AGAIN_MS = 3000;
const RECEIPTS = 20;
const EVENTS = 200;
const KINDS = ["receipt", "step", "generation", "replica", "progress", "model", "hold", "drift", "state_trouble", "source_trouble", "source_unread", "device", "daemon", "end"];
const GOOD = new Set(["applied", "unchanged", "serving"]);
const BAD = new Set(["failed", "rejected", "partially_applied", "rolled_back", "dead"]);

const at = (id) => document.getElementById(id);

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (kind) made.className = kind;
  return made;
}

function row(...cells) {
  const made = element("tr");
  for (const cell of cells) {
    const td = cell instanceof Node && cell.nodeName === "TD" ? cell : element("td");
    if (td !== cell) td.append(cell instanceof Node ? cell : String(cell ?? ""));
    made.append(td);
  }
  return made;
}

const number = (text) => element("td", text, "number");
const mib = (bytes) => `${Math.round(bytes / 1048576).toLocaleString("en")} MiB`;
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const moment = (seconds) => new Date(seconds * 1000).toLocaleString("sv-SE");

function span(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

function toned(state) {
  const tone = GOOD.has(state) ? "good" : BAD.has(state) ? "bad" : "busy";
  return element("span", String(state ?? "in progress").replaceAll("_", " "), tone);
}

// --- what is --------------------------------------------------------------------------------------

function showHeadline(status) {
  const { desired, active } = status.revision;
  const revision = desired === active ? `revision ${active ?? "none"}` : `revision ${active ?? "none"} is active, ${desired} is asked for`;
  at("headline").replaceChildren(
    `${status.version}, up ${span(status.uptime_s)}, ${status.source}: ${revision}, `,
    element("strong", status.settled ? "settled" : "not settled", status.settled ? "good" : "bad"),
  );
  document.title = status.settled ? "halogend" : "(!) halogend";
}

function accelerator(name, facts) {
  const notices = [];
  if (facts?.unusable) notices.push(`No engine can run on ${name}: ${facts.unusable}`);
  if (facts?.rest) notices.push(`${name} is held at ${facts.limit_c} C: its engines rest ${Math.round(100 * facts.rest)} % of the time.`);
  return notices;
}

function showNotices(status) {
  const notices = [];
  if (status.hold) notices.push(`Changes are held since ${moment(status.hold.since)} by ${status.hold.by}.`);
  if (status.drift) notices.push(`The document of ${status.drift.receipt} is active, and not what the source holds.`);
  if (status.state?.trouble) notices.push(`State is not kept in ${status.state.directory}: ${status.state.trouble}`);
  if (status.source_watch?.reason) notices.push(`The source is looked at now and then: ${status.source_watch.reason}`);
  if (status.source_watch?.unread) notices.push(`No edit is seen: ${status.source_watch.unread}`);
  for (const [name, device] of Object.entries(status.devices ?? {})) notices.push(...accelerator(name, device.accelerator));
  for (const why of status.devices_not_seen ?? []) notices.push(`Devices are not seen: ${why}`);
  at("notices").replaceChildren(...notices.map((text) => element("li", text)));
}

function pool(generation) {
  if (!generation.blocks_total) return "";
  const cell = element("td");
  const meter = element("meter");
  meter.max = generation.blocks_total;
  meter.value = generation.blocks_used;
  cell.append(meter, `${generation.blocks_used} of ${generation.blocks_total} blocks`);
  return cell;
}

function loadState(generation) {
  const cell = element("td");
  if (generation.total_bytes) {
    const progress = element("progress");
    progress.max = generation.total_bytes;
    progress.value = generation.loaded_bytes;
    cell.append(progress);
  }
  cell.append(element("span", generation.stage ?? "starting", "busy"));
  return cell;
}

function generationRow(name, state, generation) {
  return row(
    name, state, number(generation.generation), number(generation.requests), pool(generation),
    number(generation.held_bytes ? mib(generation.held_bytes) : ""), element("td", generation.path, "path"),
  );
}

function servingState(model) {
  if (!model.probation) return toned(model.state);
  const { left_s, errors, requests } = model.probation;
  return element("span", `${model.state}, on probation ${span(left_s)} more (${errors} of ${requests} failed)`, "busy");
}

function replicaRow(replica) {
  const state = element("span", replica.state, ["ready", "draining"].includes(replica.state) ? "quiet" : "bad");
  const where = element("td", `${replica.replica} on ${replica.device}`, "path");
  return row("", state, "", number(replica.requests), "", number(mib(replica.held_bytes)), where);
}

function modelRows(name, model) {
  const rows = [];
  if (model.serving) rows.push([servingState(model), model.serving]);
  if (model.parked) rows.push([element("span", "stands by", "quiet"), model.parked]);
  for (const each of model.draining) {
    const left = each.left_s === null || each.left_s === undefined ? "" : `, ${span(each.left_s)} left`;
    rows.push([element("span", `draining${left}`, "quiet"), each]);
  }
  if (model.loading) rows.push([loadState(model.loading), model.loading]);
  const shown = rows.map(([state, generation], index) => generationRow(index ? "" : name, state, generation));
  const replicas = model.serving?.replicas ?? [];
  if (replicas.length > 1) shown.splice(1, 0, ...replicas.map(replicaRow));
  if (!rows.length) shown.push(row(name, toned(model.state), "", "", "", "", element("td", model.path, "path")));
  for (const wrong of [model.trouble, model.degraded]) {
    if (!wrong) continue;
    const cell = element("td", wrong, "bad trouble");
    cell.colSpan = 6;
    shown.push(row("", cell));
  }
  return shown;
}

function deviceRow(name, device) {
  const meter = element("meter");
  meter.max = device.budget_bytes || 1;
  meter.value = device.held_bytes;
  const sizes = ["held_bytes", "budget_bytes", "memory_bytes", "reserve_bytes", "foreign_bytes"];
  return row(name, meter, ...sizes.map((key) => number(device[key] === undefined ? "" : mib(device[key]))));
}

function showStatus(status) {
  showHeadline(status);
  showNotices(status);
  at("models").replaceChildren(...Object.entries(status.models).flatMap((each) => modelRows(...each)));
  at("devices").replaceChildren(...Object.entries(status.devices ?? {}).map((each) => deviceRow(...each)));
}

// --- what changed -----------------------------------------------------------------------------------

function receiptRow(receipt) {
  const button = element("button", receipt.id);
  button.type = "button";
  button.addEventListener("click", () => openReceipt(receipt.id));
  const models = receipt.models.filter((each) => each.action !== "keep").map((each) => `${each.action} ${each.model}`);
  return row(
    button, moment(receipt.asked_at), toned(receipt.outcome), receipt.trigger, receipt.actor,
    (receipt.revision ?? "").slice(0, 12), models.join(", "),
  );
}

function problemLine(problem) {
  const place = ["file", "line", "column"].map((key) => problem[key]).filter(Boolean).join(":");
  return `${place ? `${place}: ` : ""}${problem.code}: ${problem.message}${problem.hint ? ` (${problem.hint})` : ""}`;
}

function changeLine(change) {
  return `${change.field}: ${JSON.stringify(change.old)} -> ${JSON.stringify(change.new)}  (${change.class})`;
}

function stepLine(step) {
  const { name, began_at: _, seconds, error, ...facts } = step;
  const told = Object.entries(facts).map(([key, value]) => `${key} ${fact(key, value)}`).join(", ");
  return `  ${name}  ${seconds === null ? "running" : `${seconds.toFixed(2)} s`}  ${told}${error ? `  ${error}` : ""}`;
}

function fact(key, value) {
  if (key.endsWith("_bytes") && typeof value === "number") return mib(value);
  return typeof value === "object" ? JSON.stringify(value) : value;
}

function receiptLines(receipt) {
  const lines = receipt.problems.map(problemLine).concat(receipt.server_changes.map(changeLine));
  for (const model of receipt.models) {
    lines.push(`${model.model}: ${model.action}, ${model.outcome ?? "in progress"}${model.error ? `: ${model.error}` : ""}`);
    lines.push(...model.changes.map((each) => `  ${changeLine(each)}`), ...model.steps.map(stepLine));
  }
  return lines;
}

let opened = null;

async function openReceipt(id) {
  const receipt = await get(`receipts/${encodeURIComponent(id)}`);
  opened = receipt.outcome === null || receipt.milestones.closed === undefined ? id : null;
  at("receipt").hidden = false;
  at("receipt-title").textContent = `${receipt.id}: ${receipt.outcome ?? "in progress"}, by ${receipt.trigger} (${receipt.actor})`;
  at("receipt-lines").replaceChildren(...receiptLines(receipt).map((line) => element("li", line)));
}

// --- what happens -------------------------------------------------------------------------------------

function describe(kind, data) {
  const { at: _, ...rest } = data;
  if (kind === "receipt") {
    const errors = rest.models.map((each) => each.error).filter(Boolean);
    const why = rest.problems.map(problemLine).concat(errors).join("; ");
    return `receipt ${rest.receipt}: ${rest.phase}${rest.outcome ? `, ${rest.outcome}` : ""}${why ? `: ${why}` : ""}`;
  }
  if (kind === "step") {
    const after = rest.phase === "ended" ? ` after ${rest.seconds.toFixed(2)} s${rest.error ? `: ${rest.error}` : ""}` : "";
    return `${rest.model}: ${rest.name} ${rest.phase}${after}`;
  }
  if (kind === "generation") return `${rest.model}: generation ${rest.generation} is ${rest.state}`;
  if (kind === "replica") return `${rest.model}: replica ${rest.replica} on ${rest.device} is ${rest.state}`;
  if (kind === "model") return `${rest.model}: ${rest.state}${rest.trouble || rest.degraded ? `: ${rest.trouble ?? rest.degraded}` : ""}`;
  if (kind === "end") return rest.message;
  return `${kind}: ${Object.entries(rest).map(([key, value]) => `${key} ${fact(key, value)}`).join(", ")}`;
}

function showEvent(kind, data) {
  if (kind === "progress") return; // the table shows it
  const line = element("li");
  line.append(element("time", clock(data.at ?? Date.now() / 1000)), describe(kind, data));
  at("events").prepend(line);
  while (at("events").childElementCount > EVENTS) at("events").lastElementChild.remove();
}

function follow() {
  const stream = new EventSource("events");
  stream.addEventListener("hello", () => {
    at("link").textContent = "live";
    look();
  });
  for (const kind of KINDS) {
    stream.addEventListener(kind, (event) => {
      showEvent(kind, JSON.parse(event.data));
      look();
    });
  }
  stream.addEventListener("error", () => {
    at("link").textContent = "no daemon answers; trying again";
    if (stream.readyState !== EventSource.CLOSED) return; // it comes back by itself
    stream.close();
    setTimeout(follow, AGAIN_MS);
  });
}

// --- looking --------------------------------------------------------------------------------------------

async function get(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

let planned = null;

function look() {
  planned ??= setTimeout(lookNow, SOON_MS);
}

async function lookNow() {
  try {
    const [status, { receipts }] = await Promise.all([get("status"), get(`receipts?limit=${RECEIPTS}`)]);
    showStatus(status);
    at("receipts").replaceChildren(...receipts.map(receiptRow));
    if (opened !== null) await openReceipt(opened);
  } catch (error) {
    at("link").textContent = `${error.message}; trying again`;
  } finally {
    planned = null;
  }
}

setInterval(() => {
  if (!document.hidden) look();
}, EVERY_MS);
follow();
look();
