// Tables and lists. Whatever comes from outside is put there as text.
import { bytes, clock, count, day, lasting, quantile, quoted, some, sum } from "./data.js";
import { seriesColour } from "./charts.js";

/** An element with text or children. */
export function element(name, { text, className, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children);
  return made;
}

/** Fills a table: each head is a text or `[text, class]`, each cell a text, an element or `[text, attributes]`. */
function fill(id, heads, rows, empty) {
  const table = document.getElementById(id);
  const head = (one) => element("th", { text: [one].flat()[0], className: [one].flat()[1] || "", scope: "col" });
  const cell = (one, at) => {
    if (one instanceof Node) return element("td", { className: [heads[at]].flat()[1] || "" }, one);
    const [text, attributes] = [one].flat();
    return element("td", { text, className: [heads[at]].flat()[1] || "", ...attributes });
  };
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  if (!rows.length) body.push(element("tr", {}, element("td", { text: empty, className: "text", colspan: heads.length })));
  table.replaceChildren(element("thead", {}, element("tr", {}, ...heads.map(head))), element("tbody", {}, ...body));
}

/** A number that equals one of `/metrics`: which one, tests read there. */
function total(value, metric) {
  return [count(value), { "data-metric": metric, "data-value": String(value) }];
}

function label(text) {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"');
}

/** Reasons and counts, the largest first. */
export function reasons(object) {
  const found = Object.entries(object || {}).filter(([, many]) => many > 0);
  return found.sort((a, b) => b[1] - a[1]).map(([reason, many]) => `${reason.replace("request.", "").replaceAll("_", " ")} ${count(many)}`).join(", ");
}

/** The classes: what they were offered, what became of it, and how long they waited. */
export function classTable(status, history, facts) {
  const heads = [["Class", "text"], "Offered/s", "Answered/s", "Refused/s", "In flight", "Wait ms", "Target ms", "Cores", "Share of workers", "Floor", "99 % ms", "Answered, total", "Refused, total", ["Why refused, total", "text"]];
  const names = Object.keys(status.classes);
  const cores = names.map((name) => history.mean("class", name, "cores", 10) || 0);
  const all = cores.reduce((one, two) => one + two, 0);
  const rows = names.map((name, at) => {
    const one = status.classes[name];
    const fact = facts.classes.find((known) => known.name === name);
    const now = (figure) => some(history.now("class", name, figure));
    const refused = Object.fromEntries(Object.entries(one.refused).filter(([key]) => key.startsWith("request.")));
    const swatch = element("span", { className: "swatch", "data-colour": seriesColour(at) });
    const wait = history.mean("class", name, "delay_ms", 10);
    const late = fact && wait !== null && wait > fact.target_ms;
    return [
      element("span", {}, swatch, name),
      now("offered"),
      now("answered"),
      [now("refused"), (history.now("class", name, "refused") || 0) > 0 ? { class: "bad" } : {}],
      count(one.in_flight),
      [some(wait), late ? { class: "bad" } : {}],
      fact ? count(fact.target_ms) : "–",
      some(cores[at]),
      all > 0 ? `${some((100 * cores[at]) / all)} %` : "–",
      fact ? `${some(fact.share * 100)} %` : "–",
      some(quantile(one.durations, 0.99)),
      total(one.answered, `forebay_class_answered_total{class="${label(name)}"}`),
      count(sum(refused)),
      reasons(one.refused),
    ];
  });
  fill("class-table", heads, rows, "There are no classes and no rules: every request is served as it comes.");
  paint();
}

/** Gives samples of colour their colour, which no style attribute may. */
function paint() {
  for (const swatch of document.querySelectorAll("[data-colour]")) {
    swatch.style.background = `var(${swatch.dataset.colour})`;
  }
}

/** The applications' upstreams. */
export function upstreamTable(status, history) {
  const heads = [["Upstream", "text"], ["For", "text"], ["State", "text"], "Under way", "Waiting", "Answers/s", "Failed/s", "Connect ms", "Head ms", "99 % ms", "5xx, total", "Failed, total"];
  const rows = status.upstreams.map((one) => {
    const name = `${one.site} · ${one.route} · ${one.upstream}`;
    const labels = `site="${label(one.site)}",route="${label(one.route)}",upstream="${label(one.upstream)}"`;
    const mean = (times) => (times.count ? times.sum_us / times.count / 1000 : null);
    const state = one.state.replaceAll("_", " ") + (one.for_s === null ? "" : ` for ${lasting(one.for_s)}`);
    const isWell = one.state === "asked" || one.state === "backup";
    return [
      one.upstream,
      [one.site, one.route].filter(Boolean).join(": "),
      [state, { class: isWell ? "text good" : "text bad" }],
      one.most === null ? count(one.in_flight) : `${count(one.in_flight)} of ${count(one.most)}`,
      count(one.waiting),
      some(history.now("upstream", name, "answers")),
      some(history.now("upstream", name, "failed")),
      some(mean(one.connects)),
      some(history.mean("upstream", name, "head_ms", 10) ?? mean(one.heads)),
      some(quantile(one.heads, 0.99)),
      total(one.answers["5xx"], `forebay_upstream_answers_total{${labels},class="5xx"}`),
      total(one.failed, `forebay_upstream_failed_attempts_total{${labels}}`),
    ];
  });
  fill("upstream-table", heads, rows, "No site has an application.");
}

