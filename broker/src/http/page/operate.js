// What an operator does through the page: says the token, looks at a plan, runs it, and sees what became of it.
// Nothing is run that was not shown. The token stays in this tab (sessionStorage) and goes into one header, never into an address.
"use strict";
window.operatorOf = (ui) => {
  const { h, icon, num, bytes, dur, plural, setText, command, say, changed } = ui;
  // A sentence begins large, but names of settings and partitions stay as they are.
  const cap = (s) => !s || /^[a-z]+[\s,]/.test(s) ? ui.cap(s) : s + (/[.!?]$/.test(s) ? "" : ".");
  const KEY = "barnabas-operator-token";
  const POLL_MS = 1000;
  let token = null;
  try { token = sessionStorage.getItem(KEY); } catch { /* no storage: the token lasts as long as the page */ }
  const dialog = h("dialog", { id: "operate", "aria-labelledby": "operate-title" });
  document.body.append(dialog);
  let opened = 0; // which sight of the dialog is the present one: what was asked for an earlier one is not shown in it

  function keep(value) {
    token = value;
    try { value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY); } catch { /* as above */ }
    show();
  }
  // Buttons of class op are there while there is a token.
  function show() {
    document.documentElement.classList.toggle("operating", !!token);
    const button = document.getElementById("operator");
    button.setAttribute("aria-pressed", String(!!token));
    setText(button, token ? "Operating" : "Operator");
  }

  class Refused extends Error { constructor(status, message) { super(message); this.status = status; } }
  async function ask(method, path, body) {
    const headers = { accept: "application/json", authorization: `Bearer ${token}` };
    if (method === "POST") headers["content-type"] = "application/json";
    let answer;
    try { answer = await fetch(new URL("api/v1/" + path, location.href), { method, headers, body: method === "POST" ? JSON.stringify(body ?? {}) : undefined }); } catch (e) { throw new Refused(0, "the broker does not answer"); }
    const told = await answer.json().catch(() => null);
    if (!answer.ok) throw new Refused(answer.status, told?.error?.message || `status ${answer.status}`);
    return told;
  }

  // ---- the dialog: one at a time, its content replaced as things go on
  function sight(title, ...parts) {
    opened += 1;
    dialog.replaceChildren(h("h2", { id: "operate-title", tabindex: "-1" }, title), ...parts.flat(2).filter(Boolean));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    return opened;
  }
  const close = () => dialog.close();
  // The event comes a moment after the dialog was closed: it may show something else by then.
  dialog.addEventListener("close", () => { if (dialog.open) return; opened += 1; dialog.replaceChildren(); });
  const button = (text, onclick, cls) => h("button", { type: "button", class: cls, onclick }, text);
  const feet = (...buttons) => h("div", { class: "feet" }, ...buttons.filter(Boolean));
  const part = (title, ...kids) => h("section", {}, h("h3", {}, title), ...kids);
  const field = (f) => h("label", { class: "field" }, h("span", {}, f.label), f.lines
    ? h("textarea", { name: f.name, rows: f.lines, spellcheck: "false", autocomplete: "off", placeholder: f.hint }, f.value ?? "")
    : h("input", { name: f.name, type: f.type || "text", value: f.value ?? "", min: f.min, required: f.required, spellcheck: "false", autocomplete: "off", placeholder: f.hint }), f.note && h("small", {}, f.note));
  function form(title, lead, fields, verb, done, more) {
    const error = h("p", { class: "bad", role: "alert", hidden: true });
    const submit = h("button", { class: "strong" }, verb);
    const el = h("form", { onsubmit: async (e) => {
      e.preventDefault();
      const said = Object.fromEntries(fields.map((f) => [f.name, el.elements[f.name].value.trim()]));
      submit.disabled = true; error.hidden = true;
      try { await done(said); } catch (why) { error.hidden = false; setText(error, cap(why.message)); submit.disabled = false; }
    } }, lead && h("p", { class: "muted" }, lead), ...fields.map(field), error, feet(submit, button("Cancel", close), more));
    sight(title, el);
    el.elements[0]?.focus();
  }

  // ---- the token
  function identify(then) {
    form("Operator", "With the token of this broker's http.operator.token.file you can change the cluster. It stays in this tab.",
      [{ name: "token", label: "Token", type: "password", required: true }], "Use", async (said) => {
        const before = token; token = said.token;
        // A plan that there cannot be: whoever may ask for it is told so.
        try { await ask("GET", "plans/none"); } catch (why) { if (why.status !== 404) { token = before; throw why; } }
        keep(said.token); say("Operating"); close(); if (then) then();
      }, token && button("Forget the token", () => { keep(null); say("The token is forgotten"); close(); }));
  }

  // ---- a plan
  function figure(name, value) { return [h("dt", {}, name), h("dd", {}, value)]; }
  function preview(title, p, again) {
    const steps = h("ol", { class: "steps", tabindex: p.steps.length > 8 ? "0" : null }, p.steps.map((s) => h("li", {}, cap(s))));
    const more = (total, told) => total > told ? h("p", { class: "muted" }, `The first ${told} of ${num(total)}.`) : null;
    const risks = p.risks.length ? h("ul", { class: "risks" }, p.risks.map((r) => h("li", {}, icon(r.severity), h("span", {}, cap(r.text))))) : h("p", { class: "muted" }, "None that are known.");
    sight(title,
      h("p", { class: "muted" }, "Nothing has been changed yet. Run does exactly this, unless the cluster changes before."),
      h("dl", { class: "kv" }, figure("Leaders that move", num(p.moves_leaders)), figure("Copied between brokers", p.copies_bytes === 0 ? "nothing" : p.copies_bytes == null ? "not known" : bytes(p.copies_bytes)), p.copies_bytes === 0 ? null : figure("Takes about", p.eta_ms == null ? "not known" : p.eta_ms < 1000 ? "less than 1 s" : dur(p.eta_ms))),
      part("What happens", steps, more(p.steps_total, p.steps.length)),
      part("Risks", risks, more(p.risks_total, p.risks.length)),
      part("The same on the command line", command({ command: p.command, cost: null })),
      feet(button("Run", () => run(title, p, again), "strong"), button("Cancel", close)));
    dialog.querySelector("h2").focus();
    say(`${title}: ${plural(p.steps_total, "step")}, ${plural(p.risks_total, "risk")}`);
  }
  // `change`: back to what was filled in.
  function trouble(title, why, retry, verb, change) {
    const lead = why.status === 401 ? "The token was refused" : why.status === 409 ? "It was not run: the cluster is not as the plan says any more" : why.status === 429 ? "Not now" : why.status === 0 ? "No answer" : "It was refused";
    if (why.status === 401) keep(null);
    sight(title, h("p", { class: "lede", role: "alert" }, icon(why.status === 409 ? "warn" : "bad"), " ", h("b", {}, lead + ". "), cap(why.message)),
      feet(why.status === 401 ? button("Enter the token", () => identify(retry), "strong") : change && why.status === 400 ? button("Change", change, "strong") : button(verb, retry, "strong"), button("Close", close)));
    say(lead);
  }
  async function plan(title, wanted, change) {
    if (!token) return identify(() => plan(title, wanted, change));
    const mine = sight(title, h("p", { class: "muted", role: "status" }, "Making the plan."), feet(button("Cancel", close)));
    try { const p = await ask("POST", "plans", wanted); if (mine === opened) preview(title, p, () => plan(title, wanted, change)); } catch (why) { if (mine === opened) trouble(title, why, () => plan(title, wanted, change), "Try again", change); }
  }
  async function run(title, p, again) {
    const line = h("p", { class: "lede", role: "status" }, "Running."), began = performance.now();
    const mine = sight(title, line, h("p", { class: "muted" }, "It goes on if this is closed."), feet(button("Close", close)));
    const ticks = setInterval(() => mine === opened ? setText(line, `Running, ${dur(performance.now() - began)} so far.`) : clearInterval(ticks), 100);
    try { const told = await ask("POST", `plans/${p.plan_id}/run`, {}); clearInterval(ticks); changed(); if (mine === opened) ended(title, p, told); } catch (why) {
      clearInterval(ticks); if (mine !== opened) return;
      if (why.status === 0) return trouble(title, new Refused(0, "whether the plan was run is not known"), () => look(title, p, again), "Look again");
      trouble(title, why, again, why.status === 409 ? "Preview again" : "Try again");
    }
  }
  async function look(title, p, again) {
    const mine = sight(title, h("p", { class: "muted", role: "status" }, "Asking what became of it."), feet(button("Close", close)));
    try { const told = await ask("GET", `plans/${p.plan_id}`); if (mine !== opened) return; if (told.state === "ended") ended(title, p, told.outcome); else if (told.state === "running") setTimeout(() => mine === opened && look(title, p, again), POLL_MS); else trouble(title, new Refused(1, "it was not run"), again, "Preview again"); } catch (why) { if (mine === opened) trouble(title, why, () => look(title, p, again), "Look again"); }
  }
  const WORD = { done: ["ok", "Done"], partly: ["warn", "Done in part"], failed: ["bad", "It was refused"], unknown: ["warn", "What became of it is not known"] };
  function ended(title, p, told) {
    const [cls, word] = WORD[told.outcome] ?? ["warn", told.outcome];
    const bar = h("progress", { max: "1", value: "0", "aria-labelledby": "operate-progress" }), text = h("p", { id: "operate-progress", class: "muted", role: "status" }), progress = h("div", { hidden: true }, bar, text);
    const mine = sight(title, h("p", { class: "lede" }, icon(cls), " ", h("b", {}, word), told.outcome === "done" ? ` in ${dur(told.took_ms)}.` : ". ", cap(told.message)),
      told.results.length ? h("ul", { class: "risks" }, told.results.map((r) => h("li", {}, icon(r.ok ? "ok" : "bad"), h("span", {}, h("b", {}, r.what), " ", r.message)))) : null,
      told.results_total > told.results.length ? h("p", { class: "muted" }, `The first ${told.results.length} of ${num(told.results_total)}.`) : null,
      progress, feet(button("Close", close, "strong")));
    dialog.querySelector(".feet button").focus();
    say(word);
    if (told.outcome === "failed") return;
    // What was granted may take its time.
    (async function follow() {
      if (mine !== opened) return;
      const now = await ask("GET", `plans/${p.plan_id}`).catch(() => null), at = now?.progress;
      if (mine !== opened || !now || !at) return;
      progress.hidden = false; bar.max = Math.max(1, at.of); bar.value = at.done; setText(text, `${num(at.done)} of ${num(at.of)} ${at.what}`);
      if (at.done < at.of) setTimeout(follow, POLL_MS);
    })();
  }

  // ---- what can be done, each from a button of its own
  const numbers = (text, what) => text.split(/[\s,]+/).filter(Boolean).map((x) => { if (!/^\d+$/.test(x)) throw new Error(`${what} must be numbers`); return +x; });
  const whole = (text) => text === "" ? null : +text;
  // `said`: what was filled in before.
  const acts = {
    createTopic: (said = { partitions: 6, factor: 3 }) => form("Create a topic", null, [
      { name: "topic", label: "Name", required: true, value: said.topic, note: "1 to 249 of a-z A-Z 0-9 . _ -" },
      { name: "partitions", label: "Partitions", type: "number", min: 1, value: said.partitions },
      { name: "factor", label: "Replicas of each", type: "number", min: 1, value: said.factor },
      { name: "configs", label: "Settings", lines: 3, value: said.configs, hint: "min.insync.replicas=2", note: "One a line, key=value; may be empty" },
    ], "Preview", (said) => {
      const configs = {};
      for (const line of said.configs.split("\n").map((l) => l.trim()).filter(Boolean)) {
        const i = line.indexOf("=");
        if (i < 1) throw new Error(`“${line}” is no key=value`);
        configs[line.slice(0, i).trim()] = line.slice(i + 1).trim();
      }
      const wanted = { action: "create_topic", topic: said.topic, partitions: whole(said.partitions), replication_factor: whole(said.factor), configs };
      return plan(`Create topic ${said.topic}`, wanted, () => acts.createTopic(said));
    }),
    elect: (x) => plan(x ? `Elect the preferred leader of ${x.topic}-${x.partition}` : "Elect preferred leaders",
      { action: "elect_preferred", partitions: x ? [{ topic: x.topic, partition: x.partition }] : null }),
    drain: (id) => plan(`Drain broker ${id}`, { action: "drain", broker: id }),
    undrain: (id) => plan(`Undrain broker ${id}`, { action: "undrain", broker: id }),
    move: (x, said = { replicas: x.assigned_replicas.filter((b) => !x.removing_replicas.includes(b)).join(", ") }) => form(`Move the replicas of ${x.topic}-${x.partition}`, null, [
      { name: "replicas", label: "Brokers, preferred leader first", value: said.replicas, required: true },
      { name: "limit", label: "Limit, MB/s for each broker", type: "number", min: 0, value: said.limit, note: "Empty: no limit" },
    ], "Preview", (said) => {
      const to = { topic: x.topic, partition: x.partition, replicas: numbers(said.replicas, "brokers") };
      const wanted = { action: "reassign", partitions: [to], throttle: said.limit === "" ? null : Math.round(+said.limit * 1e6) };
      return plan(`Move the replicas of ${x.topic}-${x.partition}`, wanted, () => acts.move(x, said));
    }),
    setting: (said = { scope: "cluster" }) => form("Change a setting", null, [
      { name: "scope", label: "Whose", value: said.scope, required: true, note: "cluster, broker:ID or topic:NAME" },
      { name: "key", label: "Setting", required: true, value: said.key, hint: "log.retention.ms" },
      { name: "value", label: "Value", value: said.value, note: "Empty: no longer set there" },
    ], "Preview", (said) => {
      const change = said.value === "" ? { delete: [said.key] } : { set: { [said.key]: said.value } };
      return plan(`Change ${said.key}`, { action: "alter_config", scope: said.scope, ...change }, () => acts.setting(said));
    }),
  };
  document.getElementById("operator").addEventListener("click", () => identify());
  show();
  return { ...acts, button: (text, act) => h("button", { type: "button", class: "op", onclick: act }, text), may: (yes) => { document.getElementById("operator").hidden = !yes; if (!yes && token) keep(null); } };
};
