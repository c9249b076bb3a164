// The operator's page: reads the JSON API (/api/v1/), follows server-sent events, draws seven views and one panel.
// No framework, no markup from strings (whatever comes from the cluster becomes a text node), at most a few hundred live DOM nodes.
"use strict";
(() => {
  // ---- small tools
  const $ = (id) => document.getElementById(id);
  function h(tag, attrs, ...kids) {
    const e = document.createElement(tag);
    for (const k in attrs || {}) { const v = attrs[k]; if (v == null || v === false) continue; if (k === "class") e.className = v; else if (k.startsWith("on")) e.addEventListener(k.slice(2), v); else e.setAttribute(k, v === true ? "" : v); }
    for (const k of kids.flat(3)) if (k != null && k !== false) e.append(k);
    return e;
  }
  const NS = "http://www.w3.org/2000/svg";
  const SHAPE = { bad: "M6 .4 11.6 6 6 11.6.4 6Z", warn: "M6 1 11.6 11H.4Z", ok: "M6 2.6a3.4 3.4 0 1 0 0 6.8 3.4 3.4 0 0 0 0-6.8Z", off: "M2 1 6 5l4-4 1 1-4 4 4 4-1 1-4-4-4 4-1-1 4-4-4-4Z" };
  function icon(name, cls) { const s = document.createElementNS(NS, "svg"); s.setAttribute("viewBox", "0 0 12 12"); s.setAttribute("class", `ic ${cls ?? name}`); s.setAttribute("aria-hidden", "true"); const p = document.createElementNS(NS, "path"); p.setAttribute("d", SHAPE[name]); s.append(p); return s; }
  const nf = new Intl.NumberFormat("en-US"), num = (x) => x == null ? "–" : nf.format(Math.round(x)), plural = (n, one, many) => `${num(n)} ${n === 1 ? one : many || one + "s"}`;
  const dur = (ms) => ms == null ? "–" : ms < 10 && !Number.isInteger(ms) ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : ms < 3600000 ? `${Math.floor(ms / 60000)} min ${Math.round(ms % 60000 / 1000)} s` : ms < 172800000 ? `${Math.floor(ms / 3600000)} h ${Math.floor(ms % 3600000 / 60000)} min` : `${Math.floor(ms / 86400000)} days`;
  const coarse = (ms) => ms == null ? "–" : ms < 1000 ? "now" : ms < 60000 ? `${Math.floor(ms / 1000)} s` : ms < 3600000 ? `${Math.floor(ms / 60000)} min` : ms < 172800000 ? `${Math.floor(ms / 3600000)} h` : `${Math.floor(ms / 86400000)} days`;
  const ago = (t) => { if (t == null) return "–"; const a = coarse(Math.max(0, clock() - t)); return a === "now" ? a : a + " ago"; };
  const bytes = (b) => { if (b == null) return "–"; const u = ["B", "kB", "MB", "GB", "TB"]; let i = 0; while (b >= 1000 && i < 4) { b /= 1000; i++; } return `${b < 10 && i ? b.toFixed(1) : Math.round(b)} ${u[i]}`; };
  const rate = (b) => b == null ? "–" : bytes(b) + "/s";
  const two = (x) => String(x).padStart(2, "0"), hms = (t) => { const d = new Date(t); return `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())}`; };
  const stamp = (t) => { if (t == null) return "–"; const d = new Date(t), today = new Date(clock()).toISOString().slice(0, 10), day = d.toISOString().slice(0, 10); return day === today ? hms(t) : `${day.slice(5)} ${hms(t).slice(0, 5)}`; };
  const setText = (n, s) => { s = s == null ? "–" : String(s); if (n.textContent !== s) n.textContent = s; };
  const nm = (x) => `${x.topic}-${x.partition}`, list = (a) => a.length < 2 ? a.join("") : `${a.slice(0, -1).join(", ")} and ${a[a.length - 1]}`;
  const STATE = { online: ["ok", "In sync"], under_replicated: ["warn", "Under-replicated"], under_min_isr: ["bad", "Under min ISR"], offline: ["bad", "Offline"], registered: ["ok", "Up"], dead: ["bad", "Down"], draining: ["warn", "Draining"], recovering: ["warn", "Recovering"], starting: ["warn", "Starting"], stopping: ["warn", "Stopping"], fenced: ["bad", "Fenced"], silent: ["bad", "No answer"], suspected: ["bad", "Suspected"], stable: ["ok", "Stable"], rebalancing: ["warn", "Rebalancing"], empty: ["ok", "Empty"] };
  const state = (s) => Object.hasOwn(STATE, s) ? STATE[s] : ["warn", s ?? "–"]; // an unknown one is shown as it is
  const st = (s) => [s, () => { const [cls, word] = state(s); return h("span", { class: "st" }, icon(s === "offline" || s === "dead" ? "off" : cls, cls), h("span", { class: cls === "ok" ? "muted" : cls }, word)); }];

  // ---- data: one store, filled by GET, kept fresh by events
  const http = {
    get: async (path, q) => { const u = new URL("api/v1/" + path, location.href); for (const k in q || {}) if (q[k] != null && q[k] !== "") u.searchParams.set(k, q[k]); const r = await fetch(u, { headers: { accept: "application/json" } }); const body = await r.json().catch(() => null); if (!r.ok) throw new Error(`${r.status} ${body?.error?.message || r.statusText}`); return body; },
    subscribe: (fn) => { const es = new EventSource("api/v1/events"); es.onopen = () => fn("open"); es.onerror = () => { fn("error"); if (es.readyState === EventSource.CLOSED) setTimeout(() => http.subscribe(fn), 2000); }; for (const t of ["cluster", "brokers", "partitions", "offsets", "failover", "groups", "ledger", "configs", "beat", "resync"]) es.addEventListener(t, (e) => fn(t, JSON.parse(e.data))); return () => es.close(); },
  };
  const api = http;
  const store = {}, fails = {}, inflight = {};
  let skew = 0, lastEvent = 0, conn = "wait", paused = false;
  const clock = () => Date.now() + skew;
  function load(key, path = key) {
    if (inflight[key]) return inflight[key];
    return inflight[key] = api.get(path).then((d) => { store[key] = d; delete fails[key]; if (key === "cluster") skew = d.now_ms - Date.now(); }, (e) => { fails[key] = e.message; setTimeout(() => view && view.needs.includes(key) && load(key, path), 2000); }).finally(() => { delete inflight[key]; dirty(key); });
  }
  const calm = matchMedia("(prefers-reduced-motion: reduce)"), pending = new Set(); let timer = 0;
  function dirty(...keys) { keys.forEach((k) => pending.add(k)); if (!timer) timer = setTimeout(flush, live() ? (calm.matches ? 500 : 33) : 120); }
  function flush() { timer = 0; const keys = new Set(pending); pending.clear(); chrome(); if (view) render(keys); if (panelObj && (keys.has("cluster") || keys.has("offsets"))) panelObj.update?.(); }
  const live = () => store.failovers?.failovers.find((f) => f.ongoing && f.client_outage.to_ms == null) || store.failovers?.failovers.find((f) => f.ongoing);
  api.subscribe((type, d) => {
    lastEvent = performance.now(); 
    if (type === "error") { conn = "lost"; return dirty("conn"); }
    if (conn !== "open") { conn = "open"; for (const k of Object.keys(store)) load(k, PATHS[k]); dirty("conn"); }
    if (paused) return;
    if (type === "cluster") { store.cluster = d; skew = d.now_ms - Date.now(); dirty("cluster"); }
    else if (type === "brokers") { if (store.brokers) { const by = new Map(store.brokers.brokers.map((b) => [b.id, b])); for (const b of d.brokers) by.set(b.id, b); store.brokers = { brokers: [...by.values()] }; dirty("brokers"); } }
    else if (type === "failover") { const l = store.failovers; if (l) { const i = l.failovers.findIndex((f) => f.id === d.id); if (i < 0) l.failovers.unshift(d); else l.failovers[i] = d; dirty("failovers"); } }
    else if (type === "partitions") { load("map", PATHS.map); load("topics"); dirty("partitions"); }
    else if (type === "offsets") dirty("offsets");
    else if (type === "resync") Object.keys(store).forEach((k) => load(k, PATHS[k])); else if (store[type]) load(type, PATHS[type]);
  });
  const PATHS = { map: "partitions/map" };
  setInterval(() => { if (conn === "open" && !paused && performance.now() - lastEvent > 12000) { conn = "lost"; dirty("conn"); } if (conn === "lost") chrome(); }, 1000);

  // ---- address: #/view?filter=…&panel=partition/orders/2
  const VIEWS = [["cluster", "Cluster"], ["topics", "Topics"], ["partitions", "Partitions"], ["brokers", "Brokers"], ["groups", "Groups"], ["failovers", "Failovers"], ["ledger", "Loss ledger"], ["configs", "Configs"]];
  let at = parse();
  function parse() { const [p, q] = location.hash.replace(/^#\/?/, "").split("?"); return { view: VIEWS.some((v) => v[0] === p) ? p : "cluster", q: new URLSearchParams(q || "") }; }
  const href = (v, q) => { const s = new URLSearchParams(); for (const k in q || {}) if (q[k] != null && q[k] !== "") s.set(k, q[k]); const t = s.toString().replaceAll("%2F", "/"); return `#/${v}${t ? "?" + t : ""}`; };
  const here = (over) => href(at.view, { ...Object.fromEntries(at.q), ...over });
  const open = (target) => here({ panel: target });
  const partLink = (x) => h("a", { href: open(`partition/${encodeURIComponent(x.topic)}/${x.partition}`) }, nm(x));

  // ---- table with keyed rows: live updates write text into standing cells, nothing moves
  const ROWS_MAX = 200;
  function table(cols, o) {
    let rows = [], sort = o.sort || null; const map = new Map(), body = h("tbody"), heads = [];
    const head = h("tr", {}, cols.map((c) => { const th = h("th", { scope: "col", class: `${c.n ? "n" : ""} p${c.p || 1} ${c.cls || ""}` }); if (c.by) th.append(h("button", { type: "button", onclick: () => { sort = sort?.k === c.k ? { k: c.k, dir: -sort.dir } : { k: c.k, dir: c.n ? -1 : 1 }; draw(); } }, c.label)); else th.append(typeof c.label === "function" ? c.label() : c.label); heads.push([th, c]); return th; }));
    const el = h("div", { class: "scroll" }, h("table", { class: o.cls || "" }, h("caption", { class: "vh" }, o.caption), h("thead", {}, head), body));
    const none = h("p", { class: "note", hidden: true }), more = h("p", { class: "more", hidden: true }); el.append(none, more);
    function draw() {
      for (const [th, c] of heads) { if (c.by && sort?.k === c.k) th.setAttribute("aria-sort", sort.dir > 0 ? "ascending" : "descending"); else th.removeAttribute("aria-sort"); }
      const by = sort && cols.find((c) => c.k === sort.k).by; const all = by ? rows.map((r, i) => [by(r), i, r]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * sort.dir || a[1] - b[1]).map((x) => x[2]) : rows, out = all.slice(0, ROWS_MAX);
      more.hidden = all.length <= ROWS_MAX; if (!more.hidden) setText(more, `The first ${ROWS_MAX} of ${num(all.length)}. Sort or filter to see the others.`);
      const seen = new Set(); let prev = null;
      for (const r of out) {
        const key = o.key(r); seen.add(key); let t = map.get(key);
        if (!t) { t = { tr: h("tr"), cells: cols.map((c) => { const td = h("td", { class: `${c.n ? "n" : ""} p${c.p || 1} ${c.cls || ""}` }); return { td, sig: undefined }; }) }; t.tr.append(...t.cells.map((c) => c.td)); map.set(key, t); if (o.go) { t.tr.dataset.go = ""; t.tr.addEventListener("click", (e) => { if (!e.target.closest("a,button") && !String(getSelection())) location.hash = o.go(r); }); } }
        cols.forEach((c, i) => { const v = c.cell(r), cell = t.cells[i]; if (Array.isArray(v)) { const sig = String(v[0]); if (cell.sig !== sig) { cell.td.replaceChildren(v[1]()); cell.sig = sig; } } else { cell.sig = undefined; setText(cell.td, v); } });
        if (o.on) t.tr.toggleAttribute("aria-selected", false), o.on(r) ? t.tr.setAttribute("aria-selected", "true") : t.tr.removeAttribute("aria-selected");
        const want = prev ? prev.nextSibling : body.firstChild; if (want !== t.tr) body.insertBefore(t.tr, want); prev = t.tr;
      }
      for (const [k, t] of map) if (!seen.has(k)) { t.tr.remove(); map.delete(k); }
      none.hidden = out.length > 0; if (!out.length) none.replaceChildren(...[o.empty || "Nothing to show."].flat());
    }
    return { el, set(r) { rows = r; draw(); } };
  }
  const card = (title, meta, body, end) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title), meta && h("span", { class: "muted" }, meta), end && h("span", { class: "end" }, end)), body);
  const reps = (x, deadSet) => h("span", { class: "reps" }, x.assigned_replicas.map((b) => { const gone = deadSet.has(b), lead = b === x.leader, isr = x.isr.includes(b); const w = gone ? (isr ? "in the ISR, broker down" : "broker down") : lead ? "leads" : isr ? "in sync" : "out of sync"; return h("span", { class: `rep ${gone ? "gone" : lead ? "lead" : isr ? "" : "osr"}`, title: `Broker ${b}: ${w}` }, String(b), h("span", { class: "vh" }, ` ${w} `)); }));
  const deadSet = () => new Set((store.brokers?.brokers || []).filter((b) => b.state === "dead").map((b) => b.id));
  const repLegend = () => h("div", { class: "legend" }, h("span", {}, h("span", { class: "rep lead" }, "1"), "leads"), h("span", {}, h("span", { class: "rep" }, "2"), "in sync"), h("span", {}, h("span", { class: "rep osr" }, "3"), "out of sync"), h("span", {}, h("span", { class: "rep gone" }, "4"), "broker down"));

  // ---- header, verdict
  let lastSaid = "";
  function chrome() {
    const c = store.cluster, el = $("conn"); if (c) op.may(c.read_only === false);
    const s = paused ? "paused" : conn === "lost" ? "lost" : c ? "open" : "wait"; el.dataset.s = s;
    setText($("conn-text"), s === "paused" ? "Paused" : s === "lost" ? "Disconnected" : s === "wait" ? "Connecting" : "Live"); setText($("conn-by"), s === "open" ? ` from broker ${c.served_by}` : "");
    $("main").classList.toggle("stale", s === "lost");
    setText($("cluster-name"), c ? c.cluster_name ?? c.cluster_id : "");
    const v = $("verdict"); let sev = "ok", txt = [], act = null;
    const f = live();
    if (s === "lost" && c) { sev = "lost"; const o = store.brokers?.brokers.find((b) => b.id !== c.served_by && b.state === "registered" && b.host && b.http_port); txt = [h("b", {}, `No word from broker ${c.served_by}.`), ` Figures are from ${hms(c.now_ms)} UTC. Trying again every 2 s.`, o ? [" The same page: ", h("a", { href: `http://${o.host.includes(":") ? `[${o.host}]` : o.host}:${o.http_port}/${location.hash}` }, `broker ${o.id}`), "."] : ""]; }
    else if (!c) { txt = [h("span", { class: "muted" }, fails.cluster ? "The broker answers, but cannot say how the cluster is." : "Reading the cluster's state.")]; }
    else if (f && f.client_outage.to_ms == null) { sev = "warn"; txt = [h("b", {}, `Failover in progress.`), ` ${what(f)} ${dur(f.elapsed_ms ?? clock() - f.started_at_ms)} so far.`]; act = { t: "Watch", to: href("failovers", { id: f.id }) }; }
    else if (c.problems.length) { const p = c.problems[0], more = c.problems.length - 1; sev = p.severity; txt = [h("b", {}, p.what + "."), h("span", { class: "vwhy" }, ` ${p.why}.`), more ? h("span", { class: "muted" }, ` ${plural(more, "more problem")}.`) : ""]; act = { t: "Explain", to: open(`${p.kind}/${p.target}`) }; }
    else { txt = [h("b", {}, "All is well."), ` ${plural(c.counts.partitions, "partition")} on ${plural(c.counts.brokers, "broker")}${c.counts.partitions ? ", all led, all in sync" : ""}.`]; }
    const sig = sev + txt.flat(3).map((x) => x.textContent ?? x).join("") + (act?.to || "");
    if (v.dataset.sig !== sig) { v.dataset.sig = sig; v.dataset.s = sev; const had = v.contains(document.activeElement); v.replaceChildren(...[s === "wait" ? null : icon(sev === "lost" ? "warn" : sev), h("p", {}, txt), act ? h("button", { type: "button", "aria-keyshortcuts": "e", onclick: () => { location.hash = act.to; } }, act.t) : null].filter(Boolean)); if (had) v.querySelector("button")?.focus(); }
    const say = sev + (c?.problems?.[0]?.what || "") + (f?.id || "") + s; if (say !== lastSaid && c) { lastSaid = say; setText($("say"), v.querySelector("p").textContent); }
    document.title = (c?.problems?.length ? `(${c.problems.length}) ` : "") + `${VIEWS.find((x) => x[0] === at.view)[1]} · ${c?.cluster_name || "Barnabas"}`;
  }
  const nav = h("ul", {}, VIEWS.map(([v, t]) => h("li", {}, h("a", { href: href(v), "data-v": v }, h("span", { "data-t": t }, t))))); $("nav").append(nav);

  // ---- failovers
  const STAGE = { requested: "notice", suspected: "notice", confirmed: "notice", session_expired: "notice", restarted: "notice", replicas_failed: "notice", controller_suspected: "notice", controller_confirmed: "notice", controller_elected: "decide", state_loaded: "decide", zookeeper_written: "decide", elected: "decide", pushed: "tell", first_append: "resume", first_ack: "resume", isr_restored: "heal" };
  const LABEL = { requested: "Shutdown requested", suspected: "Suspected", confirmed: "Confirmed", session_expired: "Session expired", restarted: "Registered anew", replicas_failed: "Replicas failed", controller_suspected: "Controller suspected", controller_confirmed: "Controller confirmed", controller_elected: "New controller", state_loaded: "State loaded", zookeeper_written: "ZooKeeper written", elected: "Leaders elected", pushed: "Pushed", first_append: "First append", first_ack: "First ack", isr_restored: "ISR restored" };
  const stageOf = (n) => STAGE[n] ?? "notice", label = (n) => LABEL[n] ?? n.replaceAll("_", " ");
  const STAGES = [["notice", "Noticing"], ["decide", "Deciding"], ["tell", "Telling"], ["resume", "Resuming"]];
  const VIA = { suspicion: "suspicion", session: "session expiry", request: "request", restart: "a new registration", failed_replicas: "its own report" };
  const what = (f) => f.kind === "controlled_shutdown" ? `Broker ${f.broker} shut down in order.` : f.kind === "controller_and_leader" ? `Broker ${f.broker}, controller and leader, died.` : f.kind === "controller" ? `Broker ${f.broker}, controller, died.` : f.cause === "host_vanished" ? `Broker ${f.broker}'s host vanished.` : f.cause === "wrong_suspicion" ? `Broker ${f.broker} was suspected, and lives.` : f.cause === "directory_failed" ? `Broker ${f.broker} cannot serve replicas.` : f.cause === "restart" ? `Broker ${f.broker} was started anew.` : f.cause === "session_end" ? `Broker ${f.broker} fell silent.` : `Broker ${f.broker} died.`;
  function stageTimes(f) { const r = { notice: 0, decide: 0, tell: 0, resume: 0 }; let end = 0; for (const p of f.phases.filter((p) => p.critical)) { const e = p.end_ms ?? Math.max(p.start_ms, f.elapsed_ms ?? p.start_ms); r[stageOf(p.name)] += Math.max(0, e - Math.max(end, p.start_ms)) + Math.max(0, p.start_ms - end); end = Math.max(end, e); } return r; }
  const outage = (f) => f.client_outage.to_ms == null ? null : f.client_outage.to_ms - f.client_outage.from_ms;
  const STEPS = [50, 100, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1500, 2000, 3000, 5000, 8000, 10000, 15000, 20000, 30000, 60000, 120000, 300000];
  const EXPECT = ["suspected", "confirmed", "elected", "zookeeper_written", "pushed", "first_append", "first_ack", "isr_restored"];

  function timeline(compact) {
    const head = h("header"), stages = h("dl", { class: "stages" }), grid = h("div", { class: "grid", "aria-hidden": "true" }), lanes = h("ol"), facts = h("dl", { class: "facts" });
    const brText = document.createTextNode(""), br = h("div", { class: "bracket" }, h("span", {}, h("em", { class: "bl" }, "Client outage "), brText)), brLane = h("div", { class: "lane brow" }, h("span", { class: "lab" }, "Client outage"), h("div", { class: "track" }, br), h("span", { class: "n at" }, "at"), h("span", { class: "n took" }, "took"));
    const axis = h("div", { class: "track" }), axLab = h("span", { class: "lab" }), axLane = h("div", { class: "lane axis", "aria-hidden": "true" }, axLab, axis, h("span", { class: "n at" }), h("span", { class: "n took" }));
    const el = h("section", { class: `card tl${compact ? " compact" : ""}`, "aria-label": "Failover timeline" }, head, stages, h("div", { class: "chart" }, grid, brLane, lanes, axLane), !compact && facts);
    const dom = new Map(); let each = false, id = null, cur = null, domain = 0;
    const L = (n, v) => n.style.setProperty("left", v + "%"), W = (n, v) => n.style.setProperty("width", Math.max(0, v) + "%");
    function lane(key) { let d = dom.get(key); if (!d) { d = { li: h("li", { class: "lane" }), lab: h("span", { class: "lab" }), bar: h("i", { class: "bar" }), why: h("span", { class: "why" }), mwhy: h("span", { class: "mwhy muted" }), atn: h("span", { class: "n at muted" }), took: h("span", { class: "n took" }), pts: [] }; d.track = h("div", { class: "track" }, d.bar, d.why); d.li.append(d.lab, d.track, d.atn, d.took, d.mwhy); dom.set(key, d); } return d; }
    function update(f) {
      cur = f; if (id !== f.id) { id = f.id; dom.clear(); lanes.replaceChildren(); each = false; }
      const end = f.client_outage.to_ms, elapsed = f.ongoing ? f.elapsed_ms ?? clock() - f.started_at_ms : null, now = end ?? elapsed ?? 0;
      domain = STEPS.find((s) => s >= now * 1.04) || now * 1.04;
      const isr = f.phases.find((p) => p.name === "isr_restored"), late = f.kind && (!isr || isr.end_ms == null || isr.end_ms > domain), main = late ? 86 : 100;
      const x = (ms) => ms <= domain ? ms / domain * main : main + (100 - main) * 0.62;
      // heading and stages
      const when = `${compact ? what(f).replace(/\.$/, ", ") : ""}${stamp(f.started_at_ms)} UTC, ${f.ongoing && end == null ? "happening now" : ago(f.started_at_ms)}`;
      if (head.dataset.id !== f.id) { head.dataset.id = f.id; head.replaceChildren(h("h2"), h("span", { class: "muted" }), compact ? h("a", { class: "end", href: href("failovers", { id: f.id }) }, "All failovers") : h("span", { class: "end muted" }, `Failover ${f.id}`)); }
      setText(head.children[0], compact ? f.ongoing ? "Failover now" : "Last failover" : what(f)); setText(head.children[1], when);
      const stt = stageTimes(f); const sig = JSON.stringify(stt) + end;
      if (stages.dataset.sig !== sig) { stages.dataset.sig = sig; stages.replaceChildren(...STAGES.map(([k, t]) => h("div", {}, h("dt", {}, h("i", { class: `s-${k}` }), t), h("dd", {}, stt[k] || f.phases.some((p) => stageOf(p.name) === k) ? dur(stt[k]) : "–"))), compact ? "" : h("div", { class: "sum" }, h("dt", {}, end == null ? "Outage so far" : "Outage"), h("dd", {}, dur(now)))); }
      // bracket
      L(br, x(f.client_outage.from_ms)); W(br, x(Math.min(now, domain)) - x(f.client_outage.from_ms)); br.classList.toggle("open", end == null);
      setText(brText, `${dur(now)}${end == null ? " so far" : ""}${end != null && f.client_outage.uncertainty_ms != null && f.client_outage.source !== "client" ? ` ± ${f.client_outage.uncertainty_ms}` : ""}`);
      setText(axLab, f.client_outage.source === "first_sign" ? "Since the first sign" : "Since the last ack");
      // lanes
      const rows = [], push = f.phases.filter((p) => p.name === "pushed"), many = push.length > 5 || compact && push.length > 1; let done = false;
      const expect = f.ongoing ? EXPECT.filter((n) => !f.phases.some((p) => p.name === n)).map((n) => ({ name: n, todo: true })) : [];
      for (const p of f.phases) { if (p.name === "pushed" && many) { if (!done) { rows.push({ key: "pushes", pushes: push }); done = true; if (each) push.slice().sort((a, b) => a.end_ms - b.end_ms).forEach((q) => rows.push({ key: `pushed${q.broker}`, p: q, sub: true })); } } else rows.push({ key: p.name + (p.broker || ""), p }); }
      for (const p of expect) rows.push({ key: p.name + "-todo", p });
      const keys = new Set(rows.map((r) => r.key)); for (const [k, d] of dom) if (!keys.has(k)) { d.li.remove(); dom.delete(k); }
      let prev = null;
      for (const r of rows) {
        const d = lane(r.key), p = r.p; d.li.className = `lane${r.sub ? " sub" : ""}`;
        const wantN = prev ? prev.nextSibling : lanes.firstChild; if (wantN !== d.li) lanes.insertBefore(d.li, wantN); prev = d.li;
        if (r.pushes) { const s = r.pushes, first = Math.min(...s.map((q) => q.start_ms)), ends = s.map((q) => q.end_ms ?? now), last = Math.max(...ends), slow = s[ends.indexOf(last)];
          const lk = `Pushed to ${plural(s.length, "broker")}`; if (d.sig !== lk + each) { d.sig = lk + each; d.lab.replaceChildren(compact ? lk : h("button", { type: "button", class: "link", "aria-expanded": String(each), onclick: () => { each = !each; update(cur); } }, lk)); d.pts.forEach((q) => q.remove()); d.pts = s.map((q) => { const i = h("i", { class: "pt s-tell" }); d.track.append(i); return i; }); }
          d.bar.className = "bar s-tell faint"; L(d.bar, x(first)); W(d.bar, x(last) - x(first)); d.pts.forEach((q, i) => L(q, x(ends[i]))); place(d, first, last, `slowest: broker ${slow.broker}`); setText(d.atn, dur(last)); setText(d.took, dur(last - first)); continue; }
        setText(d.lab, p.name === "pushed" && p.broker ? (r.sub ? `broker ${p.broker}` : `Pushed to broker ${p.broker}`) : label(p.name));
        if (p.todo) { d.bar.className = "bar"; d.bar.hidden = true; setText(d.why, ""); setText(d.atn, ""); setText(d.took, "–"); d.lab.classList.add("muted"); continue; }
        const isIsr = p.name === "isr_restored", e = p.end_ms, running = e == null; d.bar.hidden = false;
        const right = running ? (isIsr ? 100 : x(Math.max(p.start_ms, now))) : x(e);
        d.bar.className = `bar s-${stageOf(p.name)}${running ? (isIsr ? " wait" : " open") : ""}${p.critical || isIsr ? "" : " faint"}`;
        L(d.bar, x(p.start_ms)); W(d.bar, right - x(p.start_ms)); setText(d.atn, running ? "" : dur(e)); setText(d.took, running ? (isIsr ? "not yet" : dur(now - p.start_ms)) : dur(e - p.start_ms));
        place(d, p.start_ms, running ? (isIsr ? Infinity : now) : e, p.detail);
      }
      function place(d, s, e, text) { // beside the bar, on the roomier side, never wider than the room there
        setText(d.why, text); setText(d.mwhy, text); if (d.why.title !== text) d.why.title = text; const a = x(s), b = e === Infinity ? 100 : x(e), right = main - b >= a * .9, q = (k, v) => d.why.style.setProperty(k, v);
        const room = right ? main - b : a, inside = room < 14 && b - a > 30;
        d.why.classList.toggle("in", inside); if (inside) { q("left", a + "%"); q("right", "auto"); q("max-width", b - a + "%"); } else { q("left", right ? b + "%" : "auto"); q("right", right ? "auto" : 100 - a + "%"); q("max-width", room + "%"); }
        d.why.hidden = room < 14 && !inside;
      }
      // axis
      const wide = axis.clientWidth || 600, target = wide < 260 ? 2 : wide < 420 ? 3 : 5, step = [5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 2500, 5000, 10000, 20000, 50000, 100000].find((s) => domain / s <= target) || domain;
      const asig = [domain, main, step].join(); if (axis.dataset.sig !== asig) { axis.dataset.sig = asig; const unit = domain >= 3000 ? (t) => `${t / 1000} s` : (t) => `${num(t)} ms`; grid.replaceChildren(); axis.replaceChildren(); for (let t = 0; t <= domain + .001; t += step) { const i = h("i"); L(i, t / domain * main); grid.append(i); const edge = late && t / domain * main > main - 6; const s = h("span", { class: `t${t === 0 ? " first" : !late && t + step > domain ? " last" : edge ? " last" : ""}` }, t ? unit(t) : "0"); L(s, t / domain * main); axis.append(s); } if (late) { const b = h("b"); L(b, main); b.style.setProperty("right", "0"); grid.append(b); const i = h("i", { class: "edge" }); L(i, main); grid.append(i); const s = h("span", { class: "t last" }, "later"); L(s, 100); axis.append(s); } }
      el.style.setProperty("--main", main + "%");
      if (!compact) { const fx = [["Noticed by", VIA[f.detected_by] ?? f.detected_by], ["Controller", `broker ${f.controller_id}, epoch ${f.controller_epoch}`], ["Leaders moved", num(f.partitions_moved)], ["Left offline", f.partitions_left_offline ? h("a", { href: href("partitions", { state: "offline" }) }, num(f.partitions_left_offline)) : "none"], f.ledger_entries == null ? null : ["Ledger", f.ledger_entries ? h("a", { href: href("ledger", { failover: f.id }) }, plural(f.ledger_entries, "entry", "entries")) : "no entry"], ["Outage", f.client_outage.source === "client" ? "measured by a client" : f.client_outage.source === "first_sign" ? f.phases.some((p) => p.name === "first_ack") ? "from the first sign to the first ack" : "from the first sign until the new leaders were told" : "from the followers' last fetch to the first ack"], end != null && f.client_outage.last_ack_ms > end ? ["Last partition", `served ${dur(f.client_outage.last_ack_ms - f.client_outage.from_ms)} after the outage began`] : null, f.detected_by === "suspicion" ? ["Without suspicion", `at least ${dur(f.session_timeout_ms)}, the ZooKeeper session`] : null].filter(Boolean);
        const fs = fx.map((a) => a[0] + (a[1].textContent ?? a[1])).join(); if (facts.dataset.sig !== fs) { facts.dataset.sig = fs; facts.replaceChildren(...fx.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v)))); } }
    }
    new ResizeObserver(() => cur && requestAnimationFrame(() => update(cur))).observe(axis);
    return { el, update };
  }
  const SCALE = 1000;
  function mini(f) { const o = outage(f) ?? f.elapsed_ms ?? 0, s = stageTimes(f), m = h("div", { class: "mini", role: "img", "aria-label": STAGES.map(([k, t]) => `${t} ${dur(s[k])}`).join(", ") }); let x = 0; for (const [k] of STAGES) { const w = Math.min(s[k], SCALE - x); if (w > 0) { const i = h("i", { class: `s-${k}` }); i.style.left = x / 10 + "%"; i.style.width = `max(2px, ${w / 10}%)`; m.append(i); x += w; } } if (o > SCALE) m.append(h("span", { class: "cut" })); return m; }

  // ---- what operators may do (operate.js); it is seen everywhere once it is done
  const cap = (s) => s ? s.charAt(0).toUpperCase() + s.slice(1) + (/[.!?]$/.test(s) ? "" : ".") : "";
  const op = operatorOf({ h, icon, num, bytes, dur, plural, setText, cap, command, say: (s) => setText($("say"), s), changed: () => Promise.all(Object.keys(store).map((k) => load(k, PATHS[k]))).then(() => { const t = at.q.get("panel"); if (t) { panelFor = null; showPanel(t); } }) });

  // ---- views. Each: needs (store keys), build(main), update(keys)
  const V = {};
  const counter = (label) => { const dd = h("dd"); return { el: h("div", {}, h("dt", {}, label), dd), set: (sig, ...k) => { if (dd.dataset.sig !== sig) { dd.dataset.sig = sig; dd.replaceChildren(...k); } } }; };
  const brokerCols = (short) => [
    { k: "id", label: "Broker", cell: (b) => [b.id, () => h("a", { href: open(`broker/${b.id}`) }, `Broker ${b.id}`)], by: (b) => b.id },
    { k: "state", label: "State", cell: (b) => st(b.state), by: (b) => (b.state === "registered" ? 1 : 0) },
    { k: "ctl", label: "Controller", p: 4, cell: (b) => b.is_controller ? `epoch ${store.cluster?.controller.epoch ?? ""}` : "" },
    { k: "rack", label: "Rack", p: short ? 4 : 3, cell: (b) => b.rack },
    !short && { k: "be", label: "Broker epoch", n: 1, p: 4, cell: (b) => b.broker_epoch },
    { k: "leaders", label: "Leaders", n: 1, cell: (b) => num(b.leaders), by: (b) => b.leaders },
    { k: "replicas", label: "Replicas", n: 1, p: 2, cell: (b) => num(b.replicas), by: (b) => b.replicas },
    !short && { k: "lag", label: "Worst lag", n: 1, p: 3, cell: (b) => b.state === "dead" ? "–" : num(b.follower_lag_records_max), by: (b) => b.follower_lag_records_max },
    { k: "in", label: "In", n: 1, p: 2, cell: (b) => b.state === "dead" ? "–" : rate(b.bytes_in_per_s), by: (b) => b.bytes_in_per_s },
    !short && { k: "out", label: "Out", n: 1, p: 3, cell: (b) => b.state === "dead" ? "–" : rate(b.bytes_out_per_s), by: (b) => b.bytes_out_per_s },
    { k: "flush", label: "Flush p99", n: 1, p: 2, cell: (b) => b.flush_ms_p99 > 100 ? [`${b.flush_ms_p99 | 0}w`, () => h("span", { class: "warn" }, dur(b.flush_ms_p99))] : dur(b.flush_ms_p99), by: (b) => b.flush_ms_p99 ?? -1 },
    { k: "disk", label: "Disk", n: 1, p: 2, cell: (b) => b.disk_used_percent == null ? ["d–", () => document.createTextNode("–")] : [`d${b.disk_used_percent}`, () => { const i = h("i"); i.style.width = b.disk_used_percent + "%"; return h("span", {}, h("span", { class: `meter p3${b.disk_used_percent >= 85 ? " warn" : ""}`, "aria-hidden": "true" }, i), `${b.disk_used_percent} %`); }], by: (b) => b.disk_used_percent },
    !short && { k: "zk", label: "ZooKeeper", p: 3, cell: (b) => b.zookeeper_session == null || b.zookeeper_session === "connected" ? [b.zookeeper_session, () => document.createTextNode(b.zookeeper_session ?? "–")] : [b.zookeeper_session, () => h("span", { class: "bad" }, "session " + b.zookeeper_session)] },
  ].filter(Boolean);

  V.cluster = { needs: ["cluster", "brokers", "failovers", "map"], build(m) {
    const C = { off: counter("Offline"), min: counter("Under min ISR"), ur: counter("Under-replicated"), br: counter("Brokers"), ctl: counter("Controller"), zk: counter("ZooKeeper"), lost: counter("Lost at acks=all, 30 days") };
    const probs = h("ul", { class: "probs" }), pc = card("Wrong now", null, probs);
    const bt = table(brokerCols(true), { key: (b) => b.id, caption: "Brokers", go: (b) => open(`broker/${b.id}`), on: (b) => at.q.get("panel") === `broker/${b.id}` });
    const bc = h("section", { class: "card half o-last" }, h("header", {}, h("h2", {}, "Brokers"), h("span", { class: "end" }, h("a", { href: href("brokers") }, "All columns"))), bt.el);
    const tl = timeline(true), tlBox = h("div"), mo = mosaic();
    m.append(h("h1", { class: "vh" }, "Cluster"), h("dl", { class: "counters" }, Object.values(C).map((c) => c.el)), h("div", { class: "cols" }, h("div", { class: "stack" }, pc, bc), h("div", { class: "stack" }, tlBox, mo.el)));
    return (keys) => {
      const c = store.cluster, k = c.counts, one = (C, n, state, cls) => C.set(n + state, n ? h("a", { href: href("partitions", { state }), class: cls }, num(n)) : h("span", { class: "zero" }, "0"));
      one(C.off, k.offline_partitions, "offline", "bad"); one(C.min, k.under_min_isr_partitions, "under_min_isr", "bad"); one(C.ur, k.under_replicated_partitions, "under_replicated", "warn");
      C.br.set(`${k.brokers_live}/${k.brokers}`, h("a", { href: href("brokers"), class: k.brokers_live < k.brokers ? "bad" : "" }, num(k.brokers_live)), h("small", {}, ` of ${k.brokers}`));
      c.controller.id < 0 ? C.ctl.set("none", h("span", { class: "bad" }, "None")) : C.ctl.set(`${c.controller.id}.${c.controller.epoch}`, h("a", { href: open(`broker/${c.controller.id}`) }, `Broker ${c.controller.id}`), h("small", {}, ` epoch ${c.controller.epoch}`));
      C.zk.set(c.zookeeper.session_state + c.zookeeper.round_trip_ms_p99, c.zookeeper.session_state === "connected" ? "Connected" : h("span", { class: "bad" }, c.zookeeper.session_state), c.zookeeper.round_trip_ms_p99 == null ? "" : h("small", {}, ` ${dur(c.zookeeper.round_trip_ms_p99)}`));
      C.lost.set("l" + c.lost_records_30d.acks_all, h("a", { href: href("ledger"), class: c.lost_records_30d.acks_all ? "bad" : "" }, num(c.lost_records_30d.acks_all)), h("small", {}, " records"));
      const sig = JSON.stringify(c.problems) + Math.floor(clock() / (c.problems.some((p) => clock() - p.since_ms < 60000) ? 1000 : 60000));
      if (probs.dataset.sig !== sig && !probs.contains(document.activeElement)) { probs.dataset.sig = sig; probs.replaceChildren(...(c.problems.length ? c.problems.map((p) => h("li", {}, icon(p.severity), h("div", { class: "body" }, h("div", { class: "what" }, p.what), h("div", { class: "why" }, p.why + ". ", p.heals_by_itself ? `Heals by itself ${p.heals_when}.` : "Does not heal by itself.")), h("span", { class: "age" }, p.since_ms == null ? "" : ago(p.since_ms)), h("button", { type: "button", onclick: () => { location.hash = open(`${p.kind}/${p.target}`); } }, "Explain", h("span", { class: "vh" }, `: ${p.what}`)))) : [h("li", { class: "ok1" }, icon("ok"), h("div", { class: "body muted" }, "Nothing. Every partition is led and has all its replicas in sync."))])); }
      if (keys.has("brokers") || keys.has("all")) bt.set(sortBrokers(store.brokers.brokers));
      const f = live() || store.failovers.failovers[0]; if (f) { if (tlBox.firstChild !== tl.el) tlBox.replaceChildren(tl.el); if (keys.has("failovers") || keys.has("all")) tl.update(f); } else if (!tlBox.firstChild) tlBox.replaceChildren(card("Last failover", null, h("p", { class: "note" }, h("b", {}, "None yet"), "No failover is known to this broker.")));
      if (keys.has("map") || keys.has("all")) mo.update(store.map.topics);
    };
  } };
  const ill = (b) => b.state === "dead" ? 0 : b.state === "registered" ? 2 : 1;
  const sortBrokers = (b) => b.slice().sort((x, y) => ill(x) - ill(y) || (y.flush_ms_p99 > 100 ? 1 : 0) - (x.flush_ms_p99 > 100 ? 1 : 0) || x.id - y.id);

  function mosaic() {
    const body = h("div", { class: "mosaic" }), meta = h("span", { class: "muted" }), el = h("section", { class: "card" }, h("header", {}, h("h2", {}, "Partitions"), meta), body, h("div", { class: "legend", style: null }, h("span", {}, h("i", { class: "key" }), "in sync"), h("span", {}, h("i", { class: "key r" }), "under-replicated"), h("span", {}, h("i", { class: "key m" }), "under min ISR"), h("span", {}, h("i", { class: "key o" }), "offline")));
    el.lastChild.classList.add("mlegend"); let topics = [], cell = 0, per = 0, flat = [];
    const tip = h("div", { class: "tip", hidden: true }), cv = h("canvas", { role: "img" });
    const WORD = { ".": "in sync", r: "under-replicated", m: "under min ISR", o: "offline" };
    function draw() {
      const N = flat.length; setText(meta, `${num(N)} in ${plural(topics.length, "topic")}`);
      if (N <= 120 && topics.length <= 12) { body.replaceChildren(h("div", { class: "rows" }, topics.map((t) => h("div", { class: "mrow" }, h("a", { class: "mname", title: t.name, href: href("partitions", { topic: t.name }) }, t.name), h("div", { class: "mcells" }, [...t.states].map((s, i) => h("a", { class: `mc ${s === "." ? "" : s}`, href: open(`partition/${encodeURIComponent(t.name)}/${i}`), title: `${t.name}-${i}, ${WORD[s]}`, "aria-label": `${t.name}-${i}, ${WORD[s]}` }, String(i)))))))); return; }
      if (cv.parentNode !== body) body.replaceChildren(cv, tip);
      const W = body.clientWidth - 28; if (W < 50) return; cell = [16, 13, 11, 9, 8, 7, 6, 5, 4].find((s) => Math.ceil(N / Math.floor(W / s)) * s <= 340) || 4; per = Math.floor(W / cell);
      const H = Math.ceil(N / per) * cell, r = devicePixelRatio || 1, css = getComputedStyle(document.documentElement), col = (v) => css.getPropertyValue(v).trim(); cv.width = W * r; cv.height = H * r; cv.style.height = H + "px"; const g = cv.getContext("2d"); g.scale(r, r);
      const put = (i, inset, c) => { g.fillStyle = c; g.fillRect((i % per) * cell + inset, Math.floor(i / per) * cell + inset, cell - 2 * inset, cell - 2 * inset); };
      const idle = col("--idle"), warn = col("--warn-mark"), bad = col("--bad"), sf = col("--surface");
      flat.forEach((s, i) => { if (s === ".") put(i, cell < 6 ? .75 : 1, idle); else if (s === "r") put(i, .5, warn); });
      flat.forEach((s, i) => { if (s === "m") { put(i, -1, sf); put(i, -.5, bad); put(i, cell / 2 - Math.max(.8, cell / 8), sf); } }); flat.forEach((s, i) => { if (s === "o") { put(i, -3, sf); put(i, -2, bad); } });
      const n = (c) => flat.reduce((a, s) => a + (s === c), 0); cv.setAttribute("aria-label", `${num(N)} partitions: ${n("o")} offline, ${n("m")} under min ISR, ${n("r")} under-replicated. The partitions view lists them.`);
    }
    const find = (e) => { const b = cv.getBoundingClientRect(), cx = Math.floor((e.clientX - b.left) / cell), cy = Math.floor((e.clientY - b.top) / cell); let i = cy * per + cx; if (cx >= per || i < 0 || i >= flat.length) return null; const s = flat[i]; for (const t of topics) { if (i < t.states.length) return { t, i, s }; i -= t.states.length; } return null; };
    cv.addEventListener("mousemove", (e) => { const f = find(e); tip.hidden = !f; if (f) { setText(tip, `${f.t.name}-${f.i}, ${WORD[f.s]}`); const b = body.getBoundingClientRect(), x = e.clientX - b.left, w = tip.offsetWidth; tip.style.left = Math.min(Math.max(4, x + 12), b.width - w - 4) + "px"; tip.style.top = e.clientY - b.top - 28 + "px"; } }); cv.addEventListener("mouseleave", () => { tip.hidden = true; });
    cv.addEventListener("click", (e) => { const f = find(e); if (f) location.hash = open(`partition/${encodeURIComponent(f.t.name)}/${f.i}`); });
    new ResizeObserver(() => requestAnimationFrame(draw)).observe(body); matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    let last = ""; return { el, update(t) { const s = t.map((x) => x.name + x.states).join("/"); if (s === last) return; last = s; topics = t; flat = t.flatMap((x) => [...x.states]); draw(); } };
  }

  V.topics = { needs: ["topics"], build(m) {
    let f = at.q.get("q") || ""; const count = h("span", { class: "muted" }); const tb = table([
      { k: "name", label: "Topic", cls: "nm", cell: (t) => [t.name, () => h("a", { href: href("partitions", { topic: t.name }) }, t.name)], by: (t) => t.name },
      { k: "state", label: "State", cell: (t) => st(t.offline_partitions ? "offline" : t.under_min_isr_partitions ? "under_min_isr" : t.under_replicated_partitions ? "under_replicated" : "online"), by: (t) => t.offline_partitions * 1e8 + t.under_min_isr_partitions * 1e4 + t.under_replicated_partitions },
      { k: "p", label: "Partitions", n: 1, p: 2, cell: (t) => num(t.partition_count), by: (t) => t.partition_count }, { k: "o", label: "Offline", n: 1, p: 2, cell: (t) => t.offline_partitions ? num(t.offline_partitions) : "–", by: (t) => t.offline_partitions }, { k: "u", label: "Under-repl.", n: 1, p: 3, cell: (t) => t.under_replicated_partitions ? num(t.under_replicated_partitions) : "–", by: (t) => t.under_replicated_partitions },
      { k: "rf", label: "RF", n: 1, p: 2, cell: (t) => t.replication_factor, by: (t) => t.replication_factor }, { k: "mi", label: "Min ISR", n: 1, p: 2, cell: (t) => t.min_insync_replicas, by: (t) => t.min_insync_replicas }, { k: "fl", label: "Flush", p: 3, cell: (t) => t.flush_mode, by: (t) => t.flush_mode }, { k: "size", label: "Size", n: 1, p: 2, cell: (t) => bytes(t.bytes), by: (t) => t.bytes }, { k: "in", label: "In", n: 1, p: 3, cell: (t) => rate(t.bytes_in_per_s), by: (t) => t.bytes_in_per_s },
      { k: "dur", label: "What it survives", p: 4, cls: "wrap", cell: (t) => t.durability.sentence },
    ], { key: (t) => t.name, caption: "Topics", sort: { k: "state", dir: -1 }, go: (t) => href("partitions", { topic: t.name }), empty: [h("b", {}, "No topic"), "Make one: ", h("code", {}, "barnabas topic create NAME --partitions 6 --replication-factor 3")] });
    const inp = search("Filter topics", f, (v) => { f = v; upd(); }); m.append(h("div", { class: "pagehead" }, h("h1", {}, "Topics"), inp, count, h("span", { class: "end" }, op.button("Create a topic", () => op.createTopic()))), h("section", { class: "card" }, tb.el));
    const upd = () => { const r = store.topics.topics.filter((t) => t.name.toLowerCase().includes(f.toLowerCase())); setText(count, f ? `${num(r.length)} of ${num(store.topics.topics.length)}` : plural(r.length, "topic")); tb.set(r); }; return upd;
  } };
  const search = (label, value, fn) => { let t; const i = h("input", { type: "search", placeholder: label, "aria-label": label, value, autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/", oninput: () => { clearTimeout(t); t = setTimeout(() => fn(i.value.trim()), 120); } }); return i; };

  V.partitions = { needs: ["cluster", "brokers"], build(m) {
    const q = { state: at.q.get("state") || "", q: at.q.get("q") || "", broker: at.q.get("broker") || "", topic: at.q.get("topic") || "" };
    const total = h("span", { class: "muted", role: "status" });
    const SEG = [["", "All", "partitions"], ["offline", "Offline", "offline_partitions"], ["under_min_isr", "Under min ISR", "under_min_isr_partitions"], ["under_replicated", "Under-replicated", "under_replicated_partitions"]];
    const segs = h("div", { class: "segs", role: "group", "aria-label": "State" }), cnt = {}; for (const [s, t, c] of SEG) { cnt[c] = h("small"); segs.append(h("button", { type: "button", "aria-pressed": String(q.state === s), onclick: (e) => { q.state = s; for (const b of segs.children) b.setAttribute("aria-pressed", String(b === e.currentTarget)); sync(); } }, t, cnt[c])); }
    const sel = h("select", { "aria-label": "Broker", onchange: () => { q.broker = sel.value; sync(); } }, h("option", { value: "" }, "Any broker"));
    const inp = search("Filter by topic or partition", q.topic || q.q, (v) => { q.q = v; q.topic = ""; sync(); });
    const COL = [["c-name", "Partition"], ["c-st", "State"], ["n c-hide", "Leader"], ["n p4 c-hide", "Epoch"], ["gap c-hide", ""], ["c-reps", "Replicas"], ["n p3 c-hide", "Log end"], ["n c-hide p2", "High watermark"], ["n p4 c-hide", "Flushed"], ["n p3 c-hide", "Size"]];
    COL[7][1] = "HW"; const head = h("div", { class: "vhead", role: "row" }, COL.map(([c, t]) => h("span", { class: c, role: "columnheader", title: t === "HW" ? "High watermark" : null }, t)));
    const space = h("div"), vt = h("div", { class: "vt", role: "rowgroup", tabindex: "0", "aria-label": "Partitions, scrollable" }, space), note = h("p", { class: "note", hidden: true });
    const tableEl = h("div", { role: "table", "aria-label": "Partitions" }, head, vt);
    m.append(h("div", { class: "pagehead" }, h("h1", {}, "Partitions"), segs, inp, sel), h("section", { class: "card" }, tableEl, note), h("div", { class: "foot" }, repLegend(), total));
    // a window of the list: pages of 100 are fetched around the viewport, at most 20 are kept, at most 80 rows exist
    const pages = new Map(), pool = []; let count = 0, rowH = 31, gen = 0, act = -1;
    async function page(i) { if (pages.has(i)) return; pages.set(i, null); const g = gen; try { const d = await api.get("partitions", { ...q, from: i * 100, limit: 100 }); if (g !== gen) return; pages.set(i, d.partitions); if (d.total !== count || i === 0) { count = d.total; space.style.height = count * rowH + "px"; tableEl.setAttribute("aria-rowcount", count + 1); setText(total, plural(count, "partition")); note.hidden = count > 0; vt.hidden = !count; note.replaceChildren(h("b", {}, "No partition matches"), "Widen the state, the broker or the text."); } if (pages.size > 20) for (const k of pages.keys()) { if (Math.abs(k - i) > 8) { pages.delete(k); break; } } paint(); } catch (e) { pages.delete(i); note.hidden = false; note.replaceChildren(h("b", {}, "The list could not be read"), e.message); } }
    function rowAt(k) { if (!pool[k]) { const c = COL.map(([cls]) => h("span", { class: cls, role: "cell" })), r = h("div", { class: "vrow", role: "row" }, c); const a = h("a", { tabindex: "-1" }); c[0].append(a); r.addEventListener("click", (e) => { if (r._x && !e.target.closest("a")) a.click(); }); space.append(r); pool[k] = { r, c, a, sig: "" }; } return pool[k]; }
    function paint() {
      const probe = rowAt(0).r.offsetHeight; if (probe && probe !== rowH) { rowH = probe; space.style.height = count * rowH + "px"; }
      const first = Math.max(0, Math.floor(vt.scrollTop / rowH) - 4), n = Math.min(80, Math.ceil(vt.clientHeight / rowH) + 8, count - first), ds = deadSet(), cur = at.q.get("panel");
      for (let i = first; i < first + n; i++) { const p = Math.floor(i / 100); if (!pages.has(p)) page(p); }
      for (let k = 0; k < Math.max(n, pool.length); k++) { const w = rowAt(k); const i = first + k, x = k < n ? pages.get(Math.floor(i / 100))?.[i % 100] : null; w.r.hidden = k >= n; if (k >= n) continue; w.r.style.transform = `translateY(${i * rowH}px)`; w.r.setAttribute("aria-rowindex", i + 2); w.i = i; w.r._x = x; w.r.classList.toggle("c-hide", false);
        const key = x ? nm(x) : "…"; setText(w.a, key); if (x) { const hr = open(`partition/${encodeURIComponent(x.topic)}/${x.partition}`); if (w.hr !== hr) { w.hr = hr; w.a.href = hr; } w.a.tabIndex = i === act || act < 0 && k === 0 ? 0 : -1; const tag = `partition/${x.topic}/${x.partition}`; w.r.toggleAttribute("data-on", cur != null && decodeURIComponent(cur) === tag); }
        const sig = x ? `${x.state}|${x.leader}|${x.isr}|${key}` : "x"; if (w.sig !== sig) { w.sig = sig; w.c[1].replaceChildren(x ? st(x.state)[1]() : ""); w.c[5].replaceChildren(x ? reps(x, ds) : ""); }
        setText(w.c[2], x ? (x.leader < 0 ? "none" : x.leader) : ""); setText(w.c[3], x ? x.leader_epoch : ""); setText(w.c[6], x ? num(x.log_end_offset) : ""); setText(w.c[7], x ? num(x.high_watermark) : ""); setText(w.c[8], x ? num(x.flushed_offset) : ""); setText(w.c[9], x ? bytes(x.bytes) : ""); }
      head.style.setProperty("--sbw", vt.offsetWidth - vt.clientWidth + "px");
    }
    function sync() { gen++; pages.clear(); vt.scrollTop = 0; act = -1; history.replaceState(null, "", href("partitions", { ...q, panel: at.q.get("panel") })); at = parse(); count = 0; page(0); }
    vt.addEventListener("scroll", () => requestAnimationFrame(paint), { passive: true });
    vt.addEventListener("keydown", (e) => { const d = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[e.key]; if (!d || !count) return; e.preventDefault(); const w0 = pool.find((w) => w.a === document.activeElement); act = Math.min(count - 1, Math.max(0, w0 ? w0.i + d : Math.floor(vt.scrollTop / rowH))); const top = act * rowH; if (top < vt.scrollTop) vt.scrollTop = top; else if (top + rowH > vt.scrollTop + vt.clientHeight) vt.scrollTop = top + rowH - vt.clientHeight; paint(); pool.find((w) => w.i === act)?.a.focus({ preventScroll: true }); });
    new ResizeObserver(() => requestAnimationFrame(paint)).observe(vt);
    let lastRefetch = 0; page(0);
    return (keys) => { for (const c in cnt) setText(cnt[c], num(store.cluster.counts[c])); if (sel.options.length < 2) { for (const b of store.brokers.brokers) sel.append(h("option", { value: b.id, selected: String(b.id) === q.broker }, `Broker ${b.id}`)); }
      if ((keys.has("offsets") || keys.has("partitions")) && performance.now() - lastRefetch > 900 && !document.hidden) { lastRefetch = performance.now(); const p0 = Math.floor(vt.scrollTop / rowH / 100), p1 = Math.floor((vt.scrollTop + vt.clientHeight) / rowH / 100), g = gen; for (let p = p0; p <= p1; p++) api.get("partitions", { ...q, from: p * 100, limit: 100 }).then((d) => { if (g === gen) { pages.set(p, d.partitions); paint(); } }, () => {}); } else paint(); };
  } };

  V.brokers = { needs: ["cluster", "brokers"], build(m) { const tb = table(brokerCols(false), { key: (b) => b.id, caption: "Brokers", go: (b) => open(`broker/${b.id}`), on: (b) => at.q.get("panel") === `broker/${b.id}` }), meta = h("span", { class: "muted" }); m.append(h("div", { class: "pagehead" }, h("h1", {}, "Brokers"), meta, h("span", { class: "end" }, op.button("Elect preferred leaders", () => op.elect()))), h("section", { class: "card" }, tb.el)); return () => { const b = store.brokers.brokers; setText(meta, `${num(b.filter((x) => x.state === "registered").length)} of ${b.length} up, leaders ${num(Math.min(...b.filter((x) => x.state !== "dead").map((x) => x.leaders)))} to ${num(Math.max(...b.map((x) => x.leaders)))} each`); tb.set(sortBrokers(b)); }; } };

  V.groups = { needs: ["groups"], build(m) { let f = ""; const tb = table([
      { k: "name", label: "Group", cls: "nm", cell: (g) => [g.name, () => h("a", { href: open(`group/${encodeURIComponent(g.name)}`) }, g.name)], by: (g) => g.name }, { k: "state", label: "State", cell: (g) => st(g.state), by: (g) => g.state }, { k: "lag", label: "Lag, records", n: 1, cell: (g) => g.lag_trend === "growing" ? ["g" + g.lag_records, () => h("span", { class: "warn" }, num(g.lag_records))] : num(g.lag_records), by: (g) => g.lag_records }, { k: "lt", label: "Lag, time", n: 1, p: 2, cell: (g) => dur(g.lag_ms), by: (g) => g.lag_ms }, { k: "tr", label: "Trend", p: 2, cell: (g) => g.lag_trend === "growing" ? ["gr", () => h("span", { class: "st warn" }, icon("warn"), "growing")] : g.lag_trend, by: (g) => g.lag_trend }, { k: "own", label: "Unowned", n: 1, p: 3, cell: (g) => g.partitions_without_owner || "–" }, { k: "mem", label: "Members", n: 1, p: 2, cell: (g) => num(g.members), by: (g) => g.members }, { k: "co", label: "Coordinator", p: 3, cell: (g) => `broker ${g.coordinator}` }, { k: "to", label: "Topics", p: 3, cell: (g) => g.topics.join(", ") }],
      { key: (g) => g.name, caption: "Consumer groups", sort: { k: "lag", dir: -1 }, go: (g) => open(`group/${encodeURIComponent(g.name)}`), empty: [h("b", {}, "No consumer group"), "A group appears here with its first commit."] }), meta = h("span", { class: "muted" });
    m.append(h("div", { class: "pagehead" }, h("h1", {}, "Groups"), search("Filter groups", "", (v) => { f = v; upd(); }), meta), h("section", { class: "card" }, tb.el)); const upd = () => { const r = store.groups.groups.filter((g) => g.name.toLowerCase().includes(f.toLowerCase())); setText(meta, plural(r.length, "group") + (store.groups.complete === false ? ", not every broker has answered" : "")); tb.set(r); }; return upd; } };

  V.failovers = { needs: ["failovers"], build(m) {
    const tl = timeline(false), box = h("div"), meta = h("span", { class: "muted" }); const pick = () => { const l = store.failovers.failovers, id = at.q.get("id"); return l.find((f) => f.id === id) || live() || l[0]; };
    const tb = table([
      { k: "t", label: "When", cell: (f) => [stamp(f.started_at_ms), () => h("a", { href: href("failovers", { id: f.id }) }, stamp(f.started_at_ms))] }, { k: "w", label: "What", cls: "wrap", cell: (f) => what(f).replace(/\.$/, "") }, { k: "v", label: "Noticed by", p: 3, cell: (f) => VIA[f.detected_by] ?? f.detected_by }, { k: "mv", label: "Leaders", n: 1, p: 3, cell: (f) => num(f.partitions_moved) },
      { k: "bar", label: () => h("span", { class: "scale", "aria-hidden": "true" }, h("span", {}, "0"), h("span", {}, "0.5 s"), h("span", {}, "1 s")), p: 2, cls: "barcell", cell: (f) => [`${f.id}${outage(f) ?? f.elapsed_ms}`, () => mini(f)] },
      { k: "o", label: "Outage", n: 1, cell: (f) => outage(f) == null ? dur(f.elapsed_ms) : dur(outage(f)) }, { k: "i", label: "ISR back", n: 1, p: 2, cell: (f) => { const p = f.phases.find((x) => x.name === "isr_restored"); return !p || p.end_ms == null ? ["no", () => h("span", { class: "warn" }, "not yet")] : dur(p.end_ms); } }, { k: "l", label: "Ledger", n: 1, p: 3, cell: (f) => f.ledger_entries || "–" },
    ], { key: (f) => f.id, caption: "Failovers, newest first", cls: "fo", go: (f) => href("failovers", { id: f.id }), on: (f) => pick()?.id === f.id, empty: [h("b", {}, "No failover yet"), "Kill a broker of ", h("code", {}, "barnabas dev"), " to see one: ", h("code", {}, "kill -9 $(cat DIR/broker-2.pid)")] });
    m.append(h("div", { class: "pagehead" }, h("h1", {}, "Failovers"), meta), h("div", { class: "stack" }, box, h("section", { class: "card" }, h("header", {}, h("h2", {}, "All failovers"), h("span", { class: "muted" }, "bars on one scale, longer ones are cut at 1 s")), tb.el)));
    return () => { const l = store.failovers.failovers, f = pick(), o = l.map(outage).filter((x) => x != null).sort((a, b) => a - b); if (o.length) setText(meta, `${plural(Math.max(store.failovers.total ?? 0, l.length), "failover")} kept. Median outage ${dur(o[o.length >> 1])}, longest ${dur(o[o.length - 1])}.`); box.hidden = !f; if (f && box.firstChild !== tl.el) box.replaceChildren(tl.el); if (f) tl.update(f); tb.set(l); };
  } };

  const CLASS = { never_acked: ["muted", "never acked"], acks_1: ["warn", "acks=1"], acks_all: ["bad", "acks=all"], unknown: ["warn", "not known"] }, CAUSE = { suspicion: "Suspicion", truncation: "Truncation", process_crash: "Process crash", unclean_election: "Unclean election", lost_tail: "Lost tail", fsync_failed: "Failed fsync", retention_overtook_group: "Retention overtook a group" };
  const words = (s) => { const t = String(s ?? "–").replaceAll("_", " "); return t.charAt(0).toUpperCase() + t.slice(1); };
  V.ledger = { needs: ["ledger", "cluster"], build(m) { const tb = table([
      { k: "t", label: "When", cell: (e) => stamp(e.at_ms), by: (e) => e.at_ms }, { k: "p", label: "Partition", cls: "nm", cell: (e) => [e.id, () => e.topic && e.partition >= 0 ? partLink(e) : document.createTextNode("–")], by: nm }, { k: "o", label: "Offsets", n: 1, p: 2, cell: (e) => e.first_offset < 0 ? "–" : e.end_offset == null ? `${num(e.first_offset)} on` : e.records === 1 ? num(e.first_offset) : `${num(e.first_offset)} to ${num(e.end_offset - 1)}` }, { k: "n", label: "Records", n: 1, cell: (e) => e.records == null && e.records_at_least ? `${num(e.records_at_least)} or more` : num(e.records), by: (e) => e.records ?? e.records_at_least }, { k: "s", label: "State", p: 3, cell: (e) => e.state === "unread" ? "deleted unread" : "lost" }, { k: "c", label: "Promised", cell: (e) => [e.ack_class, () => h("span", { class: e.state === "lost" ? CLASS[e.ack_class]?.[0] ?? "warn" : "" }, CLASS[e.ack_class]?.[1] ?? e.ack_class)] }, { k: "w", label: "Cause", p: 2, cell: (e) => CAUSE[e.cause] ?? words(e.cause) }, { k: "d", label: "What happened", p: 4, cls: "wrap", cell: (e) => e.note }, { k: "e", label: "Leader epoch", n: 1, p: 3, cell: (e) => e.leader_epoch }, { k: "b", label: "Broker", n: 1, p: 3, cell: (e) => e.broker }],
      { key: (e) => e.id, caption: "Loss ledger, newest first", empty: [h("b", {}, "The ledger is empty"), "No record was lost, acked or not."] }), meta = h("span", { class: "muted" });
    m.append(h("div", { class: "pagehead" }, h("h1", {}, "Loss ledger"), meta), h("dl", { class: "counters four" }), h("section", { class: "card under" }, tb.el)); const dl = m.querySelector(".counters"), C = [counter("Lost at acks=all"), counter("Lost at acks=1"), counter("Lost, never acked"), counter("Lost, promise unknown")]; dl.append(...C.map((c) => c.el));
    return () => { const l = store.cluster.lost_records_30d, f = at.q.get("failover"); [[l.acks_all, "bad"], [l.acks_1, "warn"], [l.never_acked, ""], [l.unknown, "warn"]].forEach(([n, c], i) => C[i].set(String(n), h("span", { class: n ? c : "zero" }, num(n)), h("small", {}, n === 1 ? " record" : " records"))); setText(meta, `30 days, as broker ${list(store.ledger.durable_on)} has it; every broker keeps all of it.${store.ledger.total > store.ledger.entries.length ? ` The last ${num(store.ledger.entries.length)} of ${num(store.ledger.total)} entries.` : ""}${store.ledger.verified_at_ms == null ? "" : ` Compared with all replicas ${ago(store.ledger.verified_at_ms)}.`}`); tb.set(store.ledger.entries.filter((e) => !f || e.failover_id === f)); }; } };

  const NEVER = "9223372036854775807";
  const SRC = { default: "default", broker_file: "the broker's file", broker: "broker (ZooKeeper)", cluster: "cluster (ZooKeeper)", topic: "topic", environment: "environment" };
  V.configs = { needs: ["configs"], build(m) { let f = "", only = false; const meta = h("span", { class: "muted" }); const tb = table([
      { k: "key", label: "Key", cell: (c) => [c.key, () => h("code", {}, c.key.split(".").flatMap((t, i) => i ? ["." , h("wbr"), t] : [t]))], by: (c) => c.key }, { k: "v", label: "Value", cls: "wrap", cell: (c) => [c.value + c.differs_between_brokers, () => h("span", {}, h(c.source === "default" ? "span" : "b", { class: "mono val" }, c.value ?? "none"), c.differs_between_brokers ? h("span", { class: "st warn differs" }, icon("warn"), "differs between brokers") : null)] }, { k: "s", label: "Source", p: 2, cell: (c) => SRC[c.source] ?? c.source, by: (c) => c.source }, { k: "d", label: "Default", p: 3, cell: (c) => c.default_value == null ? "none" : c.default_value === NEVER ? "no limit" : c.default_value }, { k: "l", label: "Change takes", p: 3, cell: (c) => c.live ? "effect at once" : "a restart" }],
      { key: (c) => c.key, cls: "cfg", caption: "Configuration of the cluster", sort: { k: "key", dir: 1 }, empty: [h("b", {}, "No key matches")] });
    const b = h("button", { type: "button", "aria-pressed": "false", onclick: () => { only = !only; b.setAttribute("aria-pressed", String(only)); b.classList.toggle("strong", only); upd(); } }, "Changed only"); m.append(h("div", { class: "pagehead" }, h("h1", {}, "Configs"), search("Filter keys", "", (v) => { f = v; upd(); }), b, meta, h("span", { class: "end" }, op.button("Change a setting", () => op.setting()))), h("section", { class: "card" }, tb.el)); const upd = () => { const r = store.configs.configs.filter((c) => c.key.includes(f) && (!only || c.source !== "default")); setText(meta, `${plural(r.length, "key")}${store.configs.told_by == null ? "" : `, as broker ${store.configs.told_by} has them`}`); tb.set(r); }; return upd; } };

  // ---- panel: one object, why it is as it is, what to do
  let panelObj = null, opener = null, panelFor = null;
  function closePanel() { location.hash = here({ panel: null }); }
  async function showPanel(target) {
    const p = $("panel"); if (panelFor === target) return; panelFor = target;
    if (!target) { const had = p.contains(document.activeElement); p.hidden = true; p.replaceChildren(); panelObj = null; modal(false); if (had || opener) (opener?.isConnected ? opener : $("main")).focus?.({ preventScroll: true }); opener = null; return; }
    if (p.hidden) opener = document.activeElement === document.body ? null : document.activeElement;
    const [kind, ...rest] = target.split("/").map(decodeURIComponent); p.hidden = false; modal(innerWidth <= 760);
    const title = kind === "partition" ? `${rest[0]}-${rest[1]}` : kind === "broker" ? `Broker ${rest[0]}` : kind === "cluster" ? "Cluster" : rest[0];
    const head = (t) => h("header", {}, h("h2", { id: "panel-title" }, t), h("button", { type: "button", class: "quiet", "aria-label": "Close panel", "aria-keyshortcuts": "Escape", onclick: closePanel }, "Close"));
    p.replaceChildren(head(title)); p.focus({ preventScroll: true }); p.scrollTop = 0;
    try {
      const sick = async () => { try { return await api.get(`explain/${kind}/${rest.map(encodeURIComponent).join("/")}`); } catch { return null; } };
      if (kind === "partition") { const path = `partitions/${encodeURIComponent(rest[0])}/${rest[1]}`; let x = await api.get(path); const e = x.state === "online" ? null : await sick(); if (panelFor !== target) return; const o = offsets(), ep = h("dl", { class: "kv" }), hist = h("ul", { class: "ev" });
        p.replaceChildren(head(e ? e.headline : `${title} is led and in sync`), ...(e ? explainBody(e) : [h("p", { class: "lede muted" }, `Broker ${x.leader} leads; ${plural(x.isr.length, "replica")} of ${x.assigned_replicas.length} in sync, ${x.min_insync_replicas} needed for acks=all.`)]), h("div", { class: "acts op" }, op.button("Move replicas", () => op.move(x)), op.button("Elect preferred leader", () => op.elect(x))), h("section", {}, h("h3", {}, "Where the replicas' logs end"), o.el, h("div", { class: "legend" }, h("span", {}, h("i", { class: "key fl" }), "flushed to disk"), h("span", {}, h("i", { class: "key pc" }), "page cache only"), h("span", {}, h("i", { class: "key hwk" }), "high watermark"))), h("section", {}, h("h3", {}, "State"), ep), h("section", {}, h("h3", {}, "ISR history"), hist));
        const upd = () => { o.update(x); ep.replaceChildren(...[["Leader", x.leader < 0 ? "none (-1)" : `broker ${x.leader}`], ["Preferred leader", `broker ${x.preferred_leader}`], ["Leader epoch", x.leader_epoch], ["Partition epoch", x.partition_epoch], ["Controller epoch", x.controller_epoch], ["ISR", `{${x.isr.join(", ")}}`], ["OSR", x.osr.length ? `{${x.osr.join(", ")}}` : "empty"], ["Log start", num(x.log_start_offset)], ["Size", bytes(x.bytes)]].flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, String(v))])); hist.replaceChildren(...(x.isr_history.length ? [] : [h("li", {}, h("span", { class: "muted" }, "No change since this broker was started."))]), ...x.isr_history.map((i) => h("li", {}, h("span", {}, `ISR {${i.isr.join(", ")}}, leader epoch ${i.leader_epoch}`), h("span", { class: "src" }, i.why), h("span", { class: "age" }, ago(i.at_ms))))); }; upd();
        let busy = false; panelObj = { update: () => { if (busy || paused) return; busy = true; api.get(path).then((d) => { busy = false; if (panelFor === target) { x = d; o.update(x); } }, () => { busy = false; }); } };
      } else if (kind === "broker") { if (!store.brokers) await load("brokers"); const find = () => store.brokers?.brokers.find((b) => b.id === +rest[0]), b = find(); if (!b) throw new Error(`broker ${rest[0]} is not known here`); const bad = b.state !== "registered" || b.flush_ms_p99 > 100, e = bad ? await sick() : null; if (panelFor !== target) return; const kv = h("dl", { class: "kv" });
        const drains = b.state === "draining", upd = () => { const b = find(); if (!b) return; if (b.state !== "dead" && (b.state === "draining") !== drains) { panelFor = null; return showPanel(target); } kv.replaceChildren(...[["State", state(b.state)[1] + (b.state_since_ms == null ? "" : `, for ${coarse(clock() - b.state_since_ms)}`) + (b.recovery_percent == null ? "" : `, ${b.recovery_percent} %`)], ["Controller", b.is_controller ? "yes" : "no"], ["Broker epoch", b.broker_epoch], ["Host", b.host], ["Rack", b.rack], ["Ports", `${b.kafka_port ?? "–"} Kafka, ${b.grpc_port ?? "–"} gRPC, ${b.http_port ?? "–"} HTTP`], ["Leaders, replicas", `${num(b.leaders)}, ${num(b.replicas)}`], ["Worst follower lag", b.state === "dead" || b.follower_lag_records_max == null ? "–" : plural(b.follower_lag_records_max, "record")], ["In, out", b.state === "dead" ? "–" : `${rate(b.bytes_in_per_s)}, ${rate(b.bytes_out_per_s)}`], ["Unflushed", b.unflushed_bytes == null ? "–" : bytes(b.unflushed_bytes)], ["Flush p99", dur(b.flush_ms_p99)], ["Disk used", b.disk_used_percent == null ? "–" : `${b.disk_used_percent} %`], ["ZooKeeper session", b.zookeeper_session], ["Version", b.version]].flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, String(v ?? "–"))])); }; upd();
        p.replaceChildren(head(e ? e.headline : `Broker ${b.id} is up`), ...(e ? explainBody(e) : []), b.state === "dead" ? "" : h("div", { class: "acts op" }, b.state === "draining" ? op.button("Undrain", () => op.undrain(b.id)) : op.button("Drain", () => op.drain(b.id))), h("section", {}, h("h3", {}, "State"), kv), h("section", {}, h("a", { href: href("partitions", { broker: b.id }) }, `Its ${plural(b.replicas, "partition")}`))); panelObj = { update: upd };
      } else if (kind === "cluster") { const e = await api.get("explain/cluster"); if (panelFor !== target) return; p.replaceChildren(head(e.headline), ...explainBody(e)); panelObj = {};
      } else { if (!store.groups) await load("groups"); const g = store.groups?.groups.find((x) => x.name === rest[0]); if (!g) throw new Error(`there is no group ${rest[0]}`); const bad = g.lag_trend === "growing" || !["stable", "empty"].includes(g.state), e = bad ? await sick() : null; if (panelFor !== target) return;
        p.replaceChildren(head(e ? e.headline : `${g.name} is ${state(g.state)[1].toLowerCase()}`), ...(e ? explainBody(e) : []), h("section", {}, h("h3", {}, "State"), h("dl", { class: "kv" }, [["State", state(g.state)[1]], ["Members", g.members], ["Coordinator", `broker ${g.coordinator}`], ["Lag", g.lag_records == null ? "–" : plural(g.lag_records, "record")], ["Trend", g.lag_trend], ["Topics", g.topics.join(", ")]].flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, String(v ?? "–"))]))), members(await api.get(`groups/${encodeURIComponent(g.name)}`).catch(() => null))); panelObj = {}; }
    } catch (err) { p.replaceChildren(head(title), h("p", { class: "lede" }, `Could not be read: ${err.message}.`)); }
  }
  function members(g) { // what is committed where, and who reads it
    if (!g || !g.partitions.length) return "";
    return h("section", {}, h("h3", {}, "Partitions"), h("ul", { class: "ev" }, g.partitions.slice(0, ROWS_MAX).map((x) => h("li", {}, h("span", {}, nm(x)), h("span", { class: "src" }, `committed ${num(x.committed_offset)} of ${num(x.log_end_offset)}${x.client_id ? `, read by ${x.client_id} at ${x.host}` : ", read by nobody"}`), h("span", { class: "age" }, x.lag_records == null ? "–" : `${num(x.lag_records)} behind`)))), g.partitions.length > ROWS_MAX ? h("p", { class: "muted" }, `The first ${ROWS_MAX} of ${num(g.partitions.length)}.`) : "");
  }
  function modal(on) { for (const e of [document.querySelector(".top"), $("verdict"), $("main")]) e.inert = on; document.documentElement.style.overflow = on ? "hidden" : ""; const p = $("panel"); if (on) { p.setAttribute("role", "dialog"); p.setAttribute("aria-modal", "true"); } else { p.setAttribute("role", "complementary"); p.removeAttribute("aria-modal"); } }
  function command(c, costly) { const b = h("button", { type: "button", onclick: async () => { try { await navigator.clipboard.writeText(c.command); } catch { const r = document.createRange(); r.selectNodeContents(code); const s = getSelection(); s.removeAllRanges(); s.addRange(r); document.execCommand("copy"); } setText(b, "Copied"); setText($("say"), "Command copied"); setTimeout(() => setText(b, "Copy"), 1600); } }, "Copy"); const code = h("code", {}, c.command); return h("div", { class: `cmd${costly ? " costly" : ""}` }, h("div", {}, code, b), c.where || c.cost != null ? h("p", {}, c.where ? h("span", { class: "muted" }, `Run it on ${c.where}. `) : null, c.cost === "nothing" ? "Costs nothing." : cap(c.cost)) : null); }
  function explainBody(e) { const sec = (t, ...k) => h("section", {}, h("h3", {}, t), ...k), H = e.heals_by_itself;
    return [h("p", { class: "lede" }, e.text), e.next_command ? sec("Do this", command(e.next_command, e.next_command.loses_records !== 0)) : null, H?.answer == null ? null : sec("Does it heal by itself?", h("p", {}, h("b", {}, H.answer ? "Yes" : "No"), H.when ? `, ${H.answer ? "" : "only when "}${H.when}.` : ".")), e.evidence.length === 0 ? null : sec("Evidence", h("ul", { class: "ev" }, e.evidence.map((v) => h("li", {}, h("span", {}, v.text), h("span", { class: "src" }, v.source), h("span", { class: "age" }, v.age_ms == null ? "–" : v.age_ms < 1000 ? "now" : coarse(v.age_ms) + " old"))))), ...e.alternatives.map((a) => h("section", { class: "fold" }, h("details", {}, h("summary", {}, cap(a.when) || "Or"), command(a, a.loses_records !== 0)))), e.ruled_out.length ? h("section", { class: "fold" }, h("details", {}, h("summary", {}, `${plural(e.ruled_out.length, "other cause")} ruled out`), h("ul", { class: "out" }, e.ruled_out.map((r) => h("li", {}, icon("ok"), h("span", { class: "muted" }, r.text)))))) : null].filter(Boolean); }
  function offsets() { // the tails of all replicas on one offset axis, high watermark across
    const el = h("div", { class: "offs" }), hwl = h("div", { class: "hwl" }, h("span")), hw = h("div", { class: "hw", "aria-hidden": "true" }), rows = new Map(); el.append(hwl);
    return { el, update(x) { const ends = x.replicas.filter((r) => r.log_end_offset != null), max = Math.max(x.high_watermark ?? 0, ...ends.map((r) => r.log_end_offset)), min = Math.min(x.high_watermark ?? max, ...ends.map((r) => Math.min(r.log_end_offset, r.flushed_offset ?? r.log_end_offset))), span = Math.max(20, max - min), lo = min - span * .35, X = (o) => o == null ? 0 : Math.max(0, (o - lo) / (max - lo || 1) * 94);
      for (const r of x.replicas) { let w = rows.get(r.broker); if (!w) { w = { a: h("i"), f: h("i", { class: "f" }), s: h("span"), l: h("span", { class: "lab" }) }; w.el = h("div", { class: "off" }, w.l, h("div", { class: "t" }, w.a, w.f, w.s)); el.append(w.el); rows.set(r.broker, w); } setText(w.l, `Broker ${r.broker}`); w.a.className = r.state === "offline" || r.state === "directory_failed" ? "g" : r.state === "lagging" ? "o" : ""; w.a.style.width = X(r.log_end_offset) + "%"; w.f.style.width = X(r.flushed_offset) + "%"; w.f.hidden = w.a.className !== ""; setText(w.s, `${r.state === "leading" ? "leads" : r.state === "in_sync" ? "in sync" : r.state === "lagging" ? "out of sync" : r.state === "directory_failed" ? "cannot be served" : "down"}${r.log_end_offset == null ? ", its end is not known" : `, ends at ${num(r.log_end_offset)}`}${r.lag_records ? `, ${num(r.lag_records)} behind` : ""}`); }
      if (!hw.isConnected) el.append(hw); const f = X(x.high_watermark) / 100; hw.style.left = `calc(84px + (100% - 84px) * ${f})`; hwl.firstChild.style.cssText = f > .5 ? `right:${(1 - f) * 100}%;padding-right:4px` : `left:${f * 100}%;padding-left:4px`; hw.hidden = x.high_watermark == null; setText(hwl.firstChild, `High watermark ${num(x.high_watermark)}`); } };
  }

  // ---- routing
  let view = null;
  function go() {
    const old = at; at = parse(); const key = (a) => a.view + (a.view === "partitions" ? ["state", "q", "broker", "topic"].map((k) => a.q.get(k) || "").join() : a.view === "ledger" ? a.q.get("failover") : "");
    for (const a of nav.querySelectorAll("a")) a.dataset.v === at.view ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
    if (!view || key(old) !== key(at)) { const first = !view; view = { name: at.view, needs: V[at.view].needs, upd: null }; $("main").replaceChildren(); scrollTo(0, 0); for (const k of view.needs) if (!store[k]) load(k, PATHS[k]); render(new Set(["all"])); if (!first && !at.q.get("panel")) $("main").focus({ preventScroll: true }); } else render(new Set(["all"]));
    showPanel(at.q.get("panel")); chrome();
  }
  function render(keys) {
    const m = $("main"), miss = view.needs.filter((k) => !store[k]);
    if (miss.length) { const f = miss.find((k) => fails[k]); const t = f ? [h("b", {}, "This broker cannot answer yet"), `${fails[f]}. Trying again every 2 s.`] : [h("b", {}, "Reading the cluster's state"), "This takes a moment after the broker starts."]; if (m.dataset.note !== String(f || "load")) { m.dataset.note = String(f || "load"); m.replaceChildren(h("section", { class: "card" }, h("p", { class: "note", role: f ? "alert" : "status" }, t))); } return; }
    if (!view.upd) { delete m.dataset.note; m.replaceChildren(); view.upd = V[view.name].build(m); keys = new Set(["all"]); }
    view.upd(keys);
  }
  addEventListener("hashchange", go);
  $("pause").addEventListener("click", () => { paused = !paused; $("pause").setAttribute("aria-pressed", String(paused)); setText($("pause"), paused ? "Resume" : "Pause"); if (!paused) for (const k of Object.keys(store)) load(k, PATHS[k]); chrome(); });
  $("skip").addEventListener("click", (e) => { e.preventDefault(); $("main").focus(); });
  $("keys").append(h("h2", { id: "keys-title" }, "Keyboard"), h("dl", { class: "kv" }, [["1 to 8", "the views, left to right"], ["/", "filter"], ["Up, Down or j, k", "move in the partitions"], ["Enter", "open the panel"], ["e", "explain the first problem"], ["p", "pause or resume"], ["Esc", "close the panel"], ["?", "this list"]].flatMap(([k, t]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, t)])), h("form", { method: "dialog" }, h("button", {}, "Close")));
  $("help").addEventListener("click", () => $("keys").showModal());
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return; if (e.key === "Escape" && panelFor) { e.preventDefault(); return closePanel(); }
    if (e.target.closest("input,select,textarea")) { if (e.key === "Escape") e.target.blur(); return; }
    if (e.key >= "1" && e.key <= "8") location.hash = href(VIEWS[e.key - 1][0]); else if (e.key === "/") { const i = $("main").querySelector("input[type=search]"); if (i) { e.preventDefault(); i.focus(); } } else if (e.key === "e") { const p = store.cluster?.problems[0]; if (p) location.hash = open(`${p.kind}/${p.target}`); } else if (e.key === "p") $("pause").click(); else if (e.key === "?") $("keys").showModal();
  });
  load("cluster"); load("failovers"); go();
})();