/** The stages of `isolated`: which of their processes have ended. */
export function stageTable(facts) {
  const heads = [["Stage", "text"], "Instance", "Processes ended", ["The last one", "text"]];
  const rows = facts.stages.map((one) => {
    const since = one.last_ms === null ? "–" : `${clock(one.last_ms)} UTC, ${lasting((Date.now() - one.last_ms) / 1000)} ago`;
    return [one.stage, count(one.instance), [count(one.ended), one.ended ? { class: "bad" } : {}], since];
  });
  for (const id of ["instances", "to-instances"]) document.getElementById(id).hidden = !rows.length;
  fill("instance-table", heads, rows, "");
}

/** What was found of the machine when the server began. */
export function doctor(facts) {
  document.getElementById("doctor").hidden = !facts.doctor;
  document.getElementById("doctor-text").textContent = facts.doctor;
}

/** The sites. */
export function siteTable(status, history) {
  const heads = [["Site", "text"], "Answers/s", "5xx/s", "2xx, total", "3xx, total", "4xx, total", "5xx, total", "Bytes, total", "99 % ms", ["Refused, total", "text"]];
  const names = Object.keys(status.sites).filter((name) => sum(status.sites[name].responses) > 0 || !["-", "other"].includes(name));
  const rows = names.map((name) => {
    const one = status.sites[name];
    const of = (kind) => total(one.responses[kind], `forebay_site_responses_total{site="${label(name)}",class="${kind}"}`);
    const shown = { "-": "- (no site: unknown hosts, requests that cannot be read)" }[name] || name;
    return [shown, some(history.now("site", name, "answers")), some(history.now("site", name, "5xx")), of("2xx"), of("3xx"), of("4xx"), of("5xx"), [bytes(one.body_bytes), { "data-metric": `forebay_site_body_bytes_total{site="${label(name)}"}`, "data-value": String(one.body_bytes) }], some(quantile(one.durations, 0.99)), reasons(one.refused)];
  });
  fill("site-table", heads, rows, "There are no sites.");
}

const KINDS = { rule: "Rules that refused", address: "Addresses", network: "Networks", agent: "User agents", path: "Hosts and paths", class: "Classes" };

/** Who asks most; `choose` is called with the kind and what is known of the name. */
export function topTables(top, order, choose) {
  const place = document.getElementById("top-tables");
  const focused = document.activeElement?.dataset?.name;
  const tables = Object.entries(KINDS).filter(([kind]) => top.kinds[kind]).map(([kind, title]) => {
    const rows = [...top.kinds[kind]].sort((a, b) => b[order] - a[order] || b.requests - a.requests).slice(0, 10);
    const most = Math.max(1, ...rows.map((one) => one[order]));
    const body = rows.map((one) => {
      const name = element("button", { type: "button", text: one.name || "(empty)", "data-name": `${kind} ${one.name}` });
      name.addEventListener("click", () => choose(kind, one));
      const bar = element("progress", { max: most, value: one[order], className: order === "refused" ? "bad" : "", "aria-hidden": "true" });
      const error = one.error > 0 ? ` ± ${count(one.error)}` : "";
      return element("tr", {}, element("td", {}, name, bar), element("td", { text: count(one.refused), className: one.refused ? "bad" : "" }), element("td", { text: count(one.requests) + error }));
    });
    if (!body.length) body.push(element("tr", {}, element("td", { text: "none", colspan: 3 })));
    const heads = [title, "Refused", "Requests"].map((text) => element("th", { text, scope: "col" }));
    return element("div", { className: "table" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)));
  });
  place.replaceChildren(...tables);
  if (focused) [...place.querySelectorAll("button")].find((one) => one.dataset.name === focused)?.focus();
  const missed = top.missed ? ` ${count(top.missed)} could not be counted.` : "";
  document.getElementById("top-note").textContent = `Refused ones are counted one by one; of the others one in ${top.sample}, so requests are estimates: ± is the error at 95 %.${missed} Choose a name for the command that deals with it.`;
}

const PARTS = { rule: "Rule", address: "Client", network: "Network", agent: "User agent", path: "Host and path", class: "Class" };

