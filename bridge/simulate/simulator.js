const STEPS = [
  ["append", "in the program's memory: gone"],
  ["flush", "in the page cache: survives a crash of the process"],
  ["sync", "on the device: survives power loss too"],
];
const MODE_TEXT = {
  log: "Lost and repeated stay 0, whatever you press.",
  block: "Nothing is kept on disk: send waits while the broker does not answer. A kill loses what was not acknowledged; none of it was promised.",
  error: "Nothing is kept on disk: send fails while the broker does not answer. A kill loses what was not acknowledged; none of it was promised.",
  buffer: "At least once: after a kill or a failure the Buffer may repeat a stretch of records. Lost stays 0.",
  always: "At least once: after a kill or a failure the Buffer may repeat a stretch of records. Lost stays 0.",
};
let state = null, recorded = [], began = performance.now(), playing = false, asked = 0;
const ON_DISK = ["log", "buffer", "always"];

const stepRows = rows($("step-table"), STEPS.length);
STEPS.forEach(([step, then], i) => {
  const [name, what, crash, fate] = stepRows[i].cells;
  put(name, step);
  put(what, then);
  what.className = "text";
  const button = document.createElement("button");
  button.type = "button"; button.textContent = "Crash here"; button.dataset.press = "crash-" + step;
  button.setAttribute("aria-label", `Crash after ${step}`);
  crash.append(button);
  fate.id = "fate-" + step;
});

async function post(path, what) {
  const answer = await fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(what)}).catch(() => null);
  const said = answer && answer.ok ? "" : answer ? (await answer.json().catch(() => ({}))).error : "the simulator does not answer";
  text("message", said || ""); $("message").hidden = !said;
  return !said;
}
function record(path, what) {
  if (playing) return;
  recorded.push([Math.round((performance.now() - began) / 100) / 10, path, what]);
  recorded = recorded.slice(-100);
  history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(recorded)));
}
async function act(path, what) {
  record(path, what);
  asked += 1;  // until it is answered, a state from before it does not undo what the control shows
  await post(path, what);
  asked -= 1;
}

async function repeat() {
  let run;
  try { run = JSON.parse(decodeURIComponent(location.hash.slice(1))); } catch { run = []; }
  if (!Array.isArray(run) || !run.length) return;
  playing = true;
  await post("/reset", {});
  const from = performance.now();
  for (const [at, path, what] of run) {
    await new Promise(done => setTimeout(done, Math.max(0, from + at * 1000 - performance.now())));
    if (["/set", "/press", "/reset"].includes(path)) await post(path, what);
  }
  playing = false;
}

// The worst thing that is wrong now, in two or three words.
function badge(found) {
  const s = found.settings;
  if (!found.running.program || (s.mode === "log" && !found.running.bridge)) return "killed";
  return s.down ? "broker down" : s.rejecting ? "broker rejects" : s.full ? "disk full" : "running";
}
function programSays(found) {
  if (!found.running.program) return "killed; begins again";
  if (found.program_error) return `refused: ${found.program_error}`;
  return found.settings.rate === 0 ? "pauses: 0 records a second are asked for" : found.in_per_s > 0 ? "writes" : "waits";
}
function bridgeSays(found) {
  const s = found.settings, bridge = found.bridge || {};
  if (s.mode !== "log") return "none: the Buffer in the program sends";
  if (!found.running.bridge) return "killed; begins again";
  if (s.rejecting && !s.down && found.pending) return `waits: the broker rejects what it sends (not enough replicas in sync); it tries again`;
  const why = (bridge.error || "").replace(/^log: /, "");
  return `${bridge.state || "starting"}${why ? ": " + why : ""}`;
}
function flows(id, moves, waits) { kind($(id), "pipe" + (moves ? " moves" : waits ? " waits" : "")); }

