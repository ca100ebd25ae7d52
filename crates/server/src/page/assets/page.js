// The page: asks the server once a second, and shows what it says.
import { History, HOUR, clock, count, lasting, some, sum } from "./data.js";
import { largest, setMarks, show } from "./charts.js";
import { cards, classTable, command, doctor, element, eventList, path, refusals, siteTable, stageTable, topTables, upstreamTable } from "./tables.js";

const LEVELS = ["normal", "header control", "class order", "SYN policing"];

const at = (id) => document.getElementById(id);
const history = new History();
let events = [];
let facts = { classes: [], rules: [], addresses: "whole", agent: false, stages: [], doctor: "" };
let status = null;
let before = null;
let top = null;
let generation = null;
let isPaused = false;
let lostSince = null;
let beats = 0;

/** The server has not answered, or not with what was asked for. */
class LostError extends Error {}

/** Asks the server for a document; `null` if it wants a token. */
async function get(name) {
  try {
    const answer = await fetch(`/page/${name}`, { credentials: "same-origin", cache: "no-store" });
    if (answer.status === 401) return null;
    if (!answer.ok) throw new LostError(`${name}: ${answer.status}`);
    return await answer.json();
  } catch (error) {
    throw error instanceof LostError ? error : new LostError(error.message);
  }
}

function chosen(name) {
  return document.querySelector(`input[name=${name}]:checked`).value;
}

/** Asks for what is new. */
async function look() {
  const lastEvent = events.length ? events[events.length - 1].ms : 0;
  const [figures, state, news] = await Promise.all([get(`history?after=${history.last}`), get("status"), get(`events?after=${lastEvent}`)]);
  if (!figures || !state || !news) return false;
  if (!history.take(figures) || (status && state.uptime_seconds < status.uptime_seconds)) {
    // another server answers: what it remembers is asked for anew
    history.clear();
    events = [];
    history.take(await get("history?after=0"));
    events = await get("events?after=0");
  } else {
    events.push(...news);
  }
  events = events.filter((event) => event.ms > Date.now() - HOUR * 1000);
  [before, status] = [status, state];
  const hasEnded = news.some((event) => event.kind === "stage");
  if (generation !== state.config_generation || hasEnded || beats % 30 === 0) {
    facts = (await get("facts")) || facts;
    generation = state.config_generation;
  }
  if (beats % 2 === 0 || !top) top = (await get(`top?minutes=${chosen("minutes")}`)) || top;
  beats += 1;
  return true;
}