/** Who was refused what, and by which rule: the name of each kind that was refused most, and its part of all. */
export function refusals(top, span) {
  const refused = (kind) => (top.kinds[kind] || []).filter((one) => one.refused > 0).sort((a, b) => b.refused - a.refused);
  // classes are all told, but a connection may have none; of the others the largest are
  const all = Math.max(...Object.keys(PARTS).map((kind) => refused(kind).reduce((sums, one) => sums + one.refused, 0)));
  const lines = Object.entries(PARTS).flatMap(([kind, word]) => {
    const [first] = refused(kind);
    if (!first) return [];
    const part = `${count(first.refused)} of ${count(all)}, ${Math.round((100 * first.refused) / all)} %`;
    const name = kind === "agent" && first.name === "-" ? "(none)" : first.name || "(empty)";
    return [element("dt", { text: word }), element("dd", {}, element("b", { text: name }), ` (${part})`)];
  });
  document.getElementById("refusals").hidden = !lines.length;
  document.getElementById("refusals-title").textContent = `Most of what was refused in the last ${span}`;
  document.getElementById("refusal-list").replaceChildren(...lines);
}

/** The command for a name that strangers may have made up; `null` where none means just this name. */
export function command(kind, { name, cut }) {
  // what no terminal takes as it is, what is not seen, and what was no UTF-8
  if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\ufffd]/u.test(name)) return null;
  const word = quoted(name);
  switch (kind) {
    case "address":
    case "network":
      return name === "unix" ? "forebay policy show" : `forebay policy ban --for 1h --why flood ${word}`;
    case "rule":
    case "class":
      return kind === "rule" ? `forebay policy show ${word}` : "forebay policy show";
    case "agent":
      // that stands for requests without the field
      return name === "-" ? null : `forebay policy rule add flood ${quoted(`header=User-Agent=~${expression(name, cut)}`)} action=reject`;
    default: {
      const slash = name.indexOf("/");
      if (slash < 0) return null;
      const [host, asked] = [name.slice(0, slash), name.slice(slash)];
      return `forebay policy explain -H ${quoted(`Host: ${host}`)} ${quoted(asked)}`;
    }
  }
}

/** A regular expression for a text, or for all that begin with it; a condition may not end with blanks. */
function expression(text, isBeginning) {
  const taken = isBeginning ? text.trimEnd() : text;
  return `^${taken.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}${isBeginning ? "" : "$"}`;
}

/** What was decided and has changed, the last first. */
export function eventList(events) {
  const items = [...events].reverse().slice(0, 100).map((event) => element("li", {}, element("time", { text: clock(event.ms), datetime: new Date(event.ms).toISOString() }), event.text));
  if (!items.length) items.push(element("li", { text: "Nothing was decided and nothing has changed in the time that is remembered." }));
  document.getElementById("event-list").replaceChildren(...items);
}

/** One stage of the path: its name, figures, and what leaves there. */
function stage(name, figures, leaves) {
  const list = element("dl", {});
  for (const [term, value] of figures) list.append(element("dt", { text: term }), element("dd", { text: value }));
  const gone = leaves.filter(([, many]) => many > 0);
  const item = element("li", {}, element("h3", { text: name }), list);
  if (gone.length) {
    const lines = gone.sort((a, b) => b[1] - a[1]).slice(0, 6).map(([why, many, metric]) => {
      const line = element("li", { text: `${why} ${count(many)}`, className: "bad" });
      if (metric) Object.assign(line.dataset, { metric, value: String(many) });
      return line;
    });
    item.append(element("div", { className: "leaves" }, "Left here, in total:", element("ul", {}, ...lines)));
  }
  return item;
}