function showWay(found) {
  const s = found.settings, onDisk = ON_DISK.includes(s.mode), inLog = Math.max(0, found.pending - found.under_way);
  text("in", number(found.in_per_s)); text("out", number(found.out_per_s));
  text("program-state", programSays(found));
  text("in-memory", `${plural(found.in_memory + (onDisk ? 0 : found.pending), "record")} in its memory`);
  text("log-name", onDisk ? "Log on disk" : "No log: memory only");
  text("in-log", onDisk ? `${plural(inLog, "record")} ${inLog === 1 ? "waits" : "wait"} here` : "");
  text("bridge-state", bridgeSays(found));
  text("under-way", s.mode === "log" ? `${plural(found.under_way, "record")} sent, and not acknowledged` : "");
  text("broker-state", s.down ? "down" : s.rejecting ? "rejects everything" : s.delay_ms ? `answers after ${number(s.delay_ms)} ms` : "answers");
  text("in-kafka", number(found.arrived));
  flows("pipe-in", found.in_per_s > 0, false);
  flows("pipe-read", onDisk && found.out_per_s > 0, found.pending > 0);
  flows("pipe-out", found.out_per_s > 0, found.pending > 0);
  $("strip").hidden = $("strip-key").hidden = !onDisk;
  const strip = $("strip"), slabs = found.slabs.slice(-roomIn(strip)), spans = children(strip, slabs.length, "span");
  slabs.forEach((slab, i) => {
    kind(spans[i], slab.state === "pruned" ? "pruned" : "pending");
    spans[i].title = slab.state === "pruned" ? `slab ${slab.base}: pruned` : `slab ${slab.base}: ${number(slab.bytes)} bytes`;
  });
  const there = found.slabs.filter(slab => slab.state !== "pruned").length;
  strip.setAttribute("aria-label", `${there} slabs, ${found.slabs.length - there} pruned lately`);
}

function show(found) {
  state = found;
  const s = found.settings, says = badge(found);
  for (const name of ["lost", "repeated", "written", "pending", "arrived"]) text(name, number(found[name]));
  text("oldest", found.oldest_s === null ? "none" : duration(found.oldest_s));
  kind($("lost"), found.lost ? "error" : ""); kind($("repeated"), found.repeated ? "error" : "");
  text("state", says); kind($("state"), "state " + (says === "running" ? "live" : "blocked"));
  showWay(found);
  text("mode-text", MODE_TEXT[s.mode]);
  for (const name of ["rate", "delay_ms"]) {
    if (document.activeElement !== $(name)) $(name).value = s[name];
    text(name + "-text", number(s[name]));
  }
  if (!asked) { $("mode").value = s.mode; $("buffering").checked = ON_DISK.includes(s.mode); }
  for (const button of document.querySelectorAll("[data-set]")) button.setAttribute("aria-pressed", String(s[button.dataset.set]));
  document.querySelector("[data-set=full]").disabled = !ON_DISK.includes(s.mode);
  document.querySelector("[data-press=error]").disabled = s.down;
  $("repeat").disabled = playing || location.hash.length < 2;
  for (const [step] of STEPS) {
    const crash = found.crashes.find(c => c.step === step), cell = $("fate-" + step);
    put(cell, crash ? `record ${crash.run}:${crash.number} ${crash.fate}` : "");
    kind(cell, crash ? "text" : "text empty");
  }
  const events = [...found.events].reverse(), items = children($("events"), events.length, "li");
  events.forEach((e, i) => put(items[i], `${e.time_s.toFixed(1)} s: ${e.text}`));
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch("/events");
      if (!answer.ok) throw new Error();
      await take(answer, (_, value) => show(value));
    } catch { /* shown below */ }
    text("state", "offline"); kind($("state"), "state offline");
    await new Promise(done => setTimeout(done, 1000));
  }
}

document.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.press) act("/press", {button: button.dataset.press});
  else if (button.dataset.set) act("/set", {[button.dataset.set]: button.getAttribute("aria-pressed") !== "true"});
  else if (button.id === "again") { recorded = []; began = performance.now(); record("/reset", {}); post("/reset", {}); }
  else if (button.id === "repeat") repeat();
});
for (const name of ["rate", "delay_ms"]) {
  $(name).addEventListener("input", () => text(name + "-text", number($(name).value)));
  $(name).addEventListener("change", () => act("/set", {[name]: Number($(name).value)}));
}
$("mode").addEventListener("change", () => act("/set", {mode: $("mode").value}));
$("buffering").addEventListener("change", () => act("/set", {mode: $("buffering").checked ? "log" : "block"}));
$("settings").addEventListener("submit", event => event.preventDefault());
follow();