/** Who, what, since when, by which rule: in sentences. */
function summary() {
  const lines = [];
  const level = status.overload_level;
  const cause = Object.keys(status.overload_cause).find((name) => status.overload_cause[name] === 1);
  const begun = [...events].reverse().find((event) => event.kind === "level");
  const since = begun ? `, since ${clock(begun.ms)} UTC (${lasting((Date.now() - begun.ms) / 1000)})` : "";
  if (level > 0) lines.push([`Overload: level ${LEVELS[level] || level} because of ${(cause || "?").replaceAll("_", " ")}${since}.`, "bad"]);
  const names = Object.keys(status.classes);
  const refused = names.map((name) => [name, (history.mean("class", name, "refused", 5) || 0) + (history.mean("class", name, "refused_connections", 5) || 0)]).filter((one) => one[1] > 0);
  const answers = ["1xx", "2xx", "3xx", "4xx", "5xx"].reduce((all, kind) => all + (history.mean("server", "", kind, 5) || 0), 0);
  if (refused.length) {
    refused.sort((a, b) => b[1] - a[1]);
    const all = refused.reduce((sums, one) => sums + one[1], 0);
    const first = refusedSince();
    const since = first ? `, since ${clock(first * 1000)} UTC (${lasting(Date.now() / 1000 - first)})` : "";
    lines.push([`Policy refuses ${some(all)}/s${since}: ${refused.map(([name, rate]) => `class ${name} ${some(rate)}/s${why(name)}`).join(", ")}.`, "bad"]);
  }
  if (top) refusals(top, { 1: "minute", 10: "10 minutes", 60: "hour" }[chosen("minutes")]);
  const dropped = history.mean("gate", "", "dropped", 5);
  if (dropped > 0) lines.push([`The kernel drops ${some(dropped)} SYNs/s by rules.`, "bad"]);
  for (const one of status.upstreams.filter((row) => !["asked", "backup", "drained"].includes(row.state))) {
    lines.push([`Application ${one.upstream} (${one.site}, ${one.route}) ${one.state.replaceAll("_", " ")}${one.for_s === null ? "" : ` for ${lasting(one.for_s)}`}.`, "bad"]);
  }
  for (const one of facts.stages.filter((row) => row.last_ms !== null && Date.now() - row.last_ms < 60000)) {
    lines.push([`Stage ${one.stage}: a process of instance ${one.instance} has ended ${lasting((Date.now() - one.last_ms) / 1000)} ago, and was started again.`, "bad"]);
  }
  for (const one of status.upstreams.filter((row) => row.state === "drained")) lines.push([`Application ${one.upstream} is drained: an operator has taken it out.`, "warn"]);
  if (status.config_last_reload_successful === 0) lines.push(["The last reload has failed: what was in force before stays.", "bad"]);
  // what policy refuses may be 5xx, too
  const errors = (history.mean("server", "", "5xx", 5) || 0) - refused.reduce((all, one) => all + one[1], 0);
  if (errors >= 0.05) lines.push([`Errors (5xx) that are no refusals: ${refused.length ? "at least " : ""}${some(errors)}/s.`, "warn"]);
  lines.push([`${some(answers)} answers/s, ${count(status.connections)} connections open.${refused.length ? "" : " Nothing is refused now."}`, ""]);
  at("summary").replaceChildren(...lines.map(([text, className]) => element("li", { text, className })));
  const badge = at("level");
  badge.textContent = level > 0 ? `Overload: ${LEVELS[level]}` : refused.length ? "Refusing" : "Normal";
  badge.className = `badge ${level > 0 ? "bad" : refused.length ? "warn" : ""}`;
}

/** The reasons for which a class was refused since the last look, the most frequent first. */
function why(name) {
  const [old, now] = [before?.classes[name]?.refused, status.classes[name].refused];
  if (!old) return "";
  const more = Object.entries(now).map(([reason, many]) => [reason.split(".")[1], many - (old[reason] || 0)]);
  const found = more.filter((one) => one[1] > 0).sort((a, b) => b[1] - a[1]);
  return found.length ? ` (${found.map((one) => one[0].replaceAll("_", " ")).join(", ")})` : "";
}

/** When the refusals of now began: the last time before which there were none for 30 s. */
function refusedSince() {
  const names = history.names("class", "refused");
  const columns = names.flatMap((name) => [history.values("class", name, "refused"), history.values("class", name, "refused_connections")]);
  let first = null;
  for (let place = history.times.length - 1; place >= 0; place--) {
    const time = history.times[place];
    if (columns.some((values) => values[place] > 0)) first = time;
    else if (first !== null && first - time > 30) break;
  }
  return first;
}

function charts() {
  const from = Number(chosen("range")) * 60;
  const { times } = history;
  setMarks(events.filter((event) => event.kind !== "limit" || from <= 600));
  const classes = history.names("class", "answered");
  const refused = { label: "refused", colour: "--refused", values: total("class", classes, "refused") };
  const requests = classes.length ? [...largest(history, "class", "answered", classes), refused] : statuses();
  show("chart-answers", times, requests, { isStacked: true, from });
  show("chart-statuses", times, statuses(), { isStacked: true, from });
  const delays = classes.slice(0, 7).map((name, place) => ({ label: name, colour: `--c${place}`, values: history.values("class", name, "delay_ms") }));
  const targets = classes.slice(0, 7).flatMap((name, place) => {
    const fact = facts.classes.find((one) => one.name === name);
    return fact ? [{ label: `${name}: target`, colour: `--c${place}`, dash: [6, 5], values: times.map(() => fact.target_ms) }] : [];
  });
  const isNear = (one) => delays.some((delay) => Math.max(0, ...delay.values) > one.values[0] / 4);
  show("chart-delay", times, [...delays, ...targets.filter(isNear)], { from });
  show("chart-cores", times, largest(history, "class", "cores", classes), { isStacked: true, from });
  const upstreams = history.names("upstream", "answers");
  for (const id of ["chart-heads", "chart-failed"]) at(id).closest(".charts").hidden = !upstreams.length;
  if (upstreams.length) {
    show("chart-heads", times, upstreams.slice(0, 8).map((name) => ({ label: name, values: history.values("upstream", name, "head_ms") })), { from });
    show("chart-failed", times, largest(history, "upstream", "failed", upstreams), { isStacked: true, from });
  }
}