/** The path of requests, from the SYN to the last byte. */
export function path(status, history) {
  const now = (figure) => history.now("server", "", figure);
  const mean = (activity) => {
    const known = status.activities[activity];
    return known && known.mean_us !== null ? `${some(known.mean_us)} µs` : "–";
  };
  const phase = (name) => {
    if (!status.pipeline_threads?.[name]) return [];
    const of = (figure) => history.now("phase", name, figure);
    return [["Threads", count(of("threads"))], ["Queue", count(of("waiting"))], ["Delay", `${some(of("delay_ms"))} ms`], ["Busy", `${some((of("busy_percent") || 0) / 100)} threads`]];
  };
  const entries = (object, prefix, metric, kind) => Object.entries(object || {}).map(([name, many]) => [prefix + name.replaceAll("_", " "), many, metric && `${metric}{${kind}="${name}"}`]);
  const refused = {};
  for (const one of Object.values(status.classes)) {
    for (const [reason, many] of Object.entries(one.refused)) refused[reason] = (refused[reason] || 0) + many;
  }
  const at = (placeName) => Object.entries(refused).filter(([reason]) => reason.startsWith(placeName)).map(([reason, many]) => [`refused: ${reason.slice(placeName.length + 1).replaceAll("_", " ")}`, many]);
  const gate = status.gate;
  const connections = { ...status.connections_refused };
  if (at("accept").some(([, many]) => many > 0)) delete connections.policy;
  const requests = ["1xx", "2xx", "3xx", "4xx", "5xx"].reduce((all, kind) => all + (now(kind) || 0), 0);
  const hits = (now("cache_hits") || 0) / Math.max(1e-9, (now("cache_hits") || 0) + (now("cache_misses") || 0));
  const timeouts = status.timeouts;
  const stages = [
    stage("SYN, gate", gate ? [["Passed/s", some(history.now("gate", "", "passed"))], ["Dropped/s", some(history.now("gate", "", "dropped"))], ["Judges", gate.rung]] : [["Kernel", "judges nothing"]], gate ? entries(gate.syns, "").filter(([name]) => !name.startsWith("passed") && !name.startsWith("left")) : []),
    stage("Accept", [["Rate/s", some(now("accepted"))], ["Open", count(status.connections)], ["Time", mean("accept")], ...phase("accept")], [...entries(connections, "refused: ", "forebay_connections_refused_total", "reason"), ...at("accept")]),
    stage("Receive", [["In", `${bytes(now("received"))}/s`], ["Read", mean("read")], ["Parse", mean("parse")], ...phase("receive")], [["late: head", timeouts.head], ["late: body", timeouts.body], ["idle", timeouts.idle]]),
    stage("Process", [["Answers/s", some(requests)], ["From memory", requests > 0 ? `${some(100 * hits)} %` : "–"], ["Wait for a place", count(status.requests_queued)], ["Wait for applications", count(status.upstream_requests_waiting)], ["Time", mean("process")], ...phase("process")], [...at("request"), ["late: job", timeouts.job], ["late: queue", timeouts.queue + timeouts.upstream_queue], ["client left", status.requests_given_up]]),
    stage("Send", [["Out", `${bytes(now("sent"))}/s`], ["Waits/s", some(now("send_waits"))], ["Time", mean("send")], ...phase("send")], [["late: client takes nothing", timeouts.send], ...entries(status.responses_aborted, "cut: ", "forebay_responses_aborted_total", "reason")]),
  ];
  document.getElementById("stages").replaceChildren(...stages);
}

/** Cache, certificates, configuration, gate, and what an operator has set. */
export function cards(status, facts) {
  const card = (title, lines) => {
    const list = element("dl", {});
    for (const [term, value, className] of lines) list.append(element("dt", { text: term }), element("dd", { text: value, className: className || "" }));
    return element("div", {}, element("h3", { text: title }), list);
  };
  const seconds = Date.now() / 1000;
  const certificates = status.certificates.slice(0, 10).map((one) => {
    const left = one.expiry_timestamp_seconds - seconds;
    return [one.site || "admin", left < 0 ? "has expired" : `${lasting(left)} left`, left < 0 ? "bad" : left < 14 * 86400 ? "warn" : ""];
  });
  const isGood = status.config_last_reload_successful === 1;
  const overrides = status.overrides.map((one) => [one.setting, one.kept ? "kept" : "until a reload"]);
  const gate = status.gate ? [["Judges", status.gate.rung], ["Interfaces", count(status.gate.interfaces)]] : [["Gate", "off"]];
  const firewall = status.firewall ? [["Firewall drops", `${count(status.firewall.clients)} clients`]] : [];
  document.getElementById("cards").replaceChildren(
    card("Server", [["Version", `${status.version} ${status.revision.slice(0, 12)}`], ["Engine", status.engine], ["Workers", status.workers], ["Up", lasting(status.uptime_seconds)], ["Helper threads", count(status.helper_threads)], ["Panics", count(status.panics), status.panics ? "bad" : ""], ["Log lines lost", count(status.log_dropped_lines), status.log_dropped_lines ? "bad" : ""]]),
    card("Configuration", [["In force", `number ${count(status.config_generation)}`], ["Last reload", day(status.config_last_reload_timestamp_seconds * 1000)], ["It was", isGood ? "good" : "bad: what was in force stays", isGood ? "" : "bad"], ["Banned", count(sum(status.bans))], ...overrides]),
    card("Cache", [["Held", bytes(status.cache_bytes)], ["Answers", count(status.cache_entries)], ["Dropped for room", count(status.cache_evictions)], ["Dropped as changed", count(status.cache_invalidations)], ["Directories watched", count(status.watched_directories)]]),
    card("Certificates", certificates.length ? certificates : [["None", "no TLS"]]),
    card("Kernel", [...gate, ...firewall]),
    card("Agent", [["Agent", facts.agent ? "on" : "off"], ["Offered load", `${count(status.offered_load_percent)} %`], ...Object.entries(status.limits).map(([name, one]) => [name, one.window_jobs === null ? "no limit" : `${count(one.window_jobs)} jobs at once`])]),
  );
}