function statuses() {
  const colours = { "2xx": "--c2", "3xx": "--c4", "4xx": "--c1", "5xx": "--refused" };
  return Object.entries(colours).map(([kind, colour]) => ({ label: kind, colour, values: history.values("server", "", kind) }));
}

function total(group, names, figure) {
  const columns = names.map((name) => history.values(group, name, figure));
  return history.times.map((_, place) => columns.reduce((all, values) => all + (values[place] || 0), 0));
}

function draw() {
  if (!status) return;
  at("version").textContent = status.version;
  at("updated").textContent = isPaused ? `Paused at ${clock(history.last * 1000)} UTC` : `${clock(history.last * 1000)} UTC, up ${lasting(status.uptime_seconds)}`;
  summary();
  path(status, history);
  charts();
  classTable(status, history, facts);
  if (top) topTables(top, chosen("order"), (kind, one) => {
    const text = command(kind, one);
    const shown = text === null ? ["There is no command for just this name."] : ["Type: ", element("code", { text })];
    at("top-command").replaceChildren(...shown);
  });
  eventList(events);
  upstreamTable(status, history);
  stageTable(facts);
  siteTable(status, history);
  doctor(facts);
  cards(status, facts);
}

function wantToken() {
  at("sign-in").hidden = false;
  at("content").hidden = true;
  at("sign-out").hidden = true;
  at("updated").textContent = "Sign in";
  if (document.activeElement === document.body) at("token").focus();
}

async function beat() {
  if (isPaused || document.hidden) return;
  try {
    if (!(await look())) return wantToken();
    at("sign-in").hidden = true;
    at("content").hidden = false;
    at("lost").hidden = true;
    at("sign-out").hidden = !facts.signed_in;
    lostSince = null;
    draw();
  } catch (error) {
    fail(error);
  }
}

/** Says that there is no answer, or that the page itself has failed. */
function fail(error) {
  const isLost = error instanceof LostError;
  if (isLost) lostSince ??= Date.now();
  else console.error(error);
  at("lost").hidden = false;
  at("lost").textContent = isLost ? `No answer from the server since ${clock(lostSince)} UTC: what is shown is older. (${error.message})` : `A part of this page has failed, and shows what is older: ${error.message}`;
}

/** Beats once a second, and never twice at a time, whatever becomes of a beat. */
async function run() {
  try {
    await beat();
    document.body.dataset.beats = String(beats);
  } finally {
    setTimeout(run, 1000);
  }
}

async function ask(form) {
  const fields = new URLSearchParams(new FormData(form));
  const answer = await get(`why?${fields}`);
  if (!answer) return wantToken();
  const found = answer.found.map((text) => element("li", { text }));
  if (!found.length) found.push(element("li", { text: answer.wrong || "No refusal that is remembered is like that; the access log may say more." }));
  at("why-list").replaceChildren(...found);
}

at("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const headers = { Authorization: `Bearer ${at("token").value.trim()}` };
  const answer = await fetch("/page/sign-in", { method: "POST", headers, credentials: "same-origin" });
  at("token").value = "";
  at("sign-in-error").textContent = answer.ok ? "" : "This is no token of admin.token_file.";
  if (answer.ok) {
    await beat();
    at("now").focus();
  }
});
at("sign-out").addEventListener("click", async () => {
  await fetch("/page/sign-out", { method: "POST", credentials: "same-origin" });
  wantToken();
});
at("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  at("pause").setAttribute("aria-pressed", String(isPaused));
  at("pause").textContent = isPaused ? "Go on" : "Pause";
  draw();
});
at("why-form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(event.target).catch((error) => at("why-list").replaceChildren(element("li", { text: error.message })));
});
for (const id of ["range", "order"]) at(id).addEventListener("change", draw);
at("minutes").addEventListener("change", async () => {
  top = (await get(`top?minutes=${chosen("minutes")}`)) || top;
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.addEventListener("visibilitychange", beat);
run();
